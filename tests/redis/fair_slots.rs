//! Fair shares of slots in Redis, beside what `drawn_slots` draws.

use std::mem::forget;
use std::time::Duration;

use tower_ratelimit::clock::Clock;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::limiter::Reservation;
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::policy::Fair;
use tower_ratelimit::store::Lease;
use tower_ratelimit::{Concurrency, Limiter, ManualClock, Micros, Policy, RedisStore, TokenBucket};

use crate::scene::{ask, calls, cluster_store, daily, patient, store, without_a_standby};
use crate::slots::{LIFE, members, short_lived};
use crate::support::redis::{Cluster, Server, until};
use crate::without::lose;

const HOUR: Duration = Duration::from_secs(3_600);

fn tenant(name: &str) -> Key {
    Key::branch(Key::GLOBAL, &[name.into_key()])
}

/// As after a failover to a server that has not heard of them.
#[tokio::test]
async fn slots_that_are_lost_are_taken_again_by_their_tenants() {
    let server = Server::start(&[]);
    let store = short_lived(&server);
    let limiter = over(&store, [reports(4)]);
    let mut hog = Vec::new();
    for _ in 0..3 {
        hog.extend(take(&limiter, "hog").await);
    }
    let set = store.store_key(&reports(4), Key::GLOBAL);
    server.ask(&["DEL", &set]);
    let ann = take(&limiter, "ann").await;
    until("they are taken again", || members(&server, &set) == 4);
    assert!(ann.is_some() && take(&limiter, "ann").await.is_none());
    drop(hog.pop());
    until("one is given back", || members(&server, &set) == 3);
    assert!(take(&limiter, "hog").await.is_none(), "it holds its share");
    assert!(take(&limiter, "ann").await.is_some());
}

/// What two tenants want is more than the limit, so one of them does not have what it wants, and a third may have a share.
#[tokio::test]
async fn slots_that_are_taken_again_are_divided_by_the_limit() {
    let server = Server::start(&[]);
    let store = short_lived(&server);
    let limiter = over(&store, [reports(4)]);
    let set = store.store_key(&reports(4), Key::GLOBAL);
    let reserve = async |name, slots| limiter.reserve(tenant(name), slots).await.unwrap();
    let ann = reserve("ann", 1).await;
    drop(reserve("ann", 2).await);
    until("two are given back", || members(&server, &set) == 1);
    let ben = reserve("ben", 2).await;
    assert!(ann.is_allowed() && ben.is_allowed());
    server.ask(&["DEL", &set]);
    until("they are taken again", || members(&server, &set) == 3);
    let peeked = limiter.peek(tenant("cleo"), 1).await.unwrap();
    assert!(peeked.is_allowed(), "{peeked:?}");
}

fn fair() -> Fair {
    let fair = Fair::new().active_for(Duration::from_secs(60));
    fair.weight("pro", 3)
}

fn reports(slots: u32) -> Policy {
    Policy::new("reports", Concurrency::of(slots)).fair(fair())
}

fn over(store: &RedisStore, policies: impl IntoIterator<Item = Policy>) -> Limiter {
    let policies = policies.into_iter().map(without_a_standby);
    let builder = Limiter::builder().policies(policies);
    let plans = Plans::new([Plan::new("free"), Plan::new("pro")]);
    let builder = builder.plans_by_name(plans);
    builder.store(store.clone()).build().unwrap()
}

async fn take(limiter: &Limiter, name: &str) -> Option<Reservation> {
    let held = limiter.reserve(tenant(name), 1).await.unwrap();
    held.is_allowed().then_some(held)
}

async fn take_all(limiter: &Limiter, name: &str) -> Vec<Reservation> {
    let mut all = Vec::new();
    while let Some(held) = take(limiter, name).await {
        all.push(held);
    }
    all
}

#[tokio::test]
async fn one_call_divides_slots_and_charges_rates() {
    let server = Server::start(&[]);
    let store = store(&server);
    let nodes = [(); 2].map(|()| over(&store, [reports(6), daily("all", 100)]));
    drop(take(&nodes[0], "ben").await);
    let set = store.store_key(&reports(6), Key::GLOBAL);
    until("it is given back", || members(&server, &set) == 0);
    let before = calls(&server, "evalsha");
    let mut hog = take_all(&nodes[0], "hog").await;
    assert_eq!(hog.len(), 5, "one is kept for what ben has held");
    assert_eq!(calls(&server, "evalsha"), before + 6);
    // A tenant that comes late gets its share as slots are given back, at whatever node.
    let ben = take(&nodes[1], "ben").await;
    assert!(ben.is_some() && take(&nodes[1], "ben").await.is_none());
    drop(hog.drain(..2));
    until("they are given back", || members(&server, &set) == 4);
    assert!(take(&nodes[0], "hog").await.is_none());
    let of_ben = take_all(&nodes[1], "ben").await;
    assert_eq!(of_ben.len(), 2);
}

