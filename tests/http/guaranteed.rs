//! What a level of a tree guarantees to the keys of the one below, in a layer.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tower::{Layer, service_fn};
use tower_ratelimit::key::{self, IntoKey, Key};
use tower_ratelimit::middleware::Deadline;
use tower_ratelimit::policy::{Http, Settle};
use tower_ratelimit::{FixedWindow, LeakyQueue, Policy, Quota, RateLimitLayer};

use crate::arrivals::{Arrivals, behind, send, store};
use crate::exchange::{ask, global, limit, now};
use crate::trees::{built, of};

/// Ten an hour for an organisation, of which each team is guaranteed four.
fn guaranteed(org: impl FnOnce(Policy<Http>) -> Policy<Http>) -> Vec<Policy<Http>> {
    let tree = Policy::tree("spend")
        .level("org", key::header("x-org"), FixedWindow::per_hour(10))
        .with(org)
        .level("team", key::header("x-team"), FixedWindow::per_hour(8))
        .with(|team| team.guaranteed(Quota::per_hour(4)));
    built(tree)
}

/// The team itself settles nothing: what it has of the organisation is what the request settles there.
#[test]
fn what_an_answer_costs_is_that_of_the_key_below() {
    let settled = |org: Policy<Http>| org.estimate(2).settle(Settle::from_header("x-real"));
    let (_, layer) = limit(guaranteed(settled));
    let service = layer.layer(service_fn(async |request: Request<()>| {
        let mut response = Response::new(String::new());
        let real = request.headers()["x-real"].clone();
        response.headers_mut().insert("x-real", real);
        Ok::<_, Infallible>(response)
    }));
    let passes = |team: &str, real: u32| {
        let mut request = of(&["acme", team]);
        request.headers_mut().insert("x-real", real.into());
        ask(&service, request).status == StatusCode::OK
    };
    assert!(passes("blue", 0));
    // Blue has all of its 4, so red has the other 6.
    assert_eq!(
        [(); 4].map(|()| passes("red", 2)),
        [true, true, true, false]
    );
    assert_eq!([(); 3].map(|()| passes("blue", 2)), [true, true, false]);
}

/// It comes too late for its turn in the queue, and is charged nothing.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_served_uses_no_guarantee() {
    let queue = global("queue", LeakyQueue::per_minute(1).places(99));
    let policies = guaranteed(|org| org).into_iter().chain([queue]);
    let builder = RateLimitLayer::builder().policies(policies).store(store());
    let layer = builder.build().unwrap();
    let service = behind(&layer, &Arrivals::new());
    for _ in 0..4 {
        let mut request = of(&["acme", "blue"]);
        request.headers_mut().insert("x-number", 1.into());
        let deadline = Deadline::after(Duration::from_secs(1));
        request.extensions_mut().insert(deadline);
        send(&service, request).await;
    }
    let limiter = layer.limiter();
    let red_passes = |cost| {
        let red = Key::branch("acme", &["red".into_key()]);
        let charges = [("spend.org", red.root(), cost), ("spend.team", red, cost)];
        now(limiter.named(charges).unwrap().check())
            .unwrap()
            .is_allowed()
    };
    assert!(!red_passes(7), "three are kept for blue");
    assert!(red_passes(6));
}
