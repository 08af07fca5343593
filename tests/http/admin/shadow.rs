//! The file in shadow on the page.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::MockConnectInfo;
use axum::routing::get;
use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::json;
use tower_ratelimit_ops::admin::{self, Access, Handle};

use crate::admin::{HERE, ask, send, told};

#[tokio::test]
async fn the_differences_of_a_file_in_shadow_are_told() {
    use tower_ratelimit_config::Config;
    let folder = std::env::temp_dir().join(format!("admin-shadow-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let policy = |limit: u32| format!("[policies.a]\nquota = \"{limit}/day\"\nkey = \"global\"\n");
    let live = format!("shadow = \"next.toml\"\n{}", policy(20));
    std::fs::write(folder.join("limits.toml"), live).unwrap();
    std::fs::write(folder.join("next.toml"), policy(1)).unwrap();
    let config = Config::read(folder.join("limits.toml")).unwrap();
    let layer = config.watch().unwrap().layer();
    let app = Router::new()
        .route("/{*path}", get(|| async {}))
        .layer(layer.clone())
        .nest(
            "/dashboard",
            admin::router(Handle::from(&layer), Access::loopback()),
        )
        .layer(MockConnectInfo(SocketAddr::from(HERE)));
    for number in 0..13 {
        let request = ask(&format!("/{number}")).body(Body::empty()).unwrap();
        assert_eq!(send(&app, request).await.status(), StatusCode::OK);
    }
    let request = ask("/dashboard/snapshot").body(Body::empty()).unwrap();
    let (status, snapshot) = told(send(&app, request).await).await;
    assert_eq!(status, StatusCode::OK);
    let shadow = &snapshot["shadow"];
    assert_eq!(
        (&shadow["compared"], &shadow["would_refuse"]),
        (&json!(13), &json!(12))
    );
    assert_eq!(shadow["last"].as_array().unwrap().len(), 10);
    assert_eq!(shadow["last"][0], "GET /12: refused in shadow by a");

    let request = ask("/dashboard").body(Body::empty()).unwrap();
    let page = send(&app, request)
        .await
        .into_body()
        .collect()
        .await
        .unwrap();
    let page = String::from_utf8(page.to_bytes().to_vec()).unwrap();
    assert!(page.contains("id=\"shadow-last\""), "the page shows them");
    std::fs::remove_dir_all(&folder).unwrap();
}
