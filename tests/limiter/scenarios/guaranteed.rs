//! Guarantees of a level above: what is kept, lent and back in time, what is told, and what they do not go with.
//!
//! Time is that of a test, and who asks when is drawn from a seed.

use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use tower_ratelimit::factor::FactorCell;
use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::limiter::{LimiterBuilder, Reservation};
use tower_ratelimit::plan::{KeyLimits, Operations, Plan, Plans};
use tower_ratelimit::policy::{Fair, Mode, OnAbandoned, Penalty, Rule};
use tower_ratelimit::store::{Backend, Charge, Reply, Store};
use tower_ratelimit::{
    Algorithm, AnchoredWindow, Concurrency, ConfigError, Decision, FixedWindow, Gcra, LeakyBucket,
    LeakyQueue, Limiter, LocalLimiter, ManualClock, MemoryStore, Micros, Policy, Quota,
    SharedStore, SlidingLog, SlidingSlots, SlidingWindow, TokenBucket,
};

use super::{HOUR, MINUTE, SECOND, START};
use crate::support::items::{Map, OneByOne};

fn builder(
    org: impl Into<Algorithm>,
    team: impl Into<Algorithm>,
    guaranteed: Quota,
) -> (LimiterBuilder, ManualClock) {
    let clock = ManualClock::at(Micros::new(START));
    let team = Policy::new("team", team)
        .below("org")
        .guaranteed(guaranteed);
    let builder = Limiter::builder()
        .policy(Policy::new("org", org))
        .policy(team)
        .store(MemoryStore::new().clock(clock.clone()));
    (builder, clock)
}

fn limiter(
    org: impl Into<Algorithm>,
    team: impl Into<Algorithm>,
    guaranteed: Quota,
) -> (LocalLimiter, ManualClock) {
    let (builder, clock) = builder(org, team, guaranteed);
    (builder.build_local().unwrap(), clock)
}

fn team(name: impl IntoKey) -> Key {
    Key::branch("acme", &[name.into_key()])
}

fn ask(limiter: &LocalLimiter, name: impl IntoKey, cost: u32) -> Decision {
    let key = team(name);
    let request = limiter.named([("org", key.root(), cost), ("team", key, cost)]);
    request.unwrap().check().now()
}

fn passes(limiter: &LocalLimiter, name: impl IntoKey, cost: u32) -> bool {
    ask(limiter, name, cost).is_allowed()
}

/// Takes units one by one until one is refused, and returns how many.
fn take(limiter: &LocalLimiter, name: &str, most: u32) -> u32 {
    (0..most)
        .take_while(|_| passes(limiter, name, 1))
        .count()
        .try_into()
        .unwrap()
}

/// Charges an estimate, and returns it for a settlement.
fn reserve(limiter: &LocalLimiter, name: impl IntoKey, estimate: u32) -> Reservation {
    let key = team(name);
    let request = limiter.named([("org", key.root(), estimate), ("team", key, estimate)]);
    request.unwrap().reserve().now()
}

fn of_org(decision: &Decision) -> &tower_ratelimit::Outcome {
    let mut policies = decision.policies();
    policies.find(|(name, _)| *name == "org").unwrap().1
}

#[test]
fn what_a_window_guarantees_is_kept_while_the_child_asks() {
    let (limiter, clock) = limiter(
        FixedWindow::per_minute(100),
        FixedWindow::per_minute(90),
        Quota::per_minute(30),
    );
    clock.advance(MINUTE / 2);
    assert!(passes(&limiter, "blue", 1));
    assert_eq!(take(&limiter, "red", 200), 70, "29 are kept, and 1 is used");
    assert!(
        !passes(&limiter, "green", 1),
        "what is lent is out, and the rest is blue's"
    );
    assert_eq!(take(&limiter, "blue", 200), 29);
    assert!(!passes(&limiter, "blue", 1), "all of it is spent");
    // At the end of the window the guarantee of green is back: it has asked.
    clock.advance(MINUTE / 2);
    assert_eq!(take(&limiter, "red", 200), 40);
    assert_eq!(take(&limiter, "green", 200), 30);
    assert_eq!(take(&limiter, "blue", 200), 30);
}

#[test]
fn the_guarantee_of_an_idle_child_is_lent() {
    let (limiter, clock) = limiter(
        FixedWindow::per_minute(100),
        FixedWindow::per_minute(100),
        Quota::per_minute(30),
    );
    assert!(passes(&limiter, "blue", 1));
    clock.advance(MINUTE);
    assert_eq!(
        take(&limiter, "red", 200),
        100,
        "blue has not asked for a minute"
    );
    assert!(!passes(&limiter, "blue", 1));
    clock.advance(MINUTE.saturating_sub(SECOND));
    assert_eq!(take(&limiter, "red", 200), 0, "the window is the same");
}

#[test]
fn the_guarantee_of_an_idle_child_is_back_when_a_bucket_next_has_the_cost() {
    let (limiter, clock) = limiter(
        TokenBucket::per_second(100),
        TokenBucket::per_second(100),
        Quota::per_second(30),
    );
    assert!(passes(&limiter, "blue", 1));
    clock.advance(SECOND);
    assert_eq!(take(&limiter, "red", 200), 100);
    let refused = ask(&limiter, "blue", 3);
    assert!(!refused.is_allowed());
    // Meanwhile red earns some of its own guarantee.
    let wait = refused.retry_after().unwrap();
    assert!((43..=100).contains(&wait.as_millis()), "{wait:?}");
    // What the bucket has now is first the one that has asked.
    clock.advance(Duration::from_millis(29));
    assert_eq!(take(&limiter, "red", 200), 0);
    clock.advance(wait.saturating_sub(Duration::from_millis(29)));
    assert!(passes(&limiter, "blue", 3));
}

