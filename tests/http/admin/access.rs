//! Access to the page, and the protection of every answer.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::MockConnectInfo;
use http::StatusCode;
use tower_ratelimit_ops::admin::{self, Access};

use crate::admin::{all, ask, layer, send, writable};

#[tokio::test]
async fn no_route_is_open_to_another_name_another_origin_or_a_proxy() {
    let app = writable();
    let attacks = [
        ("host", "evil.example:3000"),
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("forwarded", "for=127.0.0.1"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "https"),
    ];
    for attack in attacks {
        for (route, status) in all(&app, attack).await {
            assert_eq!(status, StatusCode::FORBIDDEN, "{route} with {attack:?}");
        }
    }
    let fine = all(&app, ("origin", "http://localhost:3000")).await;
    assert!(
        fine.iter()
            .all(|(_, status)| *status != StatusCode::FORBIDDEN),
        "{fine:?}"
    );
}

#[tokio::test]
async fn another_machine_and_an_unknown_peer_are_refused() {
    let layer = layer();
    for peer in [Some([192, 0, 2, 1]), None] {
        let app = Router::new().nest("/dashboard", admin::router(&layer, Access::loopback()));
        let app = match peer {
            Some(peer) => app.layer(MockConnectInfo(SocketAddr::from((peer, 1)))),
            None => app,
        };
        for (route, status) in all(&app, ("accept", "*/*")).await {
            assert_eq!(status, StatusCode::FORBIDDEN, "{route} of {peer:?}");
        }
    }
}

#[tokio::test]
async fn every_answer_is_protected() {
    let app = writable();
    for (path, status) in [
        ("", 200),
        ("/snapshot", 200),
        ("/nothing", 404),
        ("/inspect", 405),
    ] {
        let request = ask(&format!("/dashboard{path}"))
            .body(Body::empty())
            .unwrap();
        let response = send(&app, request).await;
        assert_eq!(response.status(), status, "{path}");
        let headers = response.headers();
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'"), "{path}");
        assert!(policy.contains("frame-ancestors 'none'"), "{path}");
        assert_eq!(headers["cache-control"], "no-store", "{path}");
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
    }
}
