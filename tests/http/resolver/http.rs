//! Plans under the layer of HTTP.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::key::{self, Head};
use tower_ratelimit::plan::Resolver;
use tower_ratelimit::response::Refusal;
use tower_ratelimit::{Decision, FixedWindow, Policy, RateLimitLayer};

use crate::resolver::scene::*;

fn builder(resolver: &Resolver<String>) -> tower_ratelimit::middleware::RateLimitLayerBuilder {
    let customer = |head: &Head<'_>| Some(head.header("x-customer")?.to_owned());
    RateLimitLayer::builder()
        .policy(Policy::new("minute", FixedWindow::per_minute(10)).key(key::global()))
        .plans_by_name(plans())
        .resolver(resolver.clone(), customer)
        .exempt_paths(["/health"])
        .deny(|head| head.path() == "/secret")
        .expose_decision()
}

async fn send(layer: &RateLimitLayer, path: &str, customer: Option<&str>) -> (StatusCode, String) {
    let mut request = Request::get(path);
    if let Some(customer) = customer {
        request = request.header("x-customer", customer);
    }
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let inner = service_fn(async |request: Request<Empty<Bytes>>| {
        let decision = request.extensions().get::<Decision>();
        let mut response = Response::new(Empty::<Bytes>::new());
        if let Some(decision) = decision {
            response.extensions_mut().insert(told(decision));
        }
        Ok::<_, Infallible>(response)
    });
    let response = layer.layer(inner).oneshot(request).await.unwrap();
    let refusal = response.extensions().get::<Refusal>();
    let text = match refusal {
        Some(refusal) => format!("{refusal:?}"),
        None => response
            .extensions()
            .get::<String>()
            .cloned()
            .unwrap_or_default(),
    };
    (response.status(), text)
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_its_plan_before_it_is_charged() {
    let source = ScriptedSource::new();
    source.set("ann", "pro");
    source.delay(30 * MILLIS);
    let layer = builder(&source.resolver()).build().unwrap();
    let start = Instant::now();
    let ok = |told: &str| (StatusCode::OK, told.to_owned());
    assert_eq!(send(&layer, "/", Some("ann")).await, ok("plan pro, fresh"));
    assert_eq!(start.elapsed(), 30 * MILLIS);
    assert_eq!(send(&layer, "/", Some("ann")).await, ok("plan pro, fresh"));
    assert_eq!(start.elapsed(), 30 * MILLIS);
    assert_eq!(
        send(&layer, "/", Some("bob")).await,
        ok("plan free, default: not found")
    );
    let lookups = source.all_begun();
    // A request without a lookup has the default plan.
    assert_eq!(send(&layer, "/", None).await, ok("plan free, "));
    assert_eq!(source.all_begun(), lookups);
}

/// A request that leaves while it waits for its plan was charged nothing.
#[tokio::test(start_paused = true)]
async fn a_request_that_goes_away_before_its_plan_is_known_is_charged_nothing() {
    let source = ScriptedSource::new();
    let layer = builder(&source.resolver()).build().unwrap();
    let gate = source.hold();
    let task = {
        let layer = layer.clone();
        tokio::spawn(async move { send(&layer, "/", Some("ann")).await })
    };
    settle().await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    gate.add_permits(1);
    settle().await;
    let global = key::Key::GLOBAL;
    let peeked = layer.limiter().peek(global, 0).await.unwrap();
    assert_eq!(peeked.binding().unwrap().1.used(), 0);
    send(&layer, "/", Some("ann")).await;
    let peeked = layer.limiter().peek(global, 0).await.unwrap();
    assert_eq!(peeked.binding().unwrap().1.used(), 1);
    assert_eq!(source.all_begun(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_on_a_list_is_not_looked_up() {
    let source = ScriptedSource::new();
    let layer = builder(&source.resolver()).build().unwrap();
    assert_eq!(send(&layer, "/health", Some("ann")).await.0, StatusCode::OK);
    assert_eq!(
        send(&layer, "/secret", Some("ann")).await.0,
        StatusCode::FORBIDDEN
    );
    assert_eq!(source.all_begun(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_plan_is_not_known_gets_503_by_choice() {
    let source = ScriptedSource::new();
    source.acts("ann", LookupScript::Fail);
    let resolver = source.builder().refuse_unresolved().build().unwrap();
    let layer = builder(&resolver).build().unwrap();
    let refused = format!("{:?}", Refusal::StoreFailed(StoreErrorKind::Unresolved));
    for _ in 0..2 {
        let answer = send(&layer, "/", Some("ann")).await;
        assert_eq!(answer, (StatusCode::SERVICE_UNAVAILABLE, refused.clone()));
    }
    assert_eq!(send(&layer, "/", Some("bob")).await.0, StatusCode::OK);
}

/// An interceptor answers at once.
#[tokio::test(start_paused = true)]
async fn an_interceptor_has_what_is_known_and_begins_a_lookup() {
    use tonic::service::Interceptor;

    let source = ScriptedSource::new();
    source.set("ann", "pro");
    let resolver = source.builder().refuse_unresolved().build().unwrap();
    let customer = |head: &Head<'_>| Some(head.header("x-customer")?.to_owned());
    let mut interceptor = RateLimitLayer::builder()
        .policy(Policy::new("minute", FixedWindow::per_minute(10)).key(key::global()))
        .plans_by_name(plans())
        .resolver(resolver, customer)
        .expose_decision()
        .build_interceptor()
        .unwrap();
    let mut call = || {
        let mut request = tonic::Request::new(());
        request
            .metadata_mut()
            .insert("x-customer", "ann".parse().unwrap());
        let request = interceptor.call(request).unwrap();
        told(request.extensions().get::<Decision>().unwrap())
    };
    assert_eq!(call(), "plan free, default: lookup in flight");
    settle().await;
    assert_eq!(call(), "plan pro, fresh");
}
