//! How far apart requests leave a queue, by the real clock and tokio's real timer.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use tokio::task::JoinSet;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::clock::Clock;
use tower_ratelimit::{Decision, LeakyQueue, MemoryStore, Micros, Policy, RateLimitLayer, key};

const INTERVAL: Duration = Duration::from_millis(20);
const BURST: u32 = 30;

/// The store's clock, which the backend reads too.
#[derive(Clone, Copy)]
struct RealClock(Instant);

impl Clock for RealClock {
    fn now(&self) -> Micros {
        let start = Duration::from_secs(1_704_067_200);
        Micros::from(start + self.0.elapsed())
    }
}

/// When a request was to leave, and when it left.
type Departure = (Micros, Micros);

/// A loaded machine makes requests late, which is no failure; none may be early, or overtake. On one
/// thread, since on two the one that goes on at once may be stopped just before it does.
#[tokio::test]
async fn requests_leave_an_interval_apart_in_order_and_none_before_its_turn() {
    let clock = RealClock(Instant::now());
    let departures: Arc<Mutex<Vec<Departure>>> = Arc::default();
    let log = Arc::clone(&departures);
    let backend = service_fn(move |request: Request<()>| {
        let decision = request.extensions().get::<Decision>().unwrap();
        let decided = decision.at().unwrap().duration_since(UNIX_EPOCH).unwrap();
        let due = Micros::from(decided + decision.delay());
        let mut log = log.lock().unwrap();
        log.push((due, clock.now()));
        std::future::ready(Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())))
    });
    let queue = LeakyQueue::new(1, INTERVAL).unwrap().places(BURST);
    let layer = RateLimitLayer::builder()
        .policy(Policy::new("queue", queue).key(key::global()))
        .store(MemoryStore::new().clock(clock))
        .expose_decision()
        .build()
        .unwrap();
    let service = layer.layer(backend);

    let start = clock.now();
    let mut burst = JoinSet::new();
    for _ in 0..BURST {
        burst.spawn(service.clone().oneshot(Request::new(())));
    }
    for answer in burst.join_all().await {
        assert_eq!(answer.unwrap().status(), 200);
    }

    let departures = departures.lock().unwrap();
    assert_eq!(departures.len(), BURST as usize);
    for (turn, &(due, left)) in (0..BURST).zip(departures.iter()) {
        assert!(left >= due, "turn {turn} of {departures:#?}");
        let earliest = start.to_duration() + turn * INTERVAL;
        assert!(
            left.to_duration() >= earliest,
            "turn {turn} of {departures:#?}"
        );
    }
    for pair in departures.windows(2) {
        let apart = pair[1].0.get().checked_sub(pair[0].0.get());
        let apart = apart.map(Duration::from_micros);
        assert!(apart >= Some(INTERVAL), "{pair:?} of {departures:#?}");
    }
}
