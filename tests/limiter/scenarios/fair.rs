//! Fair shares: how a limit is divided among tenants, what is told, and what it does not go with.
//!
//! Time is that of a test, and who asks when is drawn from a seed.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "times and counts are small"
)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use tower_ratelimit::factor::FactorCell;
use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::plan::{KeyLimits, Plan, Plans, Resolved, Resolver};
use tower_ratelimit::policy::{Fair, Mode, Penalty};
use tower_ratelimit::{
    Algorithm, AnchoredWindow, Concurrency, ConfigError, FixedWindow, Gcra, LeakyBucket, Limiter,
    LocalLimiter, ManualClock, MemoryStore, Policy, SharedStore, SlidingLog, TokenBucket,
};

use super::HOUR;
use super::draw::Draw;
use crate::support::driver::now;
use crate::support::items::{Map, OneByOne};

fn tenant(name: impl IntoKey) -> Key {
    Key::branch(Key::GLOBAL, &[name.into_key()])
}

fn policy(algorithm: impl Into<Algorithm>) -> Policy {
    Policy::new("upstream", algorithm).fair(Fair::new())
}

fn builder(policy: Policy, clock: &ManualClock) -> LimiterBuilder {
    let store = MemoryStore::new().clock(clock.clone());
    Limiter::builder().policy(policy).store(store)
}

fn limiter(algorithm: impl Into<Algorithm>) -> (LocalLimiter, ManualClock) {
    let clock = ManualClock::new();
    let limiter = builder(policy(algorithm), &clock).build_local().unwrap();
    (limiter, clock)
}

fn passes(limiter: &LocalLimiter, name: &str) -> bool {
    limiter.check(tenant(name), 1).now().is_allowed()
}

/// A tenant that asks so often in a second, from one second to another.
#[derive(Clone, Copy)]
struct Asker {
    per_second: f64,
    cost: u32,
    plan: &'static str,
    from: f64,
    to: f64,
}

fn asker(per_second: f64) -> Asker {
    Asker {
        per_second,
        cost: 1,
        plan: "free",
        from: 0.0,
        to: f64::MAX,
    }
}

/// Lets the tenants ask for so many seconds, at gaps of half to one and a half of the mean. Returns the units a second that each had from
/// `since` on.
fn play(
    limiter: &LocalLimiter,
    clock: &ManualClock,
    askers: &[Asker],
    (since, until): (f64, f64),
) -> Vec<f64> {
    let mut draw = Draw::seeded(0x9e37_79b9_7f4a_7c15);
    let micros = |seconds: f64| (seconds * 1e6) as u64;
    let first = askers.iter().enumerate();
    let first = first.map(|(place, asker)| {
        Reverse((micros(asker.from + draw.next() / asker.per_second), place))
    });
    let mut next: BinaryHeap<_> = first.collect();
    let mut had = vec![0.0; askers.len()];
    let mut now = 0;
    while let Some(Reverse((at, place))) = next.pop() {
        if at >= micros(until) {
            break;
        }
        let asker = askers[place];
        clock.advance(Duration::from_micros(at - now));
        now = at;
        let key = tenant(place as u64);
        let decision = limiter.plan(asker.plan).check(key, asker.cost).now();
        if decision.is_allowed() && at >= micros(since) {
            had[place] += f64::from(asker.cost) / (until - since);
        }
        let gap = micros((0.5 + draw.next()) / asker.per_second).max(1);
        if ((at + gap) as f64) < asker.to * 1e6 {
            next.push(Reverse((at + gap, place)));
        }
    }
    had
}

fn play_under(algorithm: impl Into<Algorithm>, askers: &[Asker], span: (f64, f64)) -> Vec<f64> {
    let (limiter, clock) = limiter(algorithm);
    play(&limiter, &clock, askers, span)
}

/// Jain's index: 1 if all have the same, 1/n if one of n has all.
fn jain(had: &[f64]) -> f64 {
    let sum: f64 = had.iter().sum();
    let squares: f64 = had.iter().map(|one| one * one).sum();
    sum * sum / (had.len() as f64 * squares)
}

fn buckets() -> [Algorithm; 4] {
    [
        TokenBucket::per_second(100).into(),
        TokenBucket::per_second(100).burst(5).into(),
        Gcra::per_second(100).burst(20).into(),
        LeakyBucket::per_second(100).capacity(10).into(),
    ]
}

#[test]
fn who_asks_a_hundred_times_as_often_has_no_more() {
    for bucket in buckets() {
        for hog_comes_at in [0.0, 3.0] {
            let mut askers = vec![asker(20.0); 10];
            askers[0] = Asker {
                from: hog_comes_at,
                ..asker(2_000.0)
            };
            let had = play_under(bucket, &askers, (5.0, 25.0));
            let all: f64 = had.iter().sum();
            assert!(jain(&had) >= 0.98, "{bucket}: {had:?}");
            let least = 0.95 / 10.0 * all - 1.0 / 20.0;
            assert!(had.iter().all(|one| *one >= least), "{bucket}: {had:?}");
            assert!((98.0..=100.5).contains(&all), "{bucket}: {all}");
        }
    }
}

#[test]
fn what_one_leaves_goes_to_those_that_ask_for_more() {
    for bucket in buckets() {
        let askers = [asker(2_000.0), asker(40.0), asker(5.0)];
        let had = play_under(bucket, &askers, (5.0, 25.0));
        assert!((54.0..57.0).contains(&had[0]), "{bucket}: {had:?}");
        assert!((39.0..41.0).contains(&had[1]), "{bucket}: {had:?}");
        assert!((4.7..5.3).contains(&had[2]), "{bucket}: {had:?}");
    }
}

