use std::future::pending;
use std::time::Duration;

use super::scene::{Scene, WIDE, listener};

#[tokio::test]
async fn a_request_with_two_lengths_is_refused_in_either_order() {
    let scene = Scene::new(WIDE).await;
    let (te, cl) = ("Transfer-Encoding: chunked\r\n", "Content-Length: 5\r\n");
    for fields in [[te, cl], [cl, te]] {
        let [first, second] = fields;
        let body = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
        let request = format!("POST / HTTP/1.1\r\nhost: a\r\n{first}{second}\r\n{body}");
        let answer = scene.ask(&request).await;
        assert_eq!(answer.status(), 400, "{answer:?}");
        assert_eq!(answer.header("connection"), Some("close"));
        assert!(!answer.body().contains("HTTP/1.1"), "{answer:?}");
    }
    let request = format!(
        "POST / HTTP/1.1\r\nhost: a\r\n{te}\r\n0\r\n\r\n\
         POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{cl}\r\nabcde"
    );
    let answer = scene.ask(&request).await;
    assert_eq!(answer.status(), 200);
    assert!(answer.body().contains("HTTP/1.1 200 OK"), "{answer:?}");
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_told_as_502() {
    let (listener, upstream) = listener().await;
    drop(listener);
    let scene = Scene::before(&upstream, WIDE).await;
    assert_eq!(scene.get("/", &[]).await.status(), 502);
}

#[tokio::test]
async fn an_upstream_that_hangs_up_is_told_as_502() {
    let (listener, upstream) = listener().await;
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let scene = Scene::before(&upstream, WIDE).await;
    assert_eq!(scene.get("/", &[]).await.status(), 502);
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_is_told_as_504() {
    // It is never accepted.
    let (_listener, upstream) = listener().await;
    let timeout = Duration::from_millis(100);
    let (scene, _serving) = Scene::until(pending(), &upstream, WIDE, timeout).await;
    assert_eq!(scene.get("/", &[]).await.status(), 504);
}

#[tokio::test]
async fn the_gateway_is_no_forward_proxy() {
    let scene = Scene::new(WIDE).await;
    let request =
        "CONNECT example.com:443 HTTP/1.1\r\nhost: example.com:443\r\nconnection: close\r\n\r\n";
    assert_eq!(scene.ask(request).await.status(), 405);
}
