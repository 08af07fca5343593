//! Instructions of the core paths, counted by valgrind: they repeat where times do not.
//!
//! `make instructions` runs this and compares. Each path runs a thousand times, and the count is that of all
//! runs, with the two or three instructions of the loop: a table is keyed at random, so one decision may look
//! at an entry more than another. The clock stands still, since reading a real one takes as many instructions
//! as the kernel likes.

use std::convert::Infallible;
use std::hint::black_box;

use axum::body::Body;
use gungraun::prelude::*;
use http::{HeaderName, HeaderValue, Request, Response};
use tower::{Layer, Service};
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::{
    Algorithm, FixedWindow, Gcra, Limiter, LocalLimiter, ManualClock, MemoryStore, Policy,
    RateLimitLayer, SlidingWindow, key,
};
use tower_ratelimit_adapt::middleware::{AdaptiveConcurrencyLayer, TrafficLayer};
use tower_ratelimit_adapt::{AdaptiveConcurrency, Traffic};
use tower_ratelimit_benches::factors::{self, Scale};
use tower_ratelimit_benches::growth::TIMES;
use tower_ratelimit_benches::keys::address;
use tower_ratelimit_benches::requests::{hello, request, send};
use tower_ratelimit_benches::{PLENTY, ours};

fn store() -> MemoryStore {
    MemoryStore::new().clock(ManualClock::new())
}

/// Returns a limiter that has seen the key once; a limit of 1 is used up.
fn known(algorithm: impl Into<Algorithm>) -> LocalLimiter {
    seen(ours::limiter(algorithm, store()))
}

/// Returns a limiter whose key has the limit of a plan, which a closure names.
fn planned(algorithm: impl Into<Algorithm>) -> LocalLimiter {
    let free = Plan::new("free").limit("bench", Gcra::per_hour(1));
    let pro = Plan::new("pro").limit("bench", Gcra::per_hour(PLENTY / 2));
    let plans = Plans::new([free, pro]).default_plan("free");
    let limiter = Limiter::builder()
        .policy(Policy::new("bench", algorithm))
        .plans(plans, |_| Some("pro"))
        .store(store())
        .build_local()
        .expect("a policy and a plan that speaks of it");
    seen(limiter)
}

/// Returns a limiter whose policy has a factor, or the same limit without one.
fn scaled(scale: Scale) -> LocalLimiter {
    seen(factors::limiter(scale, store()))
}

fn policies(count: usize) -> LocalLimiter {
    seen(ours::limiter_of(ours::policies(count), store()))
}

fn seen(limiter: LocalLimiter) -> LocalLimiter {
    assert!(limiter.admit(address(0), 1).now());
    limiter
}

// The path returns its arguments, so that dropping them is not counted.

#[library_benchmark]
#[bench::gcra(known(Gcra::per_hour(PLENTY)))]
#[bench::gcra_refused(known(Gcra::per_hour(1)))]
#[bench::fixed_window(known(FixedWindow::per_hour(PLENTY)))]
#[bench::sliding_window(known(SlidingWindow::per_hour(PLENTY)))]
#[bench::eight_policies(policies(8))]
#[bench::plan(planned(Gcra::per_hour(PLENTY)))]
#[bench::no_factor(scaled(Scale::None))]
#[bench::factor_1(scaled(Scale::Thousandths(1_000)))]
#[bench::factor_half(scaled(Scale::Thousandths(500)))]
#[bench::factor_after_200_others(scaled(Scale::Fallen(700)))]
fn admit_now(limiter: LocalLimiter) -> LocalLimiter {
    for _ in 0..TIMES {
        black_box(limiter.admit(black_box(address(0)), 1).now());
    }
    limiter
}

#[library_benchmark]
#[bench::gcra(known(Gcra::per_hour(PLENTY)))]
#[bench::gcra_refused(known(Gcra::per_hour(1)))]
#[bench::eight_policies(policies(8))]
#[bench::plan(planned(Gcra::per_hour(PLENTY)))]
#[bench::no_factor(scaled(Scale::None))]
#[bench::factor_1(scaled(Scale::Thousandths(1_000)))]
#[bench::factor_half(scaled(Scale::Thousandths(500)))]
#[bench::factor_after_200_others(scaled(Scale::Fallen(700)))]
fn check_now(limiter: LocalLimiter) -> LocalLimiter {
    for _ in 0..TIMES {
        let _ = black_box(limiter.check(black_box(address(0)), 1).now());
    }
    limiter
}

