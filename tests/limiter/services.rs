//! The layer for services that speak no HTTP: it needs no feature.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::limit::ConcurrencyLimit;
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::__internal::Sealed;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::factor::{Factor, FactorCell};
use tower_ratelimit::key::Key;
use tower_ratelimit::plan::{Operations, Plan, Plans};
use tower_ratelimit::policy::Rule;
use tower_ratelimit::service::{LimitLayer, Refused};
use tower_ratelimit::store::{Backend, Charge, Charged, MemoryBackend, Store, Wanted};
use tower_ratelimit::{
    ConfigError, FixedWindow, LeakyQueue, Limiter, LocalLimiter, ManualClock, MemoryStore, Policy,
    StoreError, TokenBucket,
};

use crate::support::tokio_clock::TokioClock;

#[derive(Clone, Copy)]
struct Job {
    owner: Option<u32>,
    size: u32,
}

fn job(owner: u32, size: u32) -> Job {
    let owner = Some(owner);
    Job { owner, size }
}

#[derive(Debug, PartialEq)]
enum JobResult {
    Done(u32),
    Refused(Option<Duration>),
}

/// Answers with the job's size, and panics if it is called without having been polled ready.
#[derive(Default)]
struct Worker {
    is_ready: bool,
}

impl Clone for Worker {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Service<Job> for Worker {
    type Response = JobResult;
    type Error = Infallible;
    type Future = std::future::Ready<Result<JobResult, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, job: Job) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "not polled ready");
        std::future::ready(Ok(JobResult::Done(job.size)))
    }
}

fn limiter(policy: Policy) -> LocalLimiter {
    let limiter = Limiter::builder()
        .policy(policy)
        .store(in_time())
        .build_local();
    limiter.unwrap()
}

fn in_time() -> MemoryStore {
    MemoryStore::new().clock(TokioClock::new())
}

/// Of a type that can be written down.
fn limit(limiter: impl Into<Limiter>) -> LimitLayer<Job, JobResult, Infallible> {
    let key = |job: &Job| {
        job.owner
            .map_or(Key::MISSING, tower_ratelimit::key::IntoKey::into_key)
    };
    let refuse = |refused: Refused| Ok(JobResult::Refused(refused.retry_after()));
    LimitLayer::new(limiter, key, refuse)
}

fn hourly(units: u32) -> Policy {
    Policy::new("jobs", FixedWindow::per_hour(units))
}

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test(start_paused = true)]
async fn each_key_has_its_own_limit_and_a_refusal_is_the_response_that_was_made_of_the_decision() {
    let worker = limit(limiter(hourly(1))).layer(Worker::default());
    let ask = |job| worker.clone().oneshot(job);
    assert_eq!(ask(job(1, 9)).await, Ok(JobResult::Done(9)));
    assert_eq!(ask(job(1, 9)).await, Ok(JobResult::Refused(Some(HOUR))));
    assert_eq!(ask(job(2, 9)).await, Ok(JobResult::Done(9)));
    let ownerless = Job {
        owner: None,
        size: 9,
    };
    assert_eq!(ask(ownerless).await, Ok(JobResult::Done(9)));
    assert_eq!(ask(ownerless).await, Ok(JobResult::Refused(Some(HOUR))));
}

#[tokio::test(start_paused = true)]
async fn a_request_takes_what_it_costs_and_one_that_can_never_pass_is_told_no_wait() {
    let limiter = limiter(hourly(10));
    let worker = limit(limiter.clone())
        .cost(|job| job.size)
        .layer(Worker::default());
    let ask = |size| worker.clone().oneshot(job(1, size));
    assert_eq!(ask(11).await, Ok(JobResult::Refused(None)));
    assert_eq!(ask(8).await, Ok(JobResult::Done(8)));
    assert_eq!(ask(3).await, Ok(JobResult::Refused(Some(HOUR))));
    assert_eq!(ask(0).await, Ok(JobResult::Done(0)));
    // The limiter is the caller's too.
    limiter.refund(1_u32, 1).now();
    assert_eq!(ask(3).await, Ok(JobResult::Done(3)));
}

