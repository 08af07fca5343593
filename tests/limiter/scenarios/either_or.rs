//! Either–or: what pays, what is left alone, and what it does not go with.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use tower_ratelimit::clock::Micros;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::factor::FactorCell;
use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::policy::{Mode, Penalty, Rule};
use tower_ratelimit::store::{Change, Changed, Items, MemoryLedger, Reply, Store};
use tower_ratelimit::{
    Concurrency, ConfigError, Decision, FixedWindow, LeakyQueue, Limiter, LocalLimiter,
    ManualClock, MemoryStore, Policy, RateLimitLayer, SharedStore, StoreError, TokenBucket, key,
};

use super::{DAY, HOUR};
use crate::support::driver::now;
use crate::support::items::Map;

fn day(name: &str, limit: u32) -> Policy {
    Policy::new(name, FixedWindow::per_day(limit))
}

/// A plan of 2, credits of 3 and a pool of 1, and requests are always counted: 100.
fn builder() -> LimiterBuilder {
    Limiter::builder()
        .policies([
            day("plan", 2),
            day("credits", 3),
            day("pool", 1),
            day("all", 100),
        ])
        .store(MemoryStore::new().clock(ManualClock::new()))
        .first_of("spend", ["plan", "credits", "pool"])
}

fn payer(limiter: &LocalLimiter, cost: u32) -> Option<String> {
    let decision = limiter.check("ann", cost).now();
    assert_eq!(decision.is_allowed(), decision.payer("spend").is_some());
    decision.payer("spend").map(str::to_owned)
}

/// Returns how many units each policy has left.
fn left(limiter: &LocalLimiter) -> Vec<u32> {
    let inspection = limiter.inspect("ann").now();
    let each = inspection.policies();
    each.map(|(_, outcome)| outcome.remaining()).collect()
}

#[test]
fn the_first_with_room_pays_and_the_others_are_left_alone() {
    let limiter = builder().build_local().unwrap();
    assert_eq!(payer(&limiter, 1).as_deref(), Some("plan"));
    assert_eq!(left(&limiter), [1, 3, 1, 99]);
    assert_eq!(payer(&limiter, 2).as_deref(), Some("credits"));
    assert_eq!(left(&limiter), [1, 1, 1, 97]);
    assert_eq!(payer(&limiter, 1).as_deref(), Some("plan"));
    assert_eq!(payer(&limiter, 1).as_deref(), Some("credits"));
    assert_eq!(payer(&limiter, 1).as_deref(), Some("pool"));
    assert_eq!(payer(&limiter, 1), None);
    assert_eq!(left(&limiter), [0, 0, 0, 94], "a denial charges nothing");
    assert!(!limiter.admit("ann", 1).now());
    assert!(limiter.admit("ben", 1).now());
}

#[test]
fn a_policy_that_is_always_charged_denies_for_all() {
    let limiter = builder().build_local().unwrap();
    assert_eq!(payer(&limiter, 1).as_deref(), Some("plan"));
    let decision = limiter.check_with([
        ("plan", "ann", 1),
        ("credits", "ann", 1),
        ("all", "ann", 100),
    ]);
    let decision = decision.unwrap().now();
    assert!(!decision.is_allowed());
    assert_eq!(decision.binding().unwrap().0, "all");
    assert_eq!(left(&limiter), [1, 3, 1, 99]);
}

#[test]
fn a_refusal_tells_the_soonest_wait() {
    let limiter = Limiter::builder()
        .policies([
            day("plan", 1),
            Policy::new("credits", FixedWindow::per_hour(1)),
        ])
        .policy(Policy::new("pool", TokenBucket::per_day(1).burst(1)))
        .store(MemoryStore::new().clock(ManualClock::new()))
        .first_of("spend", ["plan", "credits", "pool"])
        .build_local()
        .unwrap();
    for _ in 0..3 {
        assert!(payer(&limiter, 1).is_some());
    }
    let decision = limiter.check("ann", 1).now();
    assert!(decision.retry_after().unwrap() <= HOUR);
    assert_eq!(decision.binding().unwrap().0, "credits");
    assert_eq!(decision.policies().len(), 1, "the others are not told");
    let blocked = limiter.block("ann", 2 * DAY);
    blocked.now();
    assert_eq!(limiter.check("ann", 1).now().retry_after(), Some(2 * DAY));
}

#[test]
fn units_are_taken_from_the_first_that_has_any() {
    let limiter = builder().build_local().unwrap();
    let take = || limiter.take_up_to("ann", 10).now().0;
    assert_eq!([take(), take(), take(), take()], [2, 3, 1, 0]);
    assert_eq!(left(&limiter), [0, 0, 0, 94]);
}

