//! Stores over one atomic read-modify-write.

mod fair;
mod guaranteed;
mod overriding;
mod remembering;
mod slots;

use std::time::Duration;

use tower_ratelimit::clock::Clock;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::key::{IntoKey, Key, Secret};
use tower_ratelimit::policy::Rule;
use tower_ratelimit::store::{
    Amendment, Backend, Change, Changed, Charge, Departure, Items, Reply, SharedStore, Store,
};
use tower_ratelimit::{
    FixedWindow, LeakyQueue, Limiter, ManualClock, Micros, OnStoreFailure, Policy, StoreError,
    TokenBucket,
};

use crate::support::items::{Map, OneByOne};
use crate::support::taken::{
    START, nothing_is_given_back_of_a_window_that_has_ended,
    whatever_a_request_cost_the_wait_that_is_told_is_true,
};

fn limiter(map: &Map, policies: impl IntoIterator<Item = Policy>) -> Limiter {
    let store = SharedStore::new(map.clone());
    let builder = Limiter::builder().policies(policies);
    builder.store(store).build().unwrap()
}

fn daily(limit: u32) -> Policy {
    Policy::new("daily", FixedWindow::per_day(limit))
}

fn map() -> Map {
    Map::new(&ManualClock::new())
}

#[tokio::test]
async fn policies_of_one_name_share_their_state_over_processes_and_limits() {
    let map = map();
    let one = limiter(&map, [daily(5)]);
    let other = limiter(&map, [daily(10), Policy::new("b", FixedWindow::per_day(9))]);
    assert!(one.check("ann", 5).await.unwrap().is_allowed());
    assert!(!one.check("ann", 1).await.unwrap().is_allowed());
    let told = other.check("ann", 1).await.unwrap();
    let remaining: Vec<_> = told.policies().map(|(_, told)| told.remaining()).collect();
    assert_eq!(remaining, [4, 8]);
    let hourly = Policy::new("daily", FixedWindow::per_hour(5));
    assert!(
        limiter(&map, [hourly])
            .check("ann", 5)
            .await
            .unwrap()
            .is_allowed()
    );
    assert_eq!(
        other
            .peek("ann", 1)
            .await
            .unwrap()
            .binding()
            .unwrap()
            .1
            .remaining(),
        3
    );
}

#[tokio::test]
async fn a_block_is_the_names_whatever_the_algorithm_becomes() {
    let map = map();
    let before = limiter(&map, [daily(5)]);
    before.block("ann", Duration::from_secs(60)).await.unwrap();
    let after = limiter(&map, [Policy::new("daily", TokenBucket::per_second(5))]);
    let told = after.check("ann", 1).await.unwrap();
    assert!(told.binding().unwrap().1.is_blocked());
    assert_eq!(told.retry_after(), Some(Duration::from_secs(60)));
}

/// Two nodes in turn, one of them half a second behind.
#[tokio::test]
async fn clocks_that_differ_a_little_do_not_drain_a_bucket_again_and_again() {
    let map = map();
    let start = 1_704_067_200_000_000;
    let limiter = limiter(
        &map,
        [Policy::new("a", TokenBucket::per_second(10).burst(10))],
    );
    let mut admitted = 0;
    for turn in 0..1_000_u64 {
        let behind = if turn.is_multiple_of(2) { 0 } else { 500_000 };
        map.clock
            .set_micros(Micros::new(start + 1_000 * turn - behind));
        admitted += u32::from(limiter.check("ann", 1).await.unwrap().is_allowed());
    }
    // The burst, and what a second brings.
    assert_eq!(admitted, 19);
}

#[tokio::test]
async fn law_8_a_clock_that_steps_back_far_locks_no_request_out() {
    let map = map();
    let limiter = limiter(&map, [Policy::new("a", TokenBucket::per_second(1))]);
    assert!(limiter.check("ann", 1).await.unwrap().is_allowed());
    limiter.block("bob", Duration::from_secs(3)).await.unwrap();
    map.clock.set_micros(Micros::new(1_000_000));
    for (key, wait) in [("ann", 1), ("bob", 3)] {
        let denied = limiter.check(key, 1).await.unwrap();
        assert_eq!(
            denied.retry_after(),
            Some(Duration::from_secs(wait)),
            "{key}"
        );
    }
    map.clock.advance(Duration::from_secs(3));
    for key in ["ann", "bob"] {
        assert!(limiter.check(key, 1).await.unwrap().is_allowed(), "{key}");
    }
}

