//! Decisions under named policies with their own keys, and the inspection of a key.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use tower_ratelimit::{
    Algorithm, FixedWindow, Limiter, LocalLimiter, ManualClock, MemoryStore, Policy, TokenBucket,
};

use crate::scenarios::{HOUR, MINUTE, SECOND};

fn limiter(policies: impl IntoIterator<Item = Policy>) -> (ManualClock, LocalLimiter) {
    let clock = ManualClock::new();
    let store = MemoryStore::new().clock(clock.clone());
    let limiter = Limiter::builder()
        .policies(policies)
        .store(store)
        .build_local();
    (clock, limiter.unwrap())
}

fn three() -> (ManualClock, LocalLimiter) {
    limiter([
        Policy::new("address", FixedWindow::per_minute(3)),
        Policy::new("user", FixedWindow::per_hour(10)),
        Policy::new("plan", Algorithm::Unlimited),
    ])
}

fn remaining(limiter: &LocalLimiter, policy: &str, key: &str) -> u32 {
    let decision = limiter.named([(policy, key, 0)]).unwrap().check().now();
    let (name, outcome) = decision.binding().unwrap();
    assert_eq!(name, policy);
    outcome.remaining()
}

#[test]
fn each_policy_is_charged_its_own_key_and_cost_or_none_is() {
    let (_, limiter) = three();
    // Not in the order of declaration; an unlimited policy decides nothing.
    let asked = [("user", "ann", 4), ("plan", "x", 9), ("address", "net", 1)];
    for left in [(2, 6), (1, 2)] {
        let decision = limiter.named(asked).unwrap().check().now();
        assert!(decision.is_allowed());
        let names: Vec<_> = decision.policies().map(|(name, _)| name).collect();
        assert_eq!(names, ["address", "user"]);
        let net = remaining(&limiter, "address", "net");
        assert_eq!((net, remaining(&limiter, "user", "ann")), left);
    }
    let denied = limiter.named(asked).unwrap().check().now();
    assert_eq!(denied.binding().unwrap().0, "user");
    assert_eq!(remaining(&limiter, "address", "net"), 1);
    assert_eq!(remaining(&limiter, "user", "ann"), 2);
    assert_eq!(remaining(&limiter, "user", "bob"), 10);
    let nothing: [(&str, &str, u32); 0] = [];
    assert!(limiter.named(nothing).unwrap().check().now().is_allowed());
}

#[test]
fn a_name_that_is_unknown_or_there_twice_is_named_and_nothing_is_charged() {
    let (_, limiter) = three();
    for (asked, text) in [
        (
            [("user", "ann", 1), ("User", "ann", 1)],
            r#"`policy` cannot be "User": name one of address, user, plan"#,
        ),
        (
            [("user", "ann", 1), ("user", "bob", 1)],
            r#"`policy` cannot be "user": ask each policy about one key, at the cost of all of it"#,
        ),
        (
            [("plan", "ann", 1), ("plan", "bob", 1)],
            r#"`policy` cannot be "plan": ask each policy about one key, at the cost of all of it"#,
        ),
    ] {
        let error = limiter.named(asked).unwrap_err();
        assert_eq!(error.to_string(), text);
        let error = limiter.named(asked).err().unwrap();
        assert_eq!(error.to_string(), text);
    }
    assert_eq!(remaining(&limiter, "user", "ann"), 10);
}

/// Returns the state of each policy with its key, `net` or `ann`.
fn used(limiter: &LocalLimiter) -> [u32; 2] {
    let used = |policy, key| {
        let told = limiter.named([(policy, key, 0)]).unwrap().check().now();
        told.binding().unwrap().1.used()
    };
    [used("address", "net"), used("user", "ann")]
}

/// A settlement of 4,000 tokens took 3,000 requests of 3,000: the plain verb charges every policy that has the key.
#[test]
fn tokens_that_are_settled_by_name_take_no_requests() {
    let (_, limiter) = limiter([
        Policy::new("requests", FixedWindow::per_minute(3_000)),
        Policy::new("tokens", FixedWindow::per_minute(100_000)),
    ]);
    let used = |key| -> Vec<u32> {
        let told = limiter.peek(key, 0).now();
        told.policies().map(|(_, told)| told.used()).collect()
    };
    limiter.settle("trapped", 4_000).now();
    assert_eq!(used("trapped"), [3_000, 4_000]);
    limiter
        .named([("tokens", "ann", 4_000)])
        .unwrap()
        .settle()
        .now();
    assert_eq!(used("ann"), [0, 4_000]);
    let asked = [("requests", "ann", 1), ("tokens", "ann", 500)];
    assert!(limiter.named(asked).unwrap().check().now().is_allowed());
    limiter
        .named([("tokens", "ann", 400)])
        .unwrap()
        .refund()
        .now();
    assert_eq!(used("ann"), [1, 4_100]);
}

