//! A layer without rate limit headers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::{Request, Response, StatusCode};
use tower::{Layer, service_fn};
use tower_ratelimit::__internal::Sealed;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::policy::Rule;
use tower_ratelimit::response::Refusal;
use tower_ratelimit::store::{Backend, Charge, Charged, MemoryBackend, Store, Wanted};
use tower_ratelimit::{
    ConfigError, Decision, FixedWindow, ManualClock, MemoryStore, Micros, RateLimitLayer,
};

use crate::exchange::{Behind, Hello, answer, ask, get, global, limit, now, poll};
use crate::slow_store::{BrokenStore, Reciting, SlowStore, When};

/// Two requests a minute for all clients.
fn two_a_minute(store: impl Store) -> RateLimitLayer {
    let builder = RateLimitLayer::builder().policy(global("a", FixedWindow::per_minute(2)));
    builder.without_headers().store(store).build().unwrap()
}

#[test]
fn responses_tell_no_limits_and_a_refusal_still_tells_the_wait() {
    let store = MemoryStore::new().clock(ManualClock::new());
    let service = Hello::behind(&two_a_minute(store));
    for _ in 0..2 {
        let answer = ask(&service, get());
        assert_eq!(answer.status, StatusCode::OK);
        answer.assert_no_fields();
    }
    let answer = ask(&service, get());
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    let names: Vec<_> = answer
        .headers
        .keys()
        .map(http::HeaderName::as_str)
        .collect();
    assert_eq!(names, ["content-type", "cache-control", "retry-after"]);
    assert_eq!(answer.field("retry-after"), Some("60"));
    assert!(answer.text().contains("Retry after 60 seconds."));
    assert!(answer.text().contains(r#""violated-policies":["a"]"#));
    match answer.refusal {
        Some(Refusal::Denied(decision)) => assert_eq!(decision.binding().unwrap().0, "a"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn where_no_wait_can_help_a_refusal_has_none() {
    let builder = RateLimitLayer::builder().policy(global("a", FixedWindow::per_day(0)));
    let layer = builder.without_headers().build().unwrap();
    let answer = ask(&Hello::behind(&layer), get());
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    answer.assert_no_fields();
    assert_eq!(answer.field("cache-control"), Some("no-store"));
}

#[test]
fn fields_of_a_layer_inside_stay() {
    let (_, inner) = limit([global("inner", FixedWindow::per_minute(5))]);
    let outer = two_a_minute(MemoryStore::new());
    let answer = ask(&outer.layer(Hello::behind(&inner)), get());
    assert_eq!(answer.lines("ratelimit"), [r#""inner";r=4;t=60"#]);
}

/// A store that counts how it is asked.
#[derive(Clone, Debug)]
struct CountingBackend {
    memory: Arc<MemoryBackend>,
    with_numbers: Arc<AtomicU32>,
    without: Arc<AtomicU32>,
}

impl CountingBackend {
    fn new() -> Self {
        let store = MemoryStore::new().clock(ManualClock::new());
        let policy = Rule::new("a", FixedWindow::per_minute(2));
        Self {
            memory: Arc::new(store.open(&[policy]).unwrap()),
            with_numbers: Arc::default(),
            without: Arc::default(),
        }
    }

    fn asked(&self) -> [u32; 2] {
        [&self.with_numbers, &self.without].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Sealed for CountingBackend {}

impl Store for CountingBackend {
    type Backend = Self;

    fn open(&self, _: &[Rule]) -> Result<Self, ConfigError> {
        Ok(self.clone())
    }
}

impl Backend for CountingBackend {
    fn charge(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> Charged {
        let count = if wanted.includes(true) {
            &self.with_numbers
        } else {
            &self.without
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.memory.charge(charges, wanted, outcomes)
    }
}

#[test]
fn numbers_that_are_not_told_are_not_asked_for() {
    let store = CountingBackend::new();
    let service = Hello::behind(&two_a_minute(store.clone()));
    let statuses = [(); 3].map(|()| ask(&service, get()).status.as_u16());
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(store.asked(), [0, 3]);
}

#[test]
fn a_decision_that_is_exposed_has_its_numbers() {
    let store = CountingBackend::new();
    let layer = RateLimitLayer::builder()
        .policy(global("a", FixedWindow::per_minute(2)))
        .store(store.clone())
        .without_headers()
        .expose_decision()
        .build()
        .unwrap();
    let inner = service_fn(|request: Request<()>| {
        let decision: &Decision = request.extensions().get().unwrap();
        let remaining = decision.binding().unwrap().1.remaining();
        let response = Response::new(remaining.to_string());
        std::future::ready(Ok::<_, std::convert::Infallible>(response))
    });
    let answer = ask(&layer.layer(inner), get());
    assert_eq!(answer.text(), "1");
    answer.assert_no_fields();
    assert_eq!(store.asked(), [1, 0]);
}

#[test]
fn a_store_that_answers_later_is_waited_for() {
    use tower::ServiceExt;

    let store = SlowStore::new();
    let service = Hello::behind(&two_a_minute(store.clone()));
    for status in [200, 200, 429] {
        let mut response = Box::pin(service.clone().oneshot(get()));
        assert!(poll(response.as_mut()).is_pending());
        store.release(1);
        let answer = answer(now(response).unwrap());
        assert_eq!(answer.status, status);
        assert_eq!(answer.field("ratelimit"), None);
        assert_eq!(answer.field("retry-after").is_some(), status == 429);
    }
}

#[test]
fn a_store_that_fails_is_not_a_verdict() {
    let kind = StoreErrorKind::Unavailable;
    for when in [When::Now, When::Later] {
        let service = Hello::behind(&two_a_minute(BrokenStore { when, kind }));
        let answer = ask(&service, get());
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{when:?}");
    }
}

#[test]
fn a_denial_is_one_whatever_its_numbers_and_has_to_have_them_all() {
    let store = MemoryStore::new().clock(ManualClock::new());
    let memory = store.open(&[Rule::new("a", FixedWindow::per_minute(2))]);
    let charge = Charge::new(0, tower_ratelimit::key::Key::MISSING, 1);
    let allowing = memory.unwrap().charge_now(&[charge]);
    assert!(allowing.is_allowed());
    let none = Outcomes::new(Micros::ZERO);
    for (when, outcomes, status) in [
        (When::Now, allowing, 429),
        (When::Now, none.clone(), 503),
        (When::Later, none, 503),
    ] {
        let store = Reciting { when, outcomes };
        let answer = ask(&Hello::behind(&two_a_minute(store)), get());
        assert_eq!(answer.status, status, "{when:?}");
    }
}
