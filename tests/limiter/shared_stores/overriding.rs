//! Overrides, which are in the item of the key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tower_ratelimit::algorithm::Limit;
use tower_ratelimit::clock::Clock;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::key::IntoKey;
use tower_ratelimit::store::{
    Amendment, Backend, Change, Changed, Charge, Items, Reply, SharedStore, Store,
};
use tower_ratelimit::{Algorithm, FixedWindow, Limiter, Micros, Policy, StoreError, TokenBucket};

use crate::shared_stores::{daily, limiter, map};
use crate::support::items::Map;

/// Forgets items that have outlived their time to live.
#[derive(Clone, Debug)]
struct Expiring(Map, Arc<Mutex<HashMap<String, Micros>>>);

impl Items for Expiring {
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
        let (names, now) = (change.names().to_vec(), self.0.clock.now());
        let mut ends = self.1.lock().unwrap();
        let is_there =
            |name: &String, _: &mut Vec<u8>| ends.get(name).is_some_and(|end| *end > now);
        self.0.items().retain(is_there);
        let reply = self.0.update(change);
        if let Reply::Now(Ok(changed)) = &reply {
            for write in changed.writes() {
                let end = Micros::new(now.get() + Micros::from(write.ttl()).get());
                ends.insert(names[write.item()].clone(), end);
            }
        }
        reply
    }
}

/// Under the override a key would be as good as new at once, and under the policy's limit only after hours.
#[tokio::test]
async fn the_time_to_live_covers_the_end_of_an_override_and_what_is_left_then() {
    let map = map();
    let hourly = TokenBucket::per_hour(1).burst(10);
    let builder = Limiter::builder().policy(Policy::new("hourly", hourly));
    let store = SharedStore::new(Expiring(map.clone(), Arc::default()));
    let limiter = builder.store(store).build().unwrap();
    let overridden = async |limit: TokenBucket, seconds| {
        let length = Duration::from_secs(seconds);
        let done = limiter.override_limit("hourly", "ann", limit, length);
        done.unwrap().await.unwrap();
    };
    let told = async |cost| {
        let told = limiter.check("ann", cost).await.unwrap();
        let told = told.binding().unwrap().1;
        (told.remaining(), told.reset_after(), told.is_overridden())
    };
    let hours = |hours: u64| Duration::from_secs(3_600 * hours);
    let fast = TokenBucket::per_hour(3_600).burst(10);
    overridden(fast, 2).await;
    assert_eq!(told(8).await, (2, Duration::from_secs(8), true));
    // The present limit counts from the charge on.
    let left = hours(8).saturating_sub(Duration::from_secs(2));
    map.clock.advance(Duration::from_secs(2));
    assert_eq!(told(0).await, (2, left, false));
    map.clock
        .advance(left.saturating_sub(Duration::from_micros(1)));
    assert_eq!(told(0).await, (9, Duration::from_micros(1), false));

    // Nothing is used, and the override holds until its end.
    map.clock.advance(hours(1));
    overridden(fast.burst(20), 3_600).await;
    map.clock
        .advance(hours(1).saturating_sub(Duration::from_micros(1)));
    assert_eq!(told(0).await, (20, Duration::ZERO, true));
    map.clock.advance(Duration::from_micros(1));
    assert_eq!(told(0).await, (10, Duration::ZERO, false));
}

/// A node keeps records that it does not know.
#[tokio::test]
async fn a_node_without_the_policy_leaves_an_override_of_the_key_alone() {
    let map = map();
    let hourly = TokenBucket::per_hour(1).burst(10);
    let one = limiter(&map, [Policy::new("a", hourly)]);
    let elsewhere = limiter(&map, [Policy::new("b", FixedWindow::per_minute(5))]);
    let told = async |cost| {
        let told = one.check("ann", cost).await.unwrap();
        let told = told.binding().unwrap().1;
        (told.is_allowed(), told.limit(), told.remaining())
    };
    let (fast, length) = (
        TokenBucket::per_hour(3_600).burst(12),
        Duration::from_secs(3),
    );
    let done = one.override_limit("a", "ann", fast, length);
    done.unwrap().await.unwrap();
    assert!(elsewhere.check("ann", 1).await.unwrap().is_allowed());
    assert_eq!(told(12).await, (true, 12, 0));
    map.clock.advance(length);
    // Ended records are removed with a write.
    assert!(elsewhere.check("ann", 1).await.unwrap().is_allowed());
    // Two above the capacity have drained at the rate of the override.
    assert_eq!(told(1).await, (false, 10, 0));
    map.clock.advance(Duration::from_secs(3_600));
    assert_eq!(told(2).await, (false, 10, 1));
    assert_eq!(told(1).await, (true, 10, 0));
}

#[tokio::test]
async fn law_8_an_override_moves_back_with_the_clock_as_a_whole() {
    let map = map();
    let limiter = limiter(&map, [daily(5)]);
    let length = Duration::from_secs(3);
    let limit = async |cost| {
        let told = limiter.check("ann", cost).await.unwrap();
        told.binding().unwrap().1.limit()
    };
    let done = limiter.override_limit("daily", "ann", FixedWindow::per_day(9), length);
    done.unwrap().await.unwrap();
    map.clock.set_micros(Micros::new(1_000_000));
    assert_eq!(limit(1).await, 9);
    map.clock
        .advance(length.saturating_sub(Duration::from_micros(1)));
    assert_eq!(limit(0).await, 9);
    map.clock.advance(Duration::from_micros(1));
    assert_eq!(limit(0).await, 5);
}

#[tokio::test]
async fn a_policy_without_a_limit_has_no_override() {
    let map = map();
    let unlimited = Policy::new("unlimited", Algorithm::Unlimited);
    let backend = SharedStore::new(map.clone())
        .open(&[unlimited.into()])
        .unwrap();
    let charge = Charge::new(0, "ann".into_key(), 0);
    let limit = Limit::new(1, 1);
    let reply = backend.amend(&[charge], Amendment::Override(limit, Micros::new(1)));
    let error = reply.wait().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    assert!(map.items().is_empty());
}
