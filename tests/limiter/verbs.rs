//! The two ways to ask by a verb: to await it, and `now`.

use std::time::Duration;

use tower_ratelimit::factor::{Factor, FactorCell};
use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::policy::{Mode, Penalty};
use tower_ratelimit::{
    Algorithm, Concurrency, FixedWindow, Limiter, LocalLimiter, ManualClock, MemoryStore, Policy,
    TokenBucket,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns how many units of this key are used, and how many requests were counted.
fn used(limiter: &LocalLimiter) -> (u32, u64) {
    let decision = limiter.peek("ann", 0).now();
    let counted = limiter.snapshot().requests.allowed;
    (decision.binding().unwrap().1.used(), counted)
}

/// A store in this process decided while a future was made, so that one which was dropped at once was charged.
#[test]
fn a_verb_that_is_neither_awaited_nor_asked_now_does_nothing() {
    let limiter = Limiter::builder()
        .policy(Policy::new("api", FixedWindow::per_hour(10)))
        .build_local()
        .unwrap();
    assert!(limiter.admit("ann", 4).now());
    let limit = FixedWindow::per_hour(1);
    drop(limiter.check("ann", 1));
    drop(limiter.admit("ann", 1));
    drop(limiter.named([("api", "ann", 1)]).unwrap().check());
    drop(limiter.acquire_up_to("ann", 1));
    drop(limiter.reserve("ann", 1));
    drop(limiter.named([("api", "ann", 1)]).unwrap().reserve());
    drop(limiter.refund("ann", 1));
    drop(limiter.named([("api", "ann", 1)]).unwrap().refund());
    drop(limiter.settle("ann", 1));
    drop(limiter.named([("api", "ann", 1)]).unwrap().settle());
    drop(limiter.reset("ann"));
    drop(limiter.block("ann", MINUTE));
    drop(limiter.override_limit("api", "ann", limit, MINUTE).unwrap());
    assert_eq!(used(&limiter), (4, 1));
    assert!(limiter.check("ann", 6).now().is_allowed());

    limiter.block("ann", MINUTE).now();
    drop(limiter.unblock("ann"));
    assert!(limiter.unblock("ann").now());
    let given = limiter.override_limit("api", "ann", limit, MINUTE).unwrap();
    given.now().unwrap();
    drop(limiter.end_override("api", "ann").unwrap());
    assert_eq!(limiter.peek("ann", 0).now().binding().unwrap().1.limit(), 1);
}

#[tokio::test]
async fn a_future_needs_neither_its_limiter_nor_its_key() {
    let limiter = Limiter::builder()
        .policy(Policy::new("api", FixedWindow::per_hour(10)))
        .build()
        .unwrap();
    let other = limiter.clone();
    let named = other
        .named([("api", &*String::from("ann"), 3)])
        .unwrap()
        .check();
    let both = [
        limiter.check(&*String::from("ann"), 7).into_future(),
        named.into_future(),
    ];
    drop((limiter, other));
    for decided in both {
        let decision = tokio::spawn(decided).await.unwrap().unwrap();
        assert!(decision.is_allowed());
    }
}

const VERBS: u32 = 17;

const NAMED: [&str; 2] = ["a", "b"];

async fn awaited(limiter: &LocalLimiter, verb: u32, key: &str, units: u32) -> String {
    let named = || limiter.named([("b", key, units), ("a", key, 1)]).unwrap();
    let policy = NAMED[units as usize % 2];
    let lower = FixedWindow::per_hour(units + 1);
    match verb % VERBS {
        0 => format!("{:?}", limiter.check(key, units).await),
        1 => format!("{:?}", limiter.admit(key, units).await),
        2 => format!("{:?}", named().check().await),
        3 => format!("{:?}", limiter.peek(key, units).await),
        4 => format!("{:?}", limiter.acquire_up_to(key, units).await),
        5 => format!("{:?}", limiter.inspect(key).await),
        6 => format!("{:?}", limiter.reserve(key, units).await),
        7 => format!("{:?}", named().reserve().await),
        8 => format!("{:?}", limiter.refund(key, units).await),
        9 => format!("{:?}", named().refund().await),
        10 => format!("{:?}", limiter.settle(key, units).await),
        11 => format!("{:?}", named().settle().await),
        12 if units == 0 => format!("{:?}", limiter.reset(key).await),
        13 if units < 3 => format!("{:?}", limiter.block(key, MINUTE).await),
        14 => format!("{:?}", limiter.unblock(key).await),
        15 => format!("{:?}", named().peek().await),
        _ => match limiter.override_limit(policy, key, lower, MINUTE) {
            Ok(given) => format!("{:?}", given.await),
            Err(_) => format!("{:?}", limiter.end_override(policy, key).unwrap().await),
        },
    }
}

fn now(limiter: &LocalLimiter, verb: u32, key: &str, units: u32) -> String {
    let named = || limiter.named([("b", key, units), ("a", key, 1)]).unwrap();
    let policy = NAMED[units as usize % 2];
    let lower = FixedWindow::per_hour(units + 1);
    match verb % VERBS {
        0 => format!("Ok({:?})", limiter.check(key, units).now()),
        1 => format!("Ok({:?})", limiter.admit(key, units).now()),
        2 => format!("Ok({:?})", named().check().now()),
        3 => format!("Ok({:?})", limiter.peek(key, units).now()),
        4 => format!("Ok({:?})", limiter.acquire_up_to(key, units).now()),
        5 => format!("Ok({:?})", limiter.inspect(key).now()),
        6 => format!("Ok({:?})", limiter.reserve(key, units).now()),
        7 => format!("Ok({:?})", named().reserve().now()),
        8 => format!("Ok({:?})", limiter.refund(key, units).now()),
        9 => format!("Ok({:?})", named().refund().now()),
        10 => format!("Ok({:?})", limiter.settle(key, units).now()),
        11 => format!("Ok({:?})", named().settle().now()),
        12 if units == 0 => format!("Ok({:?})", limiter.reset(key).now()),
        13 if units < 3 => format!("Ok({:?})", limiter.block(key, MINUTE).now()),
        14 => format!("Ok({:?})", limiter.unblock(key).now()),
        15 => format!("Ok({:?})", named().peek().now()),
        _ => match limiter.override_limit(policy, key, lower, MINUTE) {
            Ok(given) => format!("{:?}", given.now()),
            Err(_) => format!("Ok({:?})", limiter.end_override(policy, key).unwrap().now()),
        },
    }
}

/// Returns limiters of two policies, of each kind that has a path of its own.
fn limiters() -> Vec<(&'static str, LimiterBuilder)> {
    let hourly = || Policy::new("a", FixedWindow::per_hour(20));
    let bucket = || Policy::new("b", TokenBucket::per_minute(30));
    let busy = FactorCell::new();
    busy.set(Factor::thousandths(500), "a test");
    let paid = Plan::new("paid").limit("a", FixedWindow::per_hour(40));
    let plans = Plans::new([paid, Plan::new("free").unlimited("b")]).default_plan("free");
    let by = |first: Policy, second: Policy| Limiter::builder().policy(first).policy(second);
    let plan_of = |key: &tower_ratelimit::key::Key| {
        (*key == tower_ratelimit::key::IntoKey::into_key("ann")).then_some("paid")
    };
    vec![
        ("two limits", by(hourly(), bucket())),
        (
            "one limit",
            by(hourly(), Policy::new("b", Algorithm::Unlimited)),
        ),
        ("soft", by(hourly(), bucket().soft())),
        ("shadow", by(hourly().mode(Mode::Shadow), bucket())),
        ("factor", by(hourly().factor(&busy).most(5), bucket())),
        ("slots", by(hourly(), Policy::new("b", Concurrency::of(3)))),
        (
            "penalty",
            by(hourly().penalty(Penalty::after(3, MINUTE)), bucket()),
        ),
        ("plans", by(hourly(), bucket()).plans(plans, plan_of)),
    ]
}

/// They were two bodies. Those of `acquire_up_to` differed under a factor with a ceiling, and beside slots.
#[tokio::test]
async fn what_is_awaited_and_what_is_asked_now_answer_alike() {
    for (name, builder) in limiters() {
        let clock = ManualClock::new();
        let [first, second] = [(); 2].map(|()| {
            let store = MemoryStore::new().clock(clock.clone());
            builder.clone().store(store).build_local().unwrap()
        });
        let mut random = 1_u32;
        for step in 0..2_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (verb, units) = (random >> 16, (random >> 8) % 12);
            let key = if random >> 31 == 0 { "ann" } else { "bob" };
            let awaited = awaited(&first, verb, key, units).await;
            let now = now(&second, verb, key, units);
            assert_eq!(awaited, now, "{name}: step {step}, verb {}", verb % VERBS);
            clock.advance(Duration::from_secs((units / 4).into()));
        }
        let counted = [&first, &second].map(|limiter| format!("{:?}", limiter.snapshot().requests));
        assert_eq!(counted[0], counted[1], "{name}");
    }
}

