//! Requests whose turn comes later than announced: another request takes it, a clock stands still, a store is slow,
//! or a future is not polled. The clock is paused by tokio.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use http::StatusCode;
use tokio::time::{Instant, sleep};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, ServiceExt};
use tower_ratelimit::__internal::Sealed;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::key::Key;
use tower_ratelimit::policy::Rule;
use tower_ratelimit::store::{Backend, Charge, Charged, MemoryBackend, Reply, Store, Wanted};
use tower_ratelimit::{
    ConfigError, FixedWindow, ManualClock, MemoryStore, RateLimitLayer, StoreError, TokenBucket,
};

use crate::arrivals::{Arrivals, TICK, behind, request, send, store};
use crate::exchange::{cost, global, now};
use crate::slow_store::SlowStore;
use crate::waiting::{INTERVAL, SECOND, bucket, by_user, layer, told, turns};

#[tokio::test(start_paused = true)]
async fn a_client_that_is_denied_again_waits_as_it_is_told_then_and_is_refused_in_the_end() {
    let arrivals = Arrivals::new();
    let layer = layer([global("a", bucket()).wait_up_to(SECOND)]);
    let service = behind(&layer, &arrivals);
    send(&service, request(1, 0)).await;
    let waiting = send(&service, request(1, 1)).await;
    let limiter = layer.limiter();
    // Another request takes each turn, a moment earlier. The last one does so too late for a refusal.
    let start = Instant::now();
    for turn in 1..=6 {
        let moment = start + turn * INTERVAL;
        tokio::time::sleep_until(moment - Duration::from_micros(500)).await;
        let _ = now(limiter.refund(Key::GLOBAL, 1));
        assert!(now(limiter.check(Key::GLOBAL, 1)).unwrap().is_allowed());
    }
    let refused = waiting.await.unwrap();
    assert!(told(&refused) <= Some(INTERVAL));
    assert!(start.elapsed() <= 6 * INTERVAL, "{:?}", start.elapsed());
    assert_eq!(arrivals.log(), turns([(0, 0)]));
}

#[tokio::test(start_paused = true)]
async fn a_request_from_another_line_overtakes_none_either() {
    let arrivals = Arrivals::new();
    let by_three = FixedWindow::new(1, 3 * SECOND).unwrap();
    let all = global("all", TokenBucket::per_second(2).burst(5)).cost(cost);
    let layer = layer([
        all.wait_up_to(9 * SECOND),
        by_user("user", by_three).wait_up_to(9 * SECOND),
    ]);
    let service = behind(&layer, &arrivals);
    for (number, (user, units)) in [(1, 4), (2, 5), (1, 1)].into_iter().enumerate() {
        let mut request = request(user, u32::try_from(number).unwrap());
        request.headers_mut().insert("x-cost", units.into());
        send(&service, request).await;
    }
    // The second would go on after two seconds, and the third in the window that begins after three.
    let start = Instant::now();
    for seconds in [2, 3] {
        tokio::time::sleep_until(start + seconds * SECOND - SECOND / 10).await;
        let limiter = layer.limiter();
        let asked = limiter.named([("all", Key::GLOBAL, 2)]);
        assert!(now(asked.unwrap().check()).unwrap().is_allowed());
    }
    sleep(6 * SECOND).await;
    let log = [(0, 0), (1, 4_000), (2, 4_500)];
    let log = log.map(|(number, at)| (number, Duration::from_millis(at)));
    assert_eq!(arrivals.log(), log);
}

/// A store that counts its decisions.
#[derive(Clone)]
struct CountingStore(MemoryStore, Arc<AtomicU32>);

#[derive(Debug)]
struct CountingBackend(MemoryBackend, Arc<AtomicU32>);

impl Sealed for CountingStore {}

impl Store for CountingStore {
    type Backend = CountingBackend;

    fn open(&self, policies: &[Rule]) -> Result<CountingBackend, ConfigError> {
        Ok(CountingBackend(self.0.open(policies)?, self.1.clone()))
    }
}

impl Sealed for CountingBackend {}

