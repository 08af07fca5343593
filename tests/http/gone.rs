//! Requests whose client goes away while they are held: their charges are settled, and their slots are free.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tokio::time::sleep;
use tower::{Layer, Service, ServiceExt};
use tower_ratelimit::policy::{Http, OnAbandoned, Settle};
use tower_ratelimit::{Concurrency, FixedWindow, LeakyQueue, Policy, RateLimitLayer, key};

use crate::arrivals::{TICK, store};
use crate::exchange::{get, global, poll};

/// A service that the test makes ready.
#[derive(Clone, Default)]
struct Worker {
    is_busy: Arc<AtomicBool>,
}

impl Service<Request<()>> for Worker {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.is_busy.load(Ordering::SeqCst) {
            Poll::Pending
        } else {
            Poll::Ready(Ok(()))
        }
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        std::future::ready(Ok(Response::new(String::from("done"))))
    }
}

/// Each request costs 10 units of an estimate of 100, and 7 if it ends without an answer.
fn units() -> Policy<Http> {
    global("units", FixedWindow::per_day(1_000))
        .estimate(100)
        .settle(Settle::from_ending(|_| Some(10)))
        .on_abandoned(OnAbandoned::Units(7))
}

fn layer(policies: impl IntoIterator<Item = Policy<Http>>) -> RateLimitLayer {
    let builder = RateLimitLayer::builder().policies(policies);
    builder.store(store()).build().unwrap()
}

/// Returns the usage under the policies of these names.
async fn used<const N: usize>(layer: &RateLimitLayer, names: [&str; N]) -> [u32; N] {
    let key = key::global().key_of(()).unwrap();
    let told = layer.limiter().peek(key, 0).await.unwrap();
    let used = |name| {
        let mut each = told.policies();
        each.find(|(policy, _)| *policy == name).unwrap().1.used()
    };
    names.map(used)
}

type Answering<S> = Pin<Box<tower::util::Oneshot<S, Request<()>>>>;

/// Returns a request that has to wait.
fn held<S: Service<Request<()>> + Clone>(service: &S) -> Answering<S> {
    let mut call = Box::pin(service.clone().oneshot(get()));
    assert!(poll(call.as_mut()).is_pending());
    call
}

#[tokio::test(start_paused = true)]
async fn in_a_queue_before_its_turn_and_when_the_service_is_not_ready_for_it() {
    let queue = LeakyQueue::per_second(1).places(3);
    for waits_for_its_turn in [true, false] {
        let at_once = global("at once", Concurrency::of(3));
        let layer = layer([global("queue", queue), units(), at_once]);
        let worker = Worker::default();
        let service = layer.layer(worker.clone());
        drop(service.clone().oneshot(get()).await.unwrap());
        assert_eq!(used(&layer, ["units", "at once"]).await, [10, 0]);

        let mut goes_away = held(&service);
        assert_eq!(used(&layer, ["units", "at once"]).await, [110, 1]);
        if !waits_for_its_turn {
            worker.is_busy.store(true, Ordering::SeqCst);
            sleep(Duration::from_secs(1) + TICK).await;
            assert!(poll(goes_away.as_mut()).is_pending());
        }
        drop(goes_away);
        assert_eq!(used(&layer, ["units", "at once"]).await, [17, 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn in_a_line_for_a_slot() {
    let at_once = global("at once", Concurrency::of(1)).wait_up_to(Duration::from_secs(60));
    let layer = layer([units(), at_once]);
    let service = layer.layer(Worker::default());
    let first = service.clone().oneshot(get()).await.unwrap();
    let [goes_away, next] = [held(&service), held(&service)];
    // A request that waits is charged nothing.
    assert_eq!(used(&layer, ["units", "at once"]).await, [100, 1]);
    drop(goes_away);
    drop(first);
    drop(next.await.unwrap());
    assert_eq!(used(&layer, ["units", "at once"]).await, [20, 0]);
}

/// A closure of the policy panics, which is a bug of the program, and not a fault of the client.
#[tokio::test(start_paused = true)]
async fn a_closure_that_panics_at_the_end_leaves_the_estimate_and_frees_the_slot() {
    let units = units().settle(Settle::from_ending(|_| panic!("in the closure")));
    let other = global("other", FixedWindow::per_day(9)).refund_when(|_| true);
    let layer = layer([units, other, global("at once", Concurrency::of(1))]);
    let service = layer.layer(Worker::default());
    for requests in 1..=2 {
        let response = service.clone().oneshot(get()).await.unwrap();
        assert_eq!(response.status(), 200);
        let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(response)));
        assert!(dropped.is_err());
        let used = used(&layer, ["units", "other", "at once"]).await;
        assert_eq!(used, [100 * requests, requests, 0]);
    }
}