#[test]
fn guarantees_that_pass_the_limit_shrink_in_proportion() {
    for org in [
        Algorithm::from(FixedWindow::per_minute(100)),
        TokenBucket::per_minute(100).into(),
    ] {
        let (limiter, clock) = limiter(org, FixedWindow::per_minute(100), Quota::per_minute(40));
        let names = ["a", "b", "c", "d"];
        for name in names {
            assert!(passes(&limiter, name, 1));
        }
        clock.advance(MINUTE.saturating_sub(SECOND));
        for name in names {
            let _ = ask(&limiter, name, 1);
        }
        // A whole window, or a full bucket but for what has just been asked.
        clock.advance(SECOND);
        assert!(take(&limiter, "a", 200) <= 28, "{org}");
        for name in &names[1..] {
            let had = take(&limiter, name, 25);
            assert!(had >= 24, "{org} {name}: {had}");
        }
    }
}

/// Parts of a unit that nobody can take are not kept.
#[test]
fn guarantees_that_shrink_leave_nothing_unused() {
    let (limiter, _) = limiter(
        FixedWindow::per_minute(100),
        FixedWindow::per_minute(100),
        Quota::per_minute(50),
    );
    let ask_all = || {
        (0..51_u64)
            .filter(|name| passes(&limiter, *name, 1))
            .count()
    };
    assert_eq!([ask_all(), ask_all(), ask_all()], [51, 49, 0]);
}

#[test]
fn more_children_than_units_share_one_place() {
    let (limiter, clock) = limiter(
        FixedWindow::per_minute(4),
        FixedWindow::per_minute(4),
        Quota::per_minute(1),
    );
    let ask_all = || {
        (0..40_u64)
            .filter(|name| passes(&limiter, *name, 1))
            .count()
    };
    assert_eq!(ask_all(), 4);
    clock.advance(MINUTE);
    assert_eq!(ask_all(), 4, "three have a place, and all others one");
}

#[test]
fn a_request_without_a_child_borrows() {
    let (limiter, _) = limiter(
        FixedWindow::per_minute(10),
        FixedWindow::per_minute(10),
        Quota::per_minute(4),
    );
    assert!(passes(&limiter, "blue", 1));
    let of_nobody = |cost| {
        let request = limiter.named([("org", "acme", cost)]);
        request.unwrap().check().now().is_allowed()
    };
    assert!(!of_nobody(7));
    assert!(of_nobody(6));
    assert!(!of_nobody(1));
    assert_eq!(take(&limiter, "blue", 9), 3);
    // Another organisation has children of its own.
    let key = Key::branch("other", &["red".into_key()]);
    let request = limiter.named([("org", key.root(), 10), ("team", key, 10)]);
    assert!(request.unwrap().check().now().is_allowed());
}

fn three_levels() -> LocalLimiter {
    let levels = [
        Policy::new("org", FixedWindow::per_minute(30)),
        Policy::new("team", FixedWindow::per_minute(10))
            .below("org")
            .guaranteed(Quota::per_minute(8)),
        Policy::new("user", FixedWindow::per_minute(10))
            .below("team")
            .guaranteed(Quota::per_minute(3)),
    ];
    let clock = ManualClock::at(Micros::new(START));
    Limiter::builder()
        .policies(levels)
        .store(MemoryStore::new().clock(clock))
        .build_local()
        .unwrap()
}

fn user_passes(limiter: &LocalLimiter, of_team: &str, user: impl IntoKey) -> bool {
    let user = Key::branch("acme", &[of_team.into_key(), user.into_key()]);
    let charges = [
        ("org", user.root(), 1),
        ("team", team(of_team), 1),
        ("user", user, 1),
    ];
    limiter.named(charges).unwrap().check().now().is_allowed()
}

#[test]
fn each_level_keeps_what_it_guarantees_to_the_one_below() {
    let limiter = three_levels();
    let take = |of_team: &str, user: &str| {
        let passes = |_: &u32| user_passes(&limiter, of_team, user);
        (0..20).take_while(passes).count()
    };
    assert!(user_passes(&limiter, "blue", "ann"));
    assert_eq!(take("red", "eve"), 10, "red has no more");
    assert_eq!(take("blue", "bob"), 7, "2 of 9 are for ann");
    assert_eq!(take("green", "eve"), 10, "blue has had its 8");
    assert_eq!(take("blue", "ann"), 2);
}

#[test]
fn threads_that_ask_at_once_neither_stop_nor_pass_the_limit() {
    let limiter = three_levels();
    let barrier = Barrier::new(4);
    let passed: usize = thread::scope(|scope| {
        let threads = [(); 4].map(|()| {
            scope.spawn(|| {
                barrier.wait();
                let asks = (0..2_000_u64).map(|turn| {
                    let of_team = if turn % 2 == 0 { "blue" } else { "red" };
                    limiter
                        .named([("team", team(of_team), 0)])
                        .unwrap()
                        .settle()
                        .now();
                    user_passes(&limiter, of_team, turn % 7)
                });
                asks.filter(|passed| *passed).count()
            })
        });
        threads.into_iter().map(|it| it.join().unwrap()).sum()
    });
    assert_eq!(passed, 20, "10 for each team");
}

#[test]
fn to_peek_makes_nobody_active() {
    let (limiter, _) = limiter(
        FixedWindow::per_minute(10),
        FixedWindow::per_minute(10),
        Quota::per_minute(4),
    );
    for name in 0..5_u64 {
        let key = team(name);
        let peeked = limiter.named([("org", key.root(), 1), ("team", key, 1)]);
        assert!(peeked.unwrap().peek().now().is_allowed());
    }
    assert_eq!(take(&limiter, "blue", 20), 10);
}

