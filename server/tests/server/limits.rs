use std::fs;

use ratelimitd::phase::Phase;
use ratelimitd::server::{Answers, Bounds, Server};
use ratelimitd::socket::Socket;
use ratelimitd::{Gateway, Limits};
use tokio::sync::watch;

use super::scene::{Scene, WIDE, ask_at, listener};

const PROXIES: &str = "[proxies]\nnetworks = [\"127.0.0.0/8\"]\nheader = \"x-forwarded-for\"\n";

#[tokio::test]
async fn the_file_that_comes_with_the_gateway_counts_clients_by_address() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/limits.toml");
    let scene = Scene::new(&fs::read_to_string(path).unwrap()).await;
    for (client, admitted) in [
        (&["x-forwarded-for: 192.0.2.1"][..], 100),
        // Without a forwarded address, the key is the peer.
        (&[], 100),
    ] {
        for number in 1..=admitted {
            let answer = scene.get("/", client).await;
            assert_eq!(answer.status(), 200, "{number}");
        }
        let answer = scene.get("/", client).await;
        assert_eq!(answer.status(), 429);
        assert!(answer.header("retry-after").is_some());
    }
    assert_eq!(
        scene
            .get("/", &["x-forwarded-for: 192.0.2.2"])
            .await
            .status(),
        200
    );
}

#[tokio::test]
async fn changed_limits_hold_for_the_next_request_and_for_questions() {
    let scene = Scene::new(&format!("{WIDE}{PROXIES}")).await;
    assert_eq!(scene.get("/", &[]).await.status(), 200);
    scene.rewrite(&format!("{}{PROXIES}", WIDE.replace("100", "1")));
    scene.watched.reload().unwrap();
    assert_eq!(scene.get("/", &[]).await.status(), 429);
    assert_eq!(scene.get("/_limit/check", &[]).await.status(), 429);

    scene.rewrite("[policies.address]\nquota = \"a few\"");
    scene.watched.reload().unwrap_err();
    let status = scene.get("/_limit/status", &[]).await.arrived();
    assert_eq!(status["version"], 2);
    assert_eq!(status["sha256"], scene.watched.status().sha256());
    assert!(status["since"].as_u64().unwrap() > 0);
    assert!(status["error"].as_str().unwrap().contains("a few"));
}

#[tokio::test]
async fn without_an_upstream_questions_alone_are_answered() {
    let (listener, _) = listener().await;
    let address = listener.local_addr().unwrap();
    let gateway = Gateway::new(Limits::built_in(None).unwrap(), None);
    let server = Server::new(Bounds::default(), watch::channel(Phase::Ready).1);
    let serving = tokio::spawn(server.serve(Socket::Tcp(listener), Answers::Gateway(gateway)));
    let get = |path: &'static str| async move {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        ask_at(address, &request).await
    };
    assert_eq!(get("/page").await.status(), 404);
    let answer = get("/_limit/check").await;
    assert_eq!(answer.status(), 200);
    // The page was not counted.
    assert_eq!(answer.header("ratelimit"), Some("\"address\";r=99;t=60"));
    assert_eq!(get("/_limit/status").await.arrived()["version"], 1);
    serving.abort();
}