#[tokio::test]
async fn every_shared_key_has_slots_of_its_own_in_a_cluster() {
    let cluster = Cluster::start();
    let limiter = over(&cluster_store(&cluster), [reports(4)]);
    for shared in ["a", "b", "c", "d", "e"] {
        let of = |name: &str| Key::branch(shared, &[name.into_key()]);
        let mut held = Vec::new();
        for name in ["ann", "ben", "ann", "ben", "ann"] {
            let one = limiter.reserve(of(name), 1).await.unwrap();
            held.extend(one.is_allowed().then_some(one));
        }
        assert_eq!(held.len(), 4, "{shared}");
    }
}

/// A dead node gives nothing back.
#[tokio::test]
async fn slots_that_end_are_their_tenants_no_more() {
    let server = Server::start(&[]);
    let clock = ManualClock::new();
    let limiter = over(&short_lived(&server).clock(clock.clone()), [reports(4)]);
    for held in take_all(&limiter, "hog").await {
        forget(held);
    }
    assert!(take(&limiter, "ann").await.is_none());
    clock.advance(LIFE);
    let [hog, ann] = [
        take_all(&limiter, "hog").await,
        take_all(&limiter, "ann").await,
    ];
    assert_eq!((hog.len(), ann.len()), (2, 2));
}

/// As at a server that evicts keys.
#[tokio::test]
async fn tenants_or_slots_that_are_lost_are_counted_anew() {
    let server = Server::start(&[]);
    let store = patient().slot_ttl(HOUR).open(server.url()).unwrap();
    let limiter = over(&store, [reports(4)]);
    let set = store.store_key(&reports(4), Key::GLOBAL);
    let mut hog = take_all(&limiter, "hog").await;
    server.ask(&["DEL", &format!("{set}:tenants")]);
    assert!(take(&limiter, "ann").await.is_none());
    drop(hog.pop());
    until("one is given back", || members(&server, &set) == 3);
    assert!(take(&limiter, "hog").await.is_none(), "it holds three");
    let ann = take(&limiter, "ann").await;
    assert!(ann.is_some() && take(&limiter, "ben").await.is_none());
    server.ask(&["DEL", &set]);
    let ben = take_all(&limiter, "ben").await;
    assert!((1..=2).contains(&ben.len()), "{}", ben.len());
    assert!(take(&limiter, "hog").await.is_some(), "it holds none");
}

/// It asks on, and the request before it goes on for longer.
#[tokio::test]
async fn slots_are_not_kept_for_a_large_request_for_ever() {
    let server = Server::start(&[]);
    let clock = ManualClock::new();
    let store = patient().slot_ttl(HOUR).open(server.url()).unwrap();
    let limiter = over(&store.clock(clock.clone()), [reports(4)]);
    let hog = take(&limiter, "hog").await;
    let mut refused = 0;
    loop {
        let large = limiter.reserve(tenant("big"), 4).await.unwrap();
        assert!(!large.is_allowed());
        if take(&limiter, "ann").await.is_some() {
            break;
        }
        refused += 1;
        clock.advance(Duration::from_secs(59));
    }
    assert!(hog.is_some());
    assert_eq!(refused, 6, "five times a minute");
}

#[tokio::test]
async fn slots_are_divided_after_a_clock_that_has_stepped_back() {
    let server = Server::start(&[]);
    let clock = ManualClock::new();
    let limiter = over(&short_lived(&server).clock(clock.clone()), [reports(4)]);
    for held in take_all(&limiter, "hog").await {
        forget(held);
    }
    clock.set_micros(clock.now().saturating_sub(Micros::new(3_600_000_000)));
    assert!(take(&limiter, "ann").await.is_none());
    // They end within a life, by the clock as it is now.
    clock.advance(LIFE);
    let [hog, ann] = [
        take_all(&limiter, "hog").await,
        take_all(&limiter, "ann").await,
    ];
    assert_eq!((hog.len(), ann.len()), (2, 2));
}

/// The share of a tenant is asked in one call, and makes nobody active.
#[tokio::test]
async fn an_inspection_tells_the_share_of_a_tenant() {
    let server = Server::start(&[]);
    for policy in [
        reports(8),
        Policy::new("upstream", TokenBucket::per_hour(8)).fair(fair()),
    ] {
        let limiter = over(&store(&server), [policy.clone()]);
        let ann = take(&limiter, "ann").await;
        let big = limiter.plan("pro").reserve(tenant("big"), 1).await.unwrap();
        assert!(ann.is_some() && big.is_allowed());
        for (plan, name, tenants, told) in [
            ("free", "ann", 2, "1/4"),
            ("pro", "big", 2, "3/4"),
            ("free", "new", 3, "1/5"),
            ("free", "ann", 2, "1/4"),
        ] {
            let inspection = limiter.plan(plan).inspect(tenant(name)).await.unwrap();
            let shares: Vec<_> = inspection.shares().collect();
            let [(shown, share)] = shares[..] else {
                panic!("{shares:?}");
            };
            assert_eq!(shown, policy.name());
            assert_eq!(
                (share.tenants(), share.to_string()),
                (tenants, told.to_owned())
            );
        }
    }
}