#[test]
fn what_is_settled_given_back_and_reset_is_the_childs() {
    let (limiter, _) = limiter(
        FixedWindow::per_minute(20),
        FixedWindow::per_minute(20),
        Quota::per_minute(8),
    );
    let charges = |name: &str, cost| [("org", team(name).root(), cost), ("team", team(name), cost)];
    let left_for_red = || {
        let peeked = limiter.named(charges("red", 0)).unwrap().peek().now();
        of_org(&peeked).remaining()
    };
    assert!(passes(&limiter, "red", 1));
    assert!(passes(&limiter, "blue", 2));
    assert_eq!(left_for_red(), 17 - 6);
    limiter.named(charges("blue", 5)).unwrap().settle().now();
    assert_eq!(left_for_red(), 12 - 1);
    limiter.named(charges("blue", 5)).unwrap().refund().now();
    assert_eq!(left_for_red(), 17 - 6);
    limiter.reset("acme").now();
    assert_eq!(
        left_for_red(),
        20,
        "a reset of the organisation is one of all"
    );
}

/// What a reservation settles concerned the level above alone: a key that had asked for more than it needed lost its guarantee.
#[test]
fn what_a_reservation_settles_is_the_childs() {
    let (builder, clock) = builder(
        FixedWindow::per_hour(10),
        FixedWindow::per_hour(8),
        Quota::per_hour(4),
    );
    let limiter = builder.build_local().unwrap();
    let charges = |name: &str, cost| [("org", team(name).root(), cost), ("team", team(name), cost)];
    let reserve = |cost| {
        limiter
            .named(charges("blue", cost))
            .unwrap()
            .reserve()
            .now()
    };
    let left_for_red = || {
        let peeked = limiter.named(charges("red", 0));
        of_org(&peeked.unwrap().peek().now()).remaining()
    };
    let of_blue = reserve(4);
    assert!(of_blue.is_allowed());
    assert_eq!(left_for_red(), 6);
    of_blue.settle(1);
    assert_eq!(left_for_red(), 9 - 3);
    reserve(1).settle(2);
    assert_eq!(left_for_red(), 7 - 1);
    reserve(1).cancel();
    assert_eq!(left_for_red(), 7 - 1);
    reserve(1).settle_with([("team", 0)]).unwrap();
    assert_eq!(left_for_red(), 6, "the level above was charged its unit");
    let of_last_hour = reserve(1);
    clock.advance(HOUR);
    assert!(passes(&limiter, "blue", 2));
    of_last_hour.settle(0);
    assert_eq!(left_for_red(), 8 - 2, "what counts now is untouched");
}

#[test]
fn what_a_reservation_that_is_dropped_settles_is_the_childs() {
    let clock = ManualClock::at(Micros::new(START));
    let at = |name, limit| {
        Policy::new(name, FixedWindow::per_hour(limit)).on_abandoned(OnAbandoned::Units(0))
    };
    let guaranteed = at("team", 8).below("org").guaranteed(Quota::per_hour(4));
    let builder = Limiter::builder().policies([at("org", 10), guaranteed]);
    let limiter = builder.store(MemoryStore::new().clock(clock));
    let limiter = limiter.build_local().unwrap();
    let charges = |name: &str, cost| [("org", team(name).root(), cost), ("team", team(name), cost)];
    drop(limiter.named(charges("blue", 4)).unwrap().reserve().now());
    assert!(!passes(&limiter, "red", 7), "four are kept for blue");
    assert!(passes(&limiter, "red", 6));
    assert!(passes(&limiter, "blue", 4));
}

/// Its guarantee got back what the request had borrowed: a key that estimated too much had nearly two guarantees.
#[test]
fn an_estimate_that_was_borrowed_gives_nothing_back_to_the_guarantee() {
    type Spend = fn(&LocalLimiter);
    let all: [(&str, Spend); 7] = [
        ("at its cost", |limiter| {
            assert!(passes(limiter, "red", 30));
            assert!(passes(limiter, "red", 1));
        }),
        ("borrowed", |limiter| {
            assert!(passes(limiter, "red", 30));
            reserve(limiter, "red", 30).settle(1);
        }),
        ("borrowed in two parts", |limiter| {
            assert!(passes(limiter, "red", 28));
            reserve(limiter, "red", 32).settle(3);
        }),
        ("guaranteed, while another borrows", |limiter| {
            let of_guarantee = reserve(limiter, "red", 30);
            assert!(passes(limiter, "red", 30));
            of_guarantee.settle(1);
        }),
        ("refunded", |limiter| {
            assert!(passes(limiter, "red", 30));
            assert!(passes(limiter, "red", 30));
            let charges = [("org", team("red").root(), 29), ("team", team("red"), 29)];
            limiter.named(charges).unwrap().refund().now();
        }),
        ("settled for more, and refunded", |limiter| {
            assert!(passes(limiter, "red", 30));
            reserve(limiter, "red", 1).settle(30);
            let charges = [("org", team("red").root(), 29), ("team", team("red"), 29)];
            limiter.named(charges).unwrap().refund().now();
        }),
        ("cancelled", |limiter| {
            assert!(passes(limiter, "red", 30));
            reserve(limiter, "red", 29).cancel();
            assert!(passes(limiter, "red", 1));
        }),
    ];
    for (told, spend) in all {
        let (limiter, _) = limiter(
            TokenBucket::per_hour(100),
            TokenBucket::per_hour(100),
            Quota::per_hour(30),
        );
        assert!(passes(&limiter, "blue", 10), "{told}");
        spend(&limiter);
        for cost in [10, 10, 9] {
            assert!(passes(&limiter, "green", cost), "{told}: {cost}");
        }
        assert!(!passes(&limiter, "red", 28), "{told}");
        assert!(passes(&limiter, "blue", 20), "{told}");
    }
}

