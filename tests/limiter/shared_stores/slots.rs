//! Slots of requests over items: `tests/redis/drawn_slots.rs` compares their decisions with those in memory.

use std::convert::Infallible;
use std::fmt;
use std::mem::forget;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use http::{Request, Response};
use tokio::time::{sleep, timeout};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::clock::Clock;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::limiter::Reservation;
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::policy::{Fair, Mode};
use tower_ratelimit::store::{Change, Changed, Items, Reply, SharedStore};
use tower_ratelimit::{
    Concurrency, FixedWindow, Limiter, ManualClock, Micros, OnStoreFailure, Policy, RateLimitLayer,
    StoreError, key,
};

use super::map;
use crate::away::switch::Switch;
use crate::support::driver::now;
use crate::support::items::{Contested, Map, OneByOne};

/// For how long a slot lasts.
const LIFE: Duration = Duration::from_secs(15);

fn at_once(most: u32) -> Policy {
    let policy = Policy::new("at once", Concurrency::of(most));
    policy.on_store_failure(OnStoreFailure::Refuse)
}

fn fair(most: u32) -> Policy {
    at_once(most).fair(Fair::new().active_for(Duration::from_secs(60)))
}

/// Slots that are divided, and those that are not, each with the keys of two clients that share them.
fn shared(most: u32) -> [(Policy, [Key; 2]); 2] {
    [
        (at_once(most), [Key::GLOBAL; 2]),
        (fair(most), ["ann", "ben"].map(tenant)),
    ]
}

fn over<I: Items + Clone>(items: &I, policies: impl IntoIterator<Item = Policy>) -> Limiter {
    let builder = Limiter::builder().policies(policies);
    let store = SharedStore::new(items.clone());
    builder.store(store).build().unwrap()
}

fn tenant(name: &str) -> Key {
    Key::branch(Key::GLOBAL, &[name.into_key()])
}

/// Takes slots outside of a runtime, so that nothing renews them.
fn take(limiter: &Limiter, key: impl IntoKey, slots: u32) -> Option<Reservation> {
    let held = now(limiter.reserve(key, slots)).unwrap();
    held.is_allowed().then_some(held)
}

fn take_all(limiter: &Limiter, name: &str) -> Vec<Reservation> {
    std::iter::from_fn(|| take(limiter, tenant(name), 1)).collect()
}

fn used(limiter: &Limiter, key: impl IntoKey) -> Vec<u32> {
    let told = now(limiter.peek(key, 0)).unwrap();
    told.policies().map(|(_, told)| told.used()).collect()
}

/// Lets so many lives pass, by the clock of the items and by that of the runtime.
async fn live(clock: &ManualClock, lives: u32) {
    for _ in 0..6 * lives {
        clock.advance(LIFE / 6);
        sleep(LIFE / 6).await;
    }
}

#[test]
fn a_request_has_a_slot_and_its_rate_or_neither() {
    let items = Contested::new(&ManualClock::new());
    let rate = Policy::new("rate", FixedWindow::per_day(2));
    let nodes = [(); 2].map(|()| over(&items, [rate.clone(), at_once(1)]));
    let held = take(&nodes[0], "ann", 1);
    assert!(held.is_some() && take(&nodes[1], "ann", 1).is_none());
    assert_eq!(used(&nodes[1], "ann"), [1, 1]);
    drop(held);
    assert!(take(&nodes[1], "ann", 1).is_some());
    assert!(take(&nodes[0], "ann", 1).is_none());
    assert_eq!(used(&nodes[0], "ann"), [2, 0]);
}

/// Each change is applied to what the item was, and then again to what it is.
#[test]
fn a_release_that_is_applied_again_frees_its_own_slots() {
    let items = Contested::new(&ManualClock::new());
    let node = over(&items, [at_once(5)]);
    let [one, two] = [1, 2].map(|slots| take(&node, "ann", slots));
    drop(two);
    assert_eq!(used(&node, "ann"), [1]);
    drop(one);
    assert_eq!(used(&node, "ann"), [0]);
}

