//! Requests that wait by a clock that the test moves.
//!
//! They waited by tokio's timers for turns of the store's clock. A test that moved the clock to a turn found the
//! request still waiting, and had to move tokio's paused time as well.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, StatusCode};
use tokio::task::{JoinHandle, yield_now};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::middleware::Deadline;
use tower_ratelimit::policy::Http;
use tower_ratelimit::{
    FixedWindow, LeakyQueue, ManualClock, MemoryStore, Policy, RateLimitLayer, TokenBucket,
};

use crate::exchange::{Received, answer, get_with, global};

const SECOND: Duration = Duration::from_secs(1);

/// A service behind a layer of one policy, by a clock that is moved by hand.
struct Scene {
    clock: ManualClock,
    layer: RateLimitLayer,
    arrived: Arc<Mutex<Vec<u32>>>,
}

impl Scene {
    fn new(policy: Policy<Http>) -> Self {
        let clock = ManualClock::new();
        let layer = RateLimitLayer::builder()
            .policy(policy)
            .store(MemoryStore::new().clock(clock.clone()));
        Self {
            clock,
            layer: layer.build().unwrap(),
            arrived: Arc::default(),
        }
    }

    /// Sends the request of this number, and lets it reach its place.
    async fn send(&self, number: u32) -> JoinHandle<Received> {
        self.send_with(number, |_| {}).await
    }

    async fn send_with(
        &self,
        number: u32,
        change: impl FnOnce(&mut Request<()>),
    ) -> JoinHandle<Received> {
        let arrived = Arc::clone(&self.arrived);
        let service = self.layer.layer(service_fn(move |request: Request<()>| {
            let number = request.headers()["x-number"].to_str().unwrap();
            arrived.lock().unwrap().push(number.parse().unwrap());
            let hello = http_body_util::Full::<bytes::Bytes>::from("hello");
            std::future::ready(Ok::<_, std::convert::Infallible>(http::Response::new(
                hello,
            )))
        }));
        let mut request = get_with([("x-number", number)]);
        change(&mut request);
        let sent = tokio::spawn(async move { answer(service.oneshot(request).await.unwrap()) });
        self.settle().await;
        sent
    }

    async fn step(&self, by: Duration) {
        self.clock.advance(by);
        self.settle().await;
    }

    /// Lets all that can be done be done: nothing here waits for real time.
    async fn settle(&self) {
        for _ in 0..50 {
            yield_now().await;
        }
    }

    fn arrived(&self) -> Vec<u32> {
        self.arrived.lock().unwrap().clone()
    }
}

fn queue(places: u32) -> Policy<Http> {
    global("queue", LeakyQueue::per_second(1).places(places))
}

fn patient(seconds: u64) -> Policy<Http> {
    let bucket = TokenBucket::per_second(1);
    global("bucket", bucket).wait_up_to(Duration::from_secs(seconds))
}