/// The longer an estimate is held, the more of the guarantee has come back: no more than that.
#[test]
fn an_estimate_that_is_held_gives_back_no_more() {
    for held in [0, 1, 600, 1_200, 1_800, 1_920] {
        let left = [30, 1].map(|estimate| {
            let (limiter, clock) = limiter(
                TokenBucket::per_hour(100),
                TokenBucket::per_hour(100),
                Quota::per_hour(30),
            );
            clock.advance(Duration::from_secs(3_000));
            assert!(passes(&limiter, "blue", 10));
            assert!(passes(&limiter, "red", 30));
            let held_back = reserve(&limiter, "red", estimate);
            clock.advance(Duration::from_secs(held));
            held_back.settle(1);
            // All of the rest is blue's and green's, so that red has what is left of its guarantee.
            assert!(passes(&limiter, "blue", 0));
            assert!(passes(&limiter, "green", 0));
            let rest = take(&limiter, "green", 100);
            [rest, take(&limiter, "red", 100)]
        });
        assert_eq!(left[0], left[1], "{held} seconds");
    }
}

/// What was borrowed is repaid for two periods at most: afterwards all that is given back is of the guarantee again.
#[test]
fn what_was_borrowed_long_ago_is_no_debt() {
    let (limiter, clock) = limiter(
        TokenBucket::per_second(100),
        TokenBucket::per_second(100),
        Quota::per_second(30),
    );
    assert!(passes(&limiter, "blue", 1));
    assert!(passes(&limiter, "red", 70));
    for _ in 0..5 {
        clock.advance(SECOND / 2);
        // The level above is in use all the time.
        assert!(passes(&limiter, "blue", 49));
        assert!(passes(&limiter, "red", 1));
    }
    for _ in 0..15 {
        reserve(&limiter, "red", 10).settle(1);
    }
    while passes(&limiter, "blue", 1) {}
    assert_eq!(take(&limiter, "red", 100), 14);
}

/// A sibling could take what is given back before it was kept for the key.
#[test]
fn what_is_given_back_is_kept_at_once() {
    let (limiter, clock) = limiter(
        FixedWindow::per_hour(20),
        FixedWindow::per_hour(20),
        Quota::per_hour(10),
    );
    for _ in 0..1_000 {
        clock.advance(HOUR);
        let of_blue = reserve(&limiter, "blue", 10);
        assert!(of_blue.is_allowed());
        let (begun, is_settled) = (Barrier::new(2), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                begun.wait();
                while !is_settled.load(Ordering::Relaxed) {
                    let _ = passes(&limiter, "red", 1);
                }
            });
            begun.wait();
            while passes(&limiter, "red", 1) {}
            of_blue.settle(0);
            is_settled.store(true, Ordering::Relaxed);
        });
        assert!(passes(&limiter, "blue", 10));
    }
}

#[test]
fn a_request_that_another_policy_denies_uses_no_guarantee() {
    let (builder, _) = builder(
        FixedWindow::per_minute(20),
        FixedWindow::per_minute(20),
        Quota::per_minute(8),
    );
    let own = Policy::new("own", FixedWindow::per_hour(1));
    let limiter = builder.policy(own).build_local().unwrap();
    let with_own = |name: &str| {
        let key = team(name);
        let charges = [("org", key.root(), 1), ("team", key, 1), ("own", key, 1)];
        limiter.named(charges).unwrap().check().now()
    };
    assert!(with_own("blue").is_allowed());
    for _ in 0..20 {
        assert_eq!(with_own("blue").binding().unwrap().0, "own");
    }
    assert_eq!(of_org(&ask(&limiter, "red", 1)).remaining(), 20 - 2 - 7);
}

#[test]
fn a_block_and_a_penalty_are_of_their_level() {
    let (builder, _) = builder(
        FixedWindow::per_minute(20),
        FixedWindow::per_minute(20),
        Quota::per_minute(8),
    );
    let limiter = builder.build_local().unwrap();
    limiter.block(team("blue"), HOUR).now();
    assert!(ask(&limiter, "blue", 1).binding().unwrap().1.is_blocked());
    assert!(passes(&limiter, "red", 1));
    let clock = ManualClock::new();
    let penalty = Penalty::after(3, MINUTE).block(HOUR);
    let org = Policy::new("org", FixedWindow::per_minute(2));
    let low = Policy::new("team", FixedWindow::per_minute(1)).below("org");
    let limiter = Limiter::builder()
        .policy(org)
        .policy(low.guaranteed(Quota::per_minute(1)).penalty(penalty))
        .store(MemoryStore::new().clock(clock))
        .build_local()
        .unwrap();
    let _ = [(); 4].map(|()| ask(&limiter, "blue", 1));
    assert!(ask(&limiter, "blue", 1).binding().unwrap().1.is_blocked());
    assert!(passes(&limiter, "red", 1));
}

#[test]
fn a_soft_and_a_silent_level_keep_guarantees_as_well() {
    for silent in [false, true] {
        let clock = ManualClock::at(Micros::new(START));
        let org = Policy::new("org", FixedWindow::per_minute(10));
        let org = if silent {
            org.mode(Mode::Shadow)
        } else {
            org.soft()
        };
        let low = Policy::new("team", FixedWindow::per_minute(10)).below("org");
        let limiter = Limiter::builder()
            .policy(org)
            .policy(low.guaranteed(Quota::per_minute(4)))
            .store(MemoryStore::new().clock(clock))
            .build_local()
            .unwrap();
        assert!(passes(&limiter, "blue", 1));
        let over = [(); 8].map(|()| {
            let decision = ask(&limiter, "red", 1);
            assert!(decision.is_allowed());
            decision.over_limit().count() + decision.would_refuse().count()
        });
        assert_eq!(over, [0, 0, 0, 0, 0, 0, 1, 1]);
    }
}

#[test]
fn a_level_that_is_off_has_no_guarantee() {
    let (builder, _) = builder(
        FixedWindow::per_minute(10),
        FixedWindow::per_minute(10),
        Quota::per_minute(4),
    );
    let limiter = builder.build_local().unwrap();
    assert!(passes(&limiter, "blue", 1));
    limiter.modes().set("team", Mode::Off).unwrap();
    assert_eq!(
        take(&limiter, "blue", 20),
        6,
        "it is nobody, and 3 are kept"
    );
    limiter.modes().set("team", Mode::Enforce).unwrap();
    assert_eq!(take(&limiter, "blue", 20), 3);
}

