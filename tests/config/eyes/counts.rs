//! Every request is counted once under each policy, and nothing is lost between threads.

use std::sync::Barrier;
use std::thread;

use tower_ratelimit::factor::{Factor, FactorCell};
use tower_ratelimit::observe::Snapshot;
use tower_ratelimit::policy::TopKeys;
use tower_ratelimit::{Concurrency, FixedWindow, Limiter, LocalLimiter, Policy, TokenBucket};

/// Returns the sum of the outcomes of each policy.
fn asked(snapshot: &Snapshot, policy: &str) -> u64 {
    let told = snapshot.policy(policy).unwrap();
    told.allowed + told.refused + told.shadow_refused + told.soft + told.uncharged + told.failed
}

/// By each verb, though one of them tells no outcomes.
#[test]
fn a_refusal_counts_among_the_heaviest_keys_of_the_policy_that_refuses() {
    for admits in [
        |limiter: &LocalLimiter| limiter.check("ann", 1).now().is_allowed(),
        |limiter: &LocalLimiter| limiter.admit("ann", 1).now(),
    ] {
        let policy = |name: &str, limit| {
            let policy = Policy::new(name, FixedWindow::per_day(limit));
            policy.top_keys(TopKeys::new(3))
        };
        let limiter = Limiter::builder()
            .policy(policy("few", 2))
            .policy(policy("many", 9))
            .build_local()
            .unwrap();
        let admitted = (0..5).filter(|_| admits(&limiter)).count();
        assert_eq!(admitted, 2);
        let snapshot = limiter.snapshot();
        for (name, refused) in [("few", 3), ("many", 0)] {
            let heaviest = snapshot.policy(name).unwrap().heaviest.as_ref().unwrap();
            let told = heaviest.keys.iter().map(|key| (key.cost, key.refused));
            assert_eq!(told.collect::<Vec<_>>(), [(5, refused)], "{name}");
        }
    }
}

/// What is taken counts, and that nothing was left.
#[test]
fn units_that_are_taken_count_among_the_heaviest_keys() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let later = |limiter: &LocalLimiter, most| {
        let taken = limiter.acquire_up_to("ann", most).into_future();
        runtime.block_on(taken).unwrap().0
    };
    let now = |limiter: &LocalLimiter, most| limiter.acquire_up_to("ann", most).now().0;
    for take in [&now as &dyn Fn(&LocalLimiter, u32) -> u32, &later] {
        let policy = Policy::new("mails", FixedWindow::per_day(10));
        let policy = policy.top_keys(TopKeys::new(3));
        let limiter = Limiter::builder().policy(policy).build_local().unwrap();
        assert_eq!([7; 3].map(|most| take(&limiter, most)), [7, 3, 0]);
        let snapshot = limiter.snapshot();
        let heaviest = snapshot.policy("mails").unwrap().heaviest.as_ref().unwrap();
        let told = heaviest.keys.iter();
        let told: Vec<_> = told.map(|key| (key.cost, key.refused)).collect();
        assert_eq!(told, [(10, 1)]);
    }
}

#[test]
fn each_request_has_one_outcome_under_each_policy() {
    let limiter = Limiter::builder()
        .policy(Policy::new("burst", TokenBucket::per_second(1).burst(5)))
        .policy(Policy::new("daily", FixedWindow::per_day(100)))
        .policy(Policy::new("gentle", FixedWindow::per_day(2)).soft())
        .build_local()
        .unwrap();
    for cost in [4, 4, 1, 1, 0, 200] {
        let _ = limiter.check("ann", cost).now();
    }
    assert!(limiter.admit("bob", 1).now());
    limiter
        .block("bob", std::time::Duration::from_secs(60))
        .now();
    assert!(!limiter.admit("bob", 1).now());

    let snapshot = limiter.snapshot();
    for policy in ["burst", "daily", "gentle"] {
        assert_eq!(asked(&snapshot, policy), 8, "{policy}");
    }
    let requests = &snapshot.requests;
    assert_eq!((requests.allowed, requests.refused), (4, 4));
    let burst = snapshot.policy("burst").unwrap();
    assert_eq!((burst.allowed, burst.refused, burst.uncharged), (4, 4, 0));
    assert_eq!((burst.cost, burst.near_limit, burst.blocked), (6, 3, 1));
    let daily = snapshot.policy("daily").unwrap();
    assert_eq!((daily.allowed, daily.refused, daily.uncharged), (4, 2, 2));
    let gentle = snapshot.policy("gentle").unwrap();
    assert_eq!((gentle.allowed, gentle.soft, gentle.uncharged), (3, 1, 3));
    assert_eq!(gentle.mode, "soft");
}

