//! One pipelined connection to a server.
//!
//! It watches its own stream, to know whether a call that failed can have reached the server.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::SockRef;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, RedisResult, Value,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::{AbortHandle, JoinSet};

/// A connection to one server. Calls are pipelined: a call does not wait for the answers of those before it.
///
/// It has no deadlines of its own. The caller sets those of a call and of an attempt to connect.
#[derive(Clone)]
pub(super) struct Connection {
    calls: MultiplexedConnection,
    /// `None` over TLS, where the crate `redis` opens the stream and does not expose it.
    stream: Option<Arc<Driven>>,
}

/// A stream, and the task that reads and writes it.
struct Driven {
    life: Arc<Life>,
    task: AbortHandle,
}

/// The state of a stream.
#[derive(Debug, Default)]
struct Life {
    /// The number of bytes that the system has accepted.
    written: AtomicU64,
    /// Whether the stream is closed, by the server or with its runtime.
    is_over: AtomicBool,
}

/// The number of bytes that had been written at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written(Option<u64>);

impl Connection {
    pub(super) async fn open(server: &ConnectionInfo) -> RedisResult<Self> {
        match server.addr() {
            ConnectionAddr::Tcp(host, port) => Self::over(tcp(host, *port).await?, server).await,
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                Self::over(tokio::net::UnixStream::connect(path).await?, server).await
            }
            _ => {
                let client = Client::open(server.clone())?;
                let config = config();
                let calls = client.get_multiplexed_async_connection_with_config(&config);
                Ok(Self {
                    calls: calls.await?,
                    stream: None,
                })
            }
        }
    }

    async fn over(stream: impl Socket, server: &ConnectionInfo) -> RedisResult<Self> {
        let life = Arc::new(Life::default());
        let stream = Stream {
            stream,
            life: Arc::clone(&life),
        };
        let settings = server.redis_settings();
        let connected = MultiplexedConnection::new_with_config(settings, stream, config());
        let (calls, driver) = connected.await?;
        let task = tokio::spawn(driver).abort_handle();
        Ok(Self {
            calls,
            stream: Some(Arc::new(Driven { life, task })),
        })
    }
    pub(super) async fn query<T: redis::FromRedisValue>(
        &mut self,
        command: &Cmd,
    ) -> RedisResult<T> {
        command.query_async(&mut self.calls).await
    }

    /// Sends a command, or `ASKING` and then the command with nothing in between.
    pub(super) async fn send(&mut self, command: &Cmd, is_asking: bool) -> RedisResult<Value> {
        let answer = if is_asking {
            Box::pin(self.send_asking(command)).await
        } else {
            self.calls.send_packed_command(command).await
        };
        answer.and_then(Value::extract_error)
    }

    async fn send_asking(&mut self, command: &Cmd) -> RedisResult<Value> {
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(command.clone());
        let answers = self.calls.send_packed_commands(&both, 0, 2).await?;
        Ok(answers.into_iter().next_back().unwrap_or(Value::Nil))
    }

    /// Returns whether the connection is known to be closed. A call on it would fail, and the server would
    /// not see it.
    pub(super) fn is_over(&self) -> bool {
        let stream = self.stream.as_ref();
        stream.is_some_and(|stream| stream.life.is_over.load(Ordering::Acquire))
    }

    pub(super) fn written(&self) -> Written {
        let stream = self.stream.as_ref();
        Written(stream.map(|stream| stream.life.written.load(Ordering::Acquire)))
    }

    /// Returns whether no byte was written since then, so that the server has seen no call that was sent
    /// since.
    pub(super) fn has_written_nothing_since(&self, then: Written) -> bool {
        then.0.is_some() && self.written().0 == then.0
    }
}

fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None)
}

/// Tries all addresses of a name at once, so that an address that does not answer delays nothing.
async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut attempts = JoinSet::new();
    for address in lookup_host((host, port)).await? {
        attempts.spawn(TcpStream::connect(address));
    }
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    while let Some(attempt) = attempts.join_next().await {
        match attempt {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failed = error,
            // The runtime ends.
            Err(_) => {}
        }
    }
    Err(failed)
}

/// Otherwise the stream to a server that hangs stays open until the server answers.
impl Drop for Driven {
    fn drop(&mut self) {
        self.task.abort();
    }
}

trait Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Returns whether the server has closed the stream, as far as the system knows.
    fn is_closed(&self) -> bool;
}

impl Socket for TcpStream {
    fn is_closed(&self) -> bool {
        is_closed(&SockRef::from(self))
    }
}

#[cfg(unix)]
impl Socket for tokio::net::UnixStream {
    fn is_closed(&self) -> bool {
        is_closed(&SockRef::from(self))
    }
}

fn is_closed(socket: &SockRef<'_>) -> bool {
    match socket.peek(&mut [MaybeUninit::uninit()]) {
        Ok(bytes) => bytes == 0,
        Err(error) => !matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
        ),
    }
}

/// A stream whose state is watched. It is dropped with the task that drives the connection.
struct Stream<S> {
    stream: S,
    life: Arc<Life>,
}

impl<S: Socket> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: Socket> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        // The system would accept the bytes, and nothing would say whether the server had read them. A
        // runtime that was not running when the connection died does not know of it.
        if self.stream.is_closed() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(bytes)) = &written {
            let bytes = u64::try_from(*bytes).unwrap_or(u64::MAX);
            self.life.written.fetch_add(bytes, Ordering::AcqRel);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S> Drop for Stream<S> {
    fn drop(&mut self) {
        self.life.is_over.store(true, Ordering::Release);
    }
}
