//! The connections of clients.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tower::ServiceExt;

use crate::certificate::Certificate;
use crate::framing::{Framed, Heads};
use crate::phase::Phase;
use crate::places::{Place, Places};
use crate::silence::{Activity, FIRST};
use crate::socket::Socket;
use crate::tasks::Tasks;
use crate::{Body, Gateway};

/// The time for a connection to close, after the client has been silent.
const CLOSING: Duration = Duration::from_secs(5);

/// The time for the first request of a connection that opened as the server stopped.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// The time between two pings, and for the answer to one.
const PING: Duration = Duration::from_secs(30);

/// The bytes of one response of HTTP/2 that wait for the client.
const UNSENT: usize = 16 * 1024;

/// The bytes of one request of HTTP/2 that may wait for the upstream.
const UNREAD: u32 = 128 * 1024;

/// The bytes of all requests of a connection of HTTP/2 that may wait for the upstream.
const UNREAD_OF_ALL: u32 = 256 * 1024;

/// The largest window of HTTP/2 (RFC 9113, section 6.9.1).
pub(crate) const LARGEST_WINDOW: u32 = (1 << 31) - 1;

/// What the clients of a listener may take. The defaults are those of the command line.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The connections of all clients at once.
    pub connections: usize,
    /// The connections of each client address at once, if it is no proxy.
    pub client_connections: usize,
    /// The requests that are under way at once on a connection of HTTP/2.
    pub streams: u32,
    /// The bytes of the head of a request, from 8192.
    pub head_size: usize,
    /// How long a client may do nothing.
    pub idle: Duration,
    /// How long a connection gets requests, up to a tenth more or less.
    pub age: Option<Duration>,
    /// How long requests under way may take to end, once the server has stopped.
    pub drain: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 10_000,
            client_connections: 100,
            streams: 100,
            head_size: 64 * 1024,
            idle: Duration::from_secs(75),
            age: Some(Duration::from_secs(300)),
            drain: Duration::from_secs(30),
        }
    }
}

/// What answers the requests of a listener.
#[derive(Clone, Debug)]
pub enum Answers {
    /// The limits, for clients and proxies.
    Gateway(Gateway),
    /// The routes of [`ops`](crate::ops).
    Operators(Router),
    /// The routes of [`envoy`](crate::envoy), all of whose peers are proxies.
    Envoy(Router),
}

/// The sender of a request.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) peer: SocketAddr,
    /// `http` or `https`.
    pub(crate) scheme: &'static str,
    /// The reader of the connection.
    pub(crate) heads: Heads,
}

/// Serves HTTP/1 and HTTP/2 on a listener.
#[derive(Clone, Debug)]
pub struct Server {
    bounds: Bounds,
    places: Places,
    phase: watch::Receiver<Phase>,
    certificate: Option<Certificate>,
}

impl Server {
    /// Serves until the phase is [`Phase::Stopped`]. Then no connection is accepted, and requests that have begun may end.
    pub fn new(bounds: Bounds, phase: watch::Receiver<Phase>) -> Self {
        let places = Places::new(bounds.connections, bounds.client_connections);
        Self {
            bounds,
            places,
            phase,
            certificate: None,
        }
    }

    /// Speaks TLS with a certificate, and refuses clients that do not.
    pub fn over_tls(self, certificate: impl Into<Option<Certificate>>) -> Self {
        Self {
            certificate: certificate.into(),
            ..self
        }
    }

    /// Lets a connection of HTTP/2 have this many requests under way, or more if the bounds do.
    pub(crate) fn streams(mut self, streams: u32) -> Self {
        self.bounds.streams = self.bounds.streams.max(streams);
        self
    }

    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    pub(crate) fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    /// Waits until the server has stopped.
    pub(crate) async fn stopped(&self) {
        let mut phase = self.phase.clone();
        let stopped = phase.wait_for(|phase| *phase == Phase::Stopped);
        let has_no_sender = stopped.await.is_err();
        if has_no_sender {
            // Nothing can stop it.
            pending::<()>().await;
        }
    }

