//! The quickstart's service, and hyper's client, over real connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tower::{Layer, ServiceExt};
use tower_ratelimit::client::ClientThrottleLayer;
use tower_ratelimit::{RateLimitLayer, TokenBucket, key};

use crate::client::load::Seen;

/// The speed of the machine changes the number of calls, and nothing else.
#[tokio::test]
async fn three_seconds_of_load_meet_no_more_than_one_refusal_for_each_limit_reached() {
    let limit = RateLimitLayer::new(key::client_ip(), TokenBucket::per_second(5).burst(10));
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(limit);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    let serving = tokio::spawn(async { axum::serve(listener, app).await });

    let seen = Arc::new(Seen::default());
    let count = Arc::clone(&seen);
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let client = ClientThrottleLayer::new().layer(client.map_response(move |response| {
        count.count(&response);
        response
    }));
    let end = Instant::now() + Duration::from_secs(3);
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let (client, url) = (client.clone(), url.clone());
        calls.spawn(async move {
            loop {
                let request = Request::get(&url).body(Empty::new()).unwrap();
                let Ok(response) = timeout_at(end, client.clone().oneshot(request)).await else {
                    break;
                };
                response.unwrap().into_body().collect().await.unwrap();
            }
        });
    }
    calls.join_all().await;
    serving.abort();
    let [served, refused, reached] = seen.numbers();
    assert!(served >= 10, "{served}");
    assert!(refused <= reached, "{refused} of {reached}");
}