#[tokio::test]
async fn a_queue_lets_each_go_on_when_the_clock_shows_its_turn_and_not_before() {
    let scene = Scene::new(queue(3));
    for number in 0..4 {
        scene.send(number).await;
    }
    assert_eq!(scene.arrived(), [0]);
    scene.step(Duration::from_micros(999_999)).await;
    assert_eq!(scene.arrived(), [0]);
    scene.step(Duration::from_micros(1)).await;
    assert_eq!(scene.arrived(), [0, 1]);
    scene.step(SECOND).await;
    assert_eq!(scene.arrived(), [0, 1, 2]);
    // Two turns at once, the last of them long ago.
    scene.send(4).await;
    scene.step(60 * SECOND).await;
    assert_eq!(scene.arrived(), [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn under_wait_up_to_each_goes_on_when_the_clock_shows_its_turn_and_not_before() {
    let scene = Scene::new(patient(3));
    let mut sent = Vec::new();
    for number in 0..5 {
        sent.push(scene.send(number).await);
    }
    let refused = sent.pop().unwrap().await.unwrap();
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.field("retry-after"), Some("4"));
    for number in 1..4 {
        scene.step(Duration::from_micros(999_999)).await;
        assert_eq!(scene.arrived().len(), number, "{:?}", scene.arrived());
        scene.step(Duration::from_micros(1)).await;
        assert_eq!(scene.arrived().len(), number + 1, "{:?}", scene.arrived());
    }
    assert_eq!(scene.arrived(), [0, 1, 2, 3]);
}

/// A step of an hour does not refuse what was due after a second of it.
#[tokio::test]
async fn a_step_over_several_turns_lets_all_go_on_in_their_order() {
    let bucket = TokenBucket::per_second(1).burst(3);
    let policy = global("bucket", bucket).wait_up_to(3 * SECOND);
    let scene = Scene::new(policy);
    for number in 0..6 {
        scene.send(number).await;
    }
    assert_eq!(scene.arrived(), [0, 1, 2]);
    scene.step(3_600 * SECOND).await;
    assert_eq!(scene.arrived(), [0, 1, 2, 3, 4, 5]);
}

/// The clock shows a moment at which the policy admits less than had turns until then.
#[tokio::test]
async fn a_step_over_several_turns_admits_no_more_than_the_policy_does() {
    let policy = global("window", FixedWindow::per_second(1)).wait_up_to(5 * SECOND);
    let scene = Scene::new(policy);
    let mut sent = Vec::new();
    for number in 0..4 {
        sent.push(scene.send(number).await);
    }
    scene.step(2 * SECOND).await;
    assert_eq!(scene.arrived(), [0, 1]);
    scene.step(SECOND).await;
    assert_eq!(scene.arrived(), [0, 1, 2]);
    // Past the end of its patience: it goes on, for its turn was before that.
    scene.step(60 * SECOND).await;
    assert_eq!(scene.arrived(), [0, 1, 2, 3]);
    for sent in sent {
        assert_eq!(sent.await.unwrap().status, StatusCode::OK);
    }
}

#[tokio::test]
async fn a_request_is_refused_when_the_clock_steps_past_its_deadline() {
    let policy = global("window", FixedWindow::per_second(1)).wait_up_to(2 * SECOND);
    let scene = Scene::new(policy);
    scene.send(0).await;
    let second = scene.send(1).await;
    let third = scene.send(2).await;
    scene.step(60 * SECOND).await;
    assert_eq!(second.await.unwrap().status, StatusCode::OK);
    let refused = third.await.unwrap();
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.field("retry-after"), Some("1"));
}

#[tokio::test]
async fn a_clock_that_stands_still_lets_no_request_go_on_however_long_it_takes() {
    let scene = Scene::new(patient(1));
    scene.send(0).await;
    let waiting = scene.send(1).await;
    tokio::time::pause();
    tokio::time::advance(3_600 * SECOND).await;
    scene.settle().await;
    assert!(!waiting.is_finished());
    scene.step(SECOND).await;
    assert_eq!(waiting.await.unwrap().status, StatusCode::OK);
}

#[tokio::test]
async fn a_deadline_is_as_far_off_by_the_clock_as_it_is_by_real_time() {
    for policy in [queue(5), patient(5)] {
        let scene = Scene::new(policy);
        tokio::time::pause();
        scene.send(0).await;
        // Not as long before the request as it takes to be wrong.
        scene.clock.advance(Duration::from_millis(10));
        let ask = |patience: u64| {
            let patience = Duration::from_millis(patience);
            move |request: &mut Request<()>| {
                request.extensions_mut().insert(Deadline::after(patience));
            }
        };
        let hasty = scene.send_with(1, ask(900)).await;
        assert_eq!(hasty.await.unwrap().status, StatusCode::TOO_MANY_REQUESTS);
        let patient = scene.send_with(2, ask(1_100)).await;
        scene.step(SECOND).await;
        assert_eq!(patient.await.unwrap().status, StatusCode::OK);
        tokio::time::resume();
    }
}

#[test]
fn no_runtime_is_needed_to_wait() {
    let scene = Scene::new(queue(1));
    let arrived = Arc::clone(&scene.arrived);
    let service = scene.layer.layer(service_fn(move |_: Request<()>| {
        arrived.lock().unwrap().push(0);
        let hello = http_body_util::Full::<bytes::Bytes>::from("hello");
        std::future::ready(Ok::<_, std::convert::Infallible>(http::Response::new(
            hello,
        )))
    }));
    let mut first = Box::pin(service.clone().oneshot(get_with([])));
    let mut second = Box::pin(service.oneshot(get_with([])));
    assert!(crate::exchange::poll(first.as_mut()).is_ready());
    assert!(crate::exchange::poll(second.as_mut()).is_pending());
    scene.clock.advance(SECOND);
    assert!(crate::exchange::poll(second.as_mut()).is_ready());
}
