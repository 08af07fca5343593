//! The connections of clients.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::framing::{Framed, Heads};
use crate::places::{Place, Places};
use crate::silence::Activity;
use crate::{Body, Gateway};

/// The connections of each client address at once, if nothing else is configured.
pub const CLIENT_CONNECTIONS: usize = 100;

/// The time for a connection to close, after the client has been silent.
const CLOSING: Duration = Duration::from_secs(5);

/// The time between two pings, and for the answer to one.
const PING: Duration = Duration::from_secs(30);

/// The most bytes of a head of HTTP/1.
const LONGEST_HEAD: usize = 64 * 1024;

/// The bytes of one response of HTTP/2 that wait for the client.
const UNSENT: usize = 64 * 1024;

/// Serves HTTP/1 and HTTP/2 on this listener until `stop` ends. Then no connection is accepted, and requests that have
/// begun may end, for `last_requests` at most. A client address that is no proxy has this many connections at most.
pub async fn serve(
    listener: TcpListener,
    gateway: Gateway,
    stop: impl Future<Output = ()>,
    last_requests: Duration,
    client_connections: usize,
) {
    let listener = Arc::new(listener);
    let accept = move || {
        let listener = Arc::clone(&listener);
        async move {
            let (stream, peer) = listener.accept().await?;
            // Small frames of a stream are passed at once.
            let _ = stream.set_nodelay(true);
            Ok((stream, peer))
        }
    };
    serve_each(accept, gateway, stop, last_requests, client_connections).await;
}