#[test]
fn the_one_that_pays_is_settled() {
    let limiter = builder().build_local().unwrap();
    assert_eq!(payer(&limiter, 2).as_deref(), Some("plan"));
    let reservation = limiter.reserve("ann", 2).now();
    assert_eq!(reservation.decision().payer("spend"), Some("credits"));
    assert_eq!(left(&limiter), [0, 1, 1, 96]);
    reservation.settle(1);
    assert_eq!(left(&limiter), [0, 2, 1, 97]);
    limiter.reserve("ann", 2).now().cancel();
    assert_eq!(left(&limiter), [0, 2, 1, 97]);
}

#[test]
fn a_block_of_one_member_lets_the_next_pay_and_a_reset_gives_it_back() {
    let limiter = builder().build_local().unwrap();
    let override_all = limiter.override_limit("plan", "ann", FixedWindow::per_day(0), DAY);
    override_all.unwrap().now().unwrap();
    assert_eq!(payer(&limiter, 1).as_deref(), Some("credits"));
    limiter.block("ann", HOUR).now();
    assert_eq!(payer(&limiter, 1), None);
    limiter.unblock("ann").now();
    limiter.reset("ann").now();
    assert_eq!(left(&limiter)[1..], [3, 1, 100]);
}

#[test]
fn a_member_that_is_off_or_in_shadow_never_pays() {
    for mode in [Mode::Off, Mode::Shadow] {
        let policies = [day("plan", 2).mode(mode), day("credits", 1)];
        let builder = Limiter::builder().policies(policies);
        let builder = builder.first_of("spend", ["plan", "credits"]);
        let limiter = builder.build_local().unwrap();
        assert_eq!(payer(&limiter, 1).as_deref(), Some("credits"), "{mode:?}");
        assert_eq!(payer(&limiter, 1), None, "{mode:?}");
    }
}

#[test]
fn a_policy_in_shadow_beside_them_denies_nothing() {
    let shadow = day("shadow", 1).mode(Mode::Shadow);
    let builder = builder().policy(shadow);
    let limiter = builder.build_local().unwrap();
    assert_eq!(payer(&limiter, 2).as_deref(), Some("plan"));
    let decision = limiter.check("ann", 2).now();
    assert_eq!(decision.payer("spend"), Some("credits"));
    assert_eq!(decision.would_refuse().next().unwrap().0, "shadow");
}

#[test]
fn a_plan_exempts_a_member_and_the_request_passes_when_those_before_it_have_no_room() {
    let others = |plan: Plan| {
        plan.limit("pool", FixedWindow::per_day(1))
            .limit("all", FixedWindow::per_day(100))
    };
    let with_others = |name: &str| others(Plan::new(name));
    let plans = Plans::new([
        with_others("free")
            .limit("plan", FixedWindow::per_day(2))
            .limit("credits", FixedWindow::per_day(3)),
        with_others("open")
            .limit("plan", FixedWindow::per_day(2))
            .unlimited("credits"),
        with_others("first")
            .unlimited("plan")
            .limit("credits", FixedWindow::per_day(3)),
    ]);
    let builder = builder().plans_by_name(plans);
    let limiter = builder.build_local().unwrap();
    let open = limiter.plan("open");
    let check = |cost| open.check("ann", cost).now();
    assert_eq!(check(2).payer("spend"), Some("plan"));
    assert!(check(1).is_allowed());
    assert_eq!(check(1).payer("spend"), None, "it is free");
    // The pool, which never pays for this plan, is shown as well.
    let inspection = open.inspect("ann").now();
    assert!(inspection.policies().any(|(name, _)| name == "pool"));
    assert_eq!(left(&limiter), [0, 3, 1, 96]);
    let first = limiter.plan("first").check("ann", 1).now();
    assert!(first.is_allowed());
    assert_eq!(left(&limiter), [0, 3, 1, 95]);
}

#[test]
fn a_plan_sets_the_limit_of_a_member() {
    let plans = Plans::new([
        Plan::new("free").limit("plan", FixedWindow::per_day(1)),
        Plan::new("pro").limit("plan", FixedWindow::per_day(5)),
    ]);
    let limiter = builder().plans_by_name(plans).build_local().unwrap();
    let payer = |plan| {
        let decision = limiter.plan(plan).check("ann", 1).now();
        decision.payer("spend").map(str::to_owned)
    };
    assert_eq!(payer("free").as_deref(), Some("plan"));
    assert_eq!(payer("free").as_deref(), Some("credits"));
    assert_eq!(payer("pro").as_deref(), Some("plan"));
}

