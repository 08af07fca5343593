//! The effect of a factor on a limit.

use std::time::Duration;

use tower_ratelimit::factor::{Factor, FactorCell};
use tower_ratelimit::{
    FixedWindow, Limiter, LocalLimiter, ManualClock, MemoryStore, Policy, TokenBucket,
};

fn reduced(thousandths: u32) -> FactorCell {
    let cell = FactorCell::new();
    cell.set(Factor::thousandths(thousandths), "a test");
    cell
}

fn limiter(policy: Policy, store: MemoryStore) -> LocalLimiter {
    let builder = Limiter::builder().policy(policy).store(store);
    builder.build_local().unwrap()
}

fn still() -> MemoryStore {
    MemoryStore::new().clock(ManualClock::new())
}

/// Returns how many requests of one unit pass one after another.
fn passes(limiter: &LocalLimiter, key: &str) -> u32 {
    (0..1_000)
        .take_while(|_| limiter.admit(key, 1).now())
        .count()
        .try_into()
        .unwrap()
}

/// Ten for the request and ten for its higher price, whatever the factor.
#[test]
fn a_charge_leaves_at_most_one_capacity_of_debt_beyond_empty() {
    for factor in [100, 50, 1] {
        let cell = FactorCell::between(Factor::LEAST, Factor::ONE);
        cell.set(Factor::thousandths(factor), "a test");
        let bucket = TokenBucket::per_second(10).burst(10);
        let limiter = limiter(Policy::new("api", bucket).factor(&cell), still());
        assert!(limiter.check("ann", 10).now().is_allowed());
        let wait = limiter.peek("ann", 1).now().retry_after();
        assert_eq!(wait, Some(Duration::from_millis(1_100)), "under {factor}");
    }
}

/// The verdict alone has its own code path.
#[test]
fn the_verdict_alone_and_all_numbers_decide_alike() {
    for thousandths in [1_000, 999, 750, 500, 333, 100] {
        for policy in [
            Policy::new("api", TokenBucket::per_minute(60)),
            Policy::new("api", FixedWindow::per_hour(60)),
        ] {
            let cell = reduced(thousandths);
            let [verdicts, numbers] =
                [(); 2].map(|()| limiter(policy.clone().factor(&cell), still()));
            for request in 0..100 {
                let cost = request % 3;
                let decision = numbers.check("ann", cost).now();
                let is_admitted = verdicts.admit("ann", cost).now();
                assert_eq!(
                    is_admitted,
                    decision.is_allowed(),
                    "{thousandths}: {request}"
                );
                if request == 40 {
                    cell.set(Factor::ONE, "");
                }
            }
            let told =
                |limiter: &LocalLimiter| limiter.peek("ann", 1).now().binding().map(|it| *it.1);
            assert_eq!(told(&verdicts), told(&numbers));
            let count = |limiter: &LocalLimiter| {
                let snapshot = limiter.snapshot();
                let policy = snapshot.policy("api").unwrap();
                (policy.allowed, policy.refused)
            };
            assert_eq!(count(&verdicts), count(&numbers));
        }
    }
}

/// Each node charges by its own factor, and the store knows no factor.
#[test]
fn nodes_that_share_a_store_each_charge_by_their_own_factor() {
    let store = still();
    let node = |factor: &FactorCell| {
        let policy = Policy::new("api", FixedWindow::per_hour(100)).factor(factor);
        limiter(policy, store.clone())
    };
    let (calm, busy) = (node(&reduced(1_000)), node(&reduced(500)));
    // Ten units, and ten at twice their price.
    for _ in 0..10 {
        assert!(calm.admit("ann", 1).now() && busy.admit("ann", 1).now());
    }
    assert_eq!(passes(&calm, "ann"), 70);
    assert!(!busy.admit("ann", 1).now());
}
