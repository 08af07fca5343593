use std::convert::Infallible;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

use super::scene::{LONG, Scene, WIDE, head, listener};

/// Trusts no peer of a test.
const AFAR: &str = "[proxies]\nnetworks = [\"10.0.0.0/8\"]\nheader = \"x-forwarded-for\"\n";

#[tokio::test]
async fn a_request_reaches_the_upstream_and_its_response_the_client() {
    let scene = Scene::new(WIDE).await;
    let answer = scene.get("/a%20b?c=d", &["x-own: 1", "x-own: 2"]).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.header("ratelimit"), Some("\"address\";r=99;t=60"));
    let arrived = answer.arrived();
    assert_eq!(arrived["method"], "GET");
    assert_eq!(arrived["uri"], "/a%20b?c=d");
    assert_eq!(
        arrived["headers"],
        json!({
            "host": "example.com",
            "x-forwarded-for": "127.0.0.1",
            "x-forwarded-host": "example.com",
            "x-forwarded-proto": "http",
            "x-own": "2",
        }),
    );
}

#[tokio::test]
async fn connection_removes_no_header_that_is_set_or_read() {
    let limits = "[policies.key]\nquota = \"9/minute\"\nkey = { api_key = \"x-token\" }\n";
    let scene = Scene::new(limits).await;
    let fields = [
        "connection: x-token, x-forwarded-for, authorization, x-hop, ratelimit",
        "x-token: k",
        "x-forwarded-for: 192.0.2.1",
        "authorization: Bearer t",
        "x-hop: 1",
    ];
    let answer = scene.get("/", &fields).await;
    assert!(answer.header("ratelimit").is_some());
    let headers = &answer.arrived()["headers"];
    assert_eq!(headers["x-token"], "k");
    assert_eq!(headers["authorization"], "Bearer t");
    assert_eq!(headers["x-forwarded-for"], "192.0.2.1, 127.0.0.1");
    assert_eq!(headers["x-hop"], json!(null));
}

#[tokio::test]
async fn what_an_untrusted_peer_tells_of_others_is_replaced() {
    let fields = ["x-forwarded-for: 198.51.100.1", "x-forwarded-proto: https"];
    let scene = Scene::new(&format!("{WIDE}{AFAR}")).await;
    let headers = scene.get("/", &fields).await.arrived()["headers"].clone();
    assert_eq!(headers["x-forwarded-for"], "127.0.0.1");
    assert_eq!(headers["x-forwarded-proto"], "http");

    let scene = Scene::new(WIDE).await;
    let headers = scene.get("/", &fields).await.arrived()["headers"].clone();
    assert_eq!(headers["x-forwarded-for"], "198.51.100.1, 127.0.0.1");
    assert_eq!(headers["x-forwarded-proto"], "https");
}

/// Answers with the body of the request, as it comes.
async fn echo(listener: tokio::net::TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| async {
                Ok::<_, Infallible>(Response::new(request.into_body()))
            });
            let builder = Builder::new(TokioExecutor::new());
            let _ = builder
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

#[tokio::test]
async fn bodies_stream_both_ways_at_once() {
    let (listener, upstream) = listener().await;
    tokio::spawn(echo(listener));
    let scene = Scene::before(&upstream, WIDE).await;
    let mut stream = scene.connect().await;
    let request = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    // Each piece is back before the next is sent: neither side waits for the whole.
    for piece in ["first", "other"] {
        stream
            .write_all(format!("5\r\n{piece}\r\n").as_bytes())
            .await
            .unwrap();
        if piece == "first" {
            assert!(head(&mut stream).await.starts_with("HTTP/1.1 200"));
        }
        let mut back = [0; 10];
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(back[..], *format!("5\r\n{piece}\r\n").as_bytes());
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    let mut end = [0; 5];
    stream.read_exact(&mut end).await.unwrap();
    assert_eq!(end, *b"0\r\n\r\n");
}

#[tokio::test]
async fn a_request_in_flight_ends_before_the_gateway_does() {
    let (listener, upstream) = listener().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async { drop(stopped.await) };
    let (scene, serving) = Scene::until(stopped, &upstream, WIDE, LONG).await;
    let mut client = scene.connect().await;
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    let (mut upstream, _) = listener.accept().await.unwrap();
    head(&mut upstream).await;
    stop.send(()).unwrap();
    // The listener is closed first.
    while tokio::net::TcpStream::connect(scene.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!serving.is_finished());
    let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    upstream.write_all(response).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    serving.await.unwrap();
}

#[tokio::test]
async fn a_head_of_the_upstream_that_is_too_large_is_not_kept() {
    for (length, expected) in [(60, 200), (140, 502)] {
        let (listener, upstream) = listener().await;
        let scene = Scene::before(&upstream, WIDE).await;
        let upstream = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            head(&mut stream).await;
            let long = "x".repeat(length << 10);
            let response =
                format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-long: {long}\r\n\r\n");
            // The gateway may hang up meanwhile.
            let _ = stream.write_all(response.as_bytes()).await;
            let _ = stream.read(&mut [0]).await;
        };
        let answer = scene.get("/", &[]);
        let in_time = async {
            tokio::select! {
                answer = answer => answer,
                () = async { upstream.await; std::future::pending().await } => unreachable!(),
            }
        };
        assert_eq!(in_time.await.status(), expected, "{length} KiB");
    }
}