#[test]
fn as_many_units_as_there_are() {
    let per_minute = FixedWindow::per_minute(20);
    let low = Policy::new("team", per_minute).below("org");
    let policies = [
        Policy::new("org", per_minute),
        low.guaranteed(Quota::per_minute(8)),
    ];
    let backend = MemoryStore::new().open(&policies.map(Rule::from)).unwrap();
    let charges = |name: &str, most| {
        let key = team(name);
        [Charge::new(0, key.root(), most), Charge::new(1, key, most)]
    };
    let take = |name: &str, most| match backend.acquire_up_to(&charges(name, most)) {
        Reply::Now(answer) => answer.unwrap().0,
        _ => unreachable!("the state is here"),
    };
    assert!(backend.charge_now(&charges("blue", 1)).is_allowed());
    assert_eq!(take("red", 30), 12);
    assert_eq!(take("blue", 30), 7);
    assert_eq!(take("blue", 30), 0);
}

#[test]
fn the_limits_of_a_plan_of_a_key_and_of_an_override_bound_the_guarantees() {
    let clock = ManualClock::at(Micros::new(START));
    let org = Policy::new("org", FixedWindow::per_minute(20))
        .key_limits(KeyLimits::new().key("large", FixedWindow::per_minute(40)));
    let low = Policy::new("team", FixedWindow::per_minute(40)).below("org");
    let small = Plan::new("small").limit("org", FixedWindow::per_minute(10));
    let plans = Plans::new([
        small,
        Plan::new("whole").limit("org", FixedWindow::per_minute(20)),
    ])
    .default_plan("whole");
    let limiter = Limiter::builder()
        .policy(org)
        .policy(low.guaranteed(Quota::per_minute(8)).ignore_plans())
        .plans(plans, |key| {
            key.root().starts_with("small").then_some("small")
        })
        .store(MemoryStore::new().clock(clock))
        .build_local()
        .unwrap();
    let take = |org: &'static str, name: &str| {
        let key = Key::branch(org, &[name.into_key()]);
        let passes = |_: &u32| {
            let request = limiter.named([("org", key.root(), 1), ("team", key, 1)]);
            request.unwrap().check().now().is_allowed()
        };
        (0..50).take_while(passes).count()
    };
    let once = |org: &'static str, name: &str| {
        let key = Key::branch(org, &[name.into_key()]);
        let request = limiter.named([("org", key.root(), 1), ("team", key, 1)]);
        assert!(request.unwrap().check().now().is_allowed());
    };
    for (org, first) in [("other", 12), ("large", 32)] {
        once(org, "blue");
        assert_eq!(take(org, "red"), first, "{org}");
        assert_eq!(take(org, "blue"), 7, "{org}");
    }
    let lower = FixedWindow::per_minute(10);
    let overridden = limiter.override_limit("org", "lowered", lower, HOUR);
    overridden.unwrap().now().unwrap();
    // Two guarantees of 8 do not fit in 10, and are 5 each.
    for org in ["lowered", "small"] {
        once(org, "blue");
        once(org, "red");
        assert_eq!([take(org, "red"), take(org, "blue")], [4, 4], "{org}");
    }
}

#[test]
fn a_limit_that_is_adjusted_bounds_the_guarantees() {
    let (builder, _) = builder(
        FixedWindow::per_minute(20),
        FixedWindow::per_minute(20),
        Quota::per_minute(8),
    );
    let limiter = builder.adjustable().build_local().unwrap();
    let lower = FixedWindow::per_minute(10);
    limiter.adjust_limit("org", None, lower).unwrap();
    assert!(passes(&limiter, "blue", 1));
    assert!(passes(&limiter, "red", 1));
    assert_eq!(
        [take(&limiter, "red", 20), take(&limiter, "blue", 20)],
        [4, 4]
    );
}

#[test]
fn nodes_without_a_shared_store_divide_a_guarantee() {
    let (builder, _) = builder(
        FixedWindow::per_minute(20),
        FixedWindow::per_minute(20),
        Quota::per_minute(8),
    );
    let limiter = builder.nodes(2).build_local().unwrap();
    assert!(passes(&limiter, "blue", 1));
    assert_eq!(take(&limiter, "red", 30), 10 - 4);
    assert_eq!(take(&limiter, "blue", 30), 3);
}

#[test]
fn a_reload_keeps_what_was_used() {
    let clock = ManualClock::at(Micros::new(START));
    let store = MemoryStore::new().clock(clock);
    let with = |name: &str, units| {
        let low = Policy::new("team", FixedWindow::per_minute(20)).below(name);
        Limiter::builder()
            .policy(Policy::new(name, FixedWindow::per_minute(20)).renamed_from("org"))
            .policy(low.guaranteed(Quota::per_minute(units)))
            .store(store.clone())
            .build_local()
            .unwrap()
    };
    let check = |limiter: &LocalLimiter, org: &str, name: &str, cost| {
        let key = team(name);
        let request = limiter.named([(org, key.root(), cost), ("team", key, cost)]);
        request.unwrap().check().now().is_allowed()
    };
    let before = with("org", 8);
    assert!(check(&before, "org", "blue", 3));
    let after = with("organisation", 4);
    assert!(!check(&after, "organisation", "red", 17), "1 of 4 is left");
    assert!(check(&after, "organisation", "red", 16));
    assert!(check(&after, "organisation", "blue", 1));
    drop(before);
}

