//! Requests that leave a leaky queue before their turn, because the client disconnects or a timeout outside the layer
//! fires. The clock is paused by tokio.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::get;
use tokio::time::{sleep, timeout};
use tower::ServiceExt;
use tower_http::timeout::TimeoutLayer;
use tower_ratelimit::__internal::Sealed;
use tower_ratelimit::clock::Clock;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::key::Key;
use tower_ratelimit::middleware::Deadline;
use tower_ratelimit::policy::Rule;
use tower_ratelimit::store::{
    Amendment, Backend, Change, Changed, Charge, Charged, Items, MemoryBackend, Reply, Store,
    Wanted,
};
use tower_ratelimit::{
    AnchoredWindow, ConfigError, FixedWindow, LeakyQueue, MemoryStore, RateLimitLayer, SharedStore,
    StoreError,
};

use crate::arrivals::{Arrivals, TICK, behind, request, send, store};
use crate::exchange::global;
use crate::support::tokio_clock::TokioClock;

const INTERVAL: Duration = Duration::from_millis(100);

/// Ten a second, with this many places.
fn queue(places: u32) -> RateLimitLayer {
    let queue = LeakyQueue::per_second(10).places(places);
    let builder = RateLimitLayer::builder().policy(global("queue", queue));
    builder.store(store()).build().unwrap()
}

/// Returns a layer that serves ten requests a second, with fifty places.
fn queue_over<S: Store<Backend: Backend> + 'static>(store: S) -> RateLimitLayer {
    let queue = LeakyQueue::per_second(10).places(50);
    let builder = RateLimitLayer::builder().policy(global("queue", queue));
    builder.store(store).build().unwrap()
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
    two_serve_at_their_rate(|| SharedStore::new(items.clone())).await;
}

/// As two layers do over clones of one store in memory, and the layers before and after a reload: each has a line of
/// its own. The store said that it had taken back what it had not, and each such turn passed unused.
#[tokio::test(start_paused = true)]
async fn two_layers_over_one_store_in_memory_serve_at_its_rate_together() {
    let store = store();
    two_serve_at_their_rate(|| store.clone()).await;
}

async fn two_serve_at_their_rate<S: Store<Backend: Backend> + 'static>(store: impl Fn() -> S) {
    let arrivals = Arrivals::new();
    let processes = [(); 2].map(|()| behind(&queue_over(store()), &arrivals));
    for number in 0..400 {
        for (service, number) in processes.iter().zip([2 * number, 2 * number + 1]) {
            let sent = service.clone().oneshot(request(1, number));
            tokio::spawn(timeout(Duration::from_millis(700), sent));
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

/// The turn of the only request of a line was forgotten with the line, before the store had said that it could not take
/// it back.
#[tokio::test(start_paused = true)]
async fn a_turn_that_the_store_cannot_take_back_outlives_the_line() {
    let items = Shared(Arc::default(), TokioClock::new());
    let arrivals = Arrivals::new();
    let process = || behind(&queue_over(SharedStore::new(items.clone())), &arrivals);
    let (one, other) = (process(), process());
    send(&one, request(1, 0)).await;
    let leaves = send(&one, request(1, 1)).await;
    send(&other, request(1, 2)).await;
    leaves.abort();
    sleep(Duration::from_millis(10)).await;
    for number in 3..5 {
        send(&one, request(1, number)).await;
    }
    sleep(4 * INTERVAL).await;
    let expected: Vec<_> = [0, 3, 2, 4].into_iter().zip(0..).collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|(number, turn)| (*number, *turn * INTERVAL))
        .collect();
    assert_eq!(arrivals.log(), expected);
}

/// Twenty processes with a request a second each, so that each line has one request. Each left alone and left its turn
/// unused: nothing was served.
#[tokio::test(start_paused = true)]
async fn many_processes_with_a_request_each_go_on_under_a_timeout() {
    let items = Shared(Arc::default(), TokioClock::new());
    let arrivals = Arrivals::new();
    let processes =
        [(); 20].map(|()| behind(&queue_over(SharedStore::new(items.clone())), &arrivals));
    for number in 0..400 {
        let sent = processes[number % 20].clone();
        let sent = sent.oneshot(request(1, u32::try_from(number).unwrap()));
        tokio::spawn(timeout(Duration::from_millis(700), sent));
        sleep(Duration::from_millis(50)).await;
    }
    let log = arrivals.log();
    for pair in log.windows(2) {
        assert!(pair[1].1 >= pair[0].1 + INTERVAL, "{log:?}");
    }
    let served = in_each_second(&log, 20);
    assert!(served.iter().all(|served| *served >= 5), "{served:?}");
}

/// A store at a distance: each question is on its way for a while, and each answer too.
#[derive(Clone)]
struct Distant(MemoryStore);

#[derive(Clone, Debug)]
struct DistantBackend(Arc<MemoryBackend>);

const WAY: Duration = Duration::from_millis(6);

impl Sealed for Distant {}

impl Store for Distant {
    type Backend = DistantBackend;

    fn open(&self, policies: &[Rule]) -> Result<DistantBackend, ConfigError> {
        Ok(DistantBackend(Arc::new(self.0.open(policies)?)))
    }
}

impl DistantBackend {
    /// Asks at once, whatever becomes of the question.
    fn ask<T: Send + 'static>(
        &self,
        charges: &[Charge],
        ask: impl FnOnce(&MemoryBackend, &[Charge]) -> T + Send + 'static,
    ) -> Reply<Result<T, StoreError>> {
        let (backend, charges) = (Arc::clone(&self.0), charges.to_vec());
        Reply::later(async move {
            let asked = tokio::spawn(async move {
                sleep(WAY).await;
                ask(&backend, &charges)
            });
            let answer = asked.await.unwrap();
            sleep(WAY).await;
            Ok(answer)
        })
    }
}

