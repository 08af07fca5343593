//! Requests with a deadline, by a clock that tokio has paused.

use std::time::Duration;

use http::Request;
use tokio::time::{Instant, sleep, timeout};
use tower_ratelimit::__internal::Sealed;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::key::Key;
use tower_ratelimit::middleware::Deadline;
use tower_ratelimit::policy::Rule;
use tower_ratelimit::response::Refusal;
use tower_ratelimit::store::{
    Amendment, Backend, Charge, Charged, MemoryBackend, Reply, Store, Wanted,
};
use tower_ratelimit::{
    ConfigError, FixedWindow, LeakyQueue, MemoryStore, RateLimitLayer, StoreError, TokenBucket,
};

use crate::arrivals::{Arrivals, TICK, behind, request, send, store};
use crate::exchange::{Received, global, now};

const INTERVAL: Duration = Duration::from_millis(200);

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

fn patient() -> RateLimitLayer {
    let bucket = TokenBucket::per_second(5).burst(1);
    RateLimitLayer::builder()
        .policy(global("a", bucket).wait_up_to(Duration::from_secs(9)))
        .store(store())
        .build()
        .unwrap()
}

fn until(number: u32, time: Duration) -> Request<()> {
    let mut request = request(1, number);
    request.extensions_mut().insert(Deadline::after(time));
    request
}

fn call(number: u32, timeout: &'static str) -> Request<()> {
    let mut request = request(1, number);
    let headers = request.headers_mut();
    headers.insert("content-type", "application/grpc+proto".parse().unwrap());
    headers.insert("grpc-timeout", timeout.parse().unwrap());
    request
}

