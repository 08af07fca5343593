//! Calls of every kind, one after the other.

use std::time::Duration;

use tonic::{Code, Request};
use tonic_types::StatusExt;
use tower_ratelimit::{AnchoredWindow, FixedWindow, Policy, RateLimitLayer, TokenBucket, key};

use crate::echo::{BOTH_STREAM, CLIENT_STREAM, Echo, Running, SERVER_STREAM, UNARY, global, still};

/// One call in ten seconds, by a clock that stands still.
fn one_in_ten_seconds() -> (tower_ratelimit::ManualClock, RateLimitLayer) {
    let (clock, store) = still();
    let window = AnchoredWindow::new(1, Duration::from_secs(10)).unwrap();
    let layer = RateLimitLayer::builder()
        .policy(global("calls", window))
        .store(store);
    (clock, layer.build().unwrap())
}

#[tokio::test]
async fn each_kind_of_call_is_refused_with_resource_exhausted_and_passes_after_the_wait() {
    for (path, answer) in [
        (UNARY, &["all of it"][..]),
        (CLIENT_STREAM, &["all of it"]),
        (SERVER_STREAM, &["all", "of", "it"]),
        (BOTH_STREAM, &["all", "of", "it"]),
    ] {
        let (clock, layer) = one_in_ten_seconds();
        let server = Running::echo(layer).await;
        let mut client = server.client().await;
        let words = ["all", "of", "it"];
        assert_eq!(client.stream(path, &words).await.unwrap(), answer, "{path}");

        let refused = client.stream(path, &words).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{path}");
        assert_eq!(refused.message(), "rate limit exceeded");
        let wait = refused
            .get_details_retry_info()
            .unwrap()
            .retry_delay
            .unwrap();
        assert_eq!(wait, Duration::from_secs(10), "{path}");

        let just_before = Duration::from_micros(9_999_999);
        clock.advance(just_before);
        assert!(client.stream(path, &words).await.is_err(), "{path}");
        clock.advance(wait.saturating_sub(just_before));
        assert_eq!(client.stream(path, &words).await.unwrap(), answer, "{path}");
    }
}

#[tokio::test]
async fn a_stream_that_was_let_in_is_not_counted_by_its_messages() {
    let (_, layer) = one_in_ten_seconds();
    let server = Running::echo(layer).await;
    let words = vec!["word"; 1_000];
    let mut client = server.client().await;
    assert_eq!(client.stream(BOTH_STREAM, &words).await.unwrap(), words);
}

#[tokio::test]
async fn a_client_finds_the_fields_in_the_metadata_of_answers_and_of_refusals() {
    let (_, store) = still();
    let layer = RateLimitLayer::builder()
        .policy(global("burst", TokenBucket::per_second(1).burst(1)))
        .store(store);
    let server = Running::echo(layer.build().unwrap()).await;
    let mut client = server.client().await;

    let answer = client.call(UNARY, Request::new("a".into())).await.unwrap();
    assert_eq!(
        answer.metadata().get("ratelimit").unwrap(),
        "\"burst\";r=0;t=1"
    );

    let refused = client.say("b").await.unwrap_err();
    let metadata = refused.metadata();
    assert_eq!(metadata.get("ratelimit").unwrap(), "\"burst\";r=0;t=1");
    assert_eq!(
        metadata.get("ratelimit-policy").unwrap(),
        "\"burst\";q=1;w=1"
    );
    assert_eq!(metadata.get("retry-after").unwrap(), "1");
}

#[tokio::test]
async fn around_one_service_the_layer_has_its_name_and_leaves_others_alone() {
    use tokio_stream::wrappers::TcpListenerStream;
    use tonic::transport::{Endpoint, Server};
    use tonic_health::pb::health_client::HealthClient;
    use tower::Layer;

    let (_, layer) = one_in_ten_seconds();
    let server = Running::start(|listener| async move {
        let (_, health) = tonic_health::server::health_reporter();
        let server = Server::builder()
            .add_service(layer.layer(Echo))
            .add_service(health);
        let incoming = TcpListenerStream::new(listener);
        server.serve_with_incoming(incoming).await.unwrap();
    })
    .await;
    let mut client = server.client().await;
    assert_eq!(client.say("a").await.unwrap(), "a");
    let refused = client.say("a").await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);

    let endpoint = Endpoint::try_from(format!("http://{}", server.address)).unwrap();
    let mut health = HealthClient::new(endpoint.connect().await.unwrap());
    for _ in 0..3 {
        let request = tonic_health::pb::HealthCheckRequest::default();
        assert!(health.check(request).await.is_ok());
    }
}

#[tokio::test]
async fn a_soft_policy_and_an_exposed_decision_are_seen_by_the_method() {
    let (_, store) = still();
    let fresh = global("fresh", FixedWindow::per_hour(1)).soft();
    let layer = RateLimitLayer::builder().policy(fresh).store(store);
    let server = Running::echo(layer.build().unwrap()).await;
    let mut client = server.client().await;
    assert_eq!(client.say("a").await.unwrap(), "a");
    assert_eq!(client.say("a").await.unwrap(), "a, over the limit");

    let (_, store) = still();
    let calls = Policy::new("calls", FixedWindow::per_hour(5)).key(key::peer_ip());
    let layer = RateLimitLayer::builder().policy(calls).store(store);
    let server = Running::echo(layer.expose_decision().build().unwrap()).await;
    let mut client = server.client().await;
    assert_eq!(client.say("a").await.unwrap(), "a, 4 left of calls");
}
