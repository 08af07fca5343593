//! The frames of a refusal.

use std::future::poll_fn;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Code;
use tonic::transport::Server;
use tonic_web::GrpcWebLayer;
use tower_ratelimit::{FixedWindow, RateLimitLayer};

use crate::echo::{BOTH_STREAM, Echo, Running, UNARY, global, still};

fn nothing() -> RateLimitLayer {
    let nothing = global("calls", FixedWindow::per_day(0));
    RateLimitLayer::builder().policy(nothing).build().unwrap()
}

/// Returns the header section of the response to a call whose client still sends, and whether it ends the stream.
async fn open_call(
    server: &Running,
    path: &str,
    content_type: &str,
) -> (StatusCode, HeaderMap, bool) {
    let socket = TcpStream::connect(server.address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    poll_fn(|cx| client.poll_ready(cx)).await.unwrap();
    let request = Request::post(format!("http://{}{path}", server.address))
        .header("content-type", content_type)
        .header("te", "trailers")
        .body(())
        .unwrap();
    let (response, mut sent) = client.send_request(request, false).unwrap();
    sent.send_data(Bytes::from_static(b"\0\0\0\0\x03\x0a\x01a"), false)
        .unwrap();
    let (head, body) = response.await.unwrap().into_parts();
    (head.status, head.headers, body.is_end_stream())
}

#[tokio::test]
async fn a_refused_call_is_one_header_section_that_ends_the_stream() {
    let server = Running::echo(nothing()).await;
    for path in [UNARY, BOTH_STREAM] {
        for content_type in ["application/grpc", "application/grpc+proto"] {
            let (status, headers, ends) = open_call(&server, path, content_type).await;
            assert!(ends, "{path}");
            assert_eq!(status, StatusCode::OK);
            assert_eq!(headers["content-type"], content_type);
            assert_eq!(headers["grpc-status"], "8");
            assert!(!headers.contains_key("content-length"));
            for name in headers.keys() {
                assert_eq!(headers.get_all(name).iter().count(), 1, "{name}");
            }
        }
    }
}

/// Sends a request of HTTP/1.1, and returns the lines of the answer.
async fn http1(server: &Running, content_type: &str) -> Vec<String> {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let request = format!(
        "POST {UNARY} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\
         content-type: {content_type}\r\naccept: {content_type}\r\ncontent-length: 8\r\n\r\n\0\0\0\0\x03\x0a\x01a"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    answer.split("\r\n").map(str::to_owned).collect()
}

/// Returns a server of both protocols, with this layer outside or inside `GrpcWebLayer`. Outside, the layer encodes gRPC-Web
/// itself.
async fn grpc_web(limit: RateLimitLayer, is_outside: bool) -> Running {
    Running::start(move |listener| async move {
        let incoming = TcpListenerStream::new(listener);
        let server = Server::builder().accept_http1(true);
        if is_outside {
            let mut server = server.layer(limit).layer(GrpcWebLayer::new());
            let server = server.add_service(Echo);
            server.serve_with_incoming(incoming).await.unwrap();
        } else {
            let mut server = server.layer(GrpcWebLayer::new()).layer(limit);
            let server = server.add_service(Echo);
            server.serve_with_incoming(incoming).await.unwrap();
        }
    })
    .await
}

const WEB: &str = "application/grpc-web+proto";

#[tokio::test]
async fn a_refused_call_of_grpc_web_is_one_over_http1_too() {
    for is_outside in [true, false] {
        let server = grpc_web(nothing(), is_outside).await;
        for content_type in [WEB, "application/grpc-web-text+proto"] {
            let answer = http1(&server, content_type).await;
            assert_eq!(answer[0], "HTTP/1.1 200 OK", "{is_outside}");
            let has = |line: &str| answer.iter().any(|has| has == line);
            assert!(has("grpc-status: 8"), "{answer:?}");
            assert!(has(&format!("content-type: {content_type}")), "{answer:?}");
            assert!(has("grpc-message: rate%20limit%20exceeded"), "{answer:?}");
            assert!(
                answer
                    .iter()
                    .any(|line| line.starts_with("grpc-status-details-bin: CAgS"))
            );
            // The status is in the header section, and no frame follows.
            let head = answer.iter().position(String::is_empty).unwrap();
            let body = answer[head + 1..].concat();
            assert!(["", "0"].contains(&body.as_str()), "{answer:?}");
        }
    }
}

fn a_day(quota: u32) -> RateLimitLayer {
    let (_, store) = still();
    let calls = global("calls", FixedWindow::per_day(quota));
    let layer = RateLimitLayer::builder().policy(calls).store(store);
    layer.build().unwrap()
}

#[tokio::test]
async fn outside_of_grpc_web_and_inside_calls_of_both_kinds_share_a_budget() {
    for is_outside in [true, false] {
        let server = grpc_web(a_day(2), is_outside).await;
        let mut client = server.client().await;
        let answer = http1(&server, WEB).await;
        assert_eq!(answer[0], "HTTP/1.1 200 OK", "{is_outside}");
        let has = |line: &str| answer.iter().any(|has| has == line);
        assert!(has(&format!("content-type: {WEB}")), "{answer:?}");
        assert!(
            has("ratelimit: \"calls\";r=1;t=86400"),
            "{is_outside} {answer:?}"
        );
        // In the last frame of the body, where tonic-web writes the trailers.
        assert!(answer.iter().any(|line| line.ends_with("grpc-status:0")));

        assert_eq!(client.say("a").await.unwrap(), "a");
        let answer = http1(&server, WEB).await;
        assert!(answer.contains(&"grpc-status: 8".to_owned()), "{answer:?}");
        let refused = client.say("a").await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
    }
}

#[tokio::test]
async fn a_request_that_tonic_web_rejects_costs_nothing_inside_of_it() {
    for is_outside in [true, false] {
        let server = grpc_web(a_day(1), is_outside).await;
        // Plain gRPC, which HTTP/1.1 cannot carry.
        let answer = http1(&server, "application/grpc").await;
        assert_eq!(answer[0], "HTTP/1.1 400 Bad Request", "{is_outside}");
        let said = server.client().await.say("a").await;
        assert_eq!(said.is_err(), is_outside, "{said:?}");
    }
}