#[test]
fn policies_are_refunded_and_settled_each_its_own_key_and_amount() {
    let (_, limiter) = three();
    let asked = [("user", "ann", 4), ("address", "net", 3)];
    assert!(limiter.named(asked).unwrap().check().now().is_allowed());
    limiter
        .named([("user", "ann", 3), ("plan", "x", 9), ("address", "net", 1)])
        .unwrap()
        .refund()
        .now();
    assert_eq!(used(&limiter), [2, 1]);
    limiter
        .named([("user", "ann", 5), ("plan", "x", 9)])
        .unwrap()
        .settle()
        .now();
    assert_eq!(used(&limiter), [2, 6]);
    let nothing: [(&str, &str, u32); 0] = [];
    limiter.named(nothing).unwrap().refund().now();
    limiter.named(nothing).unwrap().settle().now();

    // Through any store, and by name there too.
    let any = limiter.clone().erased();
    now(any.named([("user", "ann", 2)]).unwrap().refund()).unwrap();
    now(any.named([("address", "net", 1)]).unwrap().settle()).unwrap();
    assert_eq!(used(&limiter), [3, 4]);
}

#[test]
fn a_wrong_name_refunds_and_settles_nothing() {
    let (_, limiter) = three();
    let asked = [("user", "ann", 4), ("address", "net", 2)];
    assert!(limiter.named(asked).unwrap().check().now().is_allowed());
    for amounts in [
        [("address", "net", 1), ("users", "ann", 1)],
        [("user", "ann", 1), ("user", "bob", 1)],
    ] {
        let errors = [
            limiter.named(amounts).unwrap_err(),
            limiter.named(amounts).unwrap_err(),
            limiter.named(amounts).err().unwrap(),
            limiter.named(amounts).err().unwrap(),
        ];
        for error in errors {
            assert_eq!(error.field(), "policy");
        }
    }
    assert_eq!(used(&limiter), [2, 4]);
}

/// Returns the output of a future over a store in this process, which has nothing to wait for.
fn now<F: IntoFuture>(future: F) -> F::Output {
    match pin!(future.into_future()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("there is no answer yet"),
    }
}

#[test]
fn an_inspection_says_why_a_key_is_refused_and_charges_nothing() {
    let (clock, limiter) = limiter([
        Policy::new("burst", TokenBucket::per_second(2).burst(4)),
        Policy::new("hour", FixedWindow::per_hour(5)),
        Policy::new("cheap", FixedWindow::per_hour(4)).soft(),
        Policy::new("plan", Algorithm::Unlimited),
    ]);
    let said = |text: [&str; 4]| {
        for _ in 0..3 {
            let inspection = limiter.inspect("secret-token").now();
            assert_eq!(
                inspection.to_string(),
                text.map(|line| format!("{line}\n")).concat()
            );
            assert!(!format!("{inspection:?}").contains("secret"));
        }
    };
    said([
        "burst: nothing of 4 used.",
        "hour: nothing of 5 used.",
        "cheap: nothing of 4 used. It is soft: what is over the limit goes on, marked.",
        "plan: unlimited.",
    ]);
    assert!(limiter.check("secret-token", 4).now().is_allowed());
    said([
        "burst: 4 of 4 used, none remains. One more in 500ms, whole again in 2s.",
        "hour: 4 of 5 used, 1 remains. Whole again in 1h.",
        "cheap: 4 of 4 used, none remains. One more in 1h, whole again in 1h. It is soft: what is over the limit goes on, marked.",
        "plan: unlimited.",
    ]);
    limiter.block("secret-token", MINUTE + SECOND).now();
    clock.advance(SECOND);
    said([
        "burst: blocked for 1m; until then everything is denied. All of 4 available again in 1m.",
        "hour: blocked for 1m; until then everything is denied. All of 5 available again in 59m 59s.",
        "cheap: blocked for 1m; until then everything is denied. All of 4 available again in 59m 59s.",
        "plan: unlimited.",
    ]);
    let inspection = limiter.inspect("secret-token").now();
    assert_eq!(inspection.blocked_for(), Some(MINUTE));
    let at: SystemTime = inspection.at().unwrap();
    assert_eq!(inspection.blocked_until(), at.checked_add(MINUTE));
    let (_, hour) = inspection.policies().nth(1).unwrap();
    let whole = HOUR.checked_sub(SECOND).unwrap();
    assert_eq!(inspection.reset_at(hour), at.checked_add(whole));
    limiter.unblock("secret-token").now();
    assert_eq!(limiter.inspect("secret-token").now().blocked_for(), None);
}

#[test]
fn an_inspection_of_a_limit_of_zero_says_that_nothing_passes() {
    let (_, limiter) = limiter([Policy::new("closed", FixedWindow::per_hour(0))]);
    let text = "closed: the limit is 0, which nothing passes.\n";
    assert_eq!(limiter.inspect("ann").now().to_string(), text);
}