#[test]
fn one_alone_has_all_of_it() {
    for bucket in buckets() {
        let alone = play_under(bucket, &[asker(400.0)], (5.0, 25.0));
        assert!((98.0..=100.5).contains(&alone[0]), "{bucket}: {alone:?}");
        // A thousand were there before, and have gone.
        let mut askers = vec![
            Asker {
                to: 5.0,
                ..asker(2.0)
            };
            1_000
        ];
        askers[0] = asker(400.0);
        let had = play_under(bucket, &askers, (8.0, 20.0));
        assert!((98.0..=100.5).contains(&had[0]), "{bucket}: {}", had[0]);
    }
}

#[test]
fn a_thousand_tenants_share_too() {
    let mut askers = vec![asker(10.0); 1_000];
    askers[0] = asker(20_000.0);
    let had = play_under(
        TokenBucket::per_second(1_000).burst(50),
        &askers,
        (5.0, 55.0),
    );
    assert!(jain(&had) >= 0.98, "{}", jain(&had));
    assert!(had[0] < 1.1, "{}", had[0]);
    assert!(had.iter().all(|one| *one >= 0.9), "{had:?}");
}

#[test]
fn plans_have_weights() {
    let clock = ManualClock::new();
    let fair = Fair::new().weight("pro", 4);
    let policy = Policy::new("upstream", TokenBucket::per_second(100)).fair(fair);
    let plans = Plans::new([Plan::new("free"), Plan::new("pro")]);
    let limiter = builder(policy, &clock).plans_by_name(plans);
    let limiter = limiter.build_local().unwrap();
    let pro = Asker {
        plan: "pro",
        ..asker(200.0)
    };
    let had = play(&limiter, &clock, &[asker(2_000.0), pro], (5.0, 25.0));
    assert!((19.0..21.0).contains(&had[0]), "{had:?}");
    assert!((79.0..81.0).contains(&had[1]), "{had:?}");
}

/// A client that invents a tenant for each request has the share of one, and a known one has its own.
#[test]
fn tenants_that_nothing_knows_are_one_together() {
    let clock = ManualClock::new();
    let fair = Fair::new().unverified_together();
    let policy = Policy::new("upstream", TokenBucket::per_second(10)).fair(fair);
    let is_known = |key: &Key| (*key == tenant("ann")).then_some("known");
    let plans = Plans::new([Plan::new("known"), Plan::new("free")]).default_plan("free");
    let limiter = builder(policy.clone(), &clock).plans(plans, is_known);
    let limiter = limiter.build_local().unwrap();
    let mut had = [0; 2];
    for step in 0..2_000_u64 {
        clock.advance(Duration::from_millis(10));
        had[0] += u32::from(limiter.check(tenant(step), 1).now().is_allowed());
        had[1] += u32::from(passes(&limiter, "ann"));
    }
    assert!(had.iter().all(|had| (95..=110).contains(had)), "{had:?}");
    let error = builder(policy, &clock).build_local().unwrap_err();
    assert!(error.to_string().contains("declare the plans"), "{error}");
}

/// A request without a tenant has the key of all unverified tenants, which had the weight of its plan until the next request.
#[test]
fn a_plan_gives_no_weight_to_all_unverified_tenants() {
    let clock = ManualClock::new();
    let fair = Fair::new().weight("pro", 4).unverified_together();
    let policy = Policy::new("upstream", TokenBucket::per_second(10)).fair(fair);
    let plans = Plans::new([Plan::new("free"), Plan::new("pro")]);
    let limiter = builder(policy, &clock).plans_by_name(plans);
    let limiter = limiter.build_local().unwrap();
    let (free, pro) = (limiter.plan("free"), limiter.plan("pro"));
    let unverified = Key::branch(Key::GLOBAL, &[Key::MISSING]);
    let mut had = [0; 2];
    for _ in 0..2_000 {
        clock.advance(Duration::from_millis(10));
        had[0] += u32::from(pro.check(unverified, 1).now().is_allowed());
        had[1] += u32::from(passes(&free, "ann"));
    }
    assert!(had.iter().all(|had| (95..=110).contains(had)), "{had:?}");
}

/// The plan of a tenant is named by its requests, and an operator names its key alone.
#[test]
fn an_operator_blocks_no_crowd_in_place_of_a_tenant() {
    let clock = ManualClock::new();
    let fair = Fair::new().unverified_together();
    let policy = Policy::new("upstream", TokenBucket::per_second(10)).fair(fair);
    let limiter = builder(policy, &clock).plans_by_name(Plans::new([Plan::new("known")]));
    let limiter = limiter.build_local().unwrap();
    let known = limiter.plan("known");
    let is_blocked = |limiter: &LocalLimiter, name: &str| {
        let decision = limiter.peek(tenant(name), 1).now();
        decision.binding().unwrap().1.is_blocked()
    };
    limiter.block(tenant("ann"), Duration::from_secs(60)).now();
    assert!(is_blocked(&known, "ann"));
    assert!(!is_blocked(&limiter, "mallory"));
    assert!(known.inspect(tenant("ann")).now().blocked_for().is_some());
    assert!(limiter.inspect(tenant("ann")).now().blocked_for().is_some());
    assert!(limiter.unblock(tenant("ann")).now());
    assert!(!is_blocked(&known, "ann"));

    let unverified = Key::branch(Key::GLOBAL, &[Key::MISSING]);
    limiter.block(unverified, Duration::from_secs(60)).now();
    assert!(is_blocked(&limiter, "mallory"));
    assert!(!is_blocked(&known, "ann"));
    limiter.unblock(unverified).now();
}

