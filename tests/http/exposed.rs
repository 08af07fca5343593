//! The decision in the extensions of a request, if the layer exposes it.

use std::convert::Infallible;

use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, service_fn};
use tower_ratelimit::policy::Http;
use tower_ratelimit::{AnchoredWindow, Decision, Policy, RateLimitLayer};

use crate::exchange::{ask, get, get_with, global, limit};

/// Answers with the policies of the decision, and what remains of each.
async fn decided(request: Request<()>) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
    let told = match request.extensions().get::<Decision>() {
        Some(decision) => decision
            .policies()
            .map(|(name, outcome)| format!("{name} {}", outcome.remaining()))
            .collect::<Vec<_>>()
            .join(", "),
        None => "none".to_owned(),
    };
    Ok(Response::new(Full::from(told)))
}

fn exposing(policies: impl IntoIterator<Item = Policy<Http>>) -> RateLimitLayer {
    let builder = RateLimitLayer::builder().policies(policies);
    builder.expose_decision().build().unwrap()
}

fn ten(name: &str) -> Policy<Http> {
    global(name, AnchoredWindow::per_day(10))
}

#[test]
fn a_handler_sees_the_numbers_of_every_policy_that_was_asked() {
    let marked = ten("marked").when(|head| head.header("x-mark").is_some());
    let service = exposing([ten("all"), marked]).layer(service_fn(decided));
    assert_eq!(ask(&service, get()).text(), "all 9");
    let answer = ask(&service, get_with([("x-mark", 1)]));
    assert_eq!(answer.text(), "all 8, marked 9");
}

#[test]
fn a_handler_sees_nothing_without_the_option_or_without_a_policy() {
    let (_, silent) = limit([ten("all")]);
    assert_eq!(
        ask(&silent.layer(service_fn(decided)), get()).text(),
        "none"
    );
    let never = exposing([ten("never").when(|_| false)]);
    assert_eq!(ask(&never.layer(service_fn(decided)), get()).text(), "none");
}

#[test]
fn a_handler_sees_the_innermost_layer_with_a_policy() {
    let inner = exposing([ten("inner").when(|head| head.header("x-mark").is_some())]);
    let service = exposing([ten("outer")]).layer(inner.layer(service_fn(decided)));
    assert_eq!(ask(&service, get()).text(), "outer 9");
    let answer = ask(&service, get_with([("x-mark", 1)]));
    assert_eq!(answer.text(), "inner 9");
}