    /// Serves the connections of this socket.
    pub async fn serve(self, socket: Socket, answers: Answers) {
        let socket = Arc::new(socket);
        let accepting = Arc::clone(&socket);
        let accept = move || {
            let socket = Arc::clone(&accepting);
            async move { socket.accept().await }
        };
        let waiting = move || Arc::into_inner(socket).map_or_else(Vec::new, Socket::close);
        self.serve_each(accept, waiting, answers).await;
    }

    /// Serves each connection that `accept` returns, with its peer. At the end `waiting` returns those that nothing has
    /// accepted yet.
    async fn serve_each<T, A>(
        self,
        accept: impl Fn() -> A,
        waiting: impl FnOnce() -> Vec<(T, SocketAddr)>,
        answers: Answers,
    ) where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        A: Future<Output = io::Result<(T, SocketAddr)>>,
    {
        let open = Tasks::default();
        let (of_clients, of_proxies) = (self.builder(false, &open), self.builder(true, &open));
        let begin = |stream: T, peer: SocketAddr| {
            let is_proxy = answers.is_proxy(peer);
            let Some(place) = self.places.take(peer.ip(), is_proxy) else {
                return;
            };
            let builder = if is_proxy { &of_proxies } else { &of_clients };
            let (its, builder, answers) = (self.clone(), builder.clone(), answers.clone());
            open.connect(async move {
                let scheme = its.certificate.as_ref().map_or("http", |_| "https");
                let answer = |request, heads| {
                    let client = Client {
                        peer,
                        scheme,
                        heads,
                    };
                    // A task has room for the future of its request, and is copied when it begins.
                    Box::pin(answers.clone().answer(request, client))
                };
                let ended = async {
                    let stream = its.greet(stream).await?;
                    its.connection(&builder, stream, place, answer).await
                };
                if let Err(error) = ended.await {
                    tracing::debug!(%peer, "a connection broke off: {error}");
                }
            });
        };
        let mut stop = pin!(self.stopped());
        loop {
            let accepted = tokio::select! {
                accepted = accept() => accepted,
                () = &mut stop => break,
            };
            match accepted {
                Ok((stream, peer)) => begin(stream, peer),
                Err(error) => {
                    tracing::warn!("a connection cannot be accepted: {error}");
                    // Without free file descriptors the next attempt would fail at once.
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
        drop(accept);
        for (stream, peer) in waiting() {
            begin(stream, peer);
        }
        if timeout(self.bounds.drain, open.are_over()).await.is_err() {
            tracing::warn!("requests have not ended in time");
            // What they hold is given back before the process ends.
            let _ = timeout(CLOSING, open.cut_off()).await;
        }
    }

    /// Returns how a connection is served, of a client or of a proxy.
    fn builder(&self, is_proxy: bool, open: &Tasks) -> Builder<Tasks> {
        let Bounds { streams, .. } = self.bounds;
        // The requests of a proxy are those of many clients, and one that the upstream does not take leaves room for the others.
        let unread = if is_proxy {
            UNREAD.saturating_mul(streams).min(LARGEST_WINDOW)
        } else {
            UNREAD_OF_ALL
        };
        let mut builder = Builder::new(open.clone());
        builder
            .http1()
            // The time for a head is that of `silence`, which sees the beginning of a connection too.
            .header_read_timeout(None)
            .max_buf_size(self.bounds.head_size);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .initial_stream_window_size(UNREAD)
            .initial_connection_window_size(unread)
            .max_concurrent_streams(streams)
            .max_header_list_size(u32::try_from(self.bounds.head_size).unwrap_or(u32::MAX))
            .max_send_buf_size(UNSENT);
        builder
    }

    /// Ends TLS, if there is a certificate.
    async fn greet<T>(&self, stream: T) -> Result<Either<T, TlsStream<T>>, crate::BoxError>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let Some(certificate) = &self.certificate else {
            return Ok(Either::Left(stream));
        };
        let greeted = certificate.acceptor().accept(stream);
        let stopping = async {
            self.stopped().await;
            // As for the first request, the greeting of a client may be on its way.
            sleep(ON_ITS_WAY).await;
        };
        tokio::select! {
            greeted = timeout(FIRST.min(self.bounds.idle), greeted) => Ok(Either::Right(greeted??)),
            () = stopping => Err("the server has stopped before the client spoke TLS".into()),
        }
    }

    /// Serves a connection until one side closes it, the client is silent for too long, or the server has stopped.
    async fn connection<T, F>(
        &self,
        builder: &Builder<Tasks>,
        stream: T,
        place: Place,
        answer: impl Fn(Request<Incoming>, Heads) -> F,
    ) -> Result<(), crate::BoxError>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let activity = Activity::new(self.bounds.idle);
        let (stream, heads) = Framed::new(activity.socket(stream, place));
        let service = service_fn(|request: Request<Incoming>| {
            let is_http1 = request.version() < Version::HTTP_2;
            let open = activity.ask(!is_http1);
            let answer = answer(request, heads.clone());
            let (activity, phase) = (activity.clone(), self.phase.clone());
            async move {
                let mut response = answer.await;
                let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
                let is_last = activity.is_old() || *phase.borrow() >= Phase::Draining;
                if is_http1 && is_last && !switches {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(CONNECTION, close);
                }
                Ok::<_, Infallible>(response.map(|body| open.answer(body)))
            }
        });
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let mut stop = pin!(self.stopped());
        let mut old = pin!(grow_old(&activity, self.bounds.age));
        let closing = loop {
            tokio::select! {
                ended = connection.as_mut() => return ended,
                is_http2 = &mut old, if !activity.is_old() => {
                    activity.grow_old();
                    // A connection of HTTP/1 ends with its next response. If it ended between two, a request that is on its
                    // way would be lost.
                    if is_http2 {
                        connection.as_mut().graceful_shutdown();
                    }
                }
                () = activity.silence() => break CLOSING,
                () = &mut stop => {
                    // The request of a connection that has just opened may be on its way.
                    tokio::select! {
                        ended = connection.as_mut() => return ended,
                        () = activity.begin() => {}
                        () = sleep(ON_ITS_WAY) => {}
                    }
                    // `serve_each` ends the time.
                    break Duration::MAX;
                }
            }
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
}

impl Answers {
    /// Returns whether this peer may have more connections than a client.
    fn is_proxy(&self, peer: SocketAddr) -> bool {
        match self {
            Self::Gateway(gateway) => gateway.is_proxy(peer),
            Self::Operators(_) => peer.ip().is_loopback(),
            Self::Envoy(_) => true,
        }
    }

    async fn answer(self, mut request: Request<Incoming>, client: Client) -> Response<Body> {
        match self {
            Self::Gateway(gateway) => gateway.answer(request, client).await,
            Self::Operators(router) => {
                request.extensions_mut().insert(ConnectInfo(client.peer));
                route(router, request).await
            }
            Self::Envoy(router) => route(router, request).await,
        }
    }
}

async fn route(router: Router, request: Request<Incoming>) -> Response<Body> {
    let answered = router.oneshot(request.map(axum::body::Body::new)).await;
    let response = answered.unwrap_or_else(|never| match never {});
    response.map(|body| body.map_err(Into::into).boxed_unsync())
}

/// Waits until a connection has had its time, and returns whether it is one of HTTP/2.
async fn grow_old(activity: &Activity, age: Option<Duration>) -> bool {
    let Some(age) = age else {
        return pending().await;
    };
    // Connections that began together, such as those of a start, do not end together.
    sleep(age.mul_f64(0.9 + 0.2 * fastrand::f64())).await;
    loop {
        if let Some(is_http2) = activity.is_http2() {
            return is_http2;
        }
        // It has brought no request, and is closed for that.
        sleep(FIRST).await;
    }
}

#[cfg(test)]
mod tests;
