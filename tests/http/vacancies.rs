//! A slot that is given back goes to the next request that waits for it, at once and in order.

use std::convert::Infallible;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::__internal::Sealed;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::middleware::ResponseBody;
use tower_ratelimit::policy::Rule;
use tower_ratelimit::store::{Amendment, Backend, Charge, Charged, Reply, Store, Wanted};
use tower_ratelimit::{
    Concurrency, ConfigError, MemoryStore, RateLimitLayer, StoreError, TokenBucket,
};

use crate::exchange::{get, global};
use crate::support::tokio_clock::TokioClock;

/// Called when a request has been answered.
type Meanwhile = Box<dyn FnOnce() + Send>;

/// A store in this process that counts how often it is asked.
#[derive(Clone)]
struct CountingStore {
    memory: MemoryStore,
    asked: Arc<AtomicUsize>,
    /// What happens between the answer to this question and the next step of its request.
    meanwhile: Arc<Mutex<Option<(usize, Meanwhile)>>>,
}

struct CountingBackend {
    memory: <MemoryStore as Store>::Backend,
    store: CountingStore,
}

impl CountingStore {
    fn new() -> Self {
        Self {
            memory: MemoryStore::new().clock(TokioClock::new()),
            asked: Arc::default(),
            meanwhile: Arc::default(),
        }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn meanwhile(&self, question: usize, happens: impl FnOnce() + Send + 'static) {
        *self.meanwhile.lock().unwrap() = Some((question, Box::new(happens)));
    }
}

impl Sealed for CountingStore {}

impl Store for CountingStore {
    type Backend = CountingBackend;

    fn open(&self, policies: &[Rule]) -> Result<CountingBackend, ConfigError> {
        Ok(CountingBackend {
            memory: self.memory.open(policies)?,
            store: self.clone(),
        })
    }
}

impl Sealed for CountingBackend {}

impl Backend for CountingBackend {
    fn charge(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> Charged {
        let answer = self.memory.charge(charges, wanted, outcomes);
        let number = self.store.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let meanwhile = self
            .store
            .meanwhile
            .lock()
            .unwrap()
            .take_if(|(at, _)| *at == number);
        if let Some((_, happens)) = meanwhile {
            happens();
        }
        answer
    }

    fn peek(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        self.memory.peek(charges)
    }

    fn amend(&self, charges: &[Charge], amendment: Amendment) -> Reply<Result<bool, StoreError>> {
        self.memory.amend(charges, amendment)
    }
}

impl fmt::Debug for CountingBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CountingBackend")
    }
}

const LONGEST: Duration = Duration::from_secs(60);

fn layer(most: u32, store: &CountingStore) -> RateLimitLayer {
    let policy = global("at once", Concurrency::of(most)).wait_up_to(LONGEST);
    let builder = RateLimitLayer::builder().policy(policy);
    builder.store(store.clone()).build().unwrap()
}

type HttpResponse = Response<ResponseBody<Full<Bytes>>>;

trait Served:
    Service<Request<()>, Response = HttpResponse, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static
{
}

impl<S> Served for S where
    S: Service<Request<()>, Response = HttpResponse, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

fn hello(layer: &RateLimitLayer) -> impl Served + use<> {
    layer.layer(service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hello"))))
    }))
}

