//! An upstream that breaks off in the middle, and a client that stops in the middle.

use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::scene::{LONG, Scene, WIDE, head, listener};

const CUT: [&str; 2] = [
    "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
];

/// Answers the next request with these bytes, and hangs up.
fn answer_once(listener: TcpListener, response: &'static str) -> JoinHandle<()> {
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        stream.write_all(response.as_bytes()).await.unwrap();
    })
}

/// The connection would stay open for the next request.
#[tokio::test]
async fn a_response_that_breaks_off_does_not_end_as_a_whole_one() {
    for response in CUT {
        let (listener, upstream) = listener().await;
        let scene = Scene::before(&upstream, WIDE).await;
        let serving = answer_once(listener, response);
        let answer = scene.ask("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        serving.await.unwrap();
        assert_eq!(answer.status(), 200);
        assert!(answer.body().contains("half"), "{answer:?}");
        assert!(!answer.body().ends_with("0\r\n\r\n"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_response_that_breaks_off_is_an_error_over_http_2() {
    for response in CUT {
        let (listener, upstream) = listener().await;
        let scene = Scene::before(&upstream, WIDE).await;
        let serving = answer_once(listener, response);
        let client = Client::builder(TokioExecutor::new())
            .http2_only(true)
            .build_http::<Empty<Bytes>>();
        let request = Request::get(format!("http://{}/", scene.address)).version(Version::HTTP_2);
        let response = client.request(request.body(Empty::new()).unwrap()).await;
        assert!(response.unwrap().into_body().collect().await.is_err());
        serving.await.unwrap();
    }
}

#[tokio::test]
async fn what_is_no_response_is_told_as_502() {
    for response in [
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        "HTTP/1.1 200 OK\r\nx: 1",
    ] {
        let (listener, upstream) = listener().await;
        let scene = Scene::before(&upstream, WIDE).await;
        let serving = answer_once(listener, response);
        assert_eq!(scene.get("/", &[]).await.status(), 502, "{response:?}");
        serving.await.unwrap();
    }
}

#[tokio::test]
async fn early_hints_are_no_response() {
    let (listener, upstream) = listener().await;
    let scene = Scene::before(&upstream, WIDE).await;
    let response = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n\
        HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwhole";
    let serving = answer_once(listener, response);
    let answer = scene.get("/", &[]).await;
    serving.await.unwrap();
    assert_eq!((answer.status(), answer.body()), (200, "whole"));
}

#[tokio::test]
async fn a_response_to_head_keeps_its_length_and_the_connection() {
    let (listener, upstream) = listener().await;
    let scene = Scene::before(&upstream, WIDE).await;
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        for _ in 0..2 {
            head(&mut stream).await;
            let response = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
            stream.write_all(response).await.unwrap();
        }
    });
    let mut stream = scene.connect().await;
    for _ in 0..2 {
        stream
            .write_all(b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n")
            .await
            .unwrap();
        let answer = head(&mut stream).await;
        assert!(answer.contains("content-length: 5\r\n"), "{answer}");
    }
    serving.await.unwrap();
}

#[tokio::test]
async fn a_refusal_of_the_upstream_reaches_a_client_that_has_more_to_send() {
    let (listener, upstream) = listener().await;
    let scene = Scene::before(&upstream, WIDE).await;
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        let response =
            b"HTTP/1.1 413 Content Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(response).await.unwrap();
        // It reads no more.
        stream
    });
    let (mut read, mut write) = scene.connect().await.into_split();
    let sending = tokio::spawn(async move {
        let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 33554432\r\n\r\n";
        write.write_all(head.as_bytes()).await.unwrap();
        // The gateway hangs up meanwhile.
        let _ = write.write_all(&vec![0; 32 << 20]).await;
    });
    let mut answer = [0; 12];
    read.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, *b"HTTP/1.1 413");
    drop(read);
    serving.await.unwrap();
    sending.await.unwrap();
}

#[tokio::test]
async fn a_client_that_does_not_send_the_rest_is_told_so_and_not_that_the_upstream_failed() {
    let (listener, upstream) = listener().await;
    let timeout = Duration::from_secs(1);
    let (scene, _serving) = Scene::until(pending(), &upstream, WIDE, timeout).await;
    let mut client = scene.connect().await;
    let begun = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhalf";
    client.write_all(begun.as_bytes()).await.unwrap();
    let (mut upstream, _) = listener.accept().await.unwrap();
    head(&mut upstream).await;
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    // The upstream gets no request that looks whole.
    let mut rest = Vec::new();
    let _ = upstream.read_to_end(&mut rest).await;
    assert_eq!(rest, b"half");
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_request_at_the_upstream() {
    let (listener, upstream) = listener().await;
    let scene = Scene::before(&upstream, WIDE).await;
    let mut client = scene.connect().await;
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    let (mut upstream, _) = listener.accept().await.unwrap();
    head(&mut upstream).await;
    drop(client);
    let mut rest = Vec::new();
    let _ = upstream.read_to_end(&mut rest).await;
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn an_idle_connection_does_not_hold_up_the_end() {
    let (listener, upstream) = listener().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async { drop(stopped.await) };
    let (scene, serving) = Scene::until(stopped, &upstream, WIDE, LONG).await;
    let answering = answer_once(listener, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let mut idle = scene.connect().await;
    idle.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    head(&mut idle).await;
    answering.await.unwrap();
    stop.send(()).unwrap();
    serving.await.unwrap();
    assert_eq!(idle.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_stream_of_grpc_that_stays_open_is_no_excuse_for_an_upstream_that_does_not_answer() {
    let (listener, upstream) = listener().await;
    let timeout = Duration::from_secs(1);
    let (scene, _serving) = Scene::until(pending(), &upstream, WIDE, timeout).await;
    let mut client = scene.connect().await;
    let begun = "POST /a.B/C HTTP/1.1\r\nhost: a\r\ncontent-type: application/grpc\r\n\
        te: trailers\r\ntransfer-encoding: chunked\r\n\r\n5\r\n\0\0\0\0\0\r\n";
    client.write_all(begun.as_bytes()).await.unwrap();
    let (_hangs, _) = listener.accept().await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
}

#[tokio::test]
async fn a_request_is_refused_while_as_many_as_the_file_admits_wait_for_the_upstream() {
    let (listener, upstream) = listener().await;
    let limits = format!("{WIDE}[concurrency]\nstart = 1\nleast = 1\nmost = 1\n");
    let scene = Scene::before(&upstream, &limits).await;
    let request = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    let mut first = scene.connect().await;
    first.write_all(request.as_bytes()).await.unwrap();
    let (mut waiting, _) = listener.accept().await.unwrap();
    head(&mut waiting).await;
    assert_eq!(scene.get("/", &[]).await.status(), 503);

    let response = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    waiting.write_all(response).await.unwrap();
    let answer = head(&mut first).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let serving = answer_once(listener, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(scene.get("/", &[]).await.status(), 200);
    serving.await.unwrap();
}