#[test]
fn threads_lose_no_count_however_many_they_are() {
    let limiter = Limiter::builder()
        .policy(Policy::new("all", FixedWindow::per_day(200_000)))
        .build_local()
        .unwrap();
    // More threads at a time than the counters have rows, and some after others have ended.
    for _ in 0..2 {
        let together = Barrier::new(100);
        thread::scope(|scope| {
            for _ in 0..100 {
                scope.spawn(|| {
                    together.wait();
                    for _ in 0..2_000 {
                        let _ = limiter.check("ann", 1).now();
                    }
                    together.wait();
                });
            }
        });
    }
    let snapshot = limiter.snapshot();
    let all = snapshot.policy("all").unwrap();
    let counts = (all.allowed, all.refused, all.cost, all.near_limit);
    assert_eq!(counts, (200_000, 200_000, 200_000, 40_001));
    let requests = &snapshot.requests;
    assert_eq!(requests.allowed + requests.refused, 400_000);
}

#[test]
fn a_policy_with_a_factor_counts_units_and_not_their_price() {
    let factor = FactorCell::new();
    let limiter = Limiter::builder()
        .policy(Policy::new("api", FixedWindow::per_day(100)).factor(&factor))
        .build_local()
        .unwrap();
    for (thousandths, cost) in [(1_000, 3), (500, 7), (333, 5), (100, 1)] {
        factor.set(Factor::thousandths(thousandths), "a test");
        assert!(limiter.check("ann", cost).now().is_allowed());
    }
    let snapshot = limiter.snapshot();
    let api = snapshot.policy("api").unwrap();
    assert_eq!((api.allowed, api.cost, api.limit), (4, 16, Some(100)));
    let told = api.factor.as_ref().unwrap();
    assert_eq!(
        (told.factor, told.least, told.cause.as_deref()),
        (0.1, 0.1, Some("a test"))
    );
}

#[test]
fn charges_and_corrections_are_counted() {
    let limiter = Limiter::builder()
        .policy(Policy::new("mails", FixedWindow::per_day(10)))
        .build_local()
        .unwrap();
    assert_eq!(limiter.acquire_up_to("ann", 7).now().0, 7);
    assert_eq!(limiter.acquire_up_to("ann", 7).now().0, 3);
    assert_eq!(limiter.acquire_up_to("ann", 7).now().0, 0);
    limiter.refund("ann", 3).now();
    limiter.settle("ann", 1).now();
    let snapshot = limiter.snapshot();
    let mails = snapshot.policy("mails").unwrap();
    assert_eq!((mails.allowed, mails.refused, mails.cost), (2, 1, 11));
    assert_eq!(mails.settled, 2);
    assert_eq!(mails.keys.unwrap().kept, 1);
}

#[test]
fn a_question_is_not_counted() {
    let limiter = Limiter::builder()
        .policy(Policy::new("mails", FixedWindow::per_day(10)))
        .build_local()
        .unwrap();
    let _ = limiter.peek("ann", 4).now();
    let _ = limiter.inspect("ann").now();
    let snapshot = limiter.snapshot();
    assert_eq!(asked(&snapshot, "mails"), 0);
    assert_eq!(snapshot.requests.allowed, 0);
}

#[tokio::test]
async fn a_reservation_is_counted_as_any_other_request() {
    let limiter = Limiter::builder()
        .policy(Policy::new("tokens", FixedWindow::per_day(10)))
        .policy(Policy::new("at once", Concurrency::of(3)))
        .build_local()
        .unwrap();
    let one = Limiter::builder()
        .policy(Policy::new("tokens", FixedWindow::per_day(10)))
        .build_local()
        .unwrap();
    for (limiter, policies) in [(&limiter, &["tokens", "at once"][..]), (&one, &["tokens"])] {
        limiter.reserve("ann", 3).now().settle(1);
        limiter.reserve("ann", 2).await.unwrap().cancel();
        drop(
            limiter
                .named([("tokens", "ann", 7)])
                .unwrap()
                .reserve()
                .now(),
        );
        let named = limiter.named([("tokens", "ann", 1)]).unwrap().reserve();
        drop(named.await.unwrap());
        assert!(!limiter.reserve("ann", 2).now().is_allowed());

        let snapshot = limiter.snapshot();
        let requests = &snapshot.requests;
        assert_eq!((requests.allowed, requests.refused), (4, 1));
        let tokens = snapshot.policy("tokens").unwrap();
        assert_eq!((tokens.allowed, tokens.refused), (4, 1));
        assert_eq!(
            (tokens.cost, tokens.near_limit, tokens.settled),
            (9, 2, 2),
            "what they cost in the end, and not their estimates"
        );
        for policy in policies {
            let expected = if *policy == "tokens" { 5 } else { 3 };
            assert_eq!(asked(&snapshot, policy), expected, "{policy}");
        }
    }
}
