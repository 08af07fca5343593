//! Blocked keys are denied by every verb, whatever else happens to the store.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tower_ratelimit::__internal::Sealed;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::key::IntoKey;
use tower_ratelimit::policy::Rule;
use tower_ratelimit::store::{Backend, Charge, Charged, Store, Wanted};
use tower_ratelimit::{
    Algorithm, ConfigError, FixedWindow, Limiter, LocalLimiter, ManualClock, MemoryStore, Micros,
    Policy, StoreError, TokenBucket,
};

use crate::scenarios::{HOUR, MINUTE, SECOND, START};
use crate::support::driver::{limiter_over, micros};

fn store() -> (ManualClock, MemoryStore) {
    let clock = ManualClock::new();
    clock.set_micros(Micros::new(START));
    let store = MemoryStore::new().clock(clock.clone());
    (clock, store)
}

fn now<F: IntoFuture>(future: F) -> F::Output {
    match pin!(future.into_future()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("there is no answer yet"),
    }
}

fn two_policies(store: &MemoryStore) -> LocalLimiter {
    let policies = [
        ("address", FixedWindow::per_minute(10).into()),
        ("user", TokenBucket::per_second(1).burst(5).into()),
    ];
    limiter_over::<&str>(store, policies as [(&str, Algorithm); 2])
}

#[test]
fn one_blocked_key_denies_the_request_and_no_policy_is_charged() {
    let (clock, store) = store();
    let limiter = two_policies(&store);
    // Only one of the two policies decides on the blocked key.
    limiter.block("mallory", HOUR).now();
    let asked = [("user", "mallory", 1), ("address", "192.0.2.1", 1)];
    for _ in 0..20 {
        let decision = limiter.named(asked).unwrap().check().now();
        assert!(!decision.is_allowed());
        assert_eq!(decision.retry_after(), Some(HOUR));
        assert_eq!(decision.binding().unwrap().0, "user");
        let told: Vec<_> = decision.policies().collect();
        let [(_, address), (_, user)] = told[..] else {
            panic!("{told:?}");
        };
        assert!(address.is_allowed() && !address.is_blocked());
        assert_eq!(address.remaining(), 10);
        assert!(user.is_blocked());
        assert_eq!((user.remaining(), user.used(), user.limit()), (0, 5, 5));
        assert_eq!(user.reset_after(), HOUR);
    }
    let others = limiter.named([("address", "192.0.2.1", 10)]);
    assert!(others.unwrap().check().now().is_allowed());
    clock.advance(HOUR);
    assert!(limiter.named(asked).unwrap().check().now().is_allowed());
}

#[test]
fn whatever_the_cost_a_blocked_key_waits_for_the_end_or_longer_if_its_own_wait_is() {
    let (_, store) = store();
    let limiter = limiter_over(&store, [("a", FixedWindow::per_minute(10).into())]);
    limiter.block("ann", SECOND).now();
    for cost in [0, 1, 10, 11, u32::MAX] {
        let decision = limiter.peek("ann", cost).now();
        assert!(!decision.is_allowed(), "{cost}");
        assert_eq!(decision.retry_after(), Some(SECOND), "{cost}");
    }
    limiter.unblock("ann").now();
    assert!(limiter.check("ann", 10).now().is_allowed());
    limiter.block("ann", SECOND).now();
    assert_eq!(limiter.peek("ann", 0).now().retry_after(), Some(SECOND));
    let own = limiter.peek("ann", 1).now().retry_after();
    assert_eq!(own, Some(MINUTE));
}

#[test]
fn every_way_to_ask_denies_a_blocked_key() {
    let (_, store) = store();
    let limiter = limiter_over(&store, [("a", FixedWindow::per_minute(10).into())]);
    limiter.block("ann", HOUR).now();
    assert!(!limiter.admit("ann", 1).now());
    assert!(!limiter.check("ann", 1).now().is_allowed());
    assert!(!limiter.peek("ann", 1).now().is_allowed());
    let (units, decision) = limiter.acquire_up_to("ann", u32::MAX).now();
    assert_eq!((units, decision.retry_after()), (0, Some(HOUR)));
    assert!(!now(limiter.check("ann", 1)).unwrap().is_allowed());
    let policies = [Rule::new("a", FixedWindow::per_minute(10))];
    let backend = store.open(&policies).unwrap();
    let charge = Charge::new(0, "ann".into_key(), 1);
    let mut outcomes = Outcomes::new(Micros::ZERO);
    let charged = backend.charge(&[charge], Wanted::Refusals, &mut outcomes);
    assert!(matches!(charged, Charged::Now(Ok(false))), "{charged:?}");
    assert_eq!(outcomes.iter().len(), 1);
    assert!(outcomes.iter().all(|(_, outcome)| outcome.is_blocked()));
}

