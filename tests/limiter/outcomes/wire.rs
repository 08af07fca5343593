//! A server and a client over TCP.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use futures_util::{StreamExt, stream};
use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::{sleep, timeout};
use tower_ratelimit::policy::{OnAbandoned, Settle};
use tower_ratelimit::{AnchoredWindow, Concurrency, Policy, RateLimitLayer, key};

/// So long that a test which reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// The status of a response, the bytes that went out, and whether those are all.
type Ended = (u16, u64, bool);

async fn serve() -> (SocketAddr, RateLimitLayer, UnboundedReceiver<Ended>) {
    let (ended, endings) = mpsc::unbounded_channel();
    let policy = Policy::new("units", AnchoredWindow::per_day(1_000))
        .key(key::global())
        .refund_when(move |ending| {
            let status = ending.status().as_u16();
            let told = (status, ending.bytes(), ending.is_complete());
            ended.send(told).is_err()
        });
    let layer = RateLimitLayer::builder().policy(policy).build().unwrap();
    let endless = || async {
        let part = stream::iter([Ok::<_, Infallible>("part")]);
        Body::from_stream(part.chain(stream::pending()))
    };
    let upgrade = || async {
        let headers = [("connection", "upgrade"), ("upgrade", "echo")];
        (StatusCode::SWITCHING_PROTOCOLS, headers)
    };
    let app = Router::new()
        .route("/whole", get(|| async { "twelve bytes" }))
        .route("/empty", get(|| async { StatusCode::NO_CONTENT }))
        .route("/endless", get(endless))
        .route("/upgrade", get(upgrade))
        .layer(layer.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, layer, endings)
}

/// Sends a request, and reads until this comes.
async fn ask(client: &mut TcpStream, request: &str, until: &str) {
    let text = format!("{request} HTTP/1.1\r\nhost: a\r\n\r\n");
    client.write_all(text.as_bytes()).await.unwrap();
    let (mut read, mut part) = (Vec::new(), [0; 1_024]);
    while !String::from_utf8_lossy(&read).contains(until) {
        let bytes = timeout(PATIENCE, client.read(&mut part)).await.unwrap();
        read.extend_from_slice(&part[..bytes.unwrap()]);
    }
}

#[tokio::test]
async fn each_request_ends_once_and_is_complete_if_all_of_it_went_out() {
    let (address, layer, mut endings) = serve().await;
    let mut client = TcpStream::connect(address).await.unwrap();
    for (request, until, expected) in [
        ("GET /whole", "twelve bytes", (200, 12, true)),
        ("HEAD /whole", "\r\n\r\n", (200, 0, true)),
        ("GET /empty", "\r\n\r\n", (204, 0, true)),
        ("GET /whole", "twelve bytes", (200, 12, true)),
    ] {
        // The connection goes on, and the request has ended.
        ask(&mut client, request, until).await;
        let ended = timeout(PATIENCE, endings.recv()).await.unwrap();
        assert_eq!(ended, Some(expected), "{request}");
    }
    ask(&mut client, "GET /endless", "part").await;
    assert!(endings.try_recv().is_err(), "it is still on its way");
    drop(client);
    let ended = timeout(PATIENCE, endings.recv()).await.unwrap();
    assert_eq!(ended, Some((200, 4, false)));
    let mut client = TcpStream::connect(address).await.unwrap();
    ask(&mut client, "GET /upgrade", "\r\n\r\n").await;
    let ended = timeout(PATIENCE, endings.recv()).await.unwrap();
    assert_eq!(ended, Some((101, 0, true)));
    drop(client);
    assert!(endings.try_recv().is_err(), "a request has ended twice");
    assert_eq!(used(&layer).await, [6]);
}

/// What is used under each policy.
async fn used(layer: &RateLimitLayer) -> Vec<u32> {
    let limiter = layer.limiter();
    let told = limiter.peek(key::global().key_of(()).unwrap(), 0);
    let told = told.await.unwrap();
    told.policies().map(|(_, told)| told.used()).collect()
}