#[test]
fn an_inspection_tells_the_guarantee() {
    let (limiter, _) = limiter(
        FixedWindow::per_hour(10),
        FixedWindow::per_hour(8),
        Quota::per_hour(4),
    );
    let told = limiter.inspect(team("blue")).now().to_string();
    assert!(
        told.ends_with("  team: nothing of 8 used. 4/hour of org is guaranteed.\n"),
        "{told}"
    );
}

#[test]
fn children_and_keys_that_are_invented_take_no_room() {
    let clock = ManualClock::at(Micros::new(START));
    let low = Policy::new("team", FixedWindow::per_minute(10)).below("org");
    let limiter = Limiter::builder()
        .policy(Policy::new("org", FixedWindow::per_minute(10)))
        .policy(low.guaranteed(Quota::per_minute(2)))
        .store(MemoryStore::new().max_keys(64).clock(clock.clone()))
        .build_local()
        .unwrap();
    for name in 0..2_000_u64 {
        let key = Key::branch(name.into_key(), &[name.into_key()]);
        let request = limiter.named([("org", key.root(), 1), ("team", key, 1)]);
        let _ = request.unwrap().check().now();
    }
    for name in 0..2_000_u64 {
        let _ = ask(&limiter, name, 1);
    }
    clock.advance(MINUTE);
    let passed = (0..2_000_u64).filter(|name| passes(&limiter, *name, 1));
    assert!(passed.count() <= 10);
}

/// All children of a key are in one of sixteen parts of the store: of 64 keys, four children were told apart.
#[test]
fn a_small_store_tells_the_children_of_one_key_apart() {
    let low = Policy::new("team", FixedWindow::per_minute(40)).below("org");
    let limiter = Limiter::builder()
        .policy(Policy::new("org", FixedWindow::per_minute(40)))
        .policy(low.guaranteed(Quota::per_minute(2)))
        .store(MemoryStore::new().max_keys(64))
        .build_local()
        .unwrap();
    for name in 0..20_u64 {
        assert!(passes(&limiter, name, 1));
    }
    assert_eq!((0..20).filter(|_| passes(&limiter, 0_u64, 1)).count(), 1);
    for name in 1..20_u64 {
        assert!(passes(&limiter, name, 1), "{name}");
    }
}

// The laws.

/// What a test knows of a child, by the definitions alone.
#[derive(Default)]
struct Known {
    /// The units that it had, each with its moment: estimates, until they are settled.
    had: Vec<(u64, u32)>,
    has_given_back: bool,
    asked: Option<u64>,
    /// Since when it has asked in each period.
    active_since: Option<u64>,
}

#[derive(Clone, Debug)]
struct Request {
    after: u64,
    name: u64,
    cost: u32,
    /// What it really costs, if that is known later, and after how many further requests.
    settled: Option<(u32, usize)>,
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let after = prop_oneof![3 => 0..30_000_u64, 2 => 0..400_000_u64, 1 => 0..3_000_000_u64];
    let cost = || prop_oneof![4 => Just(1), 1 => 0..6_u32];
    let settled = proptest::option::of((cost(), 0..6_usize));
    let request =
        (after, 0..5_u64, cost(), settled).prop_map(|(after, name, cost, settled)| Request {
            after,
            name,
            cost,
            settled,
        });
    proptest::collection::vec(request, 1..300)
}

fn orgs() -> impl Strategy<Value = Algorithm> {
    prop_oneof![
        Just(FixedWindow::per_second(20).into()),
        Just(TokenBucket::per_second(20).into()),
        Just(Gcra::per_second(20).burst(10).into()),
        Just(LeakyBucket::per_second(20).capacity(30).into()),
    ]
}

