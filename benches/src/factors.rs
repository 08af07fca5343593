//! Limiters whose limit follows a factor, beside one without a factor.

use tower_ratelimit::factor::{Factor, FactorCell};
use tower_ratelimit::{Gcra, LocalLimiter, MemoryStore, Policy};

use crate::ours;

/// The limit. A policy with a factor counts in thousandths, so its limit is two millions at most.
pub const LIMIT: u32 = 1_000_000;

/// The factor of a policy's limit.
#[derive(Clone, Copy, Debug)]
pub enum Scale {
    /// The policy has no factor.
    None,
    /// The factor is this many thousandths now.
    Thousandths(u32),
    /// The same, after the factor was each number of thousandths from 900 down to this.
    Fallen(u32),
}

/// Returns a limiter of a million requests a second under this factor.
pub fn limiter(scale: Scale, store: MemoryStore) -> LocalLimiter {
    limiter_of(LIMIT, scale, store)
}

/// Returns the same with another limit.
pub fn limiter_of(limit: u32, scale: Scale, store: MemoryStore) -> LocalLimiter {
    let cell = FactorCell::between(Factor::LEAST, Factor::ONE);
    let policy = Policy::new("bench", Gcra::per_second(limit));
    let policy = match scale {
        Scale::None => policy,
        Scale::Thousandths(_) | Scale::Fallen(_) => policy.factor(&cell),
    };
    let limiter = ours::limiter_of([policy], store);
    let set = |thousandths| cell.set(Factor::thousandths(thousandths), "a benchmark");
    match scale {
        Scale::None => {}
        Scale::Thousandths(thousandths) => set(thousandths),
        Scale::Fallen(thousandths) => {
            for passed in (thousandths..=900).rev() {
                set(passed);
                limiter.admit("another key", 1).now();
            }
        }
    }
    limiter
}