/// For any status: with feature `tonic`, a call has another one.
#[track_caller]
fn told(answer: &Received) -> Duration {
    match &answer.refusal {
        Some(Refusal::Denied(decision)) => decision.retry_after().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Sends a request that goes on, and then each of these, which may wait for `turn` intervals.
async fn refused_of(requests: Vec<(Request<()>, u32)>) {
    for (late, turn) in requests {
        let service = behind(&patient(), &Arrivals::new());
        for number in 0..turn {
            send(&service, request(1, number)).await;
        }
        let refused = timeout(TICK, send(&service, late).await);
        assert_eq!(told(&refused.await.unwrap().unwrap()), turn * INTERVAL);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_turn_comes_after_its_deadline_is_refused_at_once() {
    let mut in_capitals = call(9, "199m");
    let content_type = "Application/gRPC".parse().unwrap();
    in_capitals
        .headers_mut()
        .insert("content-type", content_type);
    refused_of(vec![
        (until(9, ms(199)), 1),
        (until(9, ms(599)), 3),
        (until(9, Duration::ZERO), 1),
        (call(9, "199m"), 1),
        (call(9, "399999u"), 2),
        (call(9, "0S"), 1),
        (in_capitals, 1),
    ])
    .await;
    // The earlier one counts.
    let mut both = call(9, "1H");
    both.extensions_mut().insert(Deadline::after(TICK));
    let mut other = call(9, "1m");
    let hour = Duration::from_secs(3_600);
    other.extensions_mut().insert(Deadline::after(hour));
    refused_of(vec![(both, 1), (other, 1)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_turn_comes_in_time_waits_for_it() {
    let long = Deadline::after(Duration::MAX);
    assert_eq!(long.moment(), None);
    let mut for_ever = request(1, 9);
    for_ever.extensions_mut().insert(long);
    // Without the content type of gRPC, the header has no effect.
    let mut no_call = call(9, "1n");
    no_call.headers_mut().remove("content-type");
    // A content type that only began like that of gRPC was treated as gRPC.
    let mut no_grpc = call(9, "1n");
    let content_type = "application/grpcfoo".parse().unwrap();
    no_grpc.headers_mut().insert("content-type", content_type);
    for in_time in [
        until(9, INTERVAL),
        call(9, "200m"),
        call(9, "99999999H"),
        call(9, "soon"),
        for_ever,
        no_call,
        no_grpc,
    ] {
        let arrivals = Arrivals::new();
        let service = behind(&patient(), &arrivals);
        send(&service, request(1, 0)).await;
        send(&service, in_time).await.await.unwrap();
        assert_eq!(arrivals.log(), [(0, Duration::ZERO), (9, INTERVAL)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_leaves_at_its_deadline_wakes_the_next() {
    let layer = patient();
    let arrivals = Arrivals::new();
    let service = behind(&layer, &arrivals);
    send(&service, request(1, 0)).await;
    let start = Instant::now();
    let hurried = send(&service, until(1, INTERVAL)).await;
    send(&service, request(1, 2)).await;
    // Another request takes the turn.
    sleep(ms(199)).await;
    let _ = now(layer.limiter().refund(Key::GLOBAL, 1));
    assert!(
        now(layer.limiter().check(Key::GLOBAL, 1))
            .unwrap()
            .is_allowed()
    );
    let refused = hurried.await.unwrap();
    assert_eq!(start.elapsed(), INTERVAL);
    assert!(told(&refused) > INTERVAL, "one is before it now");
    sleep(INTERVAL).await;
    let turn = ms(399);
    assert_eq!(arrivals.log(), [(0, Duration::ZERO), (2, turn)]);
}

/// A response without numbers.
struct Mute(MemoryStore);

#[derive(Debug)]
struct MuteBackend(MemoryBackend);

impl Sealed for Mute {}

impl Store for Mute {
    type Backend = MuteBackend;

    fn open(&self, policies: &[Rule]) -> Result<MuteBackend, ConfigError> {
        self.0.open(policies).map(MuteBackend)
    }
}

impl Sealed for MuteBackend {}

impl Backend for MuteBackend {
    fn charge(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> Charged {
        if charges.iter().all(|charge| charge.cost() == 0) {
            return Charged::Now(Err(StoreError::new(StoreErrorKind::Unavailable)));
        }
        self.0.charge(charges, wanted, outcomes)
    }

    fn amend(&self, charges: &[Charge], amendment: Amendment) -> Reply<Result<bool, StoreError>> {
        self.0.amend(charges, amendment)
    }
}

/// The store goes away after it has said that the request would leave its queue too late. The answer was 503, though
/// the request was decided.
#[tokio::test(start_paused = true)]
async fn a_request_whose_turn_comes_too_late_is_refused_even_if_the_store_fails_then() {
    let arrivals = Arrivals::new();
    let queue = LeakyQueue::per_second(5).places(9);
    let builder = RateLimitLayer::builder().policy(global("queue", queue));
    let layer = builder.store(Mute(store())).build().unwrap();
    let service = behind(&layer, &arrivals);
    for number in 0..3 {
        send(&service, request(1, number)).await;
    }
    let refused = timeout(TICK, send(&service, until(8, 5 * INTERVAL / 2)).await);
    assert_eq!(told(&refused.await.unwrap().unwrap()), INTERVAL / 2);
    // Its place was given back.
    send(&service, request(1, 3)).await.await.unwrap();
    let left: Vec<_> = (0..4).map(|turn| (turn, turn * INTERVAL)).collect();
    assert_eq!(arrivals.log(), left);
}

#[tokio::test(start_paused = true)]
async fn in_a_queue_too_and_the_place_and_all_that_was_charged_is_given_back() {
    let queue = LeakyQueue::per_second(5).places(9);
    let layer = RateLimitLayer::builder()
        .policy(global("queue", queue))
        .policy(global("day", FixedWindow::per_day(100)))
        .store(store())
        .build()
        .unwrap();
    let arrivals = Arrivals::new();
    let service = behind(&layer, &arrivals);
    for number in 0..3 {
        send(&service, request(1, number)).await;
    }
    let limiter = layer.limiter();
    let numbers = || {
        let peeked = now(limiter.peek(Key::GLOBAL, 0)).unwrap();
        let remaining = peeked.policies().map(|(_, it)| it.remaining());
        remaining.collect::<Vec<_>>()
    };
    assert_eq!(numbers(), [7, 97]);
    let patience = 5 * INTERVAL / 2;
    for hurried in [until(8, patience), call(9, "500m")] {
        let refused = timeout(TICK, send(&service, hurried).await);
        let refused = refused.await.unwrap().unwrap();
        // After this wait, the same request with the same deadline leaves in time.
        assert_eq!(told(&refused), INTERVAL / 2);
        assert_eq!(refused.field("ratelimit"), Some(r#""queue";r=7;t=1"#));
        assert_eq!(numbers(), [7, 97]);
    }
    sleep(INTERVAL / 2).await;
    send(&service, until(3, patience)).await.await.unwrap();
    let left: Vec<_> = (0..4).map(|turn| (turn, turn * INTERVAL)).collect();
    assert_eq!(arrivals.log(), left);
}