#[tokio::test]
async fn a_damaged_item_is_an_error_of_that_key_until_it_is_reset() {
    let map = map();
    let limiter = limiter(&map, [daily(5).on_store_failure(OnStoreFailure::Refuse)]);
    assert!(limiter.check("ann", 5).await.unwrap().is_allowed());
    for value in map.items().values_mut() {
        value.pop();
    }
    let damaged = map.items().clone();
    for error in [
        limiter.check("ann", 1).await.unwrap_err(),
        limiter.refund("ann", 1).await.unwrap_err(),
        limiter
            .block("ann", Duration::from_secs(1))
            .await
            .unwrap_err(),
    ] {
        assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(
            cause.contains("reset the key") && !cause.contains("ann"),
            "{cause}"
        );
    }
    assert_eq!(*map.items(), damaged);
    assert!(limiter.check("bob", 1).await.unwrap().is_allowed());
    limiter.reset("ann").await.unwrap();
    assert!(limiter.check("ann", 5).await.unwrap().is_allowed());
}

#[tokio::test]
async fn the_next_write_drops_expired_states() {
    let map = map();
    let both = limiter(
        &map,
        [daily(5), Policy::new("b", FixedWindow::per_minute(5))],
    );
    assert!(both.check("ann", 1).await.unwrap().is_allowed());
    let sizes = || map.items().values().map(Vec::len).collect::<Vec<_>>();
    let with_both = sizes()[0];
    map.clock.advance(Duration::from_secs(60));
    let daily = limiter(&map, [daily(5)]);
    assert!(daily.check("ann", 1).await.unwrap().is_allowed());
    assert!(sizes()[0] < with_both, "{:?}", sizes());
}

#[tokio::test]
async fn a_request_that_changes_nothing_writes_nothing() {
    let map = map();
    let limiter = limiter(&map, [daily(1)]);
    assert!(limiter.check("ann", 0).await.unwrap().is_allowed());
    assert!(limiter.peek("ann", 1).await.unwrap().is_allowed());
    limiter.reset("ann").await.unwrap();
    limiter.refund("ann", 1).await.unwrap();
    limiter.unblock("ann").await.unwrap();
    limiter.end_override("daily", "ann").unwrap().await.unwrap();
    assert!(map.items().is_empty());
    assert!(limiter.check("ann", 1).await.unwrap().is_allowed());
    let before = map.items().clone();
    map.clock.advance(Duration::from_secs(1));
    assert!(!limiter.check("ann", 1).await.unwrap().is_allowed());
    assert_eq!(*map.items(), before);
}

#[tokio::test]
async fn neither_a_name_nor_a_debug_form_shows_a_secret() {
    let map = map();
    let limiter = limiter(&map, [daily(5)]);
    let secret = Secret::new("correct horse battery").unwrap();
    assert!(
        limiter
            .check(secret.hash("s3kret"), 1)
            .await
            .unwrap()
            .is_allowed()
    );
    let names: Vec<String> = map.items().keys().cloned().collect();
    assert_eq!(names.len(), 1);
    assert!(
        names[0].starts_with("trl1:s:") && !names[0].contains("s3kret"),
        "{names:?}"
    );
}

/// Each amount concerns the named policy and its key, and nothing else.
#[tokio::test]
async fn policies_are_refunded_and_settled_by_name() {
    let map = map();
    let limiter = limiter(&map, [daily(9), Policy::new("b", FixedWindow::per_day(9))]);
    let used = async |key: &str| -> Vec<u32> {
        let told = limiter.peek(key, 0).await.unwrap();
        told.policies().map(|(_, told)| told.used()).collect()
    };
    for key in ["ann", "bob"] {
        assert!(limiter.check(key, 5).await.unwrap().is_allowed());
    }
    let refunded = limiter.named([("b", "bob", 4), ("daily", "ann", 1)]);
    refunded.unwrap().refund().await.unwrap();
    assert_eq!([used("ann").await, used("bob").await], [[4, 5], [5, 1]]);
    let settled = limiter.named([("daily", "bob", 2), ("b", "bob", 3)]);
    settled.unwrap().settle().await.unwrap();
    assert_eq!([used("ann").await, used("bob").await], [[4, 5], [7, 4]]);
}

#[tokio::test]
async fn a_store_of_one_item_at_a_time_charges_no_key_alone_and_amends_one_after_another() {
    let map = map();
    let store = SharedStore::new(OneByOne(map.clone()));
    let backend = store
        .open(&[
            daily(5).into(),
            Policy::new("b", FixedWindow::per_day(5)).into(),
        ])
        .unwrap();
    let charges = |first: &str, second: &str| {
        [
            Charge::new(0, first.into_key(), 5),
            Charge::new(1, second.into_key(), 5),
        ]
    };
    let same = backend.decide(&charges("ann", "ann")).wait().await.unwrap();
    assert!(same.is_allowed());
    let same = backend.decide(&charges("bob", "bob")).wait().await.unwrap();
    assert!(same.is_allowed());
    let before = map.items().clone();
    for reply in [
        backend.decide(&charges("ann", "bob")),
        backend.peek(&charges("ann", "bob")),
    ] {
        let error = reply.wait().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unsupported);
    }
    assert_eq!(*map.items(), before);
    let refunded = backend.amend(&charges("ann", "bob"), Amendment::Refund);
    assert!(refunded.wait().await.unwrap());
    let used = async |key: &str| -> Vec<u32> {
        let told = backend.peek(&charges(key, key)).wait().await.unwrap();
        told.iter().map(|(_, told)| told.used()).collect()
    };
    assert_eq!(
        (used("ann").await, used("bob").await),
        (vec![0, 5], vec![5, 0])
    );
}

