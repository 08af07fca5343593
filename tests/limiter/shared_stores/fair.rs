//! A limit that is divided among tenants, over items: `tests/redis/fair.rs` compares its decisions with those in memory.

use std::time::Duration;

use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::policy::Fair;
use tower_ratelimit::store::{Items, SharedStore};
use tower_ratelimit::{Limiter, OnStoreFailure, Policy, TokenBucket};

use super::map;
use crate::support::driver::now;

fn tenant(name: &str) -> Key {
    Key::branch(Key::GLOBAL, &[name.into_key()])
}

fn over<I: Items>(store: SharedStore<I>) -> Limiter {
    let policy = Policy::new("upstream", TokenBucket::per_second(10)).fair(Fair::new());
    let policy = policy.on_store_failure(OnStoreFailure::Refuse);
    let builder = Limiter::builder().policy(policy);
    builder.store(store).build().unwrap()
}

fn passes(limiter: &Limiter, name: &str) -> bool {
    now(limiter.check(tenant(name), 1)).unwrap().is_allowed()
}

#[test]
fn all_nodes_keep_what_belongs_to_a_tenant() {
    let map = map();
    let nodes = [(); 2].map(|()| over(SharedStore::new(map.clone())));
    let mut had = [0, 0];
    for step in 0..1_000 {
        map.clock.advance(Duration::from_millis(10));
        had[0] += u32::from(passes(&nodes[0], "hog"));
        if step % 25 == 0 {
            had[1] += u32::from(passes(&nodes[1], "ann"));
        }
    }
    // A bucket of ten a second for ten seconds, and what was in it at first. Ann asks for four a second, which is below her half.
    assert!(had[1] >= 38 && had[0] + had[1] >= 100, "{had:?}");
    assert!(had[0] + had[1] <= 110, "{had:?}");
}

#[test]
fn a_block_is_of_one_tenant_and_a_reset_of_the_limit() {
    let map = map();
    let limiter = over(SharedStore::new(map.clone()));
    while passes(&limiter, "ann") {}
    let minute = Duration::from_secs(60);
    now(limiter.block(tenant("ben"), minute)).unwrap();
    now(limiter.reset(tenant("ann"))).unwrap();
    assert!(passes(&limiter, "ann") && !passes(&limiter, "ben"));
    assert!(now(limiter.unblock(tenant("ben"))).unwrap());
    assert!(passes(&limiter, "ben"));
}

/// All tenants beyond 64 share the place of one, and what they leave is gone when it makes no difference any more.
#[test]
fn an_item_has_room_for_64_tenants() {
    let map = map();
    let limiter = over(SharedStore::new(map.clone()));
    let size = || map.items()["trl1:global"].len();
    assert!(passes(&limiter, "ann"));
    let of_one = size();
    for number in 0..200_u32 {
        let _ = passes(&limiter, &number.to_string());
    }
    // The turns of those that were refused take room as well.
    let turns = size() - of_one - 64 * 56;
    assert!((32..=68 * 8).contains(&turns), "{turns}");
    map.clock.advance(Duration::from_secs(60));
    assert!(passes(&limiter, "ann"));
    assert_eq!(size(), of_one);
}

#[test]
fn what_no_store_writes_is_an_error_until_the_key_is_reset() {
    let map = map();
    let limiter = over(SharedStore::new(map.clone()));
    assert!(passes(&limiter, "ann"));
    let mut damaged = map.items()["trl1:global"].clone();
    // The words of the tenants come first: virtual time is no number.
    damaged[29..37].fill(u8::MAX);
    map.items().insert("trl1:global".to_owned(), damaged);
    for failed in [
        now(limiter.check(tenant("ann"), 1)).map(drop).unwrap_err(),
        now(limiter.refund(tenant("ben"), 1)).unwrap_err(),
    ] {
        assert_eq!(failed.kind(), StoreErrorKind::Misconfigured);
    }
    now(limiter.block(tenant("ann"), Duration::from_secs(1))).unwrap();
    now(limiter.reset(tenant("ben"))).unwrap();
    assert!(passes(&limiter, "ben"));
}

/// A tenant that is refused has to be heard of: it is active, and room is kept for it.
#[test]
fn no_refusal_of_a_tenant_is_remembered() {
    let map = map();
    let store = SharedStore::new(map).remember_denials_for(Duration::from_secs(60));
    let limiter = over(store);
    for _ in 0..20 {
        let _ = passes(&limiter, "ann");
    }
    assert_eq!(limiter.snapshot().store.remembered_denials, 0);
}