proptest! {
    /// A child that asked within the last period, and whose guarantee is back, is not refused below it; the guarantee of one that
    /// comes back is back within a period; and all children together never have more than the level above. So it is, too, if requests are
    /// settled later, for less than they have estimated. If they exceed their estimates, the level above still grants no more by itself.
    #[test]
    fn who_asks_is_not_refused_below_its_guarantee(
        org in orgs(), guaranteed in 1..5_u32, requests in requests(), exceeds: bool,
    ) {
        // Five children: all guarantees fit in the limit. A guarantee in a bucket is its part of the burst.
        let burst = org.limit().unwrap();
        let at_once = guaranteed * burst.min(20) / 20;
        prop_assume!(at_once >= 1);
        let (limiter, clock) = limiter(org, TokenBucket::per_second(100), Quota::per_second(guaranteed));
        // The level above by itself.
        let alone = Limiter::builder().policy(Policy::new("org", org));
        let alone = alone.store(MemoryStore::new().clock(clock.clone())).build_local().unwrap();
        let is_window = matches!(org, Algorithm::FixedWindow(_));
        let mut now = START;
        let mut known: HashMap<u64, Known> = HashMap::new();
        let mut held: Vec<(usize, u64, usize, u32, u64, [Reservation; 2])> = Vec::new();
        for (step, Request { after, name, cost, settled }) in requests.into_iter().enumerate() {
            now += after;
            clock.set_micros(Micros::new(now));
            for (_, name, place, real, until, both) in held.extract_if(.., |(due, ..)| *due <= step) {
                let child: &mut Known = known.get_mut(&name).unwrap();
                let units = &mut child.had[place].1;
                if real > *units || now < until {
                    child.has_given_back |= real < *units;
                    *units = real;
                }
                let _ = both.map(|it| it.settle(real));
            }
            let reserved = reserve(&limiter, name, cost);
            let allowed = reserved.is_allowed();
            let child = known.entry(name).or_default();
            let window = |at: u64| at / 1_000_000;
            // What it has borrowed in two periods before is repaid first.
            let periods = if child.has_given_back { 3_000_000 } else { 1_000_000 };
            let since_ago = |at: u64| if is_window { window(at) == window(now) } else { now - at < periods };
            let used: u32 = child.had.iter().filter(|(at, _)| since_ago(*at)).map(|(_, units)| units).sum();
            let lapsed = child.asked.is_none_or(|asked| now - asked >= 1_000_000);
            let since = child.active_since.filter(|_| !lapsed);
            child.active_since = Some(since.unwrap_or(now));
            child.asked = Some(now);
            // Back within one period, or at the end of the window.
            let is_back = since.is_some_and(|since| {
                if is_window { window(since) < window(now) } else { now - since >= 1_000_000 }
            });
            if is_back && !exceeds && used + cost <= at_once {
                prop_assert!(allowed, "{name} has had {used} of {at_once} and asks for {cost} under {org}");
            }
            if allowed {
                let above = alone.named([("org", "acme", cost)]).unwrap().reserve().now();
                prop_assert!(above.is_allowed(), "{cost} under {org}");
                let until = now + u64::try_from(of_org(above.decision()).reset_after().as_micros()).unwrap();
                child.had.push((now, cost));
                let (real, later) = settled.unwrap_or((cost, 0));
                let real = if exceeds { real } else { real.min(cost) };
                held.push((step + 1 + later, name, child.had.len() - 1, real, until, [reserved, above]));
            }
            let has_given_back = known.values().any(|child| child.has_given_back);
            if !exceeds && (is_window || !has_given_back) {
                let had = known.values().flat_map(|child| &child.had);
                let in_last: u32 = had.filter(|(at, _)| since_ago(*at)).map(|(_, units)| units).sum();
                let most = if is_window { 20 } else { burst + 20 };
                prop_assert!(in_last <= most);
            }
        }
    }

    /// What is lent leaves the rests of all other active children: each of them can take its rest at once.
    #[test]
    fn what_is_lent_leaves_the_rest_of_each(
        org in orgs(), guaranteed in 1..5_u32, requests in requests(),
    ) {
        let at_once = guaranteed * org.limit().unwrap().min(20) / 20;
        prop_assume!(at_once >= 1);
        let (limiter, clock) = limiter(org, TokenBucket::per_second(100), Quota::per_second(guaranteed));
        let mut now = START;
        let mut held: Vec<(usize, u32, Reservation)> = Vec::new();
        for name in 0..5_u64 {
            prop_assert!(passes(&limiter, name, 0));
        }
        for (step, Request { after, name, cost, settled }) in requests.into_iter().enumerate() {
            // All stay active.
            now += after.min(100_000);
            clock.set_micros(Micros::new(now));
            for name in 0..5_u64 {
                prop_assert!(passes(&limiter, name, 0));
            }
            for (_, real, it) in held.extract_if(.., |(due, ..)| *due <= step) {
                it.settle(real);
            }
            let of_hog = reserve(&limiter, 4_u64, 7);
            let (real, later) = settled.map_or((cost, 0), |(real, later)| (real.min(cost), later));
            held.push((step + 1 + later, real, reserve(&limiter, name, cost)));
            held.push((step + 1 + later, 7 - cost, of_hog));
        }
        for (_, real, it) in held {
            it.settle(real);
        }
        // A hog has asked for all; what each other child has not used in the last second is still there.
        clock.set_micros(Micros::new(now + 900_000));
        for name in 0..5_u64 {
            prop_assert!(passes(&limiter, name, 0));
        }
        clock.set_micros(Micros::new(now + 1_000_000));
        while passes(&limiter, 4_u64, 1) {}
        for name in 0..4_u64 {
            for _ in 0..at_once {
                prop_assert!(passes(&limiter, name, 1), "{name} under {org}");
            }
        }
    }

    /// A told wait is enough if nobody else asks, and what remains would pass.
    #[test]
    fn what_is_told_is_true(
        org in orgs(), guaranteed in 1..8_u32, requests in requests(),
    ) {
        prop_assume!(guaranteed * org.limit().unwrap().min(20) >= 20);
        let (limiter, clock) = limiter(org, TokenBucket::per_second(100), Quota::per_second(guaranteed));
        let mut now = START;
        for Request { after, name, cost, settled } in requests {
            now += after;
            clock.set_micros(Micros::new(now));
            let reserved = reserve(&limiter, name, cost);
            let decision = reserved.decision();
            let remaining = of_org(decision).remaining();
            let peek = |cost: u32| {
                let key = team(name);
                limiter.named([("org", key.root(), cost), ("team", key, cost)]).unwrap().peek().now().is_allowed()
            };
            if remaining > 0 {
                prop_assert!(peek(remaining), "{remaining} under {org}");
            }
            prop_assert!(!peek(remaining + 1), "{remaining} under {org}");
            if let Some(wait) = decision.retry_after() {
                now += u64::try_from(wait.as_micros()).unwrap();
                clock.set_micros(Micros::new(now));
                prop_assert!(passes(&limiter, name, cost), "{cost} after {wait:?} under {org}");
            }
            reserved.settle(settled.map_or(cost, |(real, _)| real.min(cost)));
        }
    }
}

/// Of two that always ask, one with a guarantee in use and one that borrows, the whole limit is used.
#[test]
fn nothing_is_wasted() {
    for org in [
        Algorithm::from(FixedWindow::per_second(100)),
        TokenBucket::per_second(100).into(),
    ] {
        let (limiter, clock) = limiter(org, TokenBucket::per_second(1_000), Quota::per_second(30));
        let mut had = [0; 2];
        for step in 0..4_000_u32 {
            clock.advance(Duration::from_millis(5));
            had[0] += take(&limiter, "hog", 5);
            // 20 a second of its 30.
            if step % 10 == 0 {
                had[1] += take(&limiter, "steady", 1);
            }
        }
        assert_eq!(had[1], 400, "{org}");
        let all = had[0] + had[1];
        // In a bucket the rest of the guarantee stays unused: nothing more is kept.
        assert!((1_780..=2_100).contains(&all), "{org}: {all}");
    }
}

fn error(builder: LimiterBuilder) -> ConfigError {
    builder.build_local().unwrap_err()
}

