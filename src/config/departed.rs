//! The state of policies that a file no longer has, for as long as it counts: a policy that comes back finds
//! it.
//!
//! A store in memory keeps a state for as long as a layer uses it. So the last layer with the policy is kept,
//! also until the last block and the last override of a key have ended.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::algorithm::{Algorithm, State};
use crate::clock::Micros;
use crate::middleware::RateLimitLayer;

/// The identity of a state in a store: the name under which the policy began, and the algorithm without its
/// limit.
type Frame = (String, (&'static str, Option<Duration>, Option<u32>));

#[derive(Debug, Default)]
pub(super) struct Departed {
    kept: HashMap<Frame, (Instant, RateLimitLayer)>,
}

impl Departed {
    /// Keeps the states that a layer had `before` and has no longer.
    pub(super) fn leave(
        &mut self,
        before: &[(String, Algorithm)],
        now: &[(String, Algorithm)],
        layer: &RateLimitLayer,
        at: Instant,
    ) {
        self.forget(at);
        for (place, (name, algorithm)) in before.iter().enumerate() {
            let life = life(algorithm).max(layer.holds_for(place));
            if let Some(until) = at.checked_add(life) {
                let kept = (until, layer.clone());
                self.kept.insert((name.clone(), algorithm.frame()), kept);
            }
        }
        for (name, algorithm) in now {
            self.kept.remove(&(name.clone(), algorithm.frame()));
        }
    }

    /// Drops layers whose states have no effect any more.
    pub(super) fn forget(&mut self, at: Instant) {
        self.kept.retain(|_, (until, _)| *until > at);
    }
}

/// Returns the time after which a key that has used its whole limit is new. A debt can be twice as large.
fn life(algorithm: &Algorithm) -> Duration {
    let Some(limit) = algorithm.limit() else {
        return Duration::ZERO;
    };
    let (used, _) = algorithm.step(State::NEW, Micros::ZERO, limit);
    used.reset_after().saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::algorithm::{FixedWindow, TokenBucket};
    use crate::key;

    #[test]
    fn a_state_is_kept_for_as_long_as_it_counts() {
        let window = Algorithm::from(FixedWindow::per_minute(5));
        let bucket = Algorithm::from(TokenBucket::per_minute(5).burst(10));
        assert_eq!(life(&window), Duration::from_secs(120));
        assert_eq!(life(&bucket), Duration::from_secs(240));
        assert_eq!(life(&Algorithm::Unlimited), Duration::ZERO);

        let layer = RateLimitLayer::new(key::global(), window);
        let of = |name: &str, algorithm| [(name.to_owned(), algorithm)];
        let start = Instant::now();
        let mut departed = Departed::default();
        departed.leave(&of("a", window), &of("a", bucket), &layer, start);
        assert_eq!(
            departed.kept.len(),
            1,
            "another algorithm has another state"
        );
        departed.leave(&of("a", bucket), &of("b", window), &layer, start);
        assert_eq!(departed.kept.len(), 2);
        let higher = Algorithm::from(FixedWindow::per_minute(6));
        departed.leave(&of("b", window), &of("a", higher), &layer, start);
        assert_eq!(departed.kept.len(), 2, "one has left, and one is back");
        departed.forget(start + Duration::from_secs(200));
        assert_eq!(departed.kept.len(), 1);
        departed.forget(start + Duration::from_secs(240));
        assert!(departed.kept.is_empty());
    }

    /// An operator blocks a client for longer than the policy remembers what it has used.
    #[test]
    fn a_state_is_kept_until_the_last_block_has_ended() {
        let window = Algorithm::from(FixedWindow::per_second(9));
        let layer = RateLimitLayer::new(key::global(), window);
        let (limiter, client) = (layer.limiter(), key::global().key_of(()).unwrap());
        let block = pin!(limiter.block(client, Duration::from_secs(3_600)));
        let blocked = block.poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(blocked, Poll::Ready(Ok(()))));
        let start = Instant::now();
        let mut departed = Departed::default();
        departed.leave(&[("default".to_owned(), window)], &[], &layer, start);
        departed.forget(start + Duration::from_secs(3_500));
        assert_eq!(departed.kept.len(), 1);
        departed.forget(start + Duration::from_secs(3_600));
        assert!(departed.kept.is_empty());
    }
}