#[library_benchmark]
#[bench::gcra(known(Gcra::per_hour(PLENTY)))]
fn new_key(limiter: LocalLimiter) -> LocalLimiter {
    for n in 0..TIMES {
        black_box(limiter.admit(black_box(address(n + 1)), 1).now());
    }
    limiter
}

type Sent<S> = (S, Vec<Request<Body>>);

/// Returns a layer that has seen the client once, and requests to send.
fn layered(
    limit: u32,
    fields: bool,
) -> Sent<impl Service<Request<Body>, Response = Response<impl Sized>, Error = Infallible>> {
    sent(ours::layer(Gcra::per_hour(limit), store(), fields).layer(hello()))
}

/// The headers with the keys of four policies, or of the levels of a tree.
const PATH: [(&str, &str); 4] = [
    ("x-org", "acme"),
    ("x-team", "blue"),
    ("x-user", "ann"),
    ("x-key", "4711"),
];

/// Returns a layer with a policy for each of these headers, above each other or not.
fn four(are_above_each_other: bool) -> RateLimitLayer {
    let key = |name: &'static str| key::header(name);
    let policies = if are_above_each_other {
        let levels = PATH.iter();
        let tree = levels.fold(Policy::tree("bench"), |tree, (name, _)| {
            tree.level(name, key(name), Gcra::per_hour(PLENTY))
        });
        tree.build().expect("four levels")
    } else {
        let alone = |(name, _): &(&'static str, _)| {
            Policy::new(format!("bench.{name}"), Gcra::per_hour(PLENTY)).key(key(name))
        };
        PATH.iter().map(alone).collect()
    };
    let layer = RateLimitLayer::builder().policies(policies).store(store());
    let layer = layer.without_headers().build();
    layer.expect("policies with good names")
}

/// Returns a service that has had a request, and requests to send.
fn sent<S, B>(mut service: S) -> Sent<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    send(&mut service, request());
    (service, (0..TIMES).map(|_| request()).collect())
}

/// The same, of requests with four keys.
fn sent_with_keys<S, B>(service: S) -> Sent<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    let (mut service, mut requests) = sent(service);
    for request in &mut requests {
        let keys = PATH.map(|(name, key)| (name, HeaderValue::from_static(key)));
        let keys = keys.map(|(name, key)| (HeaderName::from_static(name), key));
        request.headers_mut().extend(keys);
    }
    // The states are there before the first one is counted.
    let first = requests.pop().expect("a thousand requests");
    send(&mut service, first);
    (service, requests)
}

/// Returns the layer that counts requests for the signals of a load.
fn traffic() -> TrafficLayer {
    TrafficLayer::new(&Traffic::new())
}

fn concurrency() -> AdaptiveConcurrencyLayer {
    AdaptiveConcurrencyLayer::new(&AdaptiveConcurrency::new())
}

#[library_benchmark]
#[bench::no_headers(layered(PLENTY, false))]
#[bench::all_headers(layered(PLENTY, true))]
#[bench::refused(layered(1, true))]
#[bench::bare(sent(hello()))]
#[bench::four_policies(sent_with_keys(four(false).layer(hello())))]
#[bench::tree_of_four(sent_with_keys(four(true).layer(hello())))]
#[bench::traffic(sent(traffic().layer(hello())))]
#[bench::adaptive_concurrency(sent(concurrency().layer(hello())))]
fn layer<S, B>((mut service, mut requests): Sent<S>) -> Sent<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    for request in requests.drain(..) {
        black_box(send(&mut service, request));
    }
    (service, requests)
}

library_benchmark_group!(
    name = decision,
    benchmarks = [admit_now, check_now, new_key]
);
library_benchmark_group!(name = requests, benchmarks = [layer]);
main!(library_benchmark_groups = [decision, requests]);