/// When it was asked at once, it asked for all fifty, which no request may cost, and took one.
#[tokio::test]
async fn as_much_is_taken_under_a_factor_as_a_request_may_cost() {
    let half = FactorCell::new();
    half.set(Factor::thousandths(500), "a test");
    let policy = Policy::new("api", FixedWindow::per_hour(100)).most(5);
    let builder = Limiter::builder().policy(policy.factor(&half));
    let limiter = || builder.clone().build_local().unwrap();
    assert_eq!(limiter().acquire_up_to("ann", 50).await.unwrap().0, 5);
    assert_eq!(limiter().acquire_up_to("ann", 50).now().0, 5);
}

#[test]
fn requests_of_low_priority_leave_the_reserve_under_a_limit_of_their_caller() {
    let hourly = Policy::new("calls", FixedWindow::per_hour(10))
        .reserve(2)
        .limit_by(|_| None::<Algorithm>);
    let limiter = Limiter::builder().policy(hourly).build_local().unwrap();
    let low = limiter.low_priority();
    let ask = |limiter: &LocalLimiter| {
        let under = [("calls", FixedWindow::per_hour(4).into())];
        let asked = limiter.named([("calls", "ann", 1)]).unwrap().under(under);
        asked.unwrap().check().now().is_allowed()
    };

    assert_eq!([(); 3].map(|()| ask(&low)), [true, true, false]);
    assert_eq!([(); 3].map(|()| ask(&limiter)), [true, true, false]);
}

