//! Requests that leave a leaky queue over Redis before their turn, because the client disconnects or a timeout
//! outside the layer fires. Time passes only when a test moves it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::select;
use http::{Request, Response};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::sleep;
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::clock::Clock;
use tower_ratelimit::key::{self, IntoKey, Key};
use tower_ratelimit::middleware::Deadline;
use tower_ratelimit::policy::{Fair, Http};
use tower_ratelimit::store::{Backend as _, Store as _};
use tower_ratelimit::{LeakyQueue, ManualClock, Micros, Policy, RateLimitLayer};

use crate::scene::{PATIENCE, store};
use crate::support::redis::Server;

/// So long that the time which really passes does not matter.
const INTERVAL: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// The requests that have arrived at the service, with their times.
type Log = Vec<(u32, Duration)>;

/// Processes that share a queue in Redis: one a minute, with fifty places. Each has a line of its own.
struct Scene {
    clock: ManualClock,
    start: Micros,
    log: Arc<Mutex<Log>>,
    processes: Vec<RateLimitLayer>,
    sent: Vec<JoinHandle<()>>,
    /// The runtimes of the stores, and how many tasks they have while no request is under way: those of connections.
    stores: Vec<Handle>,
    lasting: usize,
    _server: Server,
}

impl Scene {
    async fn new(processes: usize) -> Self {
        Self::of(processes, queue()).await
    }

    async fn of(processes: usize, policy: Policy<Http>) -> Self {
        let (server, clock) = (Server::start(&[]), ManualClock::new());
        let mut stores = Vec::new();
        let mut process = || {
            let store = store(&server).clock(clock.clone());
            stores.extend(store.open(&[]).unwrap().runtime());
            RateLimitLayer::builder()
                .policy(policy.clone())
                .store(store)
                .build()
                .unwrap()
        };
        let processes = (0..processes).map(|_| process()).collect();
        let mut scene = Self {
            start: clock.now(),
            clock,
            log: Arc::default(),
            processes,
            stores,
            lasting: usize::MAX,
            sent: Vec::new(),
            _server: server,
        };
        for process in &scene.processes {
            let _ = process.limiter().peek(Key::GLOBAL, 0).await.unwrap();
        }
        for _ in 0..50 {
            sleep(Duration::from_millis(1)).await;
            scene.lasting = scene.lasting.min(scene.tasks_of_stores());
        }
        scene
    }

    fn service(&self, process: usize) -> BoxCloneService<Request<u32>, Response<()>, Infallible> {
        let (clock, start, log) = (self.clock.clone(), self.start, Arc::clone(&self.log));
        let inner = service_fn(move |request: Request<u32>| {
            let at = clock.now().get() - start.get();
            let at = Duration::from_micros(at);
            log.lock().unwrap().push((*request.body(), at));
            std::future::ready(Ok(Response::new(String::new())))
        });
        let service = self.processes[process].layer(inner);
        service
            .map_response(|response| response.map(drop))
            .boxed_clone()
    }

    /// Sends a request to a process, and lets it reach its place. Its client waits for this long.
    async fn send(&mut self, process: usize, number: u32, patience: Duration) {
        self.send_as("ann", process, number, patience).await;
    }

    /// Sends a request of this tenant.
    async fn send_as(&mut self, tenant: &str, process: usize, number: u32, patience: Duration) {
        let request = Request::builder().header("x-tenant", tenant).body(number);
        let answer = self.service(process).oneshot(request.unwrap());
        let until = self.clock.now().get() + u64::try_from(patience.as_micros()).unwrap();
        let until = self.clock.sleep_until(Micros::new(until)).unwrap();
        self.sent.push(tokio::spawn(async move {
            let _ = select(answer, until).await;
        }));
        self.settle().await;
    }

    async fn step(&self) {
        self.clock.advance(STEP);
        self.settle().await;
    }

    /// Waits until each request waits for its turn or is over, and nothing is under way in a store.
    async fn settle(&self) {
        let began = Instant::now();
        loop {
            for _ in 0..20 {
                yield_now().await;
            }
            // First the stores: what they do last may wake a request, and the test's runtime runs it in the next round.
            let are_idle = self.tasks_of_stores() == self.lasting;
            let metrics = Handle::current().metrics();
            if are_idle && metrics.global_queue_depth() == 0 && self.all_wait() {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "Redis has not answered");
        }
    }

