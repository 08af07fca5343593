//! Either–or: what pays, what is left alone, and what it does not go with.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;
use tower_ratelimit::__internal::Sealed;
use tower_ratelimit::clock::{Clock, Micros};
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::factor::FactorCell;
use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::policy::{Mode, OnAbandoned, Penalty, Rule};
use tower_ratelimit::store::{Change, Changed, Items, MemoryBackend, Reply, Store};
use tower_ratelimit::{
    Concurrency, ConfigError, Decision, FixedWindow, LeakyQueue, Limiter, LocalLimiter,
    ManualClock, MemoryStore, Policy, RateLimitLayer, SharedStore, StoreError, TokenBucket, key,
};

use super::{DAY, HOUR};
use crate::support::driver::now;
use crate::support::items::{Map, OneByOne};

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
    let decision = limiter.named([
        ("plan", "ann", 1),
        ("credits", "ann", 1),
        ("all", "ann", 100),
    ]);
    let decision = decision.unwrap().check().now();
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
    let take = || limiter.acquire_up_to("ann", 10).now().0;
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
fn a_blocked_member_is_passed_over_and_its_wait_is_the_rest_of_the_block() {
    let builder = Limiter::builder().policies([day("plan", 2), day("credits", 3)]);
    let builder = builder.store(MemoryStore::new().clock(ManualClock::new()));
    let builder = builder.first_of("spend", ["plan", "credits"]);
    let limiter = builder.build_local().unwrap();
    let ask = || {
        let members = [("plan", "ann", 1), ("credits", "card", 1)];
        limiter.named(members).unwrap().check().now()
    };
    limiter.block("ann", 2 * HOUR).now();
    assert_eq!(ask().payer("spend"), Some("credits"));
    limiter.block("card", HOUR).now();
    let refused = ask();
    assert!(!refused.is_allowed());
    assert_eq!(refused.retry_after(), Some(HOUR));
    limiter.unblock("ann").now();
    assert_eq!(ask().payer("spend"), Some("plan"));
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

#[cfg(feature = "calendar")]
#[test]
fn hours_do_not_go_with_it_either() {
    use tower_ratelimit::Hours;

    let hours = Hours::in_zone("UTC").unwrap();
    let hours = hours.at("22:00-06:00", FixedWindow::per_day(2)).unwrap();
    let other = day("other", 1).hours(&hours).unwrap();
    let error = mistake(builder().policy(other)).to_string();
    assert!(
        error.contains("`hours`") && error.contains("leave out `first_of`"),
        "{error}"
    );
}

#[test]
fn an_override_concerns_the_member_that_it_names() {
    let limiter = builder().build_local().unwrap();
    assert_eq!(payer(&limiter, 2).as_deref(), Some("plan"));
    let raised = limiter.override_limit("plan", "ann", FixedWindow::per_day(3), HOUR);
    raised.unwrap().now().unwrap();
    assert_eq!(payer(&limiter, 1).as_deref(), Some("plan"));
    assert_eq!(payer(&limiter, 1).as_deref(), Some("credits"));
    limiter.end_override("plan", "ann").unwrap().now();
    let barred = limiter.override_limit("credits", "ann", FixedWindow::per_day(0), HOUR);
    barred.unwrap().now().unwrap();
    assert_eq!(payer(&limiter, 1).as_deref(), Some("pool"));
}

/// A store that does not say that it chooses.
struct Silent(MemoryStore);

impl Sealed for Silent {}

impl Store for Silent {
    type Backend = MemoryBackend;

    fn open(&self, policies: &[Rule]) -> Result<MemoryBackend, ConfigError> {
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
    let taken = now(nodes[0].acquire_up_to("bob", 9)).unwrap();
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

/// The fast path decides on known keys of up to eight policies, and the general one on all others: both follow a clock that steps back.
#[test]
fn few_policies_and_many_choose_alike_while_the_clock_steps_back() {
    let clock = ManualClock::at(Micros::from_secs(36_000));
    let hourly = |name: &str, limit| Policy::new(name, FixedWindow::per_hour(limit));
    let few = || {
        let policies = [("plan", 3), ("credits", 4), ("pool", 5), ("all", 11)];
        let policies = policies.map(|(name, limit)| hourly(name, limit));
        Limiter::builder()
            .policies(policies)
            .store(MemoryStore::new().clock(clock.clone()))
            .first_of("spend", ["plan", "credits", "pool"])
    };
    let wide = (0..5).map(|number| hourly(&format!("wide {number}"), 1_000_000));
    let many = few().policies(wide).build_local().unwrap();
    let few = few().build_local().unwrap();
    let mut draw = 7_u64;
    let mut draw = |below: u64| {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (draw >> 33) % below
    };
    let mut had = [0; 4];
    for _ in 0..5_000 {
        let now = clock.now();
        let step = Micros::from_secs(draw(1_200));
        clock.set_micros(match draw(4) {
            0 => now.saturating_sub(step),
            _ => now.saturating_add(step),
        });
        let cost = 1 + u32::from(draw(3) == 0);
        let payers = [payer(&few, cost), payer(&many, cost)];
        assert_eq!(payers[0], payers[1], "at {:?}", clock.now());
        let names = ["plan", "credits", "pool"];
        let place = names
            .iter()
            .position(|it| Some(*it) == payers[0].as_deref());
        had[place.unwrap_or(3)] += 1;
    }
    assert!(had.iter().all(|had| *had > 100), "{had:?}");
}

/// A group has no state of its own: what its members have used stays theirs under another name, and nodes divide their limits.
#[test]
fn a_member_keeps_its_state_under_a_new_name_and_is_divided_by_nodes() {
    let store = MemoryStore::new().clock(ManualClock::new());
    let built = |plan: Policy, name: &str| {
        let builder = Limiter::builder().policies([plan, day("credits", 6)]);
        let builder = builder.first_of("spend", [name, "credits"]).nodes(2);
        builder.store(store.clone()).build_local().unwrap()
    };
    let before = built(day("plan", 4), "plan");
    assert_eq!(payer(&before, 1).as_deref(), Some("plan"));
    let after = built(day("tariff", 4).renamed_from("plan"), "tariff");
    let payers = [(); 5].map(|()| payer(&after, 1));
    let names = ["tariff", "credits", "credits", "credits"].map(|name| Some(name.to_owned()));
    assert_eq!(payers[..4], names);
    assert_eq!(
        payers[4], None,
        "two and three of a plan of 4 and credits of 6"
    );
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
    now(other.named([("credits", "ann", 1)]).unwrap().refund()).unwrap();
    assert!(passes());
}

/// A plan of 5, credits of 4 and a pool of 3, of which the next ones take what an answer costs beyond one.
fn spilling() -> LimiterBuilder {
    Limiter::builder()
        .policies([day("plan", 5), day("credits", 4), day("pool", 3)])
        .first_of("spend", ["plan", "credits", "pool"])
        .spill("spend")
}

/// Reserves the estimate, which this policy pays, and settles it at the real cost. Returns what is used then.
fn used(limiter: &Limiter, (estimate, payer, cost): (u32, &str, u32)) -> Vec<u32> {
    let reservation = now(limiter.reserve("ann", estimate)).unwrap();
    assert_eq!(reservation.decision().payer("spend"), Some(payer));
    reservation.settle(cost);
    let inspection = now(limiter.inspect("ann")).unwrap();
    inspection.policies().map(|(_, told)| told.used()).collect()
}

/// Returns how many units are charged above the limit of a policy, and gives them back.
fn above(limiter: &Limiter, policy: &str) -> u32 {
    let is_full = || {
        let inspection = now(limiter.inspect("ann")).unwrap();
        let mut policies = inspection.policies();
        let (_, told) = policies.find(|(name, _)| *name == policy).unwrap();
        told.remaining() == 0
    };
    let given_back = (0..100).take_while(|_| {
        now(limiter.named([(policy, "ann", 1)]).unwrap().refund()).unwrap();
        is_full()
    });
    u32::try_from(given_back.count()).unwrap()
}

#[test]
fn what_an_answer_costs_beyond_one_member_goes_to_the_next() {
    let clock = ManualClock::new();
    let in_memory = spilling().store(MemoryStore::new().clock(clock.clone()));
    let shared = spilling().store(SharedStore::new(Map::new(&clock)));
    for limiter in [in_memory.build().unwrap(), shared.build().unwrap()] {
        // The estimate is enough, and what is less is given back to the one that has paid.
        assert_eq!(used(&limiter, (2, "plan", 2)), [2, 0, 0]);
        assert_eq!(used(&limiter, (2, "plan", 1)), [3, 0, 0]);
        // The plan has one more, and the credits two.
        assert_eq!(used(&limiter, (1, "plan", 4)), [5, 2, 0]);
        // The plan, which is before the one that has paid, takes nothing.
        assert_eq!(used(&limiter, (1, "credits", 3)), [5, 4, 1]);
        // The last one takes what nobody has room for, and so does one after which none comes.
        assert_eq!(used(&limiter, (1, "pool", 5)), [5, 4, 3]);
        assert!(!now(limiter.check("ann", 1)).unwrap().is_allowed());
        assert_eq!(above(&limiter, "pool"), 3);
        let spent = limiter.snapshot().policies;
        let spent: Vec<_> = spent.iter().map(|policy| policy.cost).collect();
        assert_eq!(spent, [5, 4, 6], "each counts what it has paid");
    }
}

#[test]
fn all_of_it_is_left_to_the_last_member_if_none_has_room() {
    let limiter = spilling().build().unwrap();
    let [first, second] = [5, 4].map(|cost| now(limiter.reserve("ann", cost)).unwrap());
    assert_eq!(second.decision().payer("spend"), Some("credits"));
    assert_eq!(used(&limiter, (3, "pool", 3)), [5, 4, 3]);
    second.settle(4);
    first.settle(9);
    let above = ["plan", "credits", "pool"].map(|name| above(&limiter, name));
    assert_eq!(above, [0, 0, 4]);
}

#[test]
fn without_spill_the_one_that_has_paid_takes_all() {
    let limiter = builder().build().unwrap();
    assert_eq!(used(&limiter, (1, "plan", 4)), [2, 0, 0, 4]);
    assert_eq!(above(&limiter, "plan"), 2);
}

#[test]
fn a_member_that_a_plan_exempts_takes_the_rest_for_nothing() {
    let open = Plan::new("open")
        .limit("plan", FixedWindow::per_day(5))
        .unlimited("credits")
        .limit("pool", FixedWindow::per_day(3));
    let limiter = spilling().plans_by_name(Plans::new([open]));
    let limiter = limiter.build().unwrap().plan("open");
    assert_eq!(used(&limiter, (3, "plan", 9)), [5, 0]);
}

/// It has no room while the block lasts.
#[test]
fn a_blocked_member_is_passed_over_by_what_is_left() {
    let limiter = spilling().build_local().unwrap();
    let reservation = limiter.reserve("ann", 5).now();
    limiter.block("ann", HOUR).now();
    reservation.settle(7);
    assert!(limiter.unblock("ann").now());
    let used = |limiter: &LocalLimiter| -> Vec<u32> {
        let inspection = limiter.inspect("ann").now();
        inspection.policies().map(|(_, told)| told.used()).collect()
    };
    assert_eq!(used(&limiter), [5, 0, 2], "the last one takes it");
}

#[test]
fn a_group_that_spills_has_to_be_declared() {
    let error = mistake(builder().spill("spent")).to_string();
    assert!(
        error.contains("`spill`") && error.contains("name one of spend"),
        "{error}"
    );
    let error = mistake(Limiter::builder().policy(day("plan", 1)).spill("spend"));
    assert!(error.to_string().contains("first_of"), "{error}");
}

/// A map that answers when it is told to, or at once.
#[derive(Clone, Debug)]
struct Slow(Map, Option<Arc<Notify>>);

impl Items for Slow {
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
        let Self(map, Some(go_on)) = self.clone() else {
            return self.0.update(change);
        };
        Reply::later(async move {
            go_on.notified().await;
            map.update(change).wait().await
        })
    }
}

/// A plan and credits whose requests cost nothing if nobody settles them: over items that answer when they are told to, and over the
/// same items at once.
fn abandoned() -> (Limiter, Limiter, Arc<Notify>) {
    let over = |store: SharedStore<Slow>| {
        let policies = [day("plan", 2), day("credits", 9)];
        let policies = policies.map(|policy| policy.on_abandoned(OnAbandoned::Nothing));
        let builder = Limiter::builder().policies(policies);
        builder.first_of("spend", ["plan", "credits"]).store(store)
    };
    let (map, go_on) = (Map::new(&ManualClock::new()), Arc::new(Notify::new()));
    let slow = over(SharedStore::new(Slow(
        map.clone(),
        Some(Arc::clone(&go_on)),
    )));
    let quick = over(SharedStore::new(Slow(map, None)));
    (slow.build().unwrap(), quick.build().unwrap(), go_on)
}

#[test]
fn of_a_request_that_goes_away_without_an_answer_one_settlement_is_lost() {
    let (limiter, ..) = abandoned();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.build().unwrap();
    runtime.block_on(async {
        let mut asked = limiter.reserve("ann", 1).into_future();
        assert!((&mut asked).now_or_never().is_none());
    });
    assert_eq!(limiter.lost_settlements(), 0);
    // It ends before the store has answered.
    drop(runtime);
    assert_eq!(limiter.lost_settlements(), 1);
}

#[tokio::test]
async fn what_a_request_that_goes_away_is_charged_is_given_back_to_the_one_that_has_paid() {
    let (limiter, at_once, go_on) = abandoned();
    let used = async || -> Vec<u32> {
        let inspection = at_once.inspect("ann").await.unwrap();
        inspection.policies().map(|(_, told)| told.used()).collect()
    };
    let mut asked = limiter.reserve("ann", 2).into_future();
    assert!((&mut asked).now_or_never().is_none());
    drop(asked);
    go_on.notify_one();
    while used().await == [0, 0] {
        tokio::task::yield_now().await;
    }
    assert_eq!(used().await, [2, 0]);
    go_on.notify_one();
    while used().await == [2, 0] {
        tokio::task::yield_now().await;
    }
    assert_eq!(used().await, [0, 0]);
    assert_eq!(limiter.lost_settlements(), 0);
}

#[test]
fn items_that_change_one_at_a_time_need_one_key() {
    let store = || SharedStore::new(OneByOne(Map::new(&ManualClock::new())));
    let limiter = shared(store());
    assert!(now(limiter.check("ann", 1)).unwrap().is_allowed());
    let apart = [("plan", "ann", 1), ("all", "bob", 1)];
    let error = now(limiter.named(apart).unwrap().check()).unwrap_err();
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