#[test]
fn a_soft_policy_denies_a_blocked_key_and_grants_it_nothing() {
    let (_, store) = store();
    let limiter = Limiter::builder()
        .policy(Policy::new("soft", FixedWindow::per_minute(1)).soft())
        .policy(Policy::new("hard", FixedWindow::per_minute(u32::MAX)))
        .store(store)
        .build_local()
        .unwrap();
    let asked = [("soft", "ann", 1), ("hard", "bob", 1)];
    limiter.block("ann", HOUR).now();
    let decision = limiter.named(asked).unwrap().check().now();
    assert!(!decision.is_allowed());
    assert_eq!(decision.retry_after(), Some(HOUR));
    let (name, soft) = decision.binding().unwrap();
    assert_eq!(name, "soft");
    assert!(soft.is_soft() && soft.is_blocked());
    assert_eq!(decision.over_limit().count(), 0);
    assert_eq!(limiter.acquire_up_to("ann", u32::MAX).now().0, 0);
    limiter.unblock("ann").now();
    let decision = limiter.named(asked).unwrap().check().now();
    assert_eq!(decision.over_limit().count(), 0);
    let decision = limiter.named(asked).unwrap().check().now();
    assert!(decision.is_allowed());
    assert_eq!(decision.over_limit().count(), 1);
}

#[test]
fn no_flood_of_other_keys_ends_a_block() {
    let clock = ManualClock::new();
    let store = MemoryStore::new().max_keys(100).clock(clock.clone());
    let limiter = limiter_over(&store, [("a", FixedWindow::per_minute(10).into())]);
    limiter.block("mallory", HOUR).now();
    for round in 0..50_u64 {
        for key in 0..200 {
            let _ = limiter.admit(round * 200 + key, 10).now();
        }
        let left = HOUR.checked_sub(MINUTE * u32::try_from(round).unwrap());
        assert_eq!(limiter.check("mallory", 1).now().retry_after(), left);
        clock.advance(MINUTE);
    }
}

#[test]
fn many_blocks_at_once_all_hold_and_all_end() {
    let (clock, store) = store();
    let limiter = limiter_over(&store, [("a", FixedWindow::per_minute(10).into())]);
    for key in 0..3_000_u64 {
        limiter
            .block(key, SECOND * (1 + u32::try_from(key % 7).unwrap()))
            .now();
    }
    for second in 0..8 {
        for key in 0..3_000_u64 {
            assert_eq!(limiter.check(key, 1).now().is_allowed(), key % 7 < second);
        }
        clock.advance(SECOND);
    }
}

#[test]
fn the_later_end_of_two_blocks_counts_and_a_shorter_one_needs_an_unblock() {
    let (clock, store) = store();
    let limiter = limiter_over(&store, [("a", FixedWindow::per_minute(10).into())]);
    let left = || limiter.peek("ann", 0).now().retry_after();
    limiter.block("ann", HOUR).now();
    limiter.block("ann", MINUTE).now();
    assert_eq!(left(), Some(HOUR));
    clock.advance(MINUTE);
    limiter.block("ann", HOUR).now();
    assert_eq!(left(), Some(HOUR));
    limiter.reset("ann").now();
    limiter.refund("ann", 10).now();
    assert_eq!(left(), Some(HOUR));
    limiter.unblock("ann").now();
    assert_eq!(left(), None);
    limiter.block("ann", MINUTE).now();
    assert_eq!(left(), Some(MINUTE));
    limiter.unblock("ann").now();
    limiter.block("ann", std::time::Duration::ZERO).now();
    assert_eq!(left(), None);
    limiter.block("ann", std::time::Duration::MAX).now();
    assert_eq!(left().map(micros), Some(Micros::LONGEST.get()));
    limiter.unblock("nobody").now();
    limiter.unblock("ann").now();
    assert_eq!(left(), None);
}