/// Its clock advances by the time to live of each write.
#[derive(Clone, Debug)]
struct Ttl(Map);

impl Items for Ttl {
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
        let reply = self.0.update(change);
        if let Reply::Now(Ok(changed)) = &reply {
            for write in changed.writes() {
                self.0.clock.advance(write.ttl());
            }
        }
        reply
    }
}

#[tokio::test]
async fn law_5_the_time_to_live_is_the_reset_rounded_up() {
    let map = map();
    let bucket = Policy::new("a", TokenBucket::per_second(3).burst(1));
    let window = Policy::new("b", FixedWindow::per_minute(5));
    let limiter = |policies: Vec<Policy>| {
        let store = SharedStore::new(Ttl(map.clone()));
        Limiter::builder()
            .policies(policies)
            .store(store)
            .build()
            .unwrap()
    };
    let passed = async |limiter: &Limiter| {
        let before = map.clock.now().get();
        assert!(limiter.check(Key::GLOBAL, 1).await.unwrap().is_allowed());
        map.clock.now().get() - before
    };
    let one = limiter(vec![bucket.clone()]);
    assert_eq!(passed(&one).await, 334_000);
    let both = limiter(vec![bucket, window]);
    assert_eq!(passed(&both).await, 60_000_000 - 334_000);
}

/// A request that goes away gives its turn back, if it was the last.
#[tokio::test]
async fn a_turn_in_a_queue_is_given_back() {
    let map = map();
    let queue = Policy::new("queue", LeakyQueue::per_second(1).places(2));
    let backend = SharedStore::new(map.clone()).open(&[queue.into()]).unwrap();
    let charge = Charge::new(0, "ann".into_key(), 1);
    let delay = async || {
        let told = backend.decide(&[charge]).wait().await.unwrap();
        told.iter().next().unwrap().1.delay()
    };
    let second = Duration::from_secs(1);
    assert_eq!([delay().await, delay().await], [Duration::ZERO, second]);
    let departure = Micros::new(map.clock.now().get() + 1_000_000);
    let give_back = async || {
        let reply = backend.amend(&[charge], Amendment::GiveBack(Departure::at(departure)));
        reply.wait().await.unwrap()
    };
    assert!(give_back().await);
    assert_eq!([delay().await, delay().await], [second, 2 * second]);
    // Another request is behind it.
    assert!(!give_back().await);
    assert!(!backend.decide(&[charge]).wait().await.unwrap().is_allowed());
}

/// The state is moved back and written then, which was taken for a turn that was given back.
#[tokio::test]
async fn a_clock_that_steps_back_gives_no_turn_back() {
    let map = map();
    let queue = Policy::new("queue", LeakyQueue::per_second(1).places(2));
    let backend = SharedStore::new(map.clone()).open(&[queue.into()]).unwrap();
    let charge = Charge::new(0, "ann".into_key(), 1);
    for _ in 0..2 {
        let _ = backend.decide(&[charge]).wait().await.unwrap();
    }
    let began = map.clock.now();
    map.clock.set_micros(Micros::new(began.get() - 60_000_000));
    let departure = Departure::at(Micros::new(began.get() + 1_000_000));
    let reply = backend.amend(&[charge], Amendment::GiveBack(departure));
    assert!(!reply.wait().await.unwrap());
}

#[tokio::test]
async fn a_charge_of_a_policy_that_was_never_opened_is_an_error_and_charges_nothing() {
    let map = map();
    let backend = SharedStore::new(map.clone())
        .open(&[daily(5).into()])
        .unwrap();
    let key = "ann".into_key();
    let charges = [Charge::new(0, key, 1), Charge::new(7, key, 1)];
    let error = backend.decide(&charges).wait().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    assert!(map.items().is_empty());
    let error = SharedStore::new(map)
        .open(&[daily(1).into(), daily(2).into()])
        .unwrap_err();
    assert_eq!(error.field(), "name");
}

#[tokio::test]
async fn a_refund_counts_until_the_window_of_the_charge_ends() {
    let clock = ManualClock::at(START);
    let open = |policies: &[Rule]| SharedStore::new(Map::new(&clock)).open(policies).unwrap();
    nothing_is_given_back_of_a_window_that_has_ended(&clock, open).await;
}

#[tokio::test]
async fn whatever_a_request_cost_a_client_that_waits_as_it_is_told_passes() {
    let clock = ManualClock::at(START);
    let open = |policies: &[Rule]| SharedStore::new(Map::new(&clock)).open(policies).unwrap();
    whatever_a_request_cost_the_wait_that_is_told_is_true(&clock, open).await;
}
