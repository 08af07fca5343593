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
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
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
use crate::{Body, Gateway};

/// The time for a connection to close, after the client has been silent.
const CLOSING: Duration = Duration::from_secs(5);

/// The time for the first request of a connection that opened as the server stopped.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// The time between two pings, and for the answer to one.
const PING: Duration = Duration::from_secs(30);

/// The bytes of one response of HTTP/2 that wait for the client.
const UNSENT: usize = 64 * 1024;

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
        let builder = self.builder();
        // Each connection has a receiver, so the sender knows when the last one has ended.
        let open = watch::Sender::new(());
        let begin = |stream: T, peer: SocketAddr| {
            let Some(place) = self.places.take(peer.ip(), answers.is_proxy(peer)) else {
                return;
            };
            let (its, builder, answers) = (self.clone(), builder.clone(), answers.clone());
            let open = open.subscribe();
            tokio::spawn(async move {
                let scheme = its.certificate.as_ref().map_or("http", |_| "https");
                let answer = |request, heads| {
                    let client = Client {
                        peer,
                        scheme,
                        heads,
                    };
                    answers.clone().answer(request, client)
                };
                let ended = async {
                    let stream = its.greet(stream).await?;
                    its.connection(&builder, stream, place, answer).await
                };
                if let Err(error) = ended.await {
                    tracing::debug!(%peer, "a connection broke off: {error}");
                }
                drop(open);
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
        if timeout(self.bounds.drain, open.closed()).await.is_err() {
            tracing::warn!("requests have not ended in time");
        }
    }

    fn builder(&self) -> Builder<TokioExecutor> {
        let mut builder = Builder::new(TokioExecutor::new());
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
            .max_concurrent_streams(self.bounds.streams)
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
        let greeted = timeout(FIRST.min(self.bounds.idle), greeted).await??;
        Ok(Either::Right(greeted))
    }

    /// Serves a connection until one side closes it, the client is silent for too long, or the server has stopped.
    async fn connection<T, F>(
        &self,
        builder: &Builder<TokioExecutor>,
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
            let asked = activity.ask(!is_http1);
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
                Ok::<_, Infallible>(response.map(|body| asked.answer(body)))
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
            Self::Gateway(gateway) => gateway.is_proxy(peer.ip()),
            Self::Operators(_) => peer.ip().is_loopback(),
        }
    }

    async fn answer(self, mut request: Request<Incoming>, client: Client) -> Response<Body> {
        match self {
            Self::Gateway(gateway) => gateway.answer(request, client).await,
            Self::Operators(router) => {
                request.extensions_mut().insert(ConnectInfo(client.peer));
                let answered = router.oneshot(request.map(axum::body::Body::new)).await;
                let response = answered.unwrap_or_else(|never| match never {});
                response.map(|body| body.map_err(Into::into).boxed_unsync())
            }
        }
    }
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
mod tests {
    use super::*;
    use crate::full;
    use std::pin::Pin;
    use std::task::{Context, Waker};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
    use tokio::sync::{Mutex, mpsc};
    use tokio::time::Instant;
    use tower_ratelimit_config::Config;

    const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const SETTINGS: &str = "\0\0\0\x04\0\0\0\0\0";
    const PING: &str = "\0\0\x08\x06\0\0\0\0\x0012345678";
    /// `:method: GET` and no end of the head.
    const HALF_HEAD: &str = "\0\0\x01\x01\0\0\0\0\x01\x02";
    const REQUEST: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    const PEER: &str = "192.0.2.1:1";

    /// How long a client may do nothing.
    const IDLE: Duration = Duration::from_secs(75);

    /// Returns the client's side of a connection that holds this many bytes on the way.
    fn client<F>(
        bytes: usize,
        answer: impl Fn(Request<Incoming>, Heads) -> F + Send + Sync + 'static,
    ) -> DuplexStream
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let bounds = Bounds {
            age: None,
            ..Bounds::default()
        };
        client_within(bounds, bytes, answer)
    }

    fn client_within<F>(
        bounds: Bounds,
        bytes: usize,
        answer: impl Fn(Request<Incoming>, Heads) -> F + Send + Sync + 'static,
    ) -> DuplexStream
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let (client, stream) = duplex(bytes);
        let server = Server::new(bounds, watch::channel(Phase::Ready).1);
        let peer: SocketAddr = PEER.parse().unwrap();
        let place = server.places.take(peer.ip(), false).unwrap();
        tokio::spawn(async move {
            let builder = server.builder();
            let _ = server.connection(&builder, stream, place, answer).await;
        });
        client
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_opens_as_the_server_stops_gets_its_answer() {
        for sent in [true, false] {
            let (mut client, stream) = duplex(1 << 16);
            let phase = watch::Sender::new(Phase::Stopped);
            let server = Server::new(Bounds::default(), phase.subscribe());
            let start = Instant::now();
            let waiting = vec![(stream, PEER.parse().unwrap())];
            let accept = || pending::<io::Result<(DuplexStream, SocketAddr)>>();
            let answers = Answers::Operators(Router::new());
            let serving = tokio::spawn(server.serve_each(accept, || waiting, answers));
            if sent {
                sleep(ON_ITS_WAY / 2).await;
                client.write_all(REQUEST.as_bytes()).await.unwrap();
            }
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer.contains("HTTP/1.1 404"), sent, "{answer}");
            assert_eq!(answer.contains("connection: close"), sent, "{answer}");
            serving.await.unwrap();
            assert!(start.elapsed() <= ON_ITS_WAY);
        }
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
    async fn a_head_that_comes_byte_by_byte_does_not_keep_a_connection() {
        for (begun, byte) in [(REQUEST[..20].to_owned(), "x"), (String::new(), "\r\n")] {
            let start = Instant::now();
            let (mut client, mut sender) = tokio::io::split(client(1 << 16, empty));
            sender.write_all(begun.as_bytes()).await.unwrap();
            let bytes = async {
                while sender.write_all(byte.as_bytes()).await.is_ok() {
                    sleep(Duration::from_secs(1)).await;
                }
            };
            tokio::select! {
                () = close(&mut client) => {}
                () = bytes => {}
            }
            assert!(start.elapsed() <= FIRST + CLOSING + Duration::from_secs(1));
        }
    }

    /// The time in which a connection gets requests.
    const AGE: Duration = Duration::from_secs(60);

    fn aging() -> Bounds {
        Bounds {
            age: Some(AGE),
            ..Bounds::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_of_http_1_that_has_had_its_time_ends_with_its_next_response() {
        let start = Instant::now();
        let mut client = client_within(aging(), 1 << 16, empty);
        let mut ask = async || {
            client.write_all(REQUEST.as_bytes()).await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(client.read_u8().await.unwrap());
            }
            String::from_utf8(head).unwrap()
        };
        assert!(!ask().await.contains("connection"));
        sleep(AGE.mul_f64(0.89)).await;
        assert!(!ask().await.contains("connection"));
        sleep(AGE.mul_f64(0.22)).await;
        // It was not closed while the client could have sent this.
        assert!(ask().await.contains("\r\nconnection: close\r\n"));
        close(&mut client).await;
        assert!(start.elapsed() < 2 * AGE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_of_http_2_that_has_had_its_time_ends_with_the_requests_that_have_begun() {
        let slow = |_, _| async {
            sleep(2 * AGE).await;
            Response::new(full("done"))
        };
        let start = Instant::now();
        let client = client_within(aging(), 1 << 16, slow);
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let opened = builder.timer(TokioTimer::new());
        let (mut sender, ends) = opened.handshake(TokioIo::new(client)).await.unwrap();
        let ends = tokio::spawn(ends);
        let request = Request::get("http://a/").body(full("")).unwrap();
        let response = sender.send_request(request.map(BodyExt::boxed_unsync));
        assert_eq!(response.await.unwrap().status(), StatusCode::OK);
        assert_eq!(start.elapsed(), 2 * AGE);
        // Without the GOAWAY it would have stayed as long as it is not idle.
        assert!(sender.is_closed() || sender.ready().await.is_err());
        ends.await.unwrap().unwrap();
        assert!(start.elapsed() < 2 * AGE + CLOSING);
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
        assert!(start.elapsed() <= IDLE + CLOSING);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_for_a_slow_upstream_is_not_silent() {
        let slow = |_, _| async {
            sleep(10 * IDLE).await;
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
        for pause in [Duration::from_secs(60), IDLE + 2 * CLOSING] {
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
            assert_eq!(taken > LARGE, pause < IDLE, "{taken} {pause:?}");
        }
    }

    #[tokio::test]
    async fn a_head_that_is_too_large_is_refused_before_it_takes_much_memory() {
        let mut client = client(1 << 20, empty);
        let head = format!(
            "{}x: {}",
            &REQUEST[..16],
            "x".repeat(2 * Bounds::default().head_size)
        );
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
        let server = Server::new(Bounds::default(), watch::channel(Phase::Ready).1);
        let places = server.places().clone();
        tokio::spawn(server.serve_each(accept, Vec::new, Answers::Gateway(gateway())));
        let open = |peer: &str| {
            let (client, server) = duplex(1 << 16);
            let peer: SocketAddr = peer.parse().unwrap();
            opened.send((server, peer)).unwrap();
            client
        };
        let mut silent: Vec<_> = (0..MANY).map(|_| open(PEER)).collect();
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
        assert_eq!(places.refused(), (MANY as u64 - 100, 0));
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
                let client = Client {
                    peer,
                    scheme: "http",
                    heads,
                };
                gateway.clone().answer(request, client)
            });
            let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            client.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert_eq!(&answer[9..12], expected, "{peer} {path}");
        }
    }
}