#[test]
fn what_cannot_be_kept_is_refused_when_built() {
    let quota = Quota::per_minute(10);
    let per_minute = FixedWindow::per_minute(100);
    let cases: Vec<(Algorithm, Algorithm, Quota, &str)> = vec![
        (
            AnchoredWindow::per_minute(100).into(),
            per_minute.into(),
            quota,
            "a `FixedWindow`",
        ),
        (
            SlidingWindow::per_minute(100).into(),
            per_minute.into(),
            quota,
            "a `FixedWindow`",
        ),
        (
            SlidingLog::per_minute(100).into(),
            per_minute.into(),
            quota,
            "a `FixedWindow`",
        ),
        (
            SlidingSlots::per_minute(100).into(),
            per_minute.into(),
            quota,
            "a `FixedWindow`",
        ),
        (
            TokenBucket::per_minute(100).by_interval().into(),
            per_minute.into(),
            quota,
            "a `FixedWindow`",
        ),
        (
            Concurrency::of(100).into(),
            per_minute.into(),
            quota,
            "a `FixedWindow`",
        ),
        (
            LeakyQueue::per_minute(100).places(50).into(),
            per_minute.into(),
            quota,
            "a `FixedWindow`",
        ),
        (
            TokenBucket::per_minute(100).burst(9).into(),
            per_minute.into(),
            quota,
            "a burst of at least 10",
        ),
        (
            per_minute.into(),
            per_minute.into(),
            Quota::per_hour(10),
            "in the period of the level above",
        ),
        (
            per_minute.into(),
            FixedWindow::per_minute(500).into(),
            Quota::per_minute(101),
            "at most 100",
        ),
        (
            per_minute.into(),
            FixedWindow::per_minute(9).into(),
            quota,
            "at most the limit of the level",
        ),
        (
            per_minute.into(),
            FixedWindow::per_hour(599).into(),
            quota,
            "at most the limit of the level",
        ),
        (
            per_minute.into(),
            per_minute.into(),
            Quota::per_minute(0),
            "at least 1",
        ),
        (
            per_minute.into(),
            Concurrency::of(5).into(),
            quota,
            "a limit on a rate",
        ),
        (
            per_minute.into(),
            Algorithm::Unlimited,
            quota,
            "give the level a limit",
        ),
    ];
    for (org, low, quota, remedy) in cases {
        let told = error(builder(org, low, quota).0);
        assert_eq!(told.field(), "guaranteed");
        assert!(told.remedy().contains(remedy), "{org} {low}: {told}");
        assert!(told.value().contains("\"team\""), "{told}");
    }
}

#[test]
fn what_a_guarantee_does_not_go_with_is_refused_when_built() {
    let per_minute = FixedWindow::per_minute(100);
    let low = || {
        Policy::new("team", per_minute)
            .below("org")
            .guaranteed(Quota::per_minute(10))
    };
    let org = || Policy::new("org", per_minute);
    let bucket = || Policy::new("org", TokenBucket::per_minute(100)).fair(Fair::new());
    let factor = FactorCell::new();
    for (org, remedy) in [
        (org().factor(&factor), "a factor"),
        (org().reserve(5), "`reserve`"),
        (org().wait_up_to(SECOND), "`wait_up_to`"),
        (
            org().operations(Operations::new().limit("read", per_minute)),
            "by operation",
        ),
        (bucket(), "`fair`"),
    ] {
        let told = error(Limiter::builder().policy(org).policy(low()));
        assert!(told.remedy().contains(remedy), "{told}");
    }
    let each = low().operations(Operations::new().limit("read", per_minute));
    let told = error(Limiter::builder().policy(org()).policy(each));
    assert!(told.remedy().contains("each operation would"), "{told}");
    let alone = error(Limiter::builder().policy(low()));
    assert!(alone.remedy().contains("add the policy \"org\""), "{alone}");
    let root = Policy::new("org", per_minute).guaranteed(Quota::per_minute(10));
    let root = error(Limiter::builder().policy(root));
    assert!(
        root.remedy()
            .contains("a level that has another one above it"),
        "{root}"
    );
    let second = Policy::new("project", per_minute)
        .below("org")
        .guaranteed(Quota::per_minute(10));
    let both = error(Limiter::builder().policies([org(), low(), second]));
    assert!(
        both.remedy()
            .contains("guarantees something to another policy"),
        "{both}"
    );
    let two = [Policy::new("a", per_minute), Policy::new("b", per_minute)];
    let groups = Limiter::builder()
        .policies([org(), low()])
        .policies(two)
        .first_of("one", ["a", "b"]);
    let told = error(groups);
    assert!(told.remedy().contains("`first_of`"), "{told}");
    let map = Map::new(&ManualClock::new());
    let over = |builder: LimiterBuilder| builder.policies([org(), low()]);
    let told = over(Limiter::builder()).store(SharedStore::new(OneByOne(map.clone())));
    let told = told.build().unwrap_err();
    assert!(
        told.remedy().contains("several can change at once"),
        "{told}"
    );
    let shared = over(Limiter::builder()).store(SharedStore::new(map));
    assert!(shared.build().is_ok());
}

#[cfg(feature = "calendar")]
#[test]
fn hours_are_refused_when_built() {
    use tower_ratelimit::Hours;
    let per_minute = FixedWindow::per_minute(100);
    let hours = Hours::in_zone("UTC").unwrap();
    let hours = hours
        .at("22:00-06:00", FixedWindow::per_minute(50))
        .unwrap();
    let timed = Policy::new("timed", per_minute).hours(&hours).unwrap();
    let low = Policy::new("team", per_minute)
        .below("org")
        .guaranteed(Quota::per_minute(10));
    let policies = [Policy::new("org", per_minute), low, timed];
    let told = error(Limiter::builder().policies(policies));
    assert!(told.remedy().contains("hours"), "{told}");
}