/// Lets all tasks go on that have nothing to wait for. The paused clock stands still.
async fn rest() {
    for _ in 0..50 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_handed_on_at_once_and_in_order() {
    const WORKS: Duration = Duration::from_millis(7);
    let store = CountingStore::new();
    let layer = layer(1, &store);
    let service = hello(&layer);
    let first = service.clone().oneshot(get()).await.unwrap();
    let passed = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = JoinSet::new();
    for number in 0..5 {
        let (service, passed) = (service.clone(), Arc::clone(&passed));
        waiting.spawn(async move {
            let response = service.oneshot(get()).await.unwrap();
            passed.lock().unwrap().push((number, Instant::now()));
            sleep(WORKS).await;
            drop(response);
        });
        sleep(Duration::from_micros(1_300)).await;
    }
    sleep(Duration::from_secs(30)).await;
    // While it waits, the first one asks once a second, and the others ask nothing.
    let asked = store.asked();
    assert!((30..45).contains(&asked), "{asked} questions");
    assert!(passed.lock().unwrap().is_empty());
    drop(first);
    let freed = Instant::now();
    waiting.join_all().await;
    let expected: Vec<_> = (0..5_u32)
        .map(|number| (number, freed + WORKS * number))
        .collect();
    assert_eq!(*passed.lock().unwrap(), expected);
    // Each of them asks once when it is its turn, and once in vain when it has become the first. The question of the second may fall
    // between: when it is due depends on the part of a millisecond in which the test began.
    assert!(
        store.asked() - asked <= 11,
        "{} questions",
        store.asked() - asked
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_gone_away_is_skipped_whenever_it_went() {
    let store = CountingStore::new();
    let layer = layer(1, &store);
    let service = hello(&layer);
    // Before the slot is free, at the front and behind it; and after it was woken, before it could ask.
    for (goes_before, goes_after) in [(&[0, 2][..], 1), (&[][..], 0), (&[1][..], 0)] {
        let first = service.clone().oneshot(get()).await.unwrap();
        let mut calls = Vec::new();
        for _ in 0..5 {
            let mut call = Box::pin(service.clone().oneshot(get()));
            let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
            calls.push(Some(call));
            sleep(Duration::from_millis(1)).await;
        }
        for number in goes_before {
            calls[*number] = None;
        }
        let mut next = calls.iter().flatten().count();
        drop(first);
        calls[goes_after] = None;
        next -= 1;
        let freed = Instant::now();
        for call in calls.into_iter().flatten() {
            drop(call.await.unwrap());
            next -= 1;
        }
        assert_eq!((next, freed.elapsed()), (0, Duration::ZERO));
    }
}

/// A slot is given back after a request was denied and before it waits: by the layer at first, and when it asks again.
#[tokio::test(start_paused = true)]
async fn a_slot_that_is_given_back_while_a_request_asks_is_not_missed() {
    for question in [2, 3] {
        let store = CountingStore::new();
        let layer = layer(1, &store);
        let service = hello(&layer);
        let first = service.clone().oneshot(get()).await.unwrap();
        store.meanwhile(question, move || drop(first));
        let asked = Instant::now();
        let response = service.clone().oneshot(get()).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(asked.elapsed(), Duration::ZERO, "question {question}");
    }
}

#[tokio::test(start_paused = true)]
async fn several_slots_go_to_as_many_requests_and_a_large_one_waits_until_it_has_enough() {
    let store = CountingStore::new();
    let policy = global("at once", Concurrency::of(4))
        .cost(crate::exchange::cost)
        .wait_up_to(LONGEST);
    let builder = RateLimitLayer::builder().policy(policy);
    let layer = builder.store(store.clone()).build().unwrap();
    let service = hello(&layer);
    let of_cost = |cost| service.clone().oneshot(crate::exchange::get_of_cost(cost));
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(of_cost(1).await.unwrap());
    }
    let mut large = pin!(of_cost(3));
    let mut small = pin!(of_cost(1));
    let mut poll = |number: usize| {
        let mut cx = Context::from_waker(Waker::noop());
        let polled = match number {
            0 => large.as_mut().poll(&mut cx),
            _ => small.as_mut().poll(&mut cx),
        };
        match polled {
            Poll::Ready(response) => Some(response.unwrap()),
            Poll::Pending => None,
        }
    };
    for number in [0, 1] {
        assert!(poll(number).is_none());
    }
    for _ in 0..2 {
        drop(held.pop());
        rest().await;
        // The small one would fit, and does not overtake.
        assert!(poll(0).is_none() && poll(1).is_none());
    }
    drop(held.pop());
    let large = poll(0).unwrap();
    assert!(poll(1).is_none());
    drop(large);
    assert!(poll(1).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_free_again_helps_no_request_before_its_rate_does() {
    let store = CountingStore::new();
    let layer = RateLimitLayer::builder()
        .policy(global("rate", TokenBucket::per_minute(6).burst(1)).wait_up_to(LONGEST))
        .policy(global("at once", Concurrency::of(1)).wait_up_to(LONGEST))
        .store(store.clone())
        .build()
        .unwrap();
    let service = hello(&layer);
    let first = service.clone().oneshot(get()).await.unwrap();
    let began = Instant::now();
    let second = tokio::spawn(service.clone().oneshot(get()));
    sleep(Duration::from_secs(3)).await;
    let asked = store.asked();
    drop(first);
    rest().await;
    assert_eq!(store.asked(), asked);
    let second = second.await.unwrap().unwrap();
    assert_eq!(second.status(), 200);
    let waited = began.elapsed();
    assert!(waited >= Duration::from_secs(9), "{waited:?}");
}