#[tokio::test(start_paused = true)]
async fn a_request_has_the_limit_of_its_plan_and_of_its_operation() {
    let operations = Operations::new().limit("large", FixedWindow::per_hour(1));
    let plans = Plans::new([
        Plan::new("free").limit("jobs", FixedWindow::per_hour(2)),
        Plan::new("pro").limit("jobs", FixedWindow::per_hour(4)),
    ]);
    let limiter = Limiter::builder()
        .policy(hourly(2).operations(operations))
        .plans(plans, |_| None::<&str>)
        .store(in_time())
        .build_local();
    let worker = limit(limiter.unwrap())
        .plan(|job| (job.owner == Some(7)).then_some("pro"))
        .operation(|job| (job.size > 100).then_some("large"))
        .layer(Worker::default());
    let done = async |owner, size| {
        let asked = worker.clone().oneshot(job(owner, size)).await;
        asked == Ok(JobResult::Done(size))
    };
    for (owner, size, at_most) in [(1, 9, 2), (7, 9, 4), (1, 101, 1), (7, 101, 1)] {
        for _ in 0..at_most {
            assert!(done(owner, size).await, "{owner}, {size}");
        }
        assert!(!done(owner, size).await, "{owner}, {size}");
    }
}

#[tokio::test(start_paused = true)]
async fn layers_that_are_given_one_limiter_share_its_state() {
    let limiter = limiter(hourly(1)).erased();
    let refuse = |refused: Refused| Err::<(), BoxError>(refused.into());
    let first = LimitLayer::new(limiter.clone(), |_: &u8| "all", refuse);
    let second = LimitLayer::new(limiter, |_: &String| "all", refuse);
    let first = first.layer(service_fn(async |_: u8| Ok(())));
    let second = second.layer(service_fn(async |_: String| Ok(())));
    assert!(first.oneshot(1).await.is_ok());
    let error = second.oneshot(String::new()).await.unwrap_err();
    let refused = error.downcast_ref::<Refused>().unwrap();
    assert_eq!(refused.decision().unwrap().binding().unwrap().0, "jobs");
    assert_eq!(
        error.to_string(),
        "over the limit of \"jobs\"; it passes in 3600s"
    );
}

