//! Fields of a request's body decide, and the upstream gets the body as it was sent.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::scene::{self, LONG, Scene, WIDE, listener};

const MODELS: &str = "[policies.models]\nkey = { json = \"model\" }\nquota = \"1/minute\"\nwhen = { path = \"/chat\" }\n";

/// Answers with the fields of the request that say how its body is sent, and the body.
async fn echo() -> String {
    let (listener, url) = listener().await;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let service = service_fn(async |request: Request<Incoming>| {
                    let (head, body) = request.into_parts();
                    let field = |name: &str| head.headers.get(name).cloned();
                    let (length, coding) = (field("content-length"), field("transfer-encoding"));
                    let body = body.collect().await.unwrap().to_bytes();
                    let mut response = Response::new(http_body_util::Full::new(body));
                    for (name, value) in [("x-length", length), ("x-coding", coding)] {
                        if let Some(value) = value {
                            response.headers_mut().insert(name, value);
                        }
                    }
                    Ok::<_, Infallible>(response)
                });
                let http1 = hyper::server::conn::http1::Builder::new();
                let _ = http1.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    url
}

fn post(path: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn requests_are_limited_by_a_field_of_their_body() {
    let scene = Scene::before(&echo().await, MODELS).await;
    let chat = |model: &str| {
        let body = format!("{{\"model\": \"{model}\",\n \"text\":\"\\u00e9\"}}");
        (post("/chat", "application/json", &body), body)
    };
    let (request, body) = chat("small");
    let answer = scene.ask(&request).await;
    assert_eq!((answer.status(), answer.body()), (200, &*body));
    assert_eq!(answer.header("x-length"), Some(&*body.len().to_string()));
    assert_eq!(scene.ask(&request).await.status(), 429);
    assert_eq!(scene.ask(&chat("large").0).await.status(), 200);
}

#[tokio::test]
async fn a_body_in_chunks_arrives_whole_whether_it_is_read_or_too_long() {
    let limits = format!("{MODELS}[request_body]\nmax_bytes = 1000\nunreadable = \"pass\"\n");
    let scene = Scene::before(&echo().await, &limits).await;
    let head = "POST /chat HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n\
                transfer-encoding: chunked\r\n\r\n";
    for length in [10, 100_000] {
        let text = "x".repeat(length);
        let body = format!("{{\"model\":\"{length}\",\"text\":\"{text}\"}}");
        let (first, rest) = body.split_at(12);
        let chunks = format!(
            "{:x}\r\n{first}\r\n{:x}\r\n{rest}\r\n0\r\n\r\n",
            first.len(),
            rest.len()
        );
        let answer = scene.ask(&format!("{head}{chunks}")).await;
        assert_eq!((answer.status(), answer.body()), (200, &*body));
    }
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_refused_and_other_requests_are_not_read() {
    let scene = Scene::before(&echo().await, MODELS).await;
    for (kind, body, status) in [
        ("text/plain", "{\"model\":\"a\"}", 415),
        ("application/json", "{\"model\":\"a\",\"model\":\"b\"}", 400),
        ("application/json", "[]", 400),
        ("application/json", &"x".repeat(70_000), 413),
    ] {
        let answer = scene.ask(&post("/chat", kind, body)).await;
        assert_eq!(answer.status(), status, "{kind}");
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json")
        );
    }
    assert_eq!(
        scene
            .ask(&post("/files", "text/plain", "hello"))
            .await
            .status(),
        200
    );
    assert_eq!(scene.get("/chat", &[]).await.status(), 200);
}

/// The client asks whether it shall send the body, and is refused.
#[tokio::test]
async fn no_body_is_read_of_a_request_that_another_policy_refuses() {
    let limits = format!("{MODELS}[policies.address]\nkey = \"client_ip\"\nquota = \"1/hour\"\n");
    let scene = Scene::before(&echo().await, &limits).await;
    let body = "{\"model\":\"a\"}";
    let head = |length: usize| {
        format!(
            "POST /chat HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n\
             content-length: {length}\r\n\r\n"
        )
    };
    let mut first = scene.connect().await;
    first.write_all(head(body.len()).as_bytes()).await.unwrap();
    assert_eq!(
        scene::head(&mut first).await,
        "HTTP/1.1 100 Continue\r\n\r\n"
    );
    first.write_all(body.as_bytes()).await.unwrap();
    assert!(scene::head(&mut first).await.starts_with("HTTP/1.1 200 "));
    // Of another model, so that the policy by the body would let it pass.
    let mut second = scene.connect().await;
    second.write_all(head(60_000).as_bytes()).await.unwrap();
    let refused = scene::head(&mut second).await;
    assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
    assert!(
        refused.contains("ratelimit: \"address\";r=0;t="),
        "{refused}"
    );
}

#[tokio::test]
async fn the_reading_follows_the_file() {
    let scene = Scene::before(&echo().await, WIDE).await;
    let request = post("/chat", "text/plain", "hello");
    assert_eq!(scene.ask(&request).await.status(), 200);
    scene.rewrite(MODELS);
    scene.watched.reload().unwrap();
    assert_eq!(scene.ask(&request).await.status(), 415);
}

#[tokio::test]
async fn a_question_has_no_body_and_so_no_field() {
    let scene = Scene::before(&echo().await, MODELS).await;
    let ask = async || {
        let answer = scene.get("/_limit/check", &["x-original-uri: /chat"]).await;
        answer.status()
    };
    assert_eq!([ask().await, ask().await], [200, 429]);
}

#[tokio::test]
async fn a_client_that_does_not_send_the_body_does_not_wait_for_ever() {
    let stop = pending();
    let timeout = Duration::from_millis(200);
    let (scene, _serving) = Scene::until(stop, &echo().await, MODELS, timeout).await;
    let mut stream = scene.connect().await;
    let head = "POST /chat HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{\"mod";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(LONG, stream.read_to_end(&mut answer)).await;
    read.expect("an answer in time").unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 408 "), "{answer:?}");
}