    /// Returns whether all requests that are not over wait for their turn.
    fn all_wait(&self) -> bool {
        let waiting = self.processes.iter().map(|process| {
            let snapshot = process.limiter().snapshot();
            snapshot.policies[0].queue.unwrap().length
        });
        let sent = self.sent.iter().filter(|sent| !sent.is_finished());
        waiting.sum::<u64>() == sent.count() as u64
    }

    fn tasks_of_stores(&self) -> usize {
        let each = self.stores.iter();
        each.map(|runtime| runtime.metrics().num_alive_tasks())
            .sum()
    }

    fn log(&self) -> Log {
        self.log.lock().unwrap().clone()
    }

    /// Returns how many requests were served in each ten minutes.
    fn in_each_ten_minutes(&self, times: u64) -> Vec<usize> {
        let log = self.log();
        let during = |time| {
            log.iter()
                .filter(|(_, at)| at.as_secs() / 600 == time)
                .count()
        };
        (0..times).map(during).collect()
    }
}

fn queue() -> Policy<Http> {
    Policy::new("queue", LeakyQueue::per_minute(1).places(50)).key(key::global())
}

fn divided_queue() -> Policy<Http> {
    // A tenant stays active between two requests of a scene.
    let fair = Fair::new().active_for(HOUR);
    queue().fair_by(key::header("x-tenant"), fair)
}

#[track_caller]
fn assert_spaced(log: &Log) {
    for pair in log.windows(2) {
        assert!(pair[1].1 >= pair[0].1 + INTERVAL, "{log:?}");
    }
}

#[track_caller]
fn assert_in_order(log: &Log, is_meant: impl Fn(u32) -> bool) {
    let numbers = log.iter().map(|(number, _)| *number);
    let numbers: Vec<u32> = numbers.filter(|number| is_meant(*number)).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
}

/// Twice as many requests as can be served, each of which is dropped after seven minutes. The oldest leave, and only the
/// last place was given back: fifteen requests were served, and then none.
#[tokio::test]
async fn under_a_timeout_shorter_than_the_longest_wait_a_queue_serves_at_its_rate() {
    let mut scene = Scene::new(1).await;
    for number in 0..400 {
        scene.send(0, number, 7 * INTERVAL).await;
        scene.step().await;
    }
    assert_eq!(scene.in_each_ten_minutes(20), [10; 20]);
    assert_spaced(&scene.log());
    assert_in_order(&scene.log(), |_| true);
}

/// A free turn goes to the next request of the same process. Redis takes back only the last turn of all, so a turn
/// that it cannot take back waits for the next request of that process.
#[tokio::test]
async fn two_processes_that_share_a_queue_serve_at_its_rate_together() {
    let mut scene = Scene::new(2).await;
    for number in 0..400 {
        for process in 0..2 {
            let number = 2 * number + u32::try_from(process).unwrap();
            scene.send(process, number, 7 * INTERVAL).await;
        }
        scene.step().await;
    }
    assert_eq!(scene.in_each_ten_minutes(20), [10; 20]);
    assert_spaced(&scene.log());
    for process in 0..2 {
        assert_in_order(&scene.log(), |number| number % 2 == process);
    }
}

#[tokio::test]
async fn clients_that_disconnect_the_oldest_first_leave_no_turn_unused() {
    let mut scene = Scene::new(1).await;
    for number in 0..=50 {
        scene.send(0, number, DAY).await;
    }
    scene.step().await;
    for oldest in 1..=25 {
        scene.sent[oldest].abort();
        scene.settle().await;
    }
    for _ in 0..52 {
        scene.step().await;
    }
    let stay = [0].into_iter().chain(26..=50);
    let expected = stay
        .zip(0..)
        .map(|(number, turn)| (number, turn * INTERVAL));
    assert_eq!(scene.log(), expected.collect::<Log>());
    // Redis has the places at the end again: as many requests find one.
    for number in 51..=101 {
        scene.send(0, number, DAY).await;
    }
    let allowed = || scene.processes[0].limiter().snapshot().requests.allowed;
    assert_eq!(allowed(), 102);
}