#[test]
fn an_unblock_tells_whether_the_key_was_blocked() {
    let (clock, store) = store();
    let rules = [
        ("a", FixedWindow::per_minute(1).into()),
        ("b", FixedWindow::per_hour(9).into()),
    ];
    let limiter = limiter_over(&store, rules);
    assert!(!limiter.unblock("ann").now(), "it is new");
    assert!(limiter.admit("ann", 1).now() && !limiter.admit("ann", 1).now());
    assert!(!limiter.unblock("ann").now(), "it is out of quota");
    limiter.block("ann", MINUTE).now();
    assert!(!limiter.unblock("bob").now(), "another key is blocked");
    assert!(limiter.unblock("ann").now());
    assert!(!limiter.unblock("ann").now(), "the block has ended");

    limiter.block("ann", MINUTE).now();
    clock.advance(MINUTE);
    assert!(!limiter.unblock("ann").now(), "the block is over");

    // The block of one policy is enough.
    let one = limiter_over(&store, [("b", FixedWindow::per_hour(9).into())]);
    one.block("ann", MINUTE).now();
    assert!(now(limiter.unblock("ann")).unwrap());
    assert!(!now(limiter.unblock("ann")).unwrap());
}

#[test]
fn limiters_over_one_store_share_the_blocks_of_a_policys_name_whatever_its_limit() {
    let (_, store) = store();
    let algorithm = |limit| Algorithm::from(FixedWindow::per_minute(limit));
    let first = limiter_over(&store, [("a", algorithm(10))]);
    let same = limiter_over(&store.clone(), [("a", algorithm(10))]);
    let other = limiter_over(&store, [("b", algorithm(10))]);
    let elsewhere = limiter_over(&store.clone().max_keys(10), [("a", algorithm(10))]);
    first.block("ann", HOUR).now();
    assert!(!same.admit("ann", 1).now());
    assert!(other.admit("ann", 1).now());
    assert!(elsewhere.admit("ann", 1).now());
    let changed = limiter_over(&store, [("a", algorithm(20))]);
    drop((first, same));
    assert!(!changed.admit("ann", 1).now());
    changed.unblock("ann").now();
    assert!(changed.admit("ann", 1).now());
}

#[test]
fn a_block_that_was_seen_before_a_step_back_is_no_longer_after_it() {
    let (clock, store) = store();
    let limiter = limiter_over(&store, [("a", FixedWindow::per_minute(10).into())]);
    limiter.block("ann", MINUTE).now();
    clock.set_micros(Micros::new(START - micros(HOUR)));
    assert_eq!(limiter.peek("ann", 1).now().retry_after(), Some(MINUTE));
    assert_eq!(limiter.check("ann", 1).now().retry_after(), Some(MINUTE));
    clock.advance(SECOND);
    let left = MINUTE.checked_sub(SECOND);
    assert_eq!(limiter.check("ann", 1).now().retry_after(), left);
    clock.advance(MINUTE);
    assert!(limiter.check("ann", 1).now().is_allowed());
}

/// A store with the required methods alone.
#[derive(Debug)]
struct Plain;

impl Sealed for Plain {}

impl Store for Plain {
    type Backend = Self;

    fn open(&self, _: &[Rule]) -> Result<Self, ConfigError> {
        Ok(Self)
    }
}

impl Backend for Plain {
    fn charge(&self, _: &[Charge], _: Wanted, _: &mut Outcomes) -> Charged {
        Charged::Now(Err(StoreError::new(StoreErrorKind::Unavailable)))
    }
}

#[test]
fn a_store_that_cannot_block_says_so() {
    let limiter = Limiter::builder()
        .policy(Policy::new("a", FixedWindow::per_minute(1)))
        .store(Plain)
        .build()
        .unwrap();
    for answer in [
        now(limiter.block("ann", HOUR)),
        now(limiter.unblock("ann")).map(drop),
        now(limiter.inspect("ann")).map(drop),
    ] {
        assert_eq!(answer.unwrap_err().kind(), StoreErrorKind::Unsupported);
    }
}