#[test]
fn a_caller_brings_limits_for_single_requests() {
    let hourly = Policy::new("calls", FixedWindow::per_hour(10)).limit_by(|_| None::<Algorithm>);
    let limiter = Limiter::builder()
        .policy(hourly)
        .policy(Policy::new("bytes", FixedWindow::per_hour(100)))
        .build_local()
        .unwrap();
    let asked = [("bytes", "ann", 30), ("calls", "ann", 2)];
    let under = |limit: u32| [("calls", FixedWindow::per_hour(limit).into())];

    let ask = |limit| limiter.named(asked).unwrap().under(under(limit)).unwrap();

    // A look changes nothing, and both policies are charged or none.
    assert!(ask(2).peek().now().is_allowed());
    assert!(ask(2).check().now().is_allowed());
    assert!(!ask(2).peek().now().is_allowed());
    assert!(!ask(3).check().now().is_allowed());
    let decision = ask(4).check().now();
    let told: Vec<_> = decision
        .policies()
        .map(|(_, told)| (told.limit(), told.used()))
        .collect();
    assert_eq!(told, [(4, 4), (100, 60)]);
    // What was used under one limit is used under the policy's own.
    let used: Vec<_> = limiter
        .peek("ann", 0)
        .now()
        .policies()
        .map(|(_, told)| told.used())
        .collect();
    assert_eq!(used, [4, 60]);
    assert!(!ask(0).check().now().is_allowed());
    let last = ask(0).under(under(9)).unwrap().peek().now();
    assert!(
        last.policies().any(|(_, told)| told.limit() == 9),
        "{last:?}"
    );

    for (limit, expected) in [
        (
            ("call", FixedWindow::per_hour(1).into()),
            "name one of calls, bytes",
        ),
        (
            ("bytes", FixedWindow::per_hour(1).into()),
            "declare it with `limit_by`",
        ),
        (
            ("calls", FixedWindow::per_minute(1).into()),
            "differs from that of \"calls\"",
        ),
        (
            ("calls", TokenBucket::per_hour(1).into()),
            "in its numbers alone",
        ),
        (("calls", Algorithm::Unlimited), "in its numbers alone"),
    ] {
        let error = limiter
            .named(asked)
            .unwrap()
            .under([limit])
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
}