#[tokio::test(start_paused = true)]
async fn a_queue_holds_requests_until_their_turn_and_refuses_those_without_a_place() {
    let queue = Policy::new("jobs", LeakyQueue::per_second(2).places(2));
    let worker = limit(limiter(queue)).layer(Worker::default());
    let start = Instant::now();
    let mut jobs = JoinSet::new();
    for size in 0..4 {
        let asked = worker.clone().oneshot(job(1, size));
        jobs.spawn(async move { (asked.await.unwrap(), start.elapsed()) });
    }
    let mut answers = jobs.join_all().await;
    answers.sort_by_key(|(_, at)| at.as_millis());
    let after = Duration::from_millis;
    let mut served: Vec<_> = answers.iter().map(|(_, at)| *at).collect();
    // The refused one is answered at once, as the first is.
    served.dedup();
    assert_eq!(served, [after(0), after(500), after(1_000)]);
    let refused = (JobResult::Refused(Some(after(500))), after(0));
    assert!(answers.contains(&refused), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn one_that_goes_away_while_it_waits_gives_the_last_place_back() {
    let queue = Policy::new("jobs", LeakyQueue::per_second(2).places(1));
    let worker = limit(limiter(queue)).layer(Worker::default());
    let ask = || worker.clone().oneshot(job(1, 1));
    assert_eq!(ask().await, Ok(JobResult::Done(1)));
    let mut waiting = polled(ask());
    assert!(waiting.poll().is_pending());
    assert!(matches!(ask().await, Ok(JobResult::Refused(Some(_)))));
    drop(waiting);
    assert_eq!(ask().await, Ok(JobResult::Done(1)));
}

/// As in `tests/http/leaving.rs`: the timeout cancels those that would have gone on next, and their turns
/// passed unused.
#[tokio::test(start_paused = true)]
async fn under_a_timeout_shorter_than_the_longest_wait_a_queue_serves_at_its_rate() {
    let queue = Policy::new("jobs", LeakyQueue::per_second(10).places(50));
    let limiter = Limiter::builder().policy(queue).store(in_time());
    let worker = limit(limiter.build_local().unwrap()).layer(Worker::default());
    let start = Instant::now();
    let mut jobs = JoinSet::new();
    for size in 0..200 {
        let asked = worker.clone().oneshot(job(1, size));
        let asked = tokio::time::timeout(Duration::from_millis(700), asked);
        jobs.spawn(async move { (asked.await.is_ok(), size, start.elapsed()) });
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut served = jobs.join_all().await;
    served.retain(|(is_served, ..)| *is_served);
    served.sort_by_key(|(_, _, at)| *at);
    assert!(served.is_sorted_by_key(|(_, size, _)| *size), "{served:?}");
    for second in 0..10 {
        let within = served.iter().filter(|(.., at)| at.as_secs() == second);
        assert_eq!(within.count(), 10, "in second {second}: {served:?}");
    }
}

/// Of one request in half a second, for which this many of a key wait.
fn patient(places: u32) -> Policy {
    let bucket = TokenBucket::per_second(2).burst(1);
    let patient = Policy::new("jobs", bucket).wait_up_to(Duration::from_secs(2));
    patient.wait_places(places)
}

#[tokio::test(start_paused = true)]
async fn under_any_algorithm_requests_wait_in_order_and_no_newcomer_overtakes() {
    let worker = limit(limiter(patient(3))).layer(Worker::default());
    let start = Instant::now();
    let ask = |owner, size| {
        let asked = worker.clone().oneshot(job(owner, size));
        polled(async move { (asked.await.unwrap(), start.elapsed()) })
    };
    assert_eq!(ask(1, 1).await.0, JobResult::Done(1));
    let mut waiting = [ask(1, 2), ask(1, 1), ask(1, 1)];
    for it in &mut waiting {
        assert!(it.poll().is_pending());
    }
    let Poll::Ready((refused, _)) = ask(1, 1).poll() else {
        panic!("it waits where there is no place");
    };
    assert_eq!(refused, JobResult::Refused(Some(Duration::from_secs(2))));
    // Another key does not wait.
    assert_eq!(ask(2, 1).await, (JobResult::Done(1), Duration::ZERO));
    let [first, second, third] = waiting;
    // Its place and its turn are free.
    drop(first);
    let newcomer = ask(1, 1);
    let (second, third, newcomer) = tokio::join!(second, third, newcomer);
    let after = |millis| (JobResult::Done(1), Duration::from_millis(millis));
    assert_eq!([second, third, newcomer], [500, 1_000, 1_500].map(after));
}

/// So that a limiter behind a layer can be asked beside it.
#[tokio::test(start_paused = true)]
async fn the_verbs_of_a_limiter_wait_for_nothing_and_all_its_layers_share_one_line() {
    let limiter = Limiter::builder().policy(patient(9)).store(in_time());
    let limiter = limiter.wait_places(1).build_local().unwrap();
    let [one, other] = [(); 2].map(|()| limit(limiter.clone()).layer(Worker::default()));
    assert!(limiter.check(1_u32, 1).now().is_allowed());
    let mut waiting = polled(one.oneshot(job(1, 1)));
    assert!(waiting.poll().is_pending());
    let decision = limiter.check(1_u32, 1).await.unwrap();
    assert_eq!(decision.retry_after(), Some(Duration::from_millis(500)));
    // There is one place for all keys.
    assert!(limiter.check(2_u32, 1).now().is_allowed());
    let refused = polled(other.clone().oneshot(job(2, 1))).poll();
    let wait = Some(Duration::from_millis(500));
    assert_eq!(refused, Poll::Ready(Ok(JobResult::Refused(wait))));
    assert_eq!(waiting.await, Ok(JobResult::Done(1)));
    let mut waiting = polled(other.oneshot(job(1, 1)));
    assert!(waiting.poll().is_pending());
    let snapshot = limiter.snapshot();
    let queue = snapshot.policy("jobs").unwrap().queue.unwrap();
    assert_eq!(queue.length, 1);
}

#[test]
fn a_request_that_would_wait_is_refused_where_nothing_would_wake_it() {
    let worker = limit(limiter(patient(3))).layer(Worker::default());
    let ask = || polled(worker.clone().oneshot(job(1, 1))).poll();
    assert_eq!(ask(), Poll::Ready(Ok(JobResult::Done(1))));
    assert!(matches!(
        ask(),
        Poll::Ready(Ok(JobResult::Refused(Some(_))))
    ));
}

/// It waited by tokio's timers for a turn that it was given by the store's clock: a test that moved the clock
/// to the turn found it waiting still.
#[test]
fn a_clock_that_is_moved_to_its_turn_lets_a_request_go_on_without_a_runtime() {
    let clock = ManualClock::new();
    let queue = Policy::new("jobs", LeakyQueue::per_second(2).places(2));
    let limiter = Limiter::builder()
        .policy(queue)
        .store(MemoryStore::new().clock(clock.clone()));
    let worker = limit(limiter.build_local().unwrap()).layer(Worker::default());
    let [mut first, mut second, mut third] =
        [1, 2, 3].map(|size| polled(worker.clone().oneshot(job(1, size))));
    assert_eq!(first.poll(), Poll::Ready(Ok(JobResult::Done(1))));
    assert!(second.poll().is_pending());
    assert!(third.poll().is_pending());
    clock.advance(Duration::from_micros(499_999));
    assert!(second.poll().is_pending());
    clock.advance(Duration::from_micros(1));
    assert!(third.poll().is_pending());
    assert_eq!(second.poll(), Poll::Ready(Ok(JobResult::Done(2))));
    clock.advance(Duration::from_secs(1));
    assert_eq!(third.poll(), Poll::Ready(Ok(JobResult::Done(3))));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_request_takes_nothing_of_the_inner_service() {
    let queue = Policy::new("jobs", LeakyQueue::per_second(2).places(5));
    let one_at_a_time = ConcurrencyLimit::new(Worker::default(), 1);
    let worker = limit(limiter(queue)).layer(one_at_a_time);
    assert_eq!(
        worker.clone().oneshot(job(1, 1)).await,
        Ok(JobResult::Done(1))
    );
    let mut waiting = polled(worker.clone().oneshot(job(1, 2)));
    assert!(waiting.poll().is_pending());
    // Another key need not wait, and finds the permit.
    assert_eq!(worker.oneshot(job(2, 3)).await, Ok(JobResult::Done(3)));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(waiting.poll(), Poll::Ready(Ok(JobResult::Done(2))));
}

#[test]
fn without_a_timer_no_request_is_held_and_nothing_panics() {
    let queue = Policy::new("jobs", LeakyQueue::per_second(2).places(5));
    let refuse = |refused: Refused| Err::<(), BoxError>(refused.into());
    let limit = LimitLayer::new(limiter(queue), |(): &()| 0_u8, refuse);
    let service = limit.layer(service_fn(async |()| Ok(())));
    let ask = || polled(service.clone().oneshot(())).poll();
    assert!(matches!(ask(), Poll::Ready(Ok(()))));
    let Poll::Ready(Err(error)) = ask() else {
        panic!("it was not refused");
    };
    assert!(matches!(error.downcast_ref(), Some(Refused::NoTimer)));
}

/// Answers later, when it is told to; or not at all.
struct LaterStore(Option<Arc<Semaphore>>);

struct LaterBackend(MemoryBackend, Option<Arc<Semaphore>>);

impl Sealed for LaterStore {}

impl Store for LaterStore {
    type Backend = LaterBackend;

    fn open(&self, policies: &[Rule]) -> Result<LaterBackend, ConfigError> {
        let memory = MemoryStore::new().clock(ManualClock::new());
        Ok(LaterBackend(memory.open(policies)?, self.0.clone()))
    }
}

impl Sealed for LaterBackend {}

impl Backend for LaterBackend {
    fn charge(&self, charges: &[Charge], _: Wanted, _: &mut Outcomes) -> Charged {
        let (answer, released) = (self.0.charge_now(charges), self.1.clone());
        Charged::later(async move {
            let Some(released) = released else {
                return Err(StoreError::new(StoreErrorKind::Unavailable));
            };
            released.acquire().await.unwrap().forget();
            Ok(answer)
        })
    }
}

impl fmt::Debug for LaterBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LaterBackend")
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_later_is_heeded_as_one_that_is_there() {
    let released = Arc::new(Semaphore::new(0));
    let store = LaterStore(Some(Arc::clone(&released)));
    let queue = Policy::new("turns", LeakyQueue::per_second(2).places(1));
    let limiter = Limiter::builder()
        .policy(queue)
        .policy(hourly(2))
        .store(store);
    let worker = limit(limiter.build().unwrap()).layer(Worker::default());
    let start = Instant::now();
    let [mut first, mut second, mut third] =
        [1, 2, 3].map(|size| polled(worker.clone().oneshot(job(1, size))));
    for asked in [&mut first, &mut second, &mut third] {
        assert!(asked.poll().is_pending());
    }
    released.add_permits(3);
    assert_eq!(first.await, Ok(JobResult::Done(1)));
    assert_eq!(second.await, Ok(JobResult::Done(2)));
    assert_eq!(start.elapsed(), Duration::from_millis(500));
    assert_eq!(third.await, Ok(JobResult::Refused(Some(HOUR))));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_decide_is_told_apart_from_a_limit() {
    let limiter = Limiter::builder().policy(hourly(1)).store(LaterStore(None));
    let refuse = |refused: Refused| Err::<(), BoxError>(refused.into());
    let limit = LimitLayer::new(limiter.build().unwrap(), |(): &()| 0_u8, refuse);
    let service = limit.layer(service_fn(async |()| Ok(())));
    let error = service.oneshot(()).await.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(Refused::Store(_))));
    assert!(error.source().is_some());
}

#[test]
fn its_types_can_be_sent_whatever_the_request_is() {
    fn can_be_sent<T: Send>(_: &T) {}
    let worker = limit(limiter(hourly(1))).layer(Worker::default());
    can_be_sent(&worker);
    can_be_sent(&worker.clone().oneshot(job(1, 1)));
}

/// A future that can be polled once, and waited for afterwards.
struct Polled<F>(std::pin::Pin<Box<F>>);

fn polled<F: Future>(future: F) -> Polled<F> {
    Polled(Box::pin(future))
}

impl<F: Future> Polled<F> {
    fn poll(&mut self) -> Poll<F::Output> {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        self.0.as_mut().poll(&mut cx)
    }
}

impl<F: Future> Future for Polled<F> {
    type Output = F::Output;

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.0.as_mut().poll(cx)
    }
}

/// A request that has joined a line has been told when its turn is: a factor that falls meanwhile charges the next ones.
#[tokio::test(start_paused = true)]
async fn a_request_in_a_line_keeps_the_price_at_which_it_joined() {
    let factor = FactorCell::new();
    let limiter = limiter(patient(3).factor(&factor));
    let worker = limit(limiter.clone()).layer(Worker::default());
    let start = Instant::now();
    let ask = || {
        let asked = worker.clone().oneshot(job(1, 1));
        polled(async move { (asked.await.unwrap(), start.elapsed()) })
    };
    assert_eq!(ask().await.0, JobResult::Done(1));
    let mut waiting = ask();
    assert!(waiting.poll().is_pending());
    factor.set(Factor::thousandths(500), "cpu 80 %");
    let after = |millis| (JobResult::Done(1), Duration::from_millis(millis));
    assert_eq!(waiting.await, after(500));
    // One unit was charged, and not two.
    let told = limiter.peek(1_u32, 1).now();
    assert_eq!(told.retry_after(), Some(Duration::from_millis(500)));
    assert_eq!(ask().await, after(1_000));
    // This one has paid two.
    let told = limiter.peek(1_u32, 1).now();
    assert_eq!(told.retry_after(), Some(Duration::from_secs(1)));
}
