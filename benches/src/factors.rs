//! Limiters whose limit is held by a factor, beside one that has none.

use tower_ratelimit::factor::{Factor, FactorCell};
use tower_ratelimit::{Gcra, Limiter, MemoryStore, Policy};

use crate::ours;

/// The limit: of a policy with a factor it can be no more than two millions, since such a policy counts in thousandths.
pub const LIMIT: u32 = 1_000_000;

/// What a policy's limit is multiplied with.
#[derive(Clone, Copy, Debug)]
pub enum Scale {
    /// The policy has no factor.
    None,
    /// One that is so many thousandths now.
    Thousandths(u32),
    /// The same, after it was each number of thousandths from 900 down to this.
    Fallen(u32),
}

/// One policy under this factor, which allows a million requests a second.
pub fn limiter(scale: Scale, store: MemoryStore) -> Limiter {
    limiter_of(LIMIT, scale, store)
}

/// The same under another limit.
pub fn limiter_of(limit: u32, scale: Scale, store: MemoryStore) -> Limiter {
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
                limiter.admit_now("another key", 1);
            }
        }
    }
    limiter
}