impl Sealed for DistantBackend {}

impl Backend for DistantBackend {
    fn charge(&self, charges: &[Charge], _: Wanted, _: &mut Outcomes) -> Charged {
        match self.ask(charges, MemoryBackend::charge_now) {
            Reply::Later(answer) => Charged::Later(answer),
            _ => unreachable!("it is later"),
        }
    }

    fn peek(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        self.ask(charges, MemoryBackend::peek_now)
    }

    fn amend(&self, charges: &[Charge], amendment: Amendment) -> Reply<Result<bool, StoreError>> {
        self.ask(charges, move |backend, charges| {
            backend.amend_now(charges, amendment).unwrap()
        })
    }
}

/// Twenty at once in each second, with a deadline of 700 ms. Twelve turns came too late. One was given back, the others
/// stood in the queue as if there were requests, and nothing was served for as long as the overload lasted.
#[tokio::test(start_paused = true)]
async fn requests_that_would_leave_too_late_take_no_turns() {
    let arrivals = Arrivals::new();
    let service = behind(&queue_over(Distant(store())), &arrivals);
    for second in 0..5 {
        for number in 0..20 {
            let mut request = request(1, 20 * second + number);
            let deadline = Deadline::after(7 * INTERVAL + 3 * WAY);
            request.extensions_mut().insert(deadline);
            send(&service, request).await;
        }
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(in_each_second(&arrivals.log(), 5), [8; 5]);
    assert_spaced(&arrivals.log());
}

/// As many calls as there are places, each with `grpc-timeout: 1n`, filled a queue in which there was no request.
#[tokio::test(start_paused = true)]
async fn requests_without_patience_do_not_fill_a_queue() {
    let arrivals = Arrivals::new();
    let service = behind(&queue_over(Distant(store())), &arrivals);
    for number in 0..51 {
        let mut request = request(1, number);
        request
            .extensions_mut()
            .insert(Deadline::after(Duration::from_nanos(1)));
        send(&service, request).await;
    }
    sleep(20 * WAY).await;
    send(&service, request(1, 51)).await;
    sleep(2 * INTERVAL).await;
    let (first, last) = (arrivals.log()[0], arrivals.log()[1]);
    assert_eq!([first.0, last.0], [0, 51]);
    assert!(
        last.1 <= first.1 + 20 * WAY + INTERVAL,
        "{:?}",
        arrivals.log()
    );
}

/// Fifty requests that were reset at once held the next one for five seconds: the store had charged them turns that no
/// line knew of.
#[tokio::test(start_paused = true)]
async fn a_request_that_goes_away_before_the_answer_gives_its_turn_back() {
    let arrivals = Arrivals::new();
    let service = behind(&queue_over(Distant(store())), &arrivals);
    let mut sent = Vec::new();
    for number in 0..50 {
        sent.push(send(&service, request(1, number)).await);
    }
    sleep(WAY / 2).await;
    for sent in sent {
        sent.abort();
    }
    // The first turn begins at once.
    sleep(INTERVAL).await;
    send(&service, request(1, 50)).await;
    sleep(4 * WAY).await;
    assert_eq!(arrivals.log(), [(50, INTERVAL + WAY / 2 + 2 * WAY)]);
}

/// A client that goes away while the store is asked was charged.
#[tokio::test(start_paused = true)]
async fn a_request_that_waited_for_a_limit_and_goes_away_before_the_answer_is_charged_nothing() {
    let second = Duration::from_secs(1);
    let layer = RateLimitLayer::builder()
        .policy(global("window", AnchoredWindow::per_second(1)).wait_up_to(5 * second))
        .policy(global("day", FixedWindow::per_day(100)))
        .store(Distant(store()))
        .build()
        .unwrap();
    let arrivals = Arrivals::new();
    let service = behind(&layer, &arrivals);
    send(&service, request(1, 0)).await.await.unwrap();
    let waits = send(&service, request(1, 1)).await;
    // It asks when its turn has come, and is not answered yet.
    sleep(second + WAY / 2).await;
    assert!(!waits.is_finished());
    waits.abort();
    sleep(4 * WAY).await;
    let limiter = layer.limiter();
    let told = limiter.peek(Key::GLOBAL, 0).await.unwrap();
    let remaining: Vec<_> = told.policies().map(|(_, it)| it.remaining()).collect();
    assert_eq!(remaining, [1, 99]);
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
