use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ahash::RandomState;

use crate::error::ConfigError;

/// Spreads out the clients that would otherwise come back at the same moment.
#[derive(Debug)]
pub(super) struct Jitter {
    most: u64,
    /// Has random keys, so that a client cannot predict the jitter of other clients.
    state: RandomState,
    refusals: AtomicU64,
}

impl Jitter {
    /// Makes a jitter with numbers from 0 to `most`.
    pub(super) fn up_to(most: u64) -> Self {
        Self {
            most,
            state: RandomState::new(),
            refusals: AtomicU64::new(0),
        }
    }

    /// Returns a number from 0 to `most`, uniformly distributed.
    pub(super) fn number(&self) -> u64 {
        let refusal = self.refusals.fetch_add(1, Ordering::Relaxed);
        let hash = self.state.hash_one(refusal);
        let below = u128::from(self.most) + 1;
        u64::try_from((u128::from(hash) * below) >> u64::BITS).unwrap_or(0)
    }
}

/// Rejects a jitter with a fraction of a second, which `Retry-After` cannot express.
pub(super) fn check(most: Duration) -> Result<(), ConfigError> {
    if most.subsec_nanos() != 0 {
        let value = format_args!("{most:?}");
        return Err(ConfigError::new(
            "retry_jitter",
            value,
            "give whole seconds",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeded(most: u64) -> Jitter {
        Jitter {
            state: RandomState::with_seeds(1, 2, 3, 4),
            ..Jitter::up_to(most)
        }
    }

    #[test]
    fn each_number_up_to_the_most_is_as_likely_as_any_other() {
        let jitter = seeded(9);
        let mut counts = [0_u32; 10];
        for _ in 0..10_000 {
            counts[usize::try_from(jitter.number()).unwrap()] += 1;
        }
        // The expected count is a thousand each; a deviation of 150 is five standard deviations.
        assert!(
            counts.iter().all(|count| (850..=1_150).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn the_least_and_the_largest_are_in_range() {
        assert_eq!(seeded(0).number(), 0);
        let largest = seeded(u64::MAX);
        assert_ne!(largest.number(), largest.number());
    }
}