/// While a resolver fails, a request is one of all unverified tenants, and so is what it costs in the end. A block is of the tenant that is
/// named.
#[tokio::test(start_paused = true)]
async fn what_is_settled_while_a_resolver_fails_is_of_all_unverified_tenants() {
    let unverified = Key::branch(Key::GLOBAL, &[Key::MISSING]);
    let made = |clock: &ManualClock| {
        let fair = Fair::new().unverified_together();
        let policy = Policy::new("upstream", TokenBucket::per_second(10).burst(40)).fair(fair);
        let away = |_: Key| async { Err::<Resolved, _>(std::io::Error::other("away")) };
        let builder = builder(policy, clock).plans_by_name(Plans::new([Plan::new("known")]));
        let resolver = Resolver::new(away);
        builder
            .resolver(resolver, |key| Some(*key))
            .build()
            .unwrap()
    };
    // What another one may take, after an answer that costs more than its request.
    let left = async |key: Key, is_known: bool| {
        let clock = ManualClock::new();
        let limiter = made(&clock);
        let known = limiter.plan("known");
        assert!(known.check(tenant("bob"), 1).await.unwrap().is_allowed());
        assert!(limiter.check(tenant("ann"), 1).await.unwrap().is_allowed());
        let settles = if is_known { &known } else { &limiter };
        settles.settle(key, 36).await.unwrap();
        clock.advance(Duration::from_millis(900));
        let mut taken = 0;
        for _ in 0..20 {
            let decision = known.check(tenant("bob"), 1).await.unwrap();
            taken += u32::from(decision.is_allowed());
        }
        taken
    };
    let of_all = left(unverified, false).await;
    assert_eq!(left(tenant("ann"), false).await, of_all);
    assert_ne!(left(tenant("ann"), true).await, of_all);

    let limiter = made(&ManualClock::new());
    let known = limiter.plan("known");
    limiter.block(tenant("ann"), HOUR).await.unwrap();
    let blocked = async |limiter: &Limiter, name: &str| {
        let decision = limiter.peek(tenant(name), 1).await.unwrap();
        decision.binding().unwrap().1.is_blocked()
    };
    assert!(blocked(&known, "ann").await);
    assert!(!blocked(&limiter, "mallory").await);
}

/// What a resolver finds of a tenant is a plan, and so a weight. A limit that it finds is not that of the tenant, which is then known.
#[tokio::test(start_paused = true)]
async fn a_resolver_makes_tenants_known() {
    let clock = ManualClock::new();
    let fair = Fair::new().weight("pro", 4).unverified_together();
    let policy = Policy::new("upstream", TokenBucket::per_second(100)).fair(fair);
    let source = Resolver::new(|name: String| async move {
        let limits = Plan::new("own").limit("upstream", TokenBucket::per_second(1));
        Ok::<_, std::io::Error>(match name.as_str() {
            "pro" => Resolved::Plan("pro".into()),
            "own" => Resolved::Limits(limits),
            _ => Resolved::NotFound,
        })
    });
    let names = ["pro", "own", "x", "y"];
    let plans = Plans::new([Plan::new("free"), Plan::new("pro")]);
    let builder = builder(policy, &clock).plans_by_name(plans);
    let name_of = move |key: &Key| {
        let mut names = names.into_iter();
        names.find(|name| *key == tenant(*name)).map(str::to_owned)
    };
    let limiter = builder.resolver(source, name_of).build().unwrap();
    let mut had = [0; 4];
    for step in 0..20_000 {
        clock.advance(Duration::from_millis(1));
        for (name, had) in names.into_iter().zip(&mut had) {
            let passed = limiter.check(tenant(name), 1).await.unwrap().is_allowed();
            *had += u32::from(passed && step >= 2_000);
        }
    }
    // 18 seconds of 100 units, by weights of 4, 1, and 1 for both that are not known.
    let [pro, own, x, y] = had;
    assert!((1_150..=1_250).contains(&pro), "{had:?}");
    assert!((280..=320).contains(&own), "{had:?}");
    assert!((280..=320).contains(&(x + y)), "{had:?}");
}

/// What an operator sees of a limit that is divided, in memory and over items.
#[test]
fn an_inspection_tells_the_share_of_a_tenant_among_those_that_are_active() {
    for algorithm in [
        TokenBucket::per_second(100).into(),
        Algorithm::from(Concurrency::of(7)),
    ] {
        let clock = ManualClock::new();
        let fair = Fair::new().weight("pro", 4);
        let policy = Policy::new("upstream", algorithm).fair(fair);
        let plain = Policy::new("plain", FixedWindow::per_day(9));
        let plans = Plans::new([Plan::new("free"), Plan::new("pro")]);
        let builder = builder(policy, &clock).policy(plain).plans_by_name(plans);
        let in_memory = builder.clone().build().unwrap();
        inspections_tell_shares(&in_memory, &clock);
        // To look makes nobody active, and who has not asked lately is not.
        let keys = in_memory.snapshot().policies;
        let keys = keys.iter().map(|it| it.keys.unwrap().tenants);
        assert_eq!(keys.collect::<Vec<_>>(), [Some(3), None]);

        let map = Map::new(&clock);
        let over_items = builder.store(SharedStore::new(map.clone()));
        let over_items = over_items.build().unwrap();
        inspections_tell_shares(&over_items, &clock);
        clock.advance(Duration::from_millis(1));
        let items = map.items().clone();
        told(&over_items, "ann");
        assert_eq!(*map.items(), items, "it only looks");
    }
}

/// Ann, Bob and one of plan `pro` ask, and stop.
fn inspections_tell_shares(limiter: &Limiter, clock: &ManualClock) {
    let (tenants, share, text) = told(limiter, "ann");
    assert_eq!((tenants, &*share), (1, "1/1"));
    assert!(text.contains("No other tenant is active."), "{text}");
    let pro = limiter.plan("pro");
    let reserve = |limiter: &Limiter, name| now(limiter.reserve(tenant(name), 1)).unwrap();
    let holds = ["ann", "bob"].map(|name| reserve(limiter, name));
    let hold = reserve(&pro, "pro");
    let (tenants, share, text) = told(&pro, "pro");
    assert_eq!((tenants, &*share), (3, "4/6"), "{text}");
    let sentence = "With it, 3 tenants are active: its share is 4/6, by a weight of 4.";
    assert!(text.contains(sentence), "{text}");
    assert_eq!(told(limiter, "ann").1, "1/6");
    drop((holds, hold));
    clock.advance(Duration::from_millis(1_001));
    assert_eq!(told(limiter, "ann").0, 1);
}

