//! Ten seconds of more calls than a server allows: at most one call is refused each time that the limit is reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::DATE;
use http::{HeaderValue, Request, Response};
use http_body_util::Empty;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_ratelimit::client::ClientThrottleLayer;
use tower_ratelimit::clock::Clock;
use tower_ratelimit::middleware::RateLimitLayerBuilder;
use tower_ratelimit::response::{Dialect, Reset};
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyBucket, MemoryStore, Policy, RateLimitLayer,
    SlidingLog, SlidingWindow, TokenBucket, key,
};

use crate::support::tokio_clock::TokioClock;

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) served: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// The number of times that the remaining calls fell to zero.
    pub(crate) reached: AtomicU64,
    is_spent: AtomicBool,
}

impl Seen {
    /// In the order in which the server has answered.
    pub(crate) fn count<B>(&self, response: &Response<B>) {
        let is_refused = response.status() == 429;
        let answers = if is_refused {
            &self.refused
        } else {
            &self.served
        };
        answers.fetch_add(1, Ordering::SeqCst);
        let is_spent = is_refused
            || ["ratelimit", "x-ratelimit-remaining"].iter().any(|name| {
                let told = response.headers().get(*name);
                let told = told.map_or("", |told| told.to_str().unwrap());
                told == "0" || told.contains(";r=0;")
            });
        if !self.is_spent.swap(is_spent, Ordering::SeqCst) && is_spent {
            self.reached.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(crate) fn numbers(&self) -> [u64; 3] {
        [&self.served, &self.refused, &self.reached].map(|seen| seen.load(Ordering::SeqCst))
    }
}

/// How long each way takes: anything up to this.
const WAY: u64 = 40;

/// Returns the same numbers each time, up to `most`.
fn noise(dice: &AtomicU64, most: u64) -> Duration {
    let next = |dice: u64| dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    let dice = dice.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |dice| Some(next(dice)));
    Duration::from_millis((dice.unwrap() >> 33) % (most + 1))
}

/// Runs this many callers against a server with this limit, whose handler takes up to this many milliseconds. Returns
/// how many calls were served and refused, and how often the limit was reached.
async fn load(limit: RateLimitLayerBuilder, callers: u64, handler: u64) -> [u64; 3] {
    let clock = TokioClock::new();
    let layer = limit.store(MemoryStore::new().clock(clock.clone()));
    let layer = layer.build().unwrap();
    let seen = Arc::new(Seen::default());
    let dice = Arc::new(AtomicU64::new(7));
    let handle = {
        let dice = Arc::clone(&dice);
        service_fn(move |_: Request<Empty<Bytes>>| {
            let time = noise(&dice, handler);
            async move {
                sleep(time).await;
                Ok::<_, BoxError>(Response::new(Empty::<Bytes>::new()))
            }
        })
    };
    let limited = layer.layer(handle);
    let server = {
        let seen = Arc::clone(&seen);
        service_fn(move |request: Request<Empty<Bytes>>| {
            let [there, back] = [(); 2].map(|()| noise(&dice, WAY));
            let (limited, seen, clock) = (limited.clone(), Arc::clone(&seen), clock.clone());
            async move {
                sleep(there).await;
                let mut response = limited.oneshot(request).await?;
                let date = clock.now().to_system_time().unwrap();
                let date = HeaderValue::from_str(&httpdate::fmt_http_date(date));
                response.headers_mut().insert(DATE, date.unwrap());
                seen.count(&response);
                sleep(back).await;
                Ok::<_, BoxError>(response)
            }
        })
    };
    let client = ClientThrottleLayer::new().layer(server);
    let end = Instant::now() + Duration::from_secs(10);
    let mut calls = JoinSet::new();
    for _ in 0..callers {
        let client = client.clone();
        calls.spawn(async move {
            loop {
                let call = client.clone().oneshot(Request::new(Empty::new()));
                let Ok(response) = timeout_at(end, call).await else {
                    break;
                };
                response.unwrap();
            }
        });
    }
    calls.join_all().await;
    seen.numbers()
}

fn limit(algorithm: impl Into<Algorithm>, dialect: Dialect) -> RateLimitLayerBuilder {
    let policy = Policy::new("default", algorithm).key(key::global());
    RateLimitLayer::builder().policy(policy).dialects([dialect])
}

#[tokio::test(start_paused = true)]
async fn the_quickstart_refuses_none_and_serves_as_many_as_whole_seconds_let_it() {
    let quickstart = TokenBucket::per_second(5).burst(10);
    for callers in [1, 5, 50, 500] {
        let layer = limit(quickstart, Dialect::Draft11);
        let [served, refused, reached] = load(layer, callers, 0).await;
        assert_eq!(refused, 0, "{callers}");
        // Ten at once and fifty in ten seconds. The client reads whole seconds, so it is a little late.
        assert!((45..=60).contains(&served), "{callers}: {served}");
        assert!(reached >= 8, "{callers}: {reached}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_algorithm_refuses_more_than_one_for_each_time_that_its_limit_is_reached() {
    let algorithms: [(Algorithm, u64); 7] = [
        (TokenBucket::per_second(100).burst(3).into(), 0),
        (FixedWindow::per_second(20).into(), 20 * 5),
        (AnchoredWindow::per_second(20).into(), 20 * 5),
        (SlidingLog::per_second(20).into(), 20 * 4),
        (SlidingWindow::per_second(20).into(), 20 * 4),
        (LeakyBucket::per_second(7).capacity(9).into(), 0),
        (Gcra::per_second(7).burst(9).into(), 0),
    ];
    for (algorithm, least) in algorithms {
        for dialect in [
            Dialect::Draft11,
            Dialect::XRateLimit(Reset::EpochSeconds),
            Dialect::XRateLimit(Reset::DeltaSeconds),
        ] {
            let layer = limit(algorithm, dialect);
            let [served, refused, reached] = load(layer, 50, 0).await;
            println!("{algorithm} {dialect:?}: {served} {refused} {reached}");
            assert!(
                refused <= reached,
                "{algorithm} {dialect:?}: {refused} of {reached}"
            );
            assert!(served >= least, "{algorithm} {dialect:?}: {served}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_tells_only_its_refusals_is_learnt_from_those() {
    let policy = Policy::new("default", FixedWindow::per_second(20)).key(key::global());
    let layer = RateLimitLayer::builder().policy(policy).without_headers();
    let [served, refused, reached] = load(layer, 10, 0).await;
    println!("{served} {refused} {reached}");
    assert!(refused <= 10 * reached, "{refused} of {reached}");
    assert!(served > 50, "{served}");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_slow_to_answer_keeps_no_call_for_ever() {
    let layer = limit(FixedWindow::per_second(20), Dialect::Draft11);
    let [served, refused, reached] = load(layer, 50, 3_000).await;
    println!("{served} {refused} {reached}");
    assert!(refused <= reached, "{refused} of {reached}");
    assert!(served > 20, "{served}");
}
