//! The quickstart's service over real connections.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use axum::body::Body;
use axum::routing::get;
use axum::{Router, ServiceExt};
use http::{HeaderValue, Request, Response};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tower::util::MapResponse;
use tower::{Layer, Service, ServiceExt as _};
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::response::RefusalBody;
use tower_ratelimit::{
    FixedWindow, ManualClock, MemoryStore, Policy, RateLimit, RateLimitLayer, TokenBucket, key,
};

use crate::exchange::{global, now};
use crate::slow_store::{BrokenStore, When};

/// A server on a free port; dropping it stops it.
struct Server {
    address: SocketAddr,
    _runtime: Runtime,
}

impl Server {
    fn start<S>(app: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send,
    {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let app = app.into_make_service_with_connect_info::<SocketAddr>();
        runtime.spawn(async { axum::serve(listener, app).await });
        Self {
            address,
            _runtime: runtime,
        }
    }

    /// Asks on a connection of its own; the status line and the fields in lower case, and the
    /// body.
    fn ask(&self, method: &str) -> (Vec<String>, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        write!(
            stream,
            "{method} / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let head = head.lines().map(str::to_ascii_lowercase);
        let told = head.filter(|line| !line.starts_with("date:")).collect();
        (told, body.to_owned())
    }
}

fn limit() -> (ManualClock, RateLimitLayer) {
    let clock = ManualClock::new();
    let bucket = TokenBucket::per_second(5).burst(10);
    let limit = RateLimitLayer::builder()
        .policy(Policy::new("default", bucket).key(key::client_ip()))
        .store(MemoryStore::new().clock(clock.clone()))
        .build()
        .unwrap();
    (clock, limit)
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

fn refuses_the_eleventh(server: &Server, clock: &ManualClock) {
    let policy = r#"ratelimit-policy: "default";q=10;w=2"#;
    for r in (0..10_u64).rev() {
        let t = r.div_ceil(5).max(1);
        let expected = [
            "http/1.1 200 ok",
            "content-type: text/plain; charset=utf-8",
            policy,
            &format!(r#"ratelimit: "default";r={r};t={t}"#),
            "content-length: 5",
            "connection: close",
        ];
        let (mut head, body) = server.ask("GET");
        assert_same_fields(&mut head, expected);
        assert_eq!(body, "hello");
    }
    let (mut head, body) = server.ask("GET");
    let expected = [
        "http/1.1 429 too many requests",
        "content-type: application/problem+json",
        "cache-control: no-store",
        "retry-after: 1",
        policy,
        r#"ratelimit: "default";r=0;t=1"#,
        &format!("content-length: {}", body.len()),
        "connection: close",
    ];
    assert_same_fields(&mut head, expected);
    assert!(body.contains("Retry after 1 second."), "{body}");

    clock.advance(Duration::from_secs(1));
    assert_eq!(server.ask("GET").0[0], "http/1.1 200 ok");
}

#[track_caller]
fn assert_same_fields<const N: usize>(head: &mut [String], mut expected: [&str; N]) {
    head.sort();
    expected.sort_unstable();
    assert_eq!(head, expected);
}

#[test]
fn ten_requests_pass_and_the_eleventh_is_refused_until_the_wait_is_over() {
    let (clock, limit) = limit();
    let server = Server::start(hello().layer(limit));
    refuses_the_eleventh(&server, &clock);
}

#[test]
fn the_same_from_outside_the_router() {
    let (clock, limit) = limit();
    let app: RateLimit<Router> = limit.layer(hello());
    // `axum::serve` wants axum's own body.
    let app = MapResponse::new(app, |response: Response<_>| response.map(Body::new));
    let server = Server::start(app);
    refuses_the_eleventh(&server, &clock);
}

#[test]
fn head_is_answered_with_the_same_fields_as_get_and_no_body() {
    let (clock, limit) = limit();
    let server = Server::start(hello().layer(limit));
    let same = |times| {
        for _ in 0..times {
            let (head, body) = server.ask("HEAD");
            assert_eq!(body, "");
            // Full again, so that both see the same bucket.
            clock.advance(Duration::from_secs(2));
            assert_eq!(server.ask("GET").0, head);
            clock.advance(Duration::from_secs(2));
        }
    };
    same(2);
    for _ in 0..10 {
        server.ask("GET");
    }
    let (head, body) = server.ask("HEAD");
    assert_eq!(
        (head[0].as_str(), body.as_str()),
        ("http/1.1 429 too many requests", "")
    );
    assert_eq!(server.ask("GET").0, head);
}

/// Refuses everything, with 50 s to wait under both policies.
fn refusing(body: RefusalBody, names: &[&str]) -> Router {
    let clock = ManualClock::new();
    let policies = names
        .iter()
        .map(|name| global(name, FixedWindow::per_minute(1)));
    let limit = RateLimitLayer::builder()
        .policies(policies)
        .store(MemoryStore::new().clock(clock.clone()))
        .refusal_body(body)
        .build()
        .unwrap();
    let app = hello().layer(limit);
    let request = Request::new(Body::empty());
    assert_eq!(now(app.clone().oneshot(request)).unwrap().status(), 200);
    clock.advance(Duration::from_secs(10));
    app
}

#[test]
fn a_refusal_is_as_long_as_its_content_length_says() {
    let html = || HeaderValue::from_static("text/html");
    let broken = RateLimitLayer::builder()
        .policy(global("a", FixedWindow::per_minute(1)))
        .store(BrokenStore {
            when: When::Later,
            kind: StoreErrorKind::Unavailable,
        });
    let broken = hello().layer(broken.build().unwrap());
    for (name, app, length) in [
        ("P1", refusing(RefusalBody::BareProblem, &["default"]), 143),
        (
            "P2",
            refusing(RefusalBody::Problem, &["burst", "daily"]),
            203,
        ),
        ("P7", broken, 109),
        ("JSON", refusing(RefusalBody::Json, &["a"]), 103),
        ("text", refusing(RefusalBody::Text, &["a"]), 43),
        (
            "one's own",
            refusing(RefusalBody::custom(html(), |_| "<p>no"), &["a"]),
            5,
        ),
        (
            "nothing",
            refusing(RefusalBody::custom(html(), |_| ""), &["a"]),
            0,
        ),
    ] {
        let server = Server::start(app);
        let (mut head, body) = server.ask("GET");
        let line = format!("content-length: {length}");
        assert!(head.contains(&line), "{name}: {head:?} {body}");
        assert_eq!(body.len(), length, "{name}: {body}");
        let (mut same, nothing) = server.ask("HEAD");
        head.sort();
        same.sort();
        assert_eq!((same, nothing), (head, String::new()), "{name}");
    }
}