/// Returns how many tenants are active, the share of this one, and the sentences of the inspection.
fn told(limiter: &Limiter, name: &str) -> (u32, String, String) {
    let inspection = now(limiter.inspect(tenant(name))).unwrap();
    let shares: Vec<_> = inspection.shares().collect();
    let [("upstream", share)] = shares[..] else {
        panic!("{shares:?}");
    };
    let told = (share.tenants(), share.to_string(), inspection.to_string());
    let (weight, weights) = told.1.split_once('/').unwrap();
    assert_eq!(weight, share.weight().to_string());
    let whole = share.of_limit() * weights.parse::<f64>().unwrap();
    assert!((whole - f64::from(share.weight())).abs() < 1e-9, "{told:?}");
    told
}

#[test]
fn large_requests_have_their_share_beside_small_ones() {
    for cost in [5, 50, 100] {
        let large = Asker {
            cost,
            ..asker(100.0)
        };
        let mut askers = vec![asker(100.0); 5];
        askers[0] = large;
        let had = play_under(TokenBucket::per_second(100), &askers, (10.0, 110.0));
        let all: f64 = had.iter().sum();
        let least = 0.95 / 5.0 * all - f64::from(cost) / 100.0;
        assert!(had[0] >= least, "{cost}: {had:?}");
        assert!(jain(&had) >= 0.98, "{cost}: {had:?}");
    }
}

/// By the same draws, the limit of all is what it would be without tenants.
#[test]
fn the_limit_itself_is_never_passed() {
    let (limiter, clock) = limiter(TokenBucket::per_second(10).burst(20));
    let mut draw = Draw::seeded(7);
    let (mut passed, mut passed_in) = (0, 0_u64);
    for _ in 0..20_000 {
        let gap = (draw.next() * 20_000.0) as u64;
        clock.advance(Duration::from_micros(gap));
        passed_in += gap;
        let cost = 1 + (draw.next() * 6.0) as u32;
        let name = (draw.next() * 7.0) as u64;
        if limiter.check(tenant(name), cost).now().is_allowed() {
            passed += u64::from(cost);
        }
        let granted = 20.0 + passed_in as f64 / 100_000.0;
        assert!(passed as f64 <= granted, "{passed} of {granted}");
    }
    assert!(passed > 1_500, "{passed}");
}

#[test]
fn a_newcomer_passes_beside_a_hog() {
    let (limiter, clock) = limiter(TokenBucket::per_second(10));
    while passes(&limiter, "hog") {}
    assert!(!passes(&limiter, "ann"), "nothing is left");
    for _ in 0..20 {
        clock.advance(Duration::from_millis(10));
        passes(&limiter, "hog");
    }
    assert!(passes(&limiter, "ann"), "two units came back, one for each");
}

/// A client that waits as told passes, if nobody else asks meanwhile.
#[test]
fn the_wait_that_is_told_is_enough() {
    for burst in [5, 20, 100] {
        the_wait_is_enough(TokenBucket::per_second(10).burst(burst));
    }
}

fn the_wait_is_enough(bucket: TokenBucket) {
    let (limiter, clock) = limiter(bucket);
    let mut draw = Draw::seeded(11);
    let mut told = 0;
    for _ in 0..5_000 {
        clock.advance(Duration::from_micros((draw.next() * 40_000.0) as u64));
        let name = (draw.next() * draw.next() * 5.0) as u64;
        let cost = 1 + (draw.next() * draw.next() * 5.0) as u32;
        let decision = limiter.check(tenant(name), cost).now();
        if let Some(wait) = decision.retry_after() {
            assert!(wait > Duration::ZERO);
            // Some do not come back, and room is kept for them.
            if draw.next() < 0.5 {
                continue;
            }
            clock.advance(wait);
            let again = limiter.check(tenant(name), cost).now();
            assert!(again.is_allowed(), "{cost} after {wait:?}: {again:?}");
            told += 1;
        }
    }
    assert!(told > 500, "{bucket:?}: {told}");
}

/// Another request of its tenant does not end that.
#[test]
fn who_is_told_a_wait_that_is_longer_than_tenants_count_passes_then() {
    let (limiter, clock) = limiter(TokenBucket::per_second(1).burst(20));
    while passes(&limiter, "hog") {}
    let refused = limiter.check(tenant("ann"), 5).now();
    let of_half = Duration::from_micros(10_000_001);
    assert_eq!(refused.retry_after(), Some(of_half));
    for step in 0..100 {
        clock.advance(of_half / 100);
        passes(&limiter, "hog");
        if step == 5 {
            assert!(limiter.check(tenant("ann"), 0).now().is_allowed());
        }
    }
    clock.advance(Duration::from_micros(1));
    assert!(limiter.check(tenant("ann"), 5).now().is_allowed());
}

#[test]
fn who_is_alone_waits_no_longer_than_without_tenants() {
    let bucket = TokenBucket::per_second(10).burst(20);
    let (divided, clock) = limiter(bucket);
    let whole = Limiter::builder()
        .policy(Policy::new("upstream", bucket))
        .store(MemoryStore::new().clock(clock.clone()))
        .build_local()
        .unwrap();
    let mut draw = Draw::seeded(5);
    for _ in 0..5_000 {
        clock.advance(Duration::from_micros((draw.next() * 300_000.0) as u64));
        let cost = (draw.next() * 22.0) as u32;
        let (ours, theirs) = (
            divided.check(tenant("ann"), cost).now(),
            whole.check("ann", cost).now(),
        );
        assert_eq!(ours.is_allowed(), theirs.is_allowed());
        assert_eq!(ours.retry_after(), theirs.retry_after());
        let told = |decision: &tower_ratelimit::Decision| {
            let (_, outcome) = decision.binding().unwrap();
            (outcome.limit(), outcome.remaining(), outcome.reset_after())
        };
        assert_eq!(told(&ours), told(&theirs));
    }
}

