//! A backend of a user of the crate, which implements `charge` alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tower_ratelimit::__internal::Sealed;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::policy::Rule;
use tower_ratelimit::store::{
    Availability, Backend, Charge, Charged, MemoryBackend, Store, Wanted,
};
use tower_ratelimit::{ConfigError, Limiter, MemoryStore, StoreError};

use crate::away::{FAILURES, daily};

/// A store that is shared, with the defaults for outages.
#[derive(Clone, Debug, Default)]
struct Own {
    memory: MemoryStore,
    is_away: Arc<AtomicBool>,
    is_read_only: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
}

/// The same store, with options for outages.
struct Named(Own, Availability);

#[derive(Debug)]
struct OwnBackend(MemoryBackend, Own);

impl Sealed for Own {}

impl Store for Own {
    type Backend = OwnBackend;

    fn open(&self, policies: &[Rule]) -> Result<OwnBackend, ConfigError> {
        Ok(OwnBackend(self.memory.open(policies)?, self.clone()))
    }

    fn is_shared(&self) -> bool {
        true
    }
}

impl Sealed for Named {}

impl Store for Named {
    type Backend = OwnBackend;

    fn open(&self, policies: &[Rule]) -> Result<OwnBackend, ConfigError> {
        self.0.open(policies)
    }

    fn availability(&self) -> Option<Availability> {
        Some(self.1.clone())
    }
}

impl Sealed for OwnBackend {}

impl Backend for OwnBackend {
    fn charge(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> Charged {
        self.1.calls.fetch_add(1, Ordering::SeqCst);
        if self.1.is_away.load(Ordering::SeqCst) {
            return Charged::Now(Err(StoreError::new(StoreErrorKind::Unavailable)));
        }
        if self.1.is_read_only.load(Ordering::SeqCst) && self.0.peek_now(charges).is_allowed() {
            let error = StoreError::new(StoreErrorKind::Unavailable).because("read only");
            return Charged::Now(Err(error));
        }
        self.0.charge(charges, wanted, outcomes)
    }
}

/// It says so by the reason of its errors.
#[tokio::test(start_paused = true)]
async fn a_store_of_your_own_that_is_read_only_is_away_though_it_answers_denials() {
    let store = Own::default();
    let limiter = Limiter::builder().policy(daily(1)).store(store.clone());
    let limiter = limiter.build().unwrap();
    assert!(limiter.check("ann", 1).await.unwrap().is_allowed());
    store.is_read_only.store(true, Ordering::SeqCst);
    for number in 0..FAILURES {
        assert!(!limiter.check("ann", 1).await.unwrap().is_degraded());
        assert!(limiter.check(number, 1).await.unwrap().is_degraded());
    }
    assert!(limiter.check("ann", 1).await.unwrap().is_degraded());
}

/// Its probe charges a key that no client has, and blocks none.
#[tokio::test(start_paused = true)]
async fn a_store_of_your_own_needs_to_do_nothing() {
    let store = Own::default();
    let limiter = Limiter::builder().policy(daily(3)).store(store.clone());
    let limiter = limiter.build().unwrap();
    assert!(limiter.check("ann", 1).await.unwrap().is_allowed());
    store.is_away.store(true, Ordering::SeqCst);
    for used in 1..=3 {
        let decision = limiter.check("ann", 1).await.unwrap();
        assert!(decision.is_degraded());
        assert_eq!(decision.binding().unwrap().1.used(), used);
    }
    for _ in 3..2 * FAILURES {
        assert!(!limiter.check("ann", 1).await.unwrap().is_allowed());
    }
    assert_eq!(store.calls.load(Ordering::SeqCst), 1 + FAILURES);
    store.is_away.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let decision = limiter.check("ann", 0).await.unwrap();
    assert!(!decision.is_degraded());
    assert_eq!(decision.binding().unwrap().1.used(), 1);
    let error = limiter.peek("ann", 1).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unsupported);
}

/// The backend that was opened first is dropped, and the probe uses another one.
#[tokio::test(start_paused = true)]
async fn limiters_over_a_store_find_out_together_and_outlive_each_other() {
    let store = Own::default();
    let availability = Availability::new().nodes(2);
    let build = || {
        let named = Named(store.clone(), availability.clone());
        let limiter = Limiter::builder().policy(daily(3)).store(named);
        limiter.build().unwrap()
    };
    let (first, second) = (build(), build());
    store.is_away.store(true, Ordering::SeqCst);
    for _ in 0..FAILURES {
        assert!(first.check("ann", 0).await.unwrap().is_degraded());
    }
    let calls = store.calls.load(Ordering::SeqCst);
    assert!(second.check("ann", 0).await.unwrap().is_degraded());
    assert_eq!(store.calls.load(Ordering::SeqCst), calls);
    drop(first);
    store.is_away.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!second.check("ann", 0).await.unwrap().is_degraded());
}

#[tokio::test(start_paused = true)]
async fn a_layer_goes_on_or_refuses_as_its_policy_says() {
    use std::convert::Infallible;

    use http::{Request, Response};
    use tower::{Layer, ServiceExt, service_fn};
    use tower_ratelimit::{OnStoreFailure, RateLimitLayer, key};

    for (what, statuses) in [
        (OnStoreFailure::Local, [200, 200, 429]),
        (OnStoreFailure::Allow, [200, 200, 200]),
        (OnStoreFailure::Refuse, [503, 503, 503]),
    ] {
        let store = Own::default();
        store.is_away.store(true, Ordering::SeqCst);
        let layer = RateLimitLayer::builder()
            .policy(daily(2).on_store_failure(what).key(key::global()))
            .store(store)
            .build()
            .unwrap();
        let inner = service_fn(|_: Request<()>| async {
            Ok::<_, Infallible>(Response::new(String::new()))
        });
        let service = layer.layer(inner);
        for status in statuses {
            let response = service.clone().oneshot(Request::new(())).await.unwrap();
            assert_eq!(response.status(), status, "{what:?}");
        }
    }
}
