//! A real nginx beside the limits that the guide makes of its lines. The model of it in `tests/limiter/migrating.rs` is asked at any time.

use std::net::SocketAddr;

use super::nginx::Nginx;
use super::scene::{Scene, ask_at};

/// Returns how many of thirty requests, one after the other, pass and are refused.
async fn passed(address: SocketAddr) -> (usize, usize) {
    let (mut passed, mut refused) = (0, 0);
    for _ in 0..30 {
        let request = "HEAD / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        match ask_at(address, request).await.status() {
            200 => passed += 1,
            429 => refused += 1,
            other => panic!("{other}"),
        }
    }
    (passed, refused)
}

/// At a request a minute, time plays no part.
#[tokio::test]
async fn as_many_requests_pass_as_in_nginx() {
    for (line, burst, expected) in [
        ("limit_req zone=a burst=20 nodelay;", 21, (21, 9)),
        ("limit_req zone=a burst=4 nodelay;", 5, (5, 25)),
        ("limit_req zone=a;", 1, (1, 29)),
        ("limit_req zone=a burst=40 nodelay;", 41, (30, 0)),
    ] {
        let scene = Scene::new(&format!(
            "[policies.addresses]\nalgorithm = \"token-bucket\"\nquota = \"1/minute\"\nburst = {burst}\nkey = \"client_ip\"\n"
        ))
        .await;
        let nginx = Nginx::start(1, |at| {
            format!(
                "limit_req_zone $binary_remote_addr zone=a:1m rate=1r/m; limit_req_status 429;\n\
                 server {{ listen {}; location / {{ {line} empty_gif; }} }}",
                at[0]
            )
        });
        let theirs = passed(nginx.addresses[0]).await;
        assert_eq!(theirs, expected, "{line}");
        assert_eq!(passed(scene.address).await, theirs, "{line}");
    }
}