/// What remains for a tenant are requests of one that would pass.
#[test]
fn what_remains_would_pass() {
    let (limiter, clock) = limiter(TokenBucket::per_second(10).burst(30));
    let mut draw = Draw::seeded(3);
    for _ in 0..400 {
        clock.advance(Duration::from_micros((draw.next() * 200_000.0) as u64));
        let name = (draw.next() * 4.0) as u64;
        let decision = limiter.check(tenant(name), 1).now();
        let (_, outcome) = decision.binding().unwrap();
        let remaining = outcome.remaining();
        let peeked = limiter.peek(tenant(name), 1).now();
        assert_eq!(peeked.is_allowed(), remaining > 0, "{outcome:?} {peeked:?}");
        if draw.next() < 0.2 {
            for _ in 0..remaining {
                assert!(limiter.check(tenant(name), 1).now().is_allowed());
            }
        }
    }
}

/// Of two that have asked little for long, each has a half: what the other one keeps was told to both.
#[test]
fn what_another_one_keeps_does_not_remain() {
    let bucket = TokenBucket::per_second(10).burst(20);
    let fair = Fair::new().active_for(Duration::from_secs(60));
    let clock = ManualClock::new();
    let policy = Policy::new("upstream", bucket).fair(fair);
    let limiter = builder(policy, &clock).build_local().unwrap();
    for _ in 0..3 {
        assert!(passes(&limiter, "ann") && passes(&limiter, "ben"));
        clock.advance(Duration::from_secs(10));
    }
    let decision = limiter.check(tenant("ann"), 1).now();
    let (_, outcome) = decision.binding().unwrap();
    let remaining = outcome.remaining();
    for left in (0..remaining).rev() {
        assert!(passes(&limiter, "ann"), "{left} of {remaining}");
    }
    assert!(!passes(&limiter, "ann"), "{remaining}");
}

#[test]
fn to_peek_makes_nobody_active() {
    let (limiter, _) = limiter(TokenBucket::per_second(10));
    assert!(passes(&limiter, "ann"));
    for name in 0..100_u64 {
        assert!(limiter.peek(tenant(name), 1).now().is_allowed());
        assert!(
            limiter
                .inspect(tenant(name))
                .now()
                .policies()
                .next()
                .is_some()
        );
    }
    for _ in 0..9 {
        assert!(passes(&limiter, "ann"), "she is alone");
    }
}

#[test]
fn a_request_that_another_policy_denies_uses_no_share() {
    let clock = ManualClock::new();
    let limiter = builder(policy(TokenBucket::per_second(10)), &clock)
        .policy(Policy::new("own", FixedWindow::per_hour(3)))
        .build_local()
        .unwrap();
    let ask = |name: &str| limiter.check(tenant(name), 1).now();
    for _ in 0..3 {
        assert!(ask("ann").is_allowed());
    }
    for _ in 0..50 {
        let decision = ask("ann");
        assert_eq!(decision.binding().unwrap().0, "own");
    }
    // Her share is not spent by what was denied.
    let decision = ask("bob");
    let (_, outcome) = decision.policies().next().unwrap();
    assert_eq!(outcome.remaining(), 10 - 3 - 1);
}

#[test]
fn every_shared_key_has_tenants_of_its_own() {
    let (limiter, _) = limiter(TokenBucket::per_second(10));
    let ask = |shared: &str, name: &str| {
        let key = Key::branch(shared, &[name.into_key()]);
        limiter.check(key, 1).now().is_allowed()
    };
    let count = |shared| (0..20).filter(|_| ask(shared, "ann")).count();
    assert_eq!([count("east"), count("west")], [10, 10]);
    assert!(!ask("east", "bob"), "the limit of east is spent");
    // A key without a tenant is shared by nobody.
    assert_eq!(
        (0..20)
            .filter(|_| limiter.check("north", 1).now().is_allowed())
            .count(),
        10
    );
}

#[test]
fn what_is_settled_and_given_back_is_the_tenants() {
    let (limiter, clock) = limiter(TokenBucket::per_second(10).burst(40));
    assert!(passes(&limiter, "ann"));
    assert!(passes(&limiter, "bob"));
    // An answer that cost more than the request.
    limiter.settle(tenant("ann"), 15).now();
    let remaining = |name: &str| {
        let decision = limiter.peek(tenant(name), 0).now();
        decision.binding().unwrap().1.remaining()
    };
    assert_eq!(
        remaining("bob"),
        40 - 17,
        "nothing of the rest is claimed yet"
    );
    clock.advance(Duration::from_millis(800));
    assert!(passes(&limiter, "bob"));
    assert!(!passes(&limiter, "ann") || remaining("ann") < remaining("bob"));
    limiter.refund(tenant("ann"), 15).now();
    assert!(passes(&limiter, "ann"));
    limiter.reset(tenant("ann")).now();
    assert_eq!(remaining("bob"), 40, "a reset is one of the limit");
}

#[test]
fn a_block_is_of_one_tenant() {
    let (limiter, _) = limiter(TokenBucket::per_second(10));
    limiter.block(tenant("ann"), HOUR).now();
    let decision = limiter.check(tenant("ann"), 1).now();
    assert!(decision.binding().unwrap().1.is_blocked());
    assert!(passes(&limiter, "bob"));
    assert!(limiter.unblock(tenant("ann")).now());
    assert!(passes(&limiter, "ann"));
}

#[test]
fn a_penalty_is_of_one_tenant() {
    let clock = ManualClock::new();
    let penalty = Penalty::after(30, Duration::from_secs(1)).block(HOUR);
    let policy = policy(TokenBucket::per_second(10)).penalty(penalty);
    let limiter = builder(policy, &clock).build_local().unwrap();
    for _ in 0..45 {
        passes(&limiter, "hog");
    }
    let decision = limiter.check(tenant("hog"), 1).now();
    assert!(decision.binding().unwrap().1.is_blocked());
    clock.advance(Duration::from_secs(2));
    assert!(passes(&limiter, "ann"));
    assert!(!passes(&limiter, "hog"));
}