impl Backend for CountingBackend {
    fn charge(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> Charged {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.charge(charges, wanted, outcomes)
    }

    fn peek(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        Reply::Now(Ok(self.0.peek_now(charges)))
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_whose_clock_stands_still_is_asked_after_each_wait_and_not_more_often() {
    let asked = Arc::new(AtomicU32::new(0));
    let store = CountingStore(MemoryStore::new().clock(ManualClock::new()), asked.clone());
    let builder = RateLimitLayer::builder().policy(global("a", bucket()).wait_up_to(SECOND));
    let arrivals = Arrivals::new();
    let service = behind(&builder.store(store).build().unwrap(), &arrivals);
    send(&service, request(1, 0)).await;
    let start = Instant::now();
    let waiting = send(&service, request(1, 1)).await;
    let behind = send(&service, request(1, 2)).await;
    let refused = waiting.await.unwrap();
    assert_eq!(told(&refused), Some(2 * INTERVAL), "one is before it still");
    assert!((SECOND..SECOND + INTERVAL).contains(&start.elapsed()));
    assert_eq!(told(&behind.await.unwrap()), Some(INTERVAL));
    assert!(start.elapsed() < SECOND + INTERVAL);
    assert!(asked.load(Ordering::Relaxed) < 10, "{asked:?}");
    assert_eq!(arrivals.log(), turns([(0, 0)]));
}

#[tokio::test(start_paused = true)]
async fn a_herd_at_the_edge_of_a_window_asks_one_by_one() {
    let asked = Arc::new(AtomicU32::new(0));
    let store = CountingStore(store(), asked.clone());
    let patient = global("a", FixedWindow::per_second(10)).wait_up_to(20 * SECOND);
    let builder = RateLimitLayer::builder().policy(patient).store(store);
    let arrivals = Arrivals::new();
    let service = behind(&builder.build().unwrap(), &arrivals);
    for number in 0..100 {
        send(&service, request(1, number)).await;
    }
    sleep(20 * SECOND).await;
    let expected: Vec<_> = (0..100).map(|n| (n, n / 10 * SECOND)).collect();
    assert_eq!(arrivals.log(), expected);
    // Each request asks once at its turn, and once more if it reached the front too early.
    assert!(asked.load(Ordering::Relaxed) <= 110, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_later_keeps_the_order_too() {
    let slow = SlowStore::new();
    let patient = global("a", FixedWindow::per_second(1)).wait_up_to(SECOND);
    let builder = RateLimitLayer::builder()
        .policy(patient)
        .store(slow.clone());
    let arrivals = Arrivals::new();
    let inner = ConcurrencyLimit::new(arrivals.service(), 1);
    let service = builder.build().unwrap().layer(inner);
    for number in 0..3 {
        send(&service, request(1, number)).await;
    }
    slow.release(3);
    sleep(SECOND / 2).await;
    // The clock stands still, so no turn comes, and each request is refused when its time is up.
    let third = send(&service, request(1, 3)).await;
    slow.release(100);
    assert!(told(&third.await.unwrap()) >= Some(2 * SECOND));
    sleep(2 * SECOND).await;
    assert_eq!(arrivals.log(), turns([(0, 0)]));
    let peeked = slow.clone();
    peeked.release(1);
    assert_eq!(
        send(&service, request(2, 4)).await.await.unwrap().status,
        StatusCode::TOO_MANY_REQUESTS
    );
}

#[tokio::test(start_paused = true)]
async fn one_that_is_not_polled_holds_the_others_up_for_a_second_at_most() {
    let arrivals = Arrivals::new();
    let service = behind(
        &layer([by_user("a", bucket()).wait_up_to(9 * SECOND)]),
        &arrivals,
    );
    send(&service, request(1, 0)).await.await.unwrap();
    let mut unpolled = Context::from_waker(Waker::noop());
    let mut forgotten: Vec<_> = (1..=2)
        .map(|number| Box::pin(service.clone().oneshot(request(1, number))))
        .collect();
    for forgotten in &mut forgotten {
        assert!(forgotten.as_mut().poll(&mut unpolled).is_pending());
    }
    let behind = [
        send(&service, request(1, 3)).await,
        send(&service, request(1, 4)).await,
    ];
    for behind in behind {
        assert_eq!(behind.await.unwrap().status, StatusCode::OK);
    }
    let log = arrivals.log();
    let order: Vec<_> = log.iter().map(|(number, _)| *number).collect();
    assert_eq!(order, [0, 3, 4]);
    // Each of the two had a second after its turn.
    assert!(log[1].1 <= INTERVAL + 2 * SECOND + 2 * TICK, "{log:?}");
    assert!(log[2].1 <= log[1].1 + INTERVAL, "{log:?}");
    for forgotten in forgotten {
        forgotten.await.unwrap();
    }
    assert_eq!(arrivals.log().len(), 5);
}