/// Twenty at once in each ten minutes, with a deadline of a little more than seven. One of the turns that came too late
/// was given back, the others stood in the queue as if there were requests, and nothing was served for as long as the
/// overload lasted.
#[tokio::test]
async fn requests_that_would_leave_too_late_take_no_turns() {
    let mut scene = Scene::new(1).await;
    for time in 0..3 {
        for number in 0..20 {
            let mut request = Request::new(20 * time + number);
            let deadline = Deadline::after(7 * INTERVAL + STEP);
            request.extensions_mut().insert(deadline);
            let answer = scene.service(0).oneshot(request);
            scene.sent.push(tokio::spawn(async move {
                let _ = answer.await;
            }));
        }
        scene.settle().await;
        for _ in 0..20 {
            scene.step().await;
        }
    }
    assert_eq!(scene.in_each_ten_minutes(3), [8; 3]);
    assert_spaced(&scene.log());
}

/// Requests that were reset at once held the next one: Redis had charged them turns that no line knew of.
#[tokio::test]
async fn a_request_that_goes_away_before_the_answer_gives_its_turn_back() {
    let scene = Scene::new(1).await;
    let mut leave = Vec::new();
    for number in 0..30 {
        let answer = scene.service(0).oneshot(Request::new(number));
        leave.push(tokio::spawn(answer));
    }
    for _ in 0..3 {
        yield_now().await;
    }
    for request in leave {
        request.abort();
    }
    let began = Instant::now();
    loop {
        let told = scene.processes[0]
            .limiter()
            .peek(Key::GLOBAL, 0)
            .await
            .unwrap();
        let used = told.binding().unwrap().1.used();
        // The first turn begins at once, and is used.
        if used <= 1 {
            break;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{used} turns are not given back"
        );
        yield_now().await;
    }
}

/// Each process serves the tenants of the requests that it holds in turn, along its own turns. A newcomer at a process without
/// requests of others waits behind all turns that Redis has given.
#[tokio::test]
async fn tenants_are_served_in_turn_by_each_process() {
    let mut scene = Scene::of(2, divided_queue()).await;
    for number in 0..=10 {
        scene.send_as("hog", 0, number, DAY).await;
    }
    scene.send_as("ben", 1, 20, DAY).await;
    scene.send_as("ann", 0, 30, DAY).await;
    scene.send_as("ann", 0, 31, DAY).await;
    for _ in 0..=26 {
        scene.step().await;
    }
    let log = scene.log();
    assert_spaced(&log);
    let numbers: Vec<u32> = log.iter().map(|(number, _)| *number).collect();
    // The turn behind the eleven of the hog is that of the other process.
    let expected = [0, 1, 30, 2, 31, 3, 4, 5, 6, 7, 8, 20, 9, 10];
    assert_eq!(numbers, expected);
}

/// The turns of requests that go away are free, those of a tenant too. Redis takes them back once none is behind them.
#[tokio::test]
async fn a_tenant_whose_requests_go_away_leaves_its_places_to_all() {
    let mut scene = Scene::of(2, divided_queue()).await;
    for number in 0..=50 {
        scene.send_as("hog", 0, number, DAY).await;
    }
    scene.step().await;
    scene.step().await;
    scene.send_as("ann", 1, 60, DAY).await;
    for gone in 11..=50 {
        scene.sent[gone].abort();
        scene.settle().await;
    }
    let used = async |scene: &Scene| {
        let tenant = Key::branch(Key::GLOBAL, &["hog".into_key()]);
        let limiter = scene.processes[0].limiter();
        let told = limiter.peek(tenant, 0).await.unwrap();
        told.binding().unwrap().1.used()
    };
    assert_eq!(used(&scene).await, 51, "the turn of ann is behind them");
    scene.sent[51].abort();
    scene.settle().await;
    assert_eq!(used(&scene).await, 50);
    scene.send_as("hog", 0, 70, DAY).await;
    assert_eq!(used(&scene).await, 11, "it takes the first that is free");
    for number in 80..85 {
        scene.send_as("ann", 1, number, DAY).await;
    }
    for _ in 0..40 {
        scene.step().await;
    }
    let log = scene.log();
    let numbers: Vec<u32> = log.iter().map(|(number, _)| *number).collect();
    let expected = (0..=10).chain([70]).chain(80..85);
    assert_eq!(numbers, expected.collect::<Vec<_>>());
    assert_spaced(&log);
}