/// What belongs to another tenant is over the limit, as it is refused where the limit is enforced.
#[test]
fn a_soft_and_a_silent_limit_are_divided_as_well() {
    let upstream = || policy(TokenBucket::per_second(10));
    let policies = [upstream(), upstream().soft(), upstream().mode(Mode::Shadow)];
    let first_over = policies.map(|policy| {
        let clock = ManualClock::new();
        let limiter = builder(policy, &clock).build_local().unwrap();
        assert!(passes(&limiter, "ann"));
        clock.advance(Duration::from_millis(500));
        (0..12).position(|_| {
            let decision = limiter.check(tenant("hog"), 1).now();
            let over = decision.over_limit().count() + decision.would_refuse().count();
            !decision.is_allowed() || over > 0
        })
    });
    // The other tenant has four of ten units.
    assert_eq!(first_over, [Some(6); 3]);
}

#[test]
fn as_many_units_as_there_are() {
    let (limiter, _) = limiter(TokenBucket::per_second(10).burst(20));
    let take = |name: &str, most| limiter.acquire_up_to(tenant(name), most).now().0;
    assert_eq!(take("ann", 15), 15);
    assert_eq!(take("bob", 15), 5);
    assert_eq!(take("bob", 15), 0);
}

#[test]
fn more_tenants_than_are_told_apart_share_one_place() {
    let clock = ManualClock::new();
    let fair = Fair::new().most_tenants(2);
    let policy = Policy::new("upstream", TokenBucket::per_second(100)).fair(fair);
    let limiter = builder(policy, &clock).build_local().unwrap();
    let had = play(&limiter, &clock, &[asker(200.0); 6], (5.0, 25.0));
    let all: f64 = had.iter().sum();
    assert!((98.0..=100.5).contains(&all), "{all}");
    // Two have a place of their own, and four have one together.
    let own = had.iter().filter(|one| **one > 30.0).count();
    assert_eq!(own, 2, "{had:?}");
    assert!(had.iter().all(|one| *one > 3.0), "{had:?}");
}

#[test]
fn a_thousand_and_twenty_four_tenants_are_told_apart() {
    let (limiter, _) = limiter(TokenBucket::per_second(10_000));
    let told_apart = |asked: u64| {
        let names = 0..asked;
        names.for_each(|name| assert!(limiter.check(tenant(name), 1).now().is_allowed()));
        let inspection = limiter.inspect(tenant(0_u64)).now();
        let (_, share) = inspection.shares().next().unwrap();
        share.tenants()
    };
    assert_eq!(told_apart(1_024), 1_024);
    // All others are one.
    assert_eq!(told_apart(1_100), 1_025);
}

#[test]
fn what_is_given_back_of_a_tenant_that_is_not_told_apart_is_of_the_place_it_shares() {
    let clock = ManualClock::new();
    let fair = Fair::new().most_tenants(2);
    let policy = Policy::new("upstream", TokenBucket::per_second(10).burst(40)).fair(fair);
    let limiter = builder(policy, &clock).build_local().unwrap();
    for name in ["ann", "bob", "cid"] {
        assert!(passes(&limiter, name));
    }
    // An estimate that was too high.
    limiter.settle(tenant("cid"), 30).now();
    limiter.refund(tenant("cid"), 30).now();
    let others_ask = || while passes(&limiter, "ann") | passes(&limiter, "bob") {};
    others_ask();
    clock.advance(Duration::from_millis(800));
    others_ask();
    assert!(
        passes(&limiter, "cid"),
        "it has no debt, and a third is kept for it"
    );
}

/// An attacker that invents tenants, or shared keys, does not grow the memory, and does not end the limit.
#[test]
fn invented_tenants_take_no_room() {
    let clock = ManualClock::new();
    let store = MemoryStore::new().max_keys(64).clock(clock.clone());
    let limiter = Limiter::builder()
        .policy(policy(TokenBucket::per_second(10)))
        .store(store)
        .build_local()
        .unwrap();
    let mut passed = 0;
    for number in 0..50_000_u64 {
        let key = Key::branch(number % 1_000, &[number.into_key()]);
        let _ = limiter.check(key, 1).now();
        passed += u64::from(passes(&limiter, "ann"));
        clock.advance(Duration::from_micros(100));
    }
    assert!((50..=70).contains(&passed), "{passed} in 5 seconds");
}

#[test]
fn a_small_store_tells_the_tenants_of_one_key_apart() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .policy(policy(TokenBucket::per_second(100)))
        .store(MemoryStore::new().max_keys(64).clock(clock.clone()))
        .build_local()
        .unwrap();
    let mut had = [0; 40];
    for _ in 0..800 {
        clock.advance(Duration::from_millis(5));
        for (number, had) in (0_u64..).zip(&mut had) {
            *had += u32::from(limiter.check(tenant(number), 1).now().is_allowed());
        }
    }
    assert!(had.iter().all(|had| (8..=20).contains(had)), "{had:?}");
}

#[test]
fn a_tenant_that_estimates_too_much_has_its_share() {
    let (limiter, clock) = limiter(TokenBucket::per_second(50));
    let mut had = [0; 2];
    for step in 0..5_000 {
        clock.advance(Duration::from_millis(2));
        if step % 5 == 0 {
            let answer = limiter.reserve(tenant("long"), 25).now();
            had[0] += u32::from(answer.is_allowed());
            answer.settle(1);
        }
        had[1] += u32::from(passes(&limiter, "short"));
    }
    assert!(had.iter().all(|had| (240..=300).contains(had)), "{had:?}");
}

