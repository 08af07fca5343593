use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::scene::{Scene, head, listener};

const ONE: &str = "[policies.address]\nquota = \"1/minute\"\nkey = \"client_ip\"\n";

#[tokio::test]
async fn a_connection_switches_to_another_protocol_once_it_is_counted() {
    let (listener, upstream) = listener().await;
    let scene = Scene::before(&upstream, ONE).await;
    let request = "GET /chat HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
        sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n";
    let mut client = scene.connect().await;
    client.write_all(request.as_bytes()).await.unwrap();

    let (mut upstream, _) = listener.accept().await.unwrap();
    let arrived = head(&mut upstream).await;
    for field in [
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
    ] {
        assert!(arrived.contains(&format!("{field}\r\n")), "{arrived}");
    }
    let response =
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    upstream.write_all(response).await.unwrap();
    let answer = head(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    assert!(answer.contains("upgrade: websocket\r\n"), "{answer}");

    // Bytes that are no HTTP pass in both directions, until both sides have ended.
    client.write_all(b"\x81\x02\n\n").await.unwrap();
    let mut there = [0; 4];
    upstream.read_exact(&mut there).await.unwrap();
    assert_eq!(there, *b"\x81\x02\n\n");
    upstream.write_all(b"\x81\x01!").await.unwrap();
    drop(upstream);
    let mut back = Vec::new();
    client.read_to_end(&mut back).await.unwrap();
    assert_eq!(back, *b"\x81\x01!");

    let refused = scene
        .ask(&request.replace("Upgrade\r", "Upgrade, close\r"))
        .await;
    assert_eq!(refused.status(), 429);
}

#[tokio::test]
async fn an_upstream_that_switches_unasked_has_failed() {
    let (listener, upstream) = listener().await;
    let scene = Scene::before(&upstream, ONE).await;
    let serving = tokio::spawn(async move {
        let (mut upstream, _) = listener.accept().await.unwrap();
        head(&mut upstream).await;
        let response =
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
        upstream.write_all(response).await.unwrap();
        upstream
    });
    assert_eq!(scene.get("/", &[]).await.status(), 502);
    serving.await.unwrap();
}

/// Over HTTP/2 on a connection of its own, a client would ask the upstream without being counted.
#[tokio::test]
async fn a_connection_does_not_switch_to_http_2() {
    let scene = Scene::new(ONE).await;
    let fields = [
        "upgrade: h2c",
        "http2-settings: AAMAAABkAAQAAP__",
        "connection: Upgrade",
    ];
    let answer = scene.get("/", &fields).await;
    assert_eq!(answer.status(), 200);
    let arrived = answer.arrived().to_string().to_ascii_lowercase();
    assert!(!arrived.contains("h2c"), "{arrived}");
    assert!(!arrived.contains("upgrade"), "{arrived}");
}