/// Serves each connection that `accept` returns, with its peer.
async fn serve_each<T, A>(
    accept: impl Fn() -> A,
    gateway: Gateway,
    stop: impl Future<Output = ()>,
    last_requests: Duration,
    client_connections: usize,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Future<Output = io::Result<(T, SocketAddr)>>,
{
    let builder = builder();
    let places = Places::new(client_connections);
    let stopped = watch::Sender::new(());
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = accept() => accepted,
            () = &mut stop => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("a connection cannot be accepted: {error}");
                // Without free file descriptors the next attempt would fail at once.
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // A proxy has the connections of many clients.
        let place = if gateway.is_proxy(peer.ip()) {
            None
        } else if let Some(place) = places.take(peer.ip()) {
            Some(place)
        } else {
            continue;
        };
        let (builder, gateway, stopped) = (builder.clone(), gateway.clone(), stopped.subscribe());
        tokio::spawn(async move {
            let answer = |request, heads| gateway.clone().answer(request, peer, heads);
            if let Err(error) = connection(&builder, stream, place, stopped, answer).await {
                tracing::debug!(%peer, "a connection broke off: {error}");
            }
        });
    }
    drop(accept);
    stopped.send_replace(());
    if timeout(last_requests, stopped.closed()).await.is_err() {
        tracing::warn!("requests have not ended in time");
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        // The time for a head is that of `silence`, which sees the beginning of a connection too.
        .header_read_timeout(None)
        .max_buf_size(LONGEST_HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_send_buf_size(UNSENT);
    builder
}

/// Serves a connection until one side closes it, the client is silent for too long, or the gateway has stopped.
async fn connection<T, F>(
    builder: &Builder<TokioExecutor>,
    stream: T,
    place: Option<Place>,
    mut stopped: watch::Receiver<()>,
    answer: impl Fn(Request<Incoming>, Heads) -> F,
) -> Result<(), crate::BoxError>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let activity = Activity::new();
    let (stream, heads) = Framed::new(activity.socket(stream, place));
    let service = service_fn(|request| {
        let asked = activity.ask();
        let answer = answer(request, heads.clone());
        async move { Ok::<_, Infallible>(answer.await.map(|body| asked.answer(body))) }
    });
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let closing = tokio::select! {
        ended = connection.as_mut() => return ended,
        () = activity.silence() => CLOSING,
        // `serve` ends the time.
        _ = stopped.changed() => Duration::MAX,
    };
    connection.as_mut().graceful_shutdown();
    let silent = || {
        io::Error::new(
            io::ErrorKind::TimedOut,
            "the client was silent for too long",
        )
    };
    timeout(closing, connection)
        .await
        .unwrap_or_else(|_| Err(silent().into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::full;
    use crate::silence::{FIRST, NEXT};
    use http_body_util::BodyExt;
    use std::pin::Pin;
    use std::task::{Context, Waker};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
    use tokio::sync::{Mutex, mpsc};
    use tokio::time::Instant;
    use tower_ratelimit::config::Config;

    const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const SETTINGS: &str = "\0\0\0\x04\0\0\0\0\0";
    const PING: &str = "\0\0\x08\x06\0\0\0\0\x0012345678";
    /// `:method: GET` and no end of the head.
    const HALF_HEAD: &str = "\0\0\x01\x01\0\0\0\0\x01\x02";
    const REQUEST: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    /// Returns the client's side of a connection that holds this many bytes on the way.
    fn client<F>(
        bytes: usize,
        answer: impl Fn(Request<Incoming>, Heads) -> F + Send + Sync + 'static,
    ) -> DuplexStream
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let (client, server) = duplex(bytes);
        tokio::spawn(async move {
            let (_running, stopped) = watch::channel(());
            let _ = connection(&builder(), server, None, stopped, answer).await;
        });
        client
    }

    async fn empty(_: Request<Incoming>, _: Heads) -> Response<Body> {
        Response::new(full(""))
    }

    /// Waits until the other side has closed, in an hour at most.
    async fn close(client: &mut (impl AsyncRead + Unpin)) {
        let mut rest = Vec::new();
        // A connection that breaks off has closed too.
        let closed = timeout(Duration::from_secs(3600), client.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "the connection stays");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_without_a_request_is_closed() {
        let cases = [
            String::new(),
            PREFACE[..20].to_owned(),
            PREFACE.to_owned(),
            [PREFACE, SETTINGS].concat(),
            [PREFACE, SETTINGS, HALF_HEAD].concat(),
            "\r\n".to_owned(),
            REQUEST[..20].to_owned(),
        ];
        for sent in cases {
            let start = Instant::now();
            let mut client = client(1 << 16, empty);
            client.write_all(sent.as_bytes()).await.unwrap();
            close(&mut client).await;
            assert!(start.elapsed() >= FIRST, "{sent:?}");
            assert!(start.elapsed() <= FIRST + CLOSING, "{sent:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pings_are_no_requests() {
        let start = Instant::now();
        let (mut client, mut sender) = tokio::io::split(client(1 << 16, empty));
        let greeting = [PREFACE, SETTINGS].concat();
        sender.write_all(greeting.as_bytes()).await.unwrap();
        let pings = async {
            while sender.write_all(PING.as_bytes()).await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::select! {
            () = close(&mut client) => {}
            () = pings => {}
        }
        assert!(start.elapsed() <= FIRST + CLOSING + Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_proxy_may_keep_a_connection_for_a_minute_between_requests() {
        let mut client = client(1 << 16, empty);
        let mut head = [0; 16];
        for _ in 0..3 {
            client.write_all(REQUEST.as_bytes()).await.unwrap();
            client.read_exact(&mut head).await.unwrap();
            sleep(Duration::from_secs(61)).await;
        }
        let start = Instant::now();
        close(&mut client).await;
        assert!(start.elapsed() <= NEXT + CLOSING);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_for_a_slow_upstream_is_not_silent() {
        let slow = |_, _| async {
            sleep(10 * NEXT).await;
            Response::new(full("done"))
        };
        let mut client = client(1 << 16, slow);
        client.write_all(REQUEST.as_bytes()).await.unwrap();
        let mut head = [0; 15];
        client.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200 OK");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_of_a_response_is_closed_and_a_slow_one_is_not() {
        const LARGE: usize = 1 << 20;
        let large = |_, _| async {
            let pieces = std::iter::repeat_n(bytes::Bytes::from(vec![b'x'; LARGE / 64]), 64);
            let frames = pieces.map(|piece| Ok(http_body::Frame::data(piece)));
            let body = http_body_util::StreamBody::new(tokio_stream::iter(frames));
            Response::new(body.boxed_unsync())
        };
        for pause in [Duration::from_secs(60), NEXT + 2 * CLOSING] {
            let mut client = client(1 << 16, large);
            client.write_all(REQUEST.as_bytes()).await.unwrap();
            let mut taken = 0;
            let mut piece = vec![0; 1 << 15];
            loop {
                sleep(pause).await;
                // Without more, all has arrived, and the connection waits for the next request.
                let Ok(Ok(more @ 1..)) = timeout(pause, client.read(&mut piece)).await else {
                    break;
                };
                taken += more;
            }
            assert_eq!(taken > LARGE, pause < NEXT, "{taken} {pause:?}");
        }
    }

    #[tokio::test]
    async fn a_head_that_is_too_large_is_refused_before_it_takes_much_memory() {
        let mut client = client(1 << 20, empty);
        let head = format!("{}x: {}", &REQUEST[..16], "x".repeat(2 * LONGEST_HEAD));
        client.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    }

    /// Returns whether the other side has closed already, having sent nothing.
    fn is_closed(client: &mut DuplexStream) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let mut byte = [0];
        Pin::new(client)
            .poll_read(&mut context, &mut ReadBuf::new(&mut byte))
            .is_ready()
    }

    /// A gateway without an upstream.
    fn gateway() -> Gateway {
        let limits = concat!(env!("CARGO_MANIFEST_DIR"), "/limits.toml");
        let limits = Config::read(limits).unwrap().watch().unwrap();
        Gateway::new(limits, None)
    }

    #[tokio::test]
    async fn silent_connections_of_one_client_leave_the_others_their_places() {
        const MANY: usize = 230;
        let (opened, accepted) = mpsc::unbounded_channel();
        let accepted = Arc::new(Mutex::new(accepted));
        let accept = move || {
            let accepted = Arc::clone(&accepted);
            async move {
                let next = accepted.lock().await.recv().await;
                next.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
            }
        };
        let stop = std::future::pending();
        tokio::spawn(serve_each(accept, gateway(), stop, CLOSING, 100));
        let open = |peer: &str| {
            let (client, server) = duplex(1 << 16);
            let peer: SocketAddr = peer.parse().unwrap();
            opened.send((server, peer)).unwrap();
            client
        };
        let mut silent: Vec<_> = (0..MANY).map(|_| open("192.0.2.1:1")).collect();
        let request = REQUEST.replace(" / ", " /_limit/check ");
        for (peer, expected) in [("192.0.2.2:1", "404"), ("127.0.0.1:1", "200")] {
            let mut client = open(peer);
            client.write_all(request.as_bytes()).await.unwrap();
            let mut head = [0; 12];
            client.read_exact(&mut head).await.unwrap();
            assert_eq!(&head[9..], expected.as_bytes(), "{peer}");
        }
        // Those beyond the bound were closed before the others were accepted.
        let mut closed = 0;
        for client in &mut silent {
            // A task that reads without a pause finds nothing to read.
            tokio::task::yield_now().await;
            closed += usize::from(is_closed(client));
        }
        assert_eq!(closed, MANY - 100);
    }

    #[tokio::test]
    async fn a_peer_that_is_no_proxy_finds_nothing_below_the_reserved_path() {
        let gateway = gateway();
        for (peer, path, expected) in [
            ("127.0.0.1:1", "/_limit/check", "200"),
            ("127.0.0.1:1", "/_limit/status", "200"),
            ("192.0.2.1:1", "/_limit/check", "404"),
            ("192.0.2.1:1", "/_limit/status", "404"),
            ("[2001:db8::1]:1", "/_limit/check", "404"),
        ] {
            let peer = peer.parse().unwrap();
            let gateway = gateway.clone();
            let mut client = client(1 << 16, move |request, heads| {
                gateway.clone().answer(request, peer, heads)
            });
            let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            client.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert_eq!(&answer[9..12], expected, "{peer} {path}");
        }
    }
}