#[test]
fn threads_never_take_more_than_there_is() {
    let (limiter, _) = limiter(TokenBucket::per_hour(10).burst(500));
    let barrier = Barrier::new(4);
    let passed: usize = thread::scope(|scope| {
        let run = |name: u64| {
            let (limiter, barrier) = (&limiter, &barrier);
            scope.spawn(move || {
                barrier.wait();
                let ask = |_: &u32| limiter.check(tenant(name), 1).now().is_allowed();
                (0..2_000).filter(ask).count()
            })
        };
        let all: Vec<_> = [1, 2, 3, 3].map(run).into();
        all.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(passed, 500);
}

#[test]
fn limiters_over_one_store_divide_one_limit() {
    let clock = ManualClock::new();
    let store = MemoryStore::new().clock(clock.clone());
    let made = || {
        let policy = policy(TokenBucket::per_second(10));
        Limiter::builder()
            .policy(policy)
            .store(store.clone())
            .build_local()
            .unwrap()
    };
    let (first, second) = (made(), made());
    while passes(&first, "hog") {}
    clock.advance(Duration::from_millis(200));
    assert!(passes(&first, "hog"));
    assert!(!passes(&second, "hog") || !passes(&second, "hog"));
    clock.advance(Duration::from_millis(200));
    assert!(passes(&second, "ann"));
}

/// The state of a divided limit stays, under a new name and in the tenants that it had.
#[test]
fn a_limit_under_a_new_name_keeps_what_its_tenants_have_used() {
    let clock = ManualClock::new();
    let store = MemoryStore::new().clock(clock.clone());
    let bucket = TokenBucket::per_second(10);
    let built = |policy: Policy| {
        let builder = Limiter::builder().policy(policy.fair(Fair::new()));
        builder.store(store.clone()).build_local().unwrap()
    };
    let before = built(Policy::new("upstream", bucket));
    while passes(&before, "hog") {}
    clock.advance(Duration::from_millis(200));
    assert!(passes(&before, "ann"));
    let after = built(Policy::new("model", bucket).renamed_from("upstream"));
    assert!(!passes(&after, "hog") || !passes(&after, "hog"));
    clock.advance(Duration::from_millis(200));
    assert!(passes(&after, "ann"));
}

#[test]
fn nodes_without_a_shared_store_divide_a_limit_first() {
    let clock = ManualClock::new();
    let bucket = TokenBucket::per_second(20);
    let limiter = builder(policy(bucket), &clock).nodes(2);
    let limiter = limiter.build_local().unwrap();
    let had = play(&limiter, &clock, &[asker(500.0), asker(50.0)], (2.0, 22.0));
    assert!(had.iter().all(|had| (4.7..5.3).contains(had)), "{had:?}");
}

fn refused(policy: Policy) -> ConfigError {
    Limiter::builder().policy(policy).build().unwrap_err()
}

#[test]
fn what_cannot_be_divided_is_refused_with_a_remedy() {
    let windows: [Algorithm; 3] = [
        FixedWindow::per_minute(100).into(),
        SlidingLog::per_minute(100).into(),
        AnchoredWindow::per_minute(100).into(),
    ];
    for window in windows {
        let error = refused(policy(window)).to_string();
        assert!(error.contains("TokenBucket"), "{error}");
    }
    let bucket = TokenBucket::per_second(100);
    let cases = [
        (policy(TokenBucket::per_second(4)), "at least 5"),
        (policy(bucket).factor(&FactorCell::new()), "factor"),
        (policy(bucket).reserve(10), "reserve"),
        (
            policy(bucket).wait_up_to(Duration::from_secs(1)),
            "wait_up_to",
        ),
        (
            policy(bucket).key_limits(KeyLimits::new().key("a", bucket)),
            "one limit",
        ),
        (
            policy(bucket).limit_by(|_| None::<TokenBucket>),
            "one limit",
        ),
        (
            policy(bucket).fair(Fair::new().active_for(Duration::ZERO)),
            "a millisecond to an hour",
        ),
        (
            policy(bucket).fair(Fair::new().most_tenants(1)),
            "2 to 1024",
        ),
        (
            policy(bucket).fair(Fair::new().most_tenants(1_025)),
            "2 to 1024",
        ),
        (
            policy(bucket).fair(Fair::new().weight("pro", 0)),
            "1 to 100",
        ),
        (
            policy(bucket).fair(Fair::new().weight("pro", 101)),
            "1 to 100",
        ),
        (
            policy(bucket).fair(Fair::new().weight("pro", 1).weight("pro", 2)),
            "one weight",
        ),
        (
            policy(bucket).fair(Fair::new().weight("pro", 2)),
            "declare it",
        ),
    ];
    for (policy, remedy) in cases {
        let error = refused(policy).to_string();
        assert!(error.contains(remedy), "{remedy}: {error}");
    }
}

#[test]
fn what_stands_beside_it_is_refused_with_a_remedy() {
    let bucket = TokenBucket::per_second(100);
    let fair = || Limiter::builder().policy(policy(bucket));
    let day = |name| Policy::new(name, FixedWindow::per_day(10));
    let plans = Plans::new([Plan::new("pro").limit("upstream", TokenBucket::per_second(200))]);
    let errors = [
        (
            fair()
                .store(SharedStore::new(OneByOne(Map::new(&ManualClock::new()))))
                .build(),
            "MemoryStore",
        ),
        (
            Limiter::builder()
                .policy(Policy::new("upstream", bucket).fair(Fair::new().most_tenants(65)))
                .store(SharedStore::new(Map::new(&ManualClock::new())))
                .build(),
            "give at most 64",
        ),
        (
            fair()
                .policies([day("a"), day("b")])
                .first_of("c", ["a", "b"])
                .build(),
            "first_of",
        ),
        (fair().adjustable().build(), "adjustable"),
        (fair().plans_by_name(plans).build(), "weight"),
    ];
    for (built, remedy) in errors {
        let error = built.unwrap_err().to_string();
        assert!(error.contains(remedy), "{remedy}: {error}");
    }
}

#[test]
fn an_override_of_a_divided_limit_is_refused() {
    let (limiter, _) = limiter(TokenBucket::per_second(100));
    let limit = TokenBucket::per_second(10);
    let answer = limiter.override_limit("upstream", tenant("ann"), limit, HOUR);
    assert!(answer.unwrap_err().to_string().contains("fair"));
    assert!(passes(&limiter, "ann"));
}

/// A tenant that waits for a request of a whole limit, and then only asks what is never charged, keeps nothing for itself once its turn has
/// passed.
#[test]
fn who_is_refused_elsewhere_keeps_no_room() {
    for then in [0, 101] {
        let (limiter, clock) = limiter(TokenBucket::per_second(100));
        while passes(&limiter, "hog") {}
        for name in 0..9_u64 {
            assert!(!limiter.check(tenant(name), 100).now().is_allowed());
        }
        let mut passed = 0;
        for step in 0..15_000 {
            clock.advance(Duration::from_millis(1));
            if step % 800 == 0 {
                for name in 0..9_u64 {
                    let _ = limiter.check(tenant(name), then).now();
                }
            }
            // A share of the burst is kept for each that asks, once.
            passed += u32::from(passes(&limiter, "hog") && step >= 10_000);
        }
        assert!(passed >= 490, "{passed} of 500, beside requests of {then}");
    }
}

#[test]
fn who_is_blocked_keeps_no_room() {
    let (limiter, clock) = limiter(TokenBucket::per_second(100));
    while passes(&limiter, "hog") {}
    assert!(!passes(&limiter, "ann"));
    limiter.block(tenant("ann"), HOUR).now();
    let mut passed = 0;
    for step in 0..10_000 {
        clock.advance(Duration::from_millis(1));
        if step % 500 == 0 {
            assert!(!passes(&limiter, "ann"));
        }
        passed += u32::from(passes(&limiter, "hog") && step >= 5_000);
    }
    assert!(passed >= 490, "{passed} of 500");
}

/// A tenant whose requests come under two plans pays a debt at the weight at which it made it.
#[test]
fn a_change_of_weight_pays_no_debt() {
    let clock = ManualClock::new();
    let fair = Fair::new().weight("pro", 100);
    let policy = Policy::new("upstream", TokenBucket::per_second(100)).fair(fair);
    let plans = Plans::new([Plan::new("free"), Plan::new("pro")]);
    let limiter = builder(policy, &clock).plans_by_name(plans);
    let limiter = limiter.build_local().unwrap();
    let (free, pro) = (limiter.plan("free"), limiter.plan("pro"));
    let ask =
        |limiter: &LocalLimiter, name: &str| limiter.check(tenant(name), 1).now().is_allowed();
    let mut had = [0; 2];
    for _ in 0..20_000 {
        clock.advance(Duration::from_millis(1));
        had[0] += u32::from(ask(&pro, "flips") || ask(&free, "flips"));
        had[1] += u32::from(ask(&pro, "steady"));
    }
    assert!(had[1] >= 950, "{had:?}");
}

/// An answer that comes when its tenant has lapsed, and costs more than was estimated, is a debt of that tenant.
#[test]
fn a_late_settlement_is_that_of_its_tenant() {
    let (limiter, clock) = limiter(TokenBucket::per_second(100));
    let count = |millis: u32, asks_late: bool| {
        let passed = (0..millis).filter(|_| {
            clock.advance(Duration::from_millis(1));
            passes(&limiter, "ann");
            passes(&limiter, "bob");
            asks_late && passes(&limiter, "late")
        });
        passed.count()
    };
    count(1_000, false);
    assert!(count(200, true) > 0);
    count(1_500, false);
    // Six seconds of a third of the limit.
    limiter.settle(tenant("late"), 200).now();
    let first = count(4_500, true);
    assert!(first <= 3, "{first}");
    count(3_000, true);
    let share = count(3_000, true);
    assert!((80..=110).contains(&share), "{share}");
}

#[test]
fn a_clock_that_steps_back_divides_on() {
    let (limiter, clock) = limiter(TokenBucket::per_second(100));
    let askers = [asker(1_000.0), asker(40.0), asker(40.0)];
    clock.set_micros(tower_ratelimit::Micros::new(1_800_000_000_000_000));
    let before = play(&limiter, &clock, &askers, (2.0, 5.0));
    clock.set_micros(tower_ratelimit::Micros::new(1_790_000_000_000_000));
    let after = play(&limiter, &clock, &askers, (3.0, 20.0));
    assert!(jain(&before) >= 0.98, "{before:?}");
    assert!(jain(&after) >= 0.98, "{after:?}");
}

/// A reload that gives one of two divided limits another period, while requests of the former limits go on.
#[test]
fn limits_before_and_after_a_reload_do_not_wait_for_each_other() {
    let store = MemoryStore::new();
    let made = |first: TokenBucket| {
        let second = Policy::new("b", TokenBucket::per_second(50)).fair(Fair::new());
        Limiter::builder()
            .policy(Policy::new("a", first).fair(Fair::new()))
            .policy(second)
            .store(store.clone())
            .build_local()
            .unwrap()
    };
    let before = made(TokenBucket::per_second(50));
    let after = made(TokenBucket::per_minute(50));
    thread::scope(|scope| {
        for limiter in [&before, &after] {
            scope.spawn(move || {
                for _ in 0..20_000 {
                    let _ = limiter.check(tenant("ann"), 1).now();
                }
            });
        }
    });
}

#[test]
fn to_come_and_go_gains_nothing() {
    let (limiter, clock) = limiter(TokenBucket::per_second(100));
    let (mut there, mut had, mut visits) = (0, 0, 0);
    for step in 0..65_000_u32 {
        clock.advance(Duration::from_millis(1));
        // There for a fifth of a second, and then away for longer than a tenant counts that does not ask.
        if step % 1_300 < 200 {
            visits += u32::from(step % 1_300 == 0);
            there += 1;
            had += u32::from(passes(&limiter, "nomad"));
        }
        passes(&limiter, "ann");
        passes(&limiter, "bob");
    }
    // A third of the limit while it is there, and one request ahead each time.
    let share = there / 30 + visits;
    assert!(had <= share + share / 20, "{had} of {share}");
    assert!(had >= share / 2, "{had} of {share}");
}
