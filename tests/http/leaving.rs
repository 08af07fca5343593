//! Requests that leave a leaky queue before their turn, because the client disconnects or a timeout outside the layer
//! fires. The clock is paused by tokio.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::get;
use tokio::time::sleep;
use tower::ServiceExt;
use tower_http::timeout::TimeoutLayer;
use tower_ratelimit::clock::Clock;
use tower_ratelimit::store::{Change, Changed, Items, Reply};
use tower_ratelimit::{LeakyQueue, RateLimitLayer, SharedStore, StoreError};

use crate::arrivals::{Arrivals, TICK, behind, request, send, store};
use crate::exchange::global;
use crate::tokio_clock::TokioClock;

const INTERVAL: Duration = Duration::from_millis(100);

/// Ten a second, with this many places.
fn queue(places: u32) -> RateLimitLayer {
    let queue = LeakyQueue::per_second(10).places(places);
    let builder = RateLimitLayer::builder().policy(global("queue", queue));
    builder.store(store()).build().unwrap()
}

/// Returns how many requests arrive in each whole second.
fn in_each_second(log: &[(u32, Duration)], seconds: u64) -> Vec<usize> {
    let within = |second| log.iter().filter(|(_, at)| at.as_secs() == second).count();
    (0..seconds).map(within).collect()
}

/// In order, each at its turn or later, and no two in one turn.
#[track_caller]
fn assert_spaced(log: &[(u32, Duration)]) {
    for pair in log.windows(2) {
        let [(first, before), (second, after)] = pair else {
            unreachable!("windows of two");
        };
        assert!(first < second, "{second} has overtaken {first}: {log:?}");
        assert!(
            *after >= *before + INTERVAL,
            "{first} and {second}: {log:?}"
        );
    }
}

/// The timeout cancels the oldest requests, which would go on next. Only the last place of the queue was given back,
/// so their turns passed unused: the queue served 15 requests in two seconds, and then none while there were more
/// requests than turns.
#[tokio::test(start_paused = true)]
async fn under_a_timeout_shorter_than_the_longest_wait_a_queue_serves_at_its_rate() {
    let arrivals = Arrivals::new();
    let log = arrivals.clone();
    let handler = async move |request: Request| {
        let number = request.headers()["x-number"].to_str().unwrap();
        log.note(number.parse().unwrap());
    };
    let timeout = TimeoutLayer::with_status_code(
        http::StatusCode::REQUEST_TIMEOUT,
        Duration::from_millis(700),
    );
    let app = Router::new()
        .route("/", get(handler))
        .layer(queue(50))
        .layer(timeout);
    for number in 0..400 {
        let request = request(1, number).map(|()| axum::body::Body::empty());
        tokio::spawn(app.clone().oneshot(request));
        sleep(Duration::from_millis(50)).await;
    }
    let log = arrivals.log();
    assert_eq!(in_each_second(&log, 20), [10; 20]);
    assert_spaced(&log);
}

/// Items that two processes share.
#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<HashMap<String, Vec<u8>>>>, TokioClock);

impl Items for Shared {
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
        let mut items = self.0.lock().unwrap();
        let found: Vec<_> = change.names().iter().map(|name| items.get(name)).collect();
        let changed = change.apply(self.1.now(), &found);
        for write in changed.writes() {
            let name = change.names()[write.item()].clone();
            items.insert(name, write.value().to_owned());
        }
        Reply::Now(Ok(changed))
    }
}

/// Two processes have a line each, and each moves its requests up along its own turns. If the store cannot take a
/// turn back, because the other process has a later one, the next request gets it.
#[tokio::test(start_paused = true)]
async fn two_processes_that_share_a_queue_serve_at_its_rate_together() {
    let items = Shared(Arc::default(), TokioClock::new());
    let arrivals = Arrivals::new();
    let process = || {
        let queue = LeakyQueue::per_second(10).places(50);
        let builder = RateLimitLayer::builder().policy(global("queue", queue));
        let store = SharedStore::new(items.clone());
        behind(&builder.store(store).build().unwrap(), &arrivals)
    };
    let processes = [process(), process()];
    for number in 0..400 {
        for (service, number) in processes.iter().zip([2 * number, 2 * number + 1]) {
            let sent = service.clone().oneshot(request(1, number));
            tokio::spawn(tokio::time::timeout(Duration::from_millis(700), sent));
        }
        sleep(Duration::from_millis(50)).await;
    }
    let log = arrivals.log();
    assert_eq!(in_each_second(&log, 20), [10; 20]);
    for pair in log.windows(2) {
        assert!(pair[1].1 >= pair[0].1 + INTERVAL, "{log:?}");
    }
    for process in 0..2 {
        let own: Vec<_> = log
            .iter()
            .copied()
            .filter(|it| it.0 % 2 == process)
            .collect();
        assert_spaced(&own);
    }
}

#[tokio::test(start_paused = true)]
async fn clients_that_disconnect_the_oldest_first_leave_no_turn_unused() {
    let arrivals = Arrivals::new();
    let service = behind(&queue(50), &arrivals);
    let mut waiting = Vec::new();
    for number in 0..=50 {
        waiting.push(send(&service, request(1, number)).await);
    }
    sleep(INTERVAL / 2).await;
    for oldest in &waiting[1..=25] {
        oldest.abort();
        tokio::task::yield_now().await;
    }
    sleep(26 * INTERVAL).await;
    let stay = [0].into_iter().chain(26..=50);
    let expected: Vec<_> = stay
        .zip(0..)
        .map(|(n, turn)| (n, turn * INTERVAL))
        .collect();
    assert_eq!(arrivals.log(), expected);
    // The places at the end were given back: as many requests find a place.
    for number in 51..=101 {
        send(&service, request(1, number)).await;
    }
    sleep(51 * INTERVAL + TICK).await;
    assert_eq!(arrivals.log().len(), 26 + 51);
    assert_spaced(&arrivals.log());
}