/// What a thousand tenants leave at a server is gone when it makes no difference any more.
#[tokio::test]
async fn tenants_are_bounded_and_expire() {
    let server = Server::start(&[]);
    let fair = Fair::new()
        .most_tenants(4)
        .active_for(Duration::from_millis(50));
    let policy = Policy::new("reports", Concurrency::of(4)).fair(fair);
    let store = store(&server);
    let limiter = over(&store, [policy.clone()]);
    for number in 0..40 {
        drop(take(&limiter, &format!("t{number}")).await);
    }
    let set = store.store_key(&policy, Key::GLOBAL);
    until("all slots are given back", || members(&server, &set) == 0);
    let tenants = format!("{set}:tenants");
    let fields: u32 = ask(&server, &["HLEN", &tenants]);
    // Of each tenant its name and its numbers, those of all others together, and those of the limit.
    assert!((1..=11).contains(&fields), "{fields}");
    until("nobody is left", || {
        ask::<u32>(&server, &["EXISTS", &tenants]) == 0
    });
}

#[tokio::test]
async fn data_that_no_rule_can_read_are_told_and_reset() {
    let server = Server::start(&[]);
    let (store, policy) = (store(&server), reports(4));
    let limiter = over(&store, [policy.clone()]);
    let set = store.store_key(&policy, Key::GLOBAL);
    let tenants = format!("{set}:tenants");
    let numbers =
        |count: &str, due: &str| format!("1 0 {count} 1 0 0 0 0 0 0 0 0 0 0 {due} 0 0 0 0 0 ");
    let [many, late, missing] = [
        numbers("1000000000", "1000000000"),
        numbers("1", "inf"),
        numbers("1", "1"),
    ];
    for damage in [
        &["SET", tenants.as_str(), "1 2 3"][..],
        &["HSET", &tenants, ".", "1 2 3"],
        &["HSET", &tenants, ".", &many],
        &["HSET", &tenants, ".", &late],
        &["HSET", &tenants, ".", &missing],
        &["HSET", &tenants, "*", "1"],
        &["SET", &set, "1"],
    ] {
        server.ask(&["DEL", &tenants, &set]);
        server.ask(damage);
        let failed = limiter.reserve(tenant("ann"), 1).await;
        let failed = failed.map(drop).expect_err(damage[1]);
        assert_eq!(failed.kind(), StoreErrorKind::Misconfigured, "{damage:?}");
        limiter.reset(tenant("ann")).await.unwrap();
        assert!(take(&limiter, "ann").await.is_some(), "{damage:?}");
    }
}

/// The slots of a divided limit stay held at the server, under a new name and by the tenants that hold them.
#[tokio::test]
async fn slots_under_a_new_name_stay_held_by_their_tenants() {
    let server = Server::start(&[]);
    let store = store(&server);
    let before = over(&store, [reports(4)]);
    let mut hog = take_all(&before, "hog").await;
    assert_eq!(hog.len(), 4);
    assert!(take(&before, "ann").await.is_none());
    let model = Policy::new("model", Concurrency::of(4)).fair(fair());
    let after = over(&store, [model.renamed_from("reports")]);
    assert!(take(&after, "hog").await.is_none());
    let set = store.store_key(&reports(4), Key::GLOBAL);
    hog.pop();
    until("it is given back", || members(&server, &set) == 3);
    // The hog has more than its half, and Ann waits.
    assert!(take(&after, "hog").await.is_none());
    assert!(take(&after, "ann").await.is_some());
}

/// Over a store that leases units, slots are asked for one by one.
#[tokio::test]
async fn slots_are_not_leased() {
    let server = Server::start(&[]);
    let leasing = patient().lease(Lease::up_to(Duration::from_secs(1)));
    let store = leasing.open(server.url()).unwrap();
    let limiter = over(&store, [reports(20), daily("all", 100)]);
    drop(take(&limiter, "ann").await);
    let set = store.store_key(&reports(20), Key::GLOBAL);
    until("it is given back", || members(&server, &set) == 0);
    let before = calls(&server, "evalsha");
    let hog = take_all(&limiter, "hog").await;
    assert_eq!(hog.len(), 19);
    assert_eq!(calls(&server, "evalsha"), before + 20);
}

/// In an outage, a node divides its part of the slots by itself.
#[tokio::test]
async fn without_the_server_a_node_divides_its_part() {
    let server = Server::start(&[]);
    let store = patient().nodes(2).open(server.url()).unwrap();
    let policy = Policy::new("reports", Concurrency::of(8));
    let limiter = Limiter::builder()
        .policy(policy.fair(Fair::new().active_for(Duration::from_secs(60))))
        .store(store.clone())
        .build()
        .unwrap();
    drop(take(&limiter, "ann").await);
    lose(&server, &store).await;
    let mut held = [Vec::new(), Vec::new()];
    for _ in 0..4 {
        for (name, held) in ["hog", "ann"].into_iter().zip(&mut held) {
            held.extend(take(&limiter, name).await);
        }
    }
    assert_eq!(held.map(|held| held.len()), [2, 2]);
}
