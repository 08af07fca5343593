//! The policies as an interceptor.

use std::time::Duration;

use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::{Interceptor, InterceptorLayer};
use tonic::transport::Server;
use tonic::{Code, Request};
use tonic_types::StatusExt;
use tower::Layer;
use tower_ratelimit::middleware::{OverLimit, RateLimitInterceptor};
use tower_ratelimit::response::{Grpc, Refusal};
use tower_ratelimit::{AnchoredWindow, FixedWindow, LeakyQueue, Policy, RateLimitLayer, key};

use crate::echo::{Client, Echo, Running, global, still};

/// Returns a server of [`Echo`] with this interceptor before it.
async fn intercepted(limit: RateLimitInterceptor) -> Running {
    Running::start(|listener| async move {
        let echo = InterceptorLayer::new(limit).layer(Echo);
        let server = Server::builder().add_service(echo);
        let incoming = TcpListenerStream::new(listener);
        server.serve_with_incoming(incoming).await.unwrap();
    })
    .await
}

async fn two_calls(client: &mut Client) -> tonic::Status {
    assert_eq!(client.say("a").await.unwrap(), "a");
    client.say("a").await.unwrap_err()
}

#[tokio::test]
async fn a_call_that_is_refused_is_told_what_a_layer_tells() {
    let (clock, store) = still();
    let window = AnchoredWindow::new(1, Duration::from_millis(2_500)).unwrap();
    let peer = Policy::new("peer", window).key(key::peer_ip());
    let limit = RateLimitLayer::builder().policy(peer).store(store);
    let server = intercepted(limit.build_interceptor().unwrap()).await;
    let mut client = server.client().await;
    let refused = two_calls(&mut client).await;
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.message(), "rate limit exceeded");
    let wait = refused
        .get_details_retry_info()
        .unwrap()
        .retry_delay
        .unwrap();
    assert_eq!(wait, Duration::from_millis(2_500));
    let quota = refused.get_details_quota_failure().unwrap();
    assert_eq!(
        quota.violations[0].description,
        "peer: 1 requests per 2500 ms"
    );
    assert_eq!(refused.metadata().get("retry-after").unwrap(), "3");
    clock.advance(wait);
    assert!(client.say("a").await.is_ok());
}

#[tokio::test]
async fn a_layer_and_an_interceptor_over_one_store_share_a_budget() {
    let (_, store) = still();
    let builder = || {
        let peer = Policy::new("peer", FixedWindow::per_day(2)).key(key::peer_ip());
        RateLimitLayer::builder().policy(peer).store(store.clone())
    };
    let layered = Running::echo(builder().build().unwrap()).await;
    let server = intercepted(builder().build_interceptor().unwrap()).await;
    assert!(layered.client().await.say("a").await.is_ok());
    assert!(server.client().await.say("a").await.is_ok());
    assert!(server.client().await.say("a").await.is_err());
    assert!(layered.client().await.say("a").await.is_err());
}

#[test]
fn a_request_goes_on_as_it_came() {
    let calls = global("calls", FixedWindow::per_day(1)).soft();
    let limit = RateLimitLayer::builder().policy(calls);
    let mut limit = limit.build_interceptor().unwrap();
    let request = || {
        let mut request = Request::new(());
        let metadata = request.metadata_mut();
        metadata.append("tenant", "a".parse().unwrap());
        metadata.append("tenant", "b".parse().unwrap());
        let id = tonic::metadata::MetadataValue::from_bytes(&[0, 255]);
        metadata.insert_bin("id-bin", id);
        request.extensions_mut().insert(7_u32);
        request
    };
    let first = limit.call(request()).unwrap();
    let tenants: Vec<_> = first.metadata().get_all("tenant").iter().collect();
    assert_eq!(tenants, ["a", "b"]);
    let id = first.metadata().get_bin("id-bin").unwrap();
    assert_eq!(id.to_bytes().unwrap().as_ref(), [0, 255]);
    assert_eq!(first.extensions().get(), Some(&7_u32));
    assert_eq!(first.extensions().len(), 1);
    assert!(first.extensions().get::<OverLimit>().is_none());

    let second = limit.call(request()).unwrap();
    assert!(second.extensions().get::<OverLimit>().is_some());
}

#[test]
fn an_interceptor_refuses_unsupported_policies_when_it_is_built() {
    let calls = || global("calls", FixedWindow::per_day(1));
    let exempt = RateLimitLayer::builder()
        .policy(calls())
        .exempt_paths(["/health"]);
    assert_eq!(
        exempt.build_interceptor().unwrap_err().field(),
        "exempt_paths"
    );
    let queue = global("queue", LeakyQueue::per_second(1).places(1));
    let queue = RateLimitLayer::builder().policy(calls()).policy(queue);
    assert_eq!(
        queue.build_interceptor().unwrap_err().field(),
        "leaky queue"
    );
    let patient = calls().wait_up_to(Duration::from_secs(1));
    let patient = RateLimitLayer::builder().policy(patient);
    assert_eq!(
        patient.build_interceptor().unwrap_err().field(),
        "wait_up_to"
    );
    let none = RateLimitLayer::builder();
    assert_eq!(none.build_interceptor().unwrap_err().field(), "policies");
}

#[test]
fn the_path_is_not_there_and_a_key_made_of_it_is_the_servers_fault() {
    for by_path in [
        Policy::new("path", FixedWindow::per_day(9)).key(key::grpc_method()),
        Policy::new("path", FixedWindow::per_day(9)).key(key::grpc_service()),
    ] {
        let limit = RateLimitLayer::builder().policy(by_path);
        let mut limit = limit.build_interceptor().unwrap();
        let refused = limit.call(Request::new(())).unwrap_err();
        assert_eq!(refused.code(), Code::Internal);
    }
    // A condition does not hold.
    let calls = global("calls", FixedWindow::per_day(0)).when(key::grpc_method().one_of(["/"]));
    let limit = RateLimitLayer::builder().policy(calls);
    assert!(
        limit
            .build_interceptor()
            .unwrap()
            .call(Request::new(()))
            .is_ok()
    );
}

#[test]
fn whatever_is_said_of_calls_an_interceptor_has_no_others() {
    let nothing = global("calls", FixedWindow::per_day(0));
    let limit = RateLimitLayer::builder()
        .policy(nothing)
        .grpc(Grpc::never().message("no"));
    let refused = limit.build_interceptor().unwrap().call(Request::new(()));
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.message(), "no");
    let response = refused.into_http::<String>();
    assert!(response.extensions().get::<Refusal>().is_none());
}

#[test]
fn lists_hold_for_interceptors_too() {
    let nothing = || global("calls", FixedWindow::per_day(0));
    let limit = RateLimitLayer::builder().policy(nothing());
    let limit = limit.allow(|head| head.header("tenant") == Some("ours"));
    let limit = limit.deny(|head| head.header("tenant") == Some("theirs"));
    let mut limit = limit.build_interceptor().unwrap();
    let mut call = |tenant: &'static str| {
        let mut request = Request::new(());
        request
            .metadata_mut()
            .insert("tenant", tenant.parse().unwrap());
        limit
            .call(request)
            .map(drop)
            .map_err(|status| status.code())
    };
    assert_eq!(call("ours"), Ok(()));
    assert_eq!(call("theirs"), Err(Code::PermissionDenied));
    assert_eq!(call("others"), Err(Code::ResourceExhausted));
}