#[test]
fn many_threads_are_never_more_than_the_limit_and_leave_no_slot_behind() {
    let map = map();
    let rate = Policy::new("rate", FixedWindow::per_day(900));
    let nodes = [(); 4].map(|()| over(&map, [rate.clone(), at_once(2)]));
    let (inside, most, passed) = <(AtomicU32, AtomicU32, AtomicU32)>::default();
    thread::scope(|scope| {
        for node in &nodes {
            scope.spawn(|| {
                for _ in 0..500 {
                    let Some(_held) = take(node, "ann", 1) else {
                        continue;
                    };
                    passed.fetch_add(1, Ordering::SeqCst);
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    let most = most.into_inner();
    assert!((1..=2).contains(&most), "{most} at once");
    // Those that found no slot were not charged.
    assert_eq!(used(&nodes[0], "ann"), [passed.into_inner(), 0]);
}

#[test]
fn a_request_of_several_policies_on_concurrency_holds_slots_of_all() {
    let map = map();
    let node = over(&map, [at_once(3), Policy::new("b", Concurrency::of(2))]);
    let held = take(&node, "ann", 2);
    assert!(held.is_some() && take(&node, "ann", 1).is_none());
    assert_eq!(used(&node, "ann"), [2, 2]);
    drop(held);
    assert_eq!(used(&node, "ann"), [0, 0]);
    // A version, a moment, and no record.
    assert_eq!(map.items()["trl1:t:ann"].len(), 9);
}

#[test]
fn slots_of_a_node_that_has_died_end_within_one_life() {
    let map = map();
    let [dying, other] = [(); 2].map(|()| over(&map, [at_once(2)]));
    forget(take(&dying, "ann", 1));
    map.clock.advance(LIFE / 2);
    let lives = take(&other, "ann", 1);
    assert!(lives.is_some() && take(&other, "ann", 1).is_none());
    map.clock
        .advance((LIFE / 2).saturating_sub(Duration::from_micros(1)));
    assert!(take(&other, "ann", 1).is_none());
    map.clock.advance(Duration::from_micros(1));
    let again = take(&other, "ann", 1);
    assert!(again.is_some() && take(&other, "ann", 1).is_none());
}

#[test]
fn slots_of_a_dead_node_end_within_a_life_though_the_clock_has_stepped_back() {
    for (policy, [ann, ben]) in shared(2) {
        let map = map();
        let node = over(&map, [policy]);
        forget(take(&node, ann, 2));
        let back = map.clock.now().get() - 3_600_000_000;
        map.clock.set_micros(Micros::new(back));
        assert!(take(&node, ben, 1).is_none());
        map.clock
            .advance(LIFE.saturating_sub(Duration::from_micros(1)));
        assert!(take(&node, ben, 1).is_none());
        map.clock.advance(Duration::from_micros(1));
        assert!(take(&node, ben, 1).is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn slots_last_as_long_as_their_requests() {
    for (policy, [ann, ben]) in shared(2) {
        let switch = Switch::new();
        let clock = switch.map.clock.clone();
        let policies = [policy, Policy::new("b", Concurrency::of(9))];
        let [node, other] = [(); 2].map(|()| over(&switch, policies.clone()));
        let one = node.reserve(ann, 1).await.unwrap();
        live(&clock, 1).await;
        let two = node.reserve(ann, 1).await.unwrap();
        live(&clock, 3).await;
        assert!(one.is_allowed() && two.is_allowed());
        let refused = other.reserve(ben, 1).await.unwrap();
        assert!(!refused.is_allowed(), "both last");
        drop(one);
        sleep(Duration::from_millis(1)).await;
        assert!(other.reserve(ben, 1).await.unwrap().is_allowed());
        sleep(Duration::from_millis(1)).await;
        drop(two);
        sleep(Duration::from_millis(1)).await;
        // Nothing is renewed any more.
        let calls = switch.calls();
        live(&clock, 2).await;
        assert_eq!(switch.calls(), calls);
    }
}

/// A request may wait for the answer of an item that does not answer, and a renewal too.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_hangs_or_fails_is_made_again() {
    let switch = Switch::new();
    let clock = switch.map.clock.clone();
    let [node, other] = [(); 2].map(|()| over(&switch, [at_once(1)]));
    let held = node.reserve("ann", 1).await.unwrap();
    for fails in [Switch::hang, Switch::fail] {
        live(&clock, 1).await;
        fails(&switch);
        clock.advance(LIFE / 2);
        sleep(LIFE / 2).await;
        switch.answer();
        live(&clock, 2).await;
        assert!(!other.reserve("ann", 1).await.unwrap().is_allowed());
    }
    assert!(held.is_allowed());
    assert!(node.snapshot().store.failed_renewals > 1);
}

/// A slot that is released while its renewal hangs is given back after that, which hangs as well.
#[tokio::test(start_paused = true)]
async fn a_release_that_hangs_ends_no_renewals() {
    let switch = Switch::new();
    let clock = switch.map.clock.clone();
    let node = over(&switch, [at_once(2)]);
    let stays = node.reserve("ann", 1).await.unwrap();
    let goes = node.reserve("ann", 1).await.unwrap();
    live(&clock, 1).await;
    switch.hang();
    clock.advance(LIFE / 2);
    sleep(LIFE / 3 + Duration::from_millis(1)).await;
    drop(goes);
    sleep(LIFE / 6).await;
    switch.answer();
    live(&clock, 2).await;
    assert!(stays.is_allowed());
    assert_eq!(used(&over(&switch.map, [at_once(2)]), "ann"), [1]);
}

#[tokio::test(start_paused = true)]
async fn slots_that_are_lost_while_their_requests_go_on_are_taken_again() {
    for (policy, [ann, ben]) in shared(2) {
        let switch = Switch::new();
        let clock = switch.map.clock.clone();
        let [node, other] = [(); 2].map(|()| over(&switch, [policy.clone()]));
        let held = node.reserve(ann, 2).await.unwrap();
        switch.map.items().clear();
        let beside = other.reserve(ben, 1).await.unwrap();
        assert!(held.is_allowed() && beside.is_allowed());
        live(&clock, 1).await;
        assert_eq!(used(&over(&switch.map, [at_once(5)]), Key::GLOBAL), [3]);
        drop(held);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(used(&over(&switch.map, [at_once(5)]), Key::GLOBAL), [1]);
        let again = node.reserve(ann, 1).await.unwrap();
        assert!(again.is_allowed());
        assert!(!other.reserve(ben, 1).await.unwrap().is_allowed());
    }
}

/// Something that happens once, before a change.
type Happens = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// Items at which something happens before the next change.
#[derive(Clone)]
struct Interrupted {
    map: Map,
    happens: Happens,
}

impl fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interrupted").field(&self.map).finish()
    }
}

impl Items for Interrupted {
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
        let happens = self.happens.lock().unwrap().take();
        if let Some(happens) = happens {
            happens();
        }
        self.map.update(change)
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_released_while_it_is_renewed_is_not_held() {
    let items = Interrupted {
        map: map(),
        happens: Happens::default(),
    };
    let node = over(&items, [at_once(2)]);
    let [stays, goes] = [(); 2].map(|()| take(&node, "ann", 1).unwrap());
    *items.happens.lock().unwrap() = Some(Box::new(move || drop(goes)));
    // The next change is a renewal, which takes both again.
    sleep(LIFE / 2).await;
    assert!(items.happens.lock().unwrap().is_none());
    assert_eq!(used(&node, "ann"), [1]);
    drop(stays);
    assert_eq!(used(&node, "ann"), [0]);
}

#[tokio::test(start_paused = true)]
async fn slots_are_renewed_and_given_back_though_a_policy_in_shadow_had_no_room() {
    let switch = Switch::new();
    let clock = switch.map.clock.clone();
    let shadow = Policy::new("rate", FixedWindow::per_day(1)).mode(Mode::Shadow);
    let node = over(&switch, [shadow, at_once(2)]);
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(node.reserve("ann", 1).await.unwrap());
    }
    assert!(held.iter().all(Reservation::is_allowed));
    live(&clock, 2).await;
    assert!(!node.reserve("ann", 1).await.unwrap().is_allowed());
    drop(held);
    sleep(Duration::from_millis(1)).await;
    assert!(node.reserve("ann", 2).await.unwrap().is_allowed());
}

/// What it took in the place before the outage ends there by itself, and what it takes meanwhile is in this process.
#[tokio::test(start_paused = true)]
async fn while_the_place_is_away_a_node_has_its_share_of_slots() {
    let switch = Switch::new();
    let store = SharedStore::new(switch.clone()).nodes(2);
    let policy = at_once(3).on_store_failure(OnStoreFailure::Local);
    let node = Limiter::builder().policy(policy).store(store);
    let node = node.build().unwrap();
    let reserve = async || {
        let held = node.reserve("ann", 1).await.unwrap();
        held.is_allowed().then_some(held)
    };
    let before = reserve().await.unwrap();
    switch.fail();
    for number in 0..5 {
        let _ = node.check(("lost", number), 0).await;
    }
    let [one, two] = [reserve().await, reserve().await];
    assert!(one.is_some() && two.is_some() && reserve().await.is_none());
    drop(one);
    let again = reserve().await;
    assert!(again.is_some() && reserve().await.is_none());
    let calls = switch.calls();
    drop(before);
    assert_eq!(switch.calls(), calls, "the place is not asked");
    switch.answer();
    sleep(LIFE / 6).await;
    let told = node.peek("ann", 0).await.unwrap();
    assert!(!told.is_degraded());
    assert_eq!(told.binding().unwrap().1.used(), 1);
    // It is not renewed.
    live(&switch.map.clock, 2).await;
    assert_eq!(used(&over(&switch.map, [at_once(3)]), "ann"), [0]);
    drop((two, again));
    switch.fail();
    for number in 0..5 {
        let _ = node.check(("lost", number), 0).await;
    }
    let held = [reserve().await, reserve().await];
    assert!(held.iter().all(Option::is_some), "both were given back");
}

/// What its requests release is in this process, so that the place has not answered.
#[tokio::test(start_paused = true)]
async fn requests_that_hold_slots_find_out_that_the_place_is_away() {
    let switch = Switch::new();
    let policy = at_once(3).on_store_failure(OnStoreFailure::Local);
    let store = SharedStore::new(switch.clone());
    let node = Limiter::builder().policy(policy).store(store);
    let node = node.build().unwrap();
    switch.fail();
    for _ in 0..5 {
        drop(node.reserve("ann", 1).await.unwrap());
    }
    let calls = switch.calls();
    drop(node.reserve("ann", 1).await.unwrap());
    assert_eq!(switch.calls(), calls, "the place is not asked");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_slot_goes_on_when_one_is_free() {
    let layer = RateLimitLayer::builder()
        .policy(at_once(1).key(key::global()).wait_up_to(LIFE))
        .store(SharedStore::new(Switch::new()));
    let inner =
        service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())));
    let service = layer.build().unwrap().layer(inner);
    let ask = || service.clone().oneshot(Request::new(()));
    let first = ask().await.unwrap();
    let waits = tokio::spawn(ask());
    sleep(Duration::from_secs(1)).await;
    assert!(!waits.is_finished());
    drop(first);
    let second = timeout(Duration::from_secs(1), waits).await;
    assert_eq!(second.unwrap().unwrap().unwrap().status(), 200);
}

#[test]
fn blocks_hold_for_keys_with_slots_and_what_changes_usage_frees_none() {
    for (policy, [ann, _]) in shared(2) {
        let node = over(&map(), [policy]);
        let held = take(&node, ann, 2);
        now(node.reset(ann)).unwrap();
        now(node.refund(ann, 2)).unwrap();
        now(node.settle(ann, 1)).unwrap();
        assert_eq!(used(&node, ann), [2]);
        assert!(!now(node.check(ann, 1)).unwrap().is_allowed());
        now(node.block(ann, LIFE)).unwrap();
        drop(held);
        assert!(take(&node, ann, 1).is_none());
        assert!(now(node.unblock(ann)).unwrap());
        // To ask takes nothing, and neither does to take what there is.
        assert!(now(node.check(ann, 2)).unwrap().is_allowed());
        assert_eq!(now(node.acquire_up_to(ann, 2)).unwrap().0, 0);
        assert!(take(&node, ann, 2).is_some());
    }
}

#[test]
fn an_inspection_tells_how_many_slots_are_taken() {
    let node = over(&map(), [at_once(3)]);
    let held = take(&node, "ann", 2);
    let inspection = now(node.inspect("ann")).unwrap();
    assert!(held.is_some());
    assert!(
        inspection
            .to_string()
            .contains("2 of 3 used, 1 more at once"),
        "{inspection}"
    );
}

#[test]
fn a_place_that_changes_one_item_at_a_time_holds_slots() {
    let map = map();
    let node = over(&OneByOne(map.clone()), [at_once(1)]);
    let held = take(&node, "ann", 1);
    assert!(held.is_some() && take(&node, "ann", 1).is_none());
    assert!(take(&node, "ben", 1).is_some());
    drop(held);
    assert!(take(&node, "ann", 1).is_some());
}

#[test]
fn an_item_has_room_for_1024_slots() {
    let map = map();
    let built = Limiter::builder()
        .policy(at_once(1_025))
        .store(SharedStore::new(map.clone()))
        .build();
    assert_eq!(
        built.unwrap_err().to_string(),
        "`concurrency` cannot be 1025: give at most 1024, or keep the state in this process or in Redis: an item has all slots of a key, and \
         is written whole with each request"
    );
    let plans = Plans::new([
        Plan::new("free"),
        Plan::new("pro").limit("at once", Concurrency::of(5_000)),
    ]);
    let node = Limiter::builder()
        .policy(at_once(1_024))
        .plans_by_name(plans)
        .store(SharedStore::new(map.clone()))
        .build()
        .unwrap();
    let pro = node.plan("pro");
    let all: Vec<_> = (0..2_000)
        .map_while(|_| {
            now(pro.reserve("ann", 1))
                .ok()
                .filter(Reservation::is_allowed)
        })
        .collect();
    assert_eq!(all.len(), 1_024);
    assert_eq!(map.items()["trl1:t:ann"].len(), 9 + 20 + 1_024 * 32);
}

#[test]
fn a_slot_lasts_for_a_second_to_an_hour() {
    for life in [Duration::from_millis(999), Duration::from_secs(3_601)] {
        let store = SharedStore::new(map()).slot_ttl(life);
        let built = Limiter::builder().policy(at_once(1)).store(store).build();
        let error = built.unwrap_err().to_string();
        assert!(error.starts_with("`slot_ttl` cannot be "), "{error}");
    }
    let map = map();
    let store = SharedStore::new(map.clone()).slot_ttl(Duration::from_secs(1));
    let node = Limiter::builder().policy(at_once(1)).store(store);
    let node = node.build().unwrap();
    forget(take(&node, "ann", 1));
    map.clock.advance(Duration::from_secs(1));
    assert!(take(&node, "ann", 1).is_some());
}

#[test]
fn all_nodes_divide_the_slots_of_a_shared_key() {
    let items = Contested::new(&ManualClock::new());
    let rate = Policy::new("rate", FixedWindow::per_day(100));
    let nodes = [(); 2].map(|()| over(&items, [rate.clone(), fair(6)]));
    drop(take(&nodes[0], tenant("ben"), 1));
    let mut hog = take_all(&nodes[0], "hog");
    assert_eq!(hog.len(), 5, "one is kept for what ben has held");
    // A tenant that comes late gets its share as slots are given back, at whatever node.
    let mut ben = take_all(&nodes[1], "ben");
    assert_eq!(ben.len(), 1);
    drop(hog.drain(..2));
    assert!(take(&nodes[0], tenant("hog"), 1).is_none());
    ben.extend(take_all(&nodes[1], "ben"));
    assert_eq!(ben.len(), 3);
}

/// A node with another configuration does not divide them, and tells the tenants nothing.
#[test]
fn slots_that_were_taken_or_have_ended_undivided_are_counted_anew() {
    let map = map();
    let [divided, plain] = [fair(4), at_once(4)].map(|policy| over(&map, [policy]));
    take_all(&divided, "hog").into_iter().for_each(forget);
    assert!(take(&divided, tenant("ann"), 1).is_none());
    map.clock.advance(LIFE);
    let beside = take(&plain, Key::GLOBAL, 1);
    // She waits, but hog holds no more than its share.
    let [hog, ann] = ["hog", "ann"].map(|name| take(&divided, tenant(name), 1));
    assert!(beside.is_some() && ann.is_some() && hog.is_some());
    assert_eq!(used(&plain, Key::GLOBAL), [3]);
}

/// A dead node gives nothing back.
#[test]
fn slots_that_end_are_their_tenants_no_more() {
    let map = map();
    let node = over(&map, [fair(4)]);
    take_all(&node, "hog").into_iter().for_each(forget);
    assert!(take(&node, tenant("ann"), 1).is_none());
    map.clock.advance(LIFE);
    let held = ["hog", "ann"].map(|name| take_all(&node, name));
    assert_eq!(held.map(|held| held.len()), [2, 2]);
}

/// All tenants beyond 64 share the place of one, and what they leave is gone when it makes no difference any more.
#[test]
fn an_item_has_room_for_64_tenants() {
    let map = map();
    let node = over(&map, [fair(8)]);
    let size = || map.items()["trl1:global"].len();
    drop(take(&node, tenant("ann"), 1));
    let of_one = size();
    for number in 0..200_u32 {
        drop(take(&node, tenant(&number.to_string()), 1));
    }
    assert_eq!(size(), of_one + 64 * 72);
    map.clock.advance(Duration::from_secs(121));
    drop(take(&node, tenant("ann"), 1));
    assert_eq!(size(), of_one);
}

#[test]
fn what_no_store_writes_is_an_error_until_the_key_is_reset() {
    for (policy, damaged) in [(at_once(4), 29..61), (fair(4), 29..37)] {
        let map = map();
        let node = over(&map, [policy]);
        let held = take(&node, Key::GLOBAL, 1);
        let mut value = map.items()["trl1:global"].clone();
        value[damaged].fill(u8::MAX);
        map.items().insert("trl1:global".to_owned(), value);
        let failed = now(node.reserve(Key::GLOBAL, 1)).map(drop).unwrap_err();
        assert_eq!(failed.kind(), StoreErrorKind::Misconfigured);
        now(node.reset(Key::GLOBAL)).unwrap();
        assert!(held.is_some() && take(&node, Key::GLOBAL, 1).is_some());
    }
}
