//! A connection to a server, which is opened again when it breaks.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout_at;

use crate::aim::Target;
use crate::exchange::{Failure, Verdict};
use crate::info::{Problem, RateLimitInfo, is_problem};

/// One connection of HTTP/1.1, for one request at a time.
#[derive(Debug)]
pub(super) struct Connection {
    target: Target,
    timeout: Duration,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

/// An answer with its times.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) verdict: Verdict,
    pub(super) info: RateLimitInfo,
    /// The time before the first byte was sent.
    pub(super) sent: Instant,
    /// The time when the head was there; `None` if the server may still decide on the request.
    pub(super) received: Option<Instant>,
    /// The time when the body was there too.
    pub(super) ended: Instant,
}

/// The part of an answer that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Status,
    Headers,
    All,
}

impl Connection {
    pub(super) fn new(target: Target, timeout: Duration) -> Self {
        Self {
            target,
            timeout,
            open: None,
        }
    }

    /// Sends a request; `sending` is called right before.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
        reading: Reading,
        mut sending: impl FnMut(Instant),
    ) -> Reply {
        let deadline = tokio::time::Instant::now() + self.timeout;
        let connected = timeout_at(deadline, self.connect()).await;
        let sent = Instant::now();
        sending(sent);
        let mut reply = Reply {
            verdict: Verdict::Failed(Failure::Timeout),
            info: RateLimitInfo::default(),
            sent,
            received: None,
            ended: sent,
        };
        match connected {
            Ok(true) => {
                let answered = timeout_at(deadline, self.exchange(request, reading, &mut reply));
                match answered.await {
                    Ok(true) => {}
                    Ok(false) => self.close(),
                    Err(_) => {
                        reply.verdict = Verdict::Failed(Failure::Timeout);
                        self.close();
                    }
                }
            }
            Ok(false) => {
                reply.verdict = Verdict::Failed(Failure::Connect);
                reply.received = Some(sent);
            }
            // Without a connection, no request was sent.
            Err(_) => {
                reply.verdict = Verdict::Failed(Failure::Connect);
                reply.received = Some(sent);
                self.close();
            }
        }
        reply.ended = Instant::now();
        reply
    }

    /// Returns whether there is a connection that takes a request.
    async fn connect(&mut self) -> bool {
        if let Some(open) = &mut self.open
            && open.sender.ready().await.is_ok()
        {
            return true;
        }
        self.close();
        let Ok(stream) = TcpStream::connect(self.target.address).await else {
            return false;
        };
        // Small requests would otherwise wait for acknowledgements.
        let _ = stream.set_nodelay(true);
        let Ok((sender, connection)) = handshake(TokioIo::new(stream)).await else {
            return false;
        };
        let driver = tokio::task::spawn_local(async {
            // The request whose connection failed sees the error.
            let _ = connection.await;
        });
        self.open = Some(Open { sender, driver });
        true
    }

    /// Returns whether the connection can be used again.
    async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        reading: Reading,
        reply: &mut Reply,
    ) -> bool {
        let Some(open) = &mut self.open else {
            return false;
        };
        let Ok(response) = open.sender.send_request(request).await else {
            reply.verdict = Verdict::Failed(Failure::Broken);
            return false;
        };
        reply.received = Some(Instant::now());
        let (head, body) = response.into_parts();
        reply.verdict = Verdict::of(head.status.as_u16());
        if reading != Reading::Status {
            reply.info = RateLimitInfo::by(&head.headers);
        }
        if reading == Reading::All && reply.verdict == Verdict::Limited {
            if is_problem(&head.headers) {
                return self.problem(&head.headers, body, reply).await;
            }
            reply.info.problem = Problem::Other;
        }
        drain(body).await
    }

    async fn problem(&mut self, headers: &HeaderMap, body: Incoming, reply: &mut Reply) -> bool {
        const LONGEST: usize = 64 * 1024;
        let body = http_body_util::Limited::new(body, LONGEST);
        let Ok(body) = body.collect().await else {
            return false;
        };
        reply.info.problem = Problem::of(headers, 429, &body.to_bytes());
        true
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            open.driver.abort();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns whether a body was read to its end.
async fn drain(mut body: Incoming) -> bool {
    while let Some(frame) = body.frame().await {
        if frame.is_err() {
            return false;
        }
    }
    true
}