#[test]
fn only_the_payer_is_counted() {
    let limiter = builder().build_local().unwrap();
    for _ in 0..7 {
        payer(&limiter, 1);
    }
    let snapshot = limiter.snapshot();
    let of = |name: &str| {
        let policy = snapshot.policies.iter().find(|it| it.name == name).unwrap();
        (policy.allowed, policy.refused)
    };
    assert_eq!(
        of("plan"),
        (2, 1),
        "of equal waits, that of the first is told"
    );
    assert_eq!([of("credits"), of("pool")], [(3, 0), (1, 0)]);
    assert_eq!(of("all").0, 6);
}

#[test]
fn threads_never_take_more_than_all_members_have() {
    let limiter = Limiter::builder()
        .policies([day("plan", 100), day("credits", 150), day("all", 10_000)])
        .first_of("spend", ["plan", "credits"])
        .build_local()
        .unwrap();
    let barrier = Barrier::new(4);
    let passed: usize = thread::scope(|scope| {
        let ask = || {
            barrier.wait();
            (0..200).filter(|_| limiter.admit("ann", 1).now()).count()
        };
        let threads = [(); 4].map(|()| scope.spawn(ask));
        threads.into_iter().map(|it| it.join().unwrap()).sum()
    });
    assert_eq!(passed, 250);
    assert_eq!(left(&limiter), [0, 0, 9_750]);
}

fn mistake(builder: LimiterBuilder) -> ConfigError {
    builder.build_local().unwrap_err()
}

#[test]
fn what_cannot_be_a_group_is_refused() {
    let two = || Limiter::builder().policies([day("a", 1), day("b", 1)]);
    let cases = [
        (two().first_of("g", ["a"]), "first_of"),
        (two().first_of("g", ["a", "c"]), "first_of"),
        (two().first_of("g", ["a", "a"]), "first_of"),
        (
            two().first_of("g", ["a", "b"]).first_of("h", ["a", "b"]),
            "first_of",
        ),
        (
            two().first_of("g", ["a", "b"]).first_of("G", ["a", "b"]),
            "name",
        ),
        (two().first_of("", ["a", "b"]), "name"),
    ];
    for (builder, field) in cases {
        let error = mistake(builder).to_string();
        assert!(error.contains(field), "{error}");
    }
}

#[test]
fn what_does_not_go_with_it_is_refused_with_a_remedy() {
    let with = |other: Policy| {
        let builder = Limiter::builder().policies([day("a", 1), day("b", 1), other]);
        builder.first_of("g", ["a", "b"])
    };
    let member = |other: Policy| {
        let builder = Limiter::builder().policies([day("a", 1), other]);
        builder.first_of("g", ["a", "other"])
    };
    let bucket = || Policy::new("other", TokenBucket::per_second(5).burst(5));
    let cases = [
        (
            with(bucket().wait_up_to(Duration::from_secs(1))),
            "wait_up_to",
        ),
        (
            with(day("other", 9).penalty(Penalty::after(3, HOUR).block(HOUR))),
            "penalty",
        ),
        (with(bucket().factor(&FactorCell::new())), "factor"),
        (
            with(Policy::new("other", Concurrency::of(3))),
            "concurrency",
        ),
        (
            with(Policy::new("other", LeakyQueue::per_second(3).places(9))),
            "leaky queue",
        ),
        (member(bucket().soft()), "soft"),
        (member(bucket().most(2)), "most"),
        (
            member(Policy::new("other", tower_ratelimit::Algorithm::Unlimited)),
            "first_of",
        ),
    ];
    for (builder, field) in cases {
        let error = mistake(builder).to_string();
        assert!(error.contains(field), "{error} has no {field}");
    }
}

/// A store that does not say that it chooses.
struct Silent(MemoryStore);

impl Store for Silent {
    type Ledger = MemoryLedger;

    fn open(&self, policies: &[Rule]) -> Result<MemoryLedger, ConfigError> {
        self.0.open(policies)
    }
}

#[test]
fn a_store_that_cannot_choose_is_refused() {
    let policies = [day("plan", 2), day("credits", 3)];
    let builder = Limiter::builder().policies(policies);
    let builder = builder.store(Silent(MemoryStore::new()));
    let error = builder.first_of("spend", ["plan", "credits"]).build();
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("first_of") && error.contains("MemoryStore"),
        "{error}"
    );
}

/// A plan of 2 and credits of 1, over items that other processes share.
fn shared(store: impl Store) -> Limiter {
    let policies = [day("plan", 2), day("credits", 1), day("all", 9)];
    let builder = Limiter::builder().policies(policies);
    let builder = builder.first_of("spend", ["plan", "credits"]);
    builder.store(store).build().unwrap()
}

