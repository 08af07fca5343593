//! Any service: a closure over its answer says what a request cost.

use std::future::pending;
use std::io;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::Pin;
use std::time::Duration;

use futures_util::FutureExt;
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::policy::OnAbandoned;
use tower_ratelimit::{FixedWindow, LeakyQueue, LimitLayer, Limiter, LocalLimiter, Policy};

async fn work(job: &'static str) -> Result<u32, BoxError> {
    match job {
        "fails" => Err(io::Error::other("it fails").into()),
        "hangs" => pending().await,
        "panics" => resume_unwind(Box::new(job)),
        "untold" => Ok(0),
        _ => Ok(30),
    }
}

fn used(limiter: &LocalLimiter) -> u32 {
    let decision = limiter.peek("ann", 0).now();
    let told = decision.policies().find(|(name, _)| *name == "units");
    told.unwrap().1.used()
}

/// What each job costs, at an estimate of 100.
#[tokio::test]
async fn the_answer_says_what_it_cost_or_the_policy_does() {
    for (job, expected) in [
        ("works", 30),
        ("untold", 100),
        ("fails", 0),
        ("hangs", 7),
        ("panics", 7),
    ] {
        let units = Policy::new("units", FixedWindow::per_day(1_000));
        let queue = LeakyQueue::per_second(1_000).places(999);
        let limiter = Limiter::builder()
            .policy(units.on_abandoned(OnAbandoned::Units(7)))
            .policy(Policy::new("queue", queue))
            .build_local()
            .unwrap();
        let layer = LimitLayer::new(limiter.clone(), |_: &&str| "ann", |no| Err(no.into()))
            .cost(|_| 100)
            .settle(|answer: Result<&u32, &BoxError>| match answer {
                Ok(0) => None,
                Ok(cost) => Some(*cost),
                Err(_) => Some(0),
            });
        let mut service = layer.layer(service_fn(work));
        service.ready().await.unwrap();
        let call = AssertUnwindSafe(service.call(job)).catch_unwind();
        let _ = tokio::time::timeout(Duration::from_millis(300), call).await;
        assert_eq!(used(&limiter), expected, "{job}");
    }
}

/// A request that comes later has its turn behind the places that were taken, whatever they have cost.
#[tokio::test]
async fn the_places_of_a_queue_are_not_settled() {
    let queue = LeakyQueue::per_hour(1_000).places(999);
    let limiter = Limiter::builder()
        .policy(Policy::new("queue", queue))
        .build_local()
        .unwrap();
    let layer = LimitLayer::new(limiter.clone(), |_: &&str| "ann", |no| Err(no.into()))
        .cost(|_| 100)
        .settle(|answer: Result<&u32, &BoxError>| answer.ok().copied());
    let answer = layer.layer(service_fn(work)).oneshot("works").await;
    assert_eq!(answer.unwrap(), 30);
    let told = limiter.peek("ann", 1).now();
    let delay = told.binding().unwrap().1.delay();
    assert!(delay > Duration::from_secs(99 * 3), "{delay:?}");
}

/// A future that is never made.
type Never = Pin<Box<dyn Future<Output = Result<u32, BoxError>> + Send>>;

#[test]
fn a_call_that_panics_at_once_ends_without_an_answer() {
    let units = Policy::new("units", FixedWindow::per_day(1_000));
    let limiter = Limiter::builder()
        .policy(units.on_abandoned(OnAbandoned::Nothing))
        .build_local()
        .unwrap();
    let layer = LimitLayer::new(limiter.clone(), |_: &&str| "ann", |no| Err(no.into()));
    let mut service = layer.layer(service_fn(|job: &'static str| -> Never {
        resume_unwind(Box::new(job))
    }));
    let called = std::panic::catch_unwind(AssertUnwindSafe(|| drop(service.call("job"))));
    assert!(called.is_err());
    assert_eq!(used(&limiter), 0);
}