async fn comes_to(layer: &RateLimitLayer, expected: [u32; 2]) {
    let comes = async {
        while used(layer).await != expected {
            sleep(Duration::from_millis(2)).await;
        }
    };
    let came = timeout(PATIENCE, comes).await;
    assert!(came.is_ok(), "{:?} and not {expected:?}", used(layer).await);
}

/// Over HTTP/1.1 it closes its connection, and over HTTP/2 it resets the stream.
#[tokio::test]
async fn a_client_that_goes_away_while_the_handler_works_frees_its_slot_and_is_settled() {
    let units = Policy::new("units", AnchoredWindow::per_day(1_000))
        .key(key::global())
        .estimate(100)
        .settle(Settle::from_cost())
        .on_abandoned(OnAbandoned::Units(7));
    let layer = RateLimitLayer::builder()
        .policy(units)
        .policy(Policy::new("at once", Concurrency::of(1)).key(key::global()))
        .build()
        .unwrap();
    let (works, mut working) = mpsc::unbounded_channel();
    let handler = move || {
        let works = works.clone();
        async move {
            works.send(()).unwrap();
            pending::<()>().await;
        }
    };
    let app = Router::new().route("/", get(handler)).layer(layer.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });

    let mut client = TcpStream::connect(address).await.unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    timeout(PATIENCE, working.recv()).await.unwrap().unwrap();
    assert_eq!(used(&layer).await, [100, 1]);
    drop(client);
    comes_to(&layer, [7, 0]).await;

    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { connection.await.unwrap() });
    let mut client = client.ready().await.unwrap();
    for requests in 1..=2 {
        let request = http::Request::get("http://a/").body(()).unwrap();
        let (_, mut stream) = client.send_request(request, true).unwrap();
        timeout(PATIENCE, working.recv()).await.unwrap().unwrap();
        assert_eq!(used(&layer).await, [7 * requests + 100, 1]);
        stream.send_reset(h2::Reason::CANCEL);
        comes_to(&layer, [7 * (requests + 1), 0]).await;
    }
}

/// On one connection of HTTP/2, which goes on.
#[tokio::test]
async fn a_stream_that_is_reset_frees_its_slot_at_once_and_is_settled() {
    let (ended, mut endings) = mpsc::unbounded_channel();
    let bytes = Policy::new("bytes", AnchoredWindow::per_day(1_000))
        .key(key::global())
        .estimate(100)
        .settle(Settle::from_ending(move |ending| {
            let told = (ending.bytes(), ending.is_complete());
            let _ = ended.send(told);
            u32::try_from(ending.bytes()).ok()
        }));
    let layer = RateLimitLayer::builder()
        .policy(bytes)
        .policy(Policy::new("at once", Concurrency::of(1)).key(key::global()))
        .build()
        .unwrap();
    let endless = || async {
        let part = stream::iter([Ok::<_, Infallible>("part")]);
        Body::from_stream(part.chain(stream::pending()))
    };
    let app = Router::new().route("/", get(endless)).layer(layer.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });

    let (client, connection) = h2::client::handshake(TcpStream::connect(address).await.unwrap())
        .await
        .unwrap();
    tokio::spawn(async move { connection.await.unwrap() });
    let mut client = client.ready().await.unwrap();
    let mut ask = || {
        let request = http::Request::get("http://a/").body(()).unwrap();
        client.send_request(request, true).unwrap()
    };
    for requests in 1..=3_u32 {
        let (response, mut stream) = ask();
        let mut body = response.await.unwrap().into_body();
        assert_eq!(&*body.data().await.unwrap().unwrap(), b"part");
        let (refused, _) = ask();
        assert_eq!(
            refused.await.unwrap().status(),
            StatusCode::TOO_MANY_REQUESTS
        );
        assert!(endings.try_recv().is_err(), "it is still on its way");
        // The client wants no more of it.
        stream.send_reset(h2::Reason::CANCEL);
        let ended = timeout(PATIENCE, endings.recv()).await.unwrap();
        assert_eq!(ended, Some((4, false)));
        assert_eq!(used(&layer).await, [4 * requests, 0]);
    }
}