#[test]
fn nodes_that_share_items_choose_together() {
    let map = Map::new(&ManualClock::new());
    let nodes = [(); 2].map(|()| shared(SharedStore::new(map.clone())));
    let payers = (0..4).map(|request| {
        let decision = now(nodes[request % 2].check("ann", 1)).unwrap();
        decision.payer("spend").map(str::to_owned)
    });
    let payers: Vec<_> = payers.collect();
    let expected = [Some("plan"), Some("plan"), Some("credits"), None];
    assert_eq!(payers, expected.map(|payer| payer.map(str::to_owned)));
    let taken = now(nodes[0].take_up_to("bob", 9)).unwrap();
    assert_eq!((taken.0, taken.1.payer("spend")), (2, Some("plan")));
}

/// Its block ends first, and it never has room for so much.
#[test]
fn a_wait_is_not_that_of_a_member_whose_limit_is_below_the_cost() {
    let minute = Duration::from_secs(60);
    let wait = |answer: Result<Decision, StoreError>| answer.unwrap().retry_after();
    let limiter = builder().build_local().unwrap();
    assert_eq!(payer(&limiter, 3).as_deref(), Some("credits"));
    limiter.block("ann", minute).now();
    assert!(wait(Ok(limiter.check("ann", 3).now())) > Some(HOUR));

    let limiter = shared(SharedStore::new(Map::new(&ManualClock::new())));
    // The plan has 2, and the credits have 1.
    assert!(now(limiter.check("ann", 2)).unwrap().is_allowed());
    now(limiter.block("ann", minute)).unwrap();
    assert!(wait(now(limiter.check("ann", 2))) > Some(HOUR));
}

#[test]
fn a_member_that_is_passed_over_follows_a_clock_that_steps_back() {
    let clock = ManualClock::new();
    let per_minute = Policy::new("plan", FixedWindow::per_minute(1));
    let limiter = Limiter::builder()
        .policies([per_minute, day("credits", 9)])
        .first_of("spend", ["plan", "credits"])
        .store(SharedStore::new(Map::new(&clock)))
        .build()
        .unwrap();
    let payer = || {
        let decision = now(limiter.check("ann", 1)).unwrap();
        decision.payer("spend").map(str::to_owned)
    };
    let begun = Micros::from_secs(7_200);
    clock.set_micros(begun.saturating_add(Micros::from_secs(3_600)));
    assert_eq!(payer().as_deref(), Some("plan"));
    clock.set_micros(begun);
    assert_eq!(payer().as_deref(), Some("credits"));
    clock.advance(Duration::from_secs(60));
    assert_eq!(payer().as_deref(), Some("plan"));
}

#[test]
fn a_group_has_up_to_255_members() {
    let names: Vec<String> = (0..256).map(|n| format!("policy {n}")).collect();
    let group = |members: usize| {
        let policies = names[..members].iter().map(|name| day(name, 1));
        let builder = Limiter::builder().policies(policies);
        builder.first_of("spend", &names[..members]).build_local()
    };
    assert!(group(255).is_ok());
    assert!(group(256).is_err());
}

/// Another member has room long before the told wait is over.
#[test]
fn a_denial_is_not_remembered_for_a_group() {
    let map = Map::new(&ManualClock::new());
    let remembering = SharedStore::new(map.clone()).remember_denials_for(HOUR);
    let (limiter, other) = (shared(remembering), shared(SharedStore::new(map)));
    let passes = || now(limiter.check("ann", 1)).unwrap().is_allowed();
    assert_eq!([(); 5].map(|()| passes()), [true, true, true, false, false]);
    now(other.refund_with([("credits", "ann", 1)]).unwrap()).unwrap();
    assert!(passes());
}

/// A map that changes one item at a time.
#[derive(Clone, Debug)]
struct OneByOne(Map);

impl Items for OneByOne {
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
        self.0.update(change)
    }

    fn at_once(&self) -> usize {
        1
    }
}

#[test]
fn items_that_change_one_at_a_time_need_one_key() {
    let store = || SharedStore::new(OneByOne(Map::new(&ManualClock::new())));
    let limiter = shared(store());
    assert!(now(limiter.check("ann", 1)).unwrap().is_allowed());
    let apart = [("plan", "ann", 1), ("all", "bob", 1)];
    let error = now(limiter.check_with(apart).unwrap()).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unsupported);
    let layer = |second| {
        let policies = [("plan", "x-a"), ("credits", second)];
        let policies = policies.map(|(name, header)| day(name, 1).key(key::header(header)));
        let builder = RateLimitLayer::builder().policies(policies);
        let builder = builder.first_of("spend", ["plan", "credits"]);
        builder
            .store(store())
            .build()
            .map_err(|error| error.to_string())
    };
    assert!(layer("x-a").is_ok());
    let error = layer("x-b").unwrap_err();
    assert!(
        error.contains("first_of") && error.contains("same key"),
        "{error}"
    );
}
