//! Malicious clients, and inner services with unusual responses.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, Response};
use proptest::prelude::*;
use tonic::{Code, Status};
use tower_ratelimit::response::Grpc;
use tower_ratelimit::{FixedWindow, LeakyQueue, Policy, RateLimitLayer, key};

use crate::echo::{Running, answered, global, post, still};

/// Returns the mistake in a response without a body, by the rules of gRPC. A gRPC client reads it without a panic.
/// panic.
fn fault(response: &Response<String>) -> Option<String> {
    let headers = response.headers();
    let length: usize = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 32)
        .sum();
    let status = Status::from_header_map(headers);
    let checks = [
        (response.status() == 200, "status"),
        (response.body().is_empty(), "body"),
        (
            headers["content-type"]
                .to_str()
                .unwrap()
                .starts_with("application/grpc"),
            "content type",
        ),
        (
            status.is_some_and(|status| status.code() == Code::ResourceExhausted),
            "code",
        ),
        (
            headers.get_all("grpc-status-details-bin").iter().count() == 1,
            "details",
        ),
        (length <= 8 * 1024, "length"),
    ];
    let fault = checks.into_iter().find(|(holds, _)| !holds)?;
    Some(format!("{} of {response:?}, {length} bytes", fault.1))
}

fn value() -> impl Strategy<Value = HeaderValue> {
    let bytes = prop::collection::vec(prop_oneof![0x20_u8..0x7f, 0x80_u8..=0xff], 0..200);
    bytes.prop_map(|bytes| HeaderValue::from_bytes(&bytes).unwrap())
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn whatever_a_client_sends_it_can_read_its_refusal(
        suffix in value(),
        forged in value(),
        path in "/[a-zA-Z0-9./%_~-]{0,300}",
    ) {
        let subject = |head: &key::Head<'_>, _: &str| {
            let forged = head.headers().get("x-forged")?;
            Some(String::from_utf8_lossy(forged.as_bytes()).into_owned())
        };
        let nothing = || FixedWindow::per_day(0);
        let layer = RateLimitLayer::builder()
            .policy(Policy::new("metadata", nothing()).key(key::metadata("x-forged-bin")))
            .policy(Policy::new("method", nothing()).key(key::grpc_method()))
            .policy(Policy::new("service", nothing()).key(key::grpc_service()))
            .grpc(Grpc::always().subject(subject).retry_pushback(Duration::ZERO))
            .build()
            .unwrap();
        let mut request = Request::post(path).body(String::new()).unwrap();
        let headers: &mut HeaderMap = request.headers_mut();
        let content_type = [b"application/grpc+", suffix.as_bytes()].concat();
        headers.insert("content-type", HeaderValue::from_bytes(&content_type).unwrap());
        for name in ["grpc-status", "grpc-status-details-bin", "grpc-timeout", "x-forged", "x-forged-bin"] {
            headers.insert(name, forged.clone());
        }
        let refused = block_on(answered(&layer, request));
        prop_assert_eq!(fault(&refused), None);
        prop_assert_eq!(&refused.headers()["grpc-status"], "8");
    }
}

#[tokio::test]
async fn the_longest_refusal_fits_into_what_clients_take() {
    for tells in [true, false] {
        longest(tells).await;
    }
}

async fn longest(tells: bool) {
    let subject = |_: &key::Head<'_>, _: &str| Some("\u{1f980}".repeat(1_000));
    let mut builder = RateLimitLayer::builder()
        .grpc(
            Grpc::detected()
                .subject(subject)
                .message("\u{20ac}".repeat(170)),
        )
        .retry_jitter(Duration::from_secs(1));
    if !tells {
        builder = builder.without_headers();
    }
    for policy in 0..40 {
        let name = format!("{policy:02} {}", "n".repeat(61));
        builder = builder.policy(global(&name, FixedWindow::per_day(0)));
    }
    let refused = answered(&builder.build().unwrap(), post("application/grpc")).await;
    assert_eq!(fault(&refused), None);
}

#[tokio::test]
async fn a_large_message_costs_nothing_once_its_call_is_refused() {
    let nothing = global("calls", FixedWindow::per_day(0));
    let layer = RateLimitLayer::builder().policy(nothing).build().unwrap();
    let server = Running::echo(layer).await;
    let mut client = server.client().await;
    let message = "a".repeat(64 << 20);
    let refused = client.say(&message).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.message(), "rate limit exceeded");
    // The connection still works.
    let refused = client.say("a").await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn a_call_that_is_given_up_while_it_is_held_gives_its_place_back() {
    let (_, store) = still();
    let queue = global("queue", LeakyQueue::per_hour(1).places(1));
    let layer = RateLimitLayer::builder().policy(queue).store(store);
    let layer = layer.build().unwrap();
    let call = || Box::pin(answered(&layer, post("application/grpc")));
    assert_eq!(call().await.body(), "hello");
    for _ in 0..3 {
        let mut held = call();
        assert!(poll_once(held.as_mut()).await.is_pending());
        let refused = call().await;
        assert_eq!(fault(&refused), None);
        drop(held);
    }
}

async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

#[tokio::test]
async fn the_trailers_of_an_inner_service_stay_as_they_are() {
    use tower::{Layer, ServiceExt, service_fn};

    let (_, store) = still();
    let calls = global("calls", FixedWindow::per_day(9));
    let layer = RateLimitLayer::builder()
        .policy(calls)
        .store(store)
        .build()
        .unwrap();
    let inner = service_fn(|_: Request<String>| async {
        let mut refused =
            Status::resource_exhausted("by the service").into_http::<tonic::body::Body>();
        let own = HeaderValue::from_static("120");
        refused.headers_mut().insert("retry-after", own);
        Ok::<_, Infallible>(refused)
    });
    let answer = layer
        .layer(inner)
        .oneshot(post("application/grpc"))
        .await
        .unwrap();
    assert_eq!(answer.headers()["grpc-message"], "by%20the%20service");
    assert_eq!(answer.headers()["retry-after"], "120");
    assert_eq!(answer.headers()["ratelimit"], "\"calls\";r=8;t=86400");
    assert_eq!(answer.headers().get_all("grpc-status").iter().count(), 1);
}
