//! The state of policies that a file no longer has, for as long as it counts: a policy that comes back finds
//! it.
//!
//! A store in memory keeps a state for as long as a layer uses it. So the last layer with the policy is kept,
//! also until the last block and the last override of a key have ended.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use tower_ratelimit::algorithm::{Algorithm, State};
use tower_ratelimit::clock::Micros;
use tower_ratelimit::middleware::RateLimitLayer;

/// The identity of a state in a store: the name under which the policy began, and the algorithm without its
/// limit.
type Frame = (String, (&'static str, Option<Duration>, Option<u32>));

#[derive(Debug, Default)]
pub(super) struct Departed {
    policies: HashMap<Frame, LastLayer>,
}

/// The last layer with a policy.
#[derive(Debug)]
struct LastLayer {
    until: Instant,
    layer: RateLimitLayer,
    /// The index of the policy in the layer.
    place: usize,
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
        let frame = |(name, algorithm): &(String, Algorithm)| (name.clone(), algorithm.frame());
        let now: HashSet<Frame> = now.iter().map(frame).collect();
        self.policies.retain(|frame, _| !now.contains(frame));
        for (place, policy) in before.iter().enumerate() {
            let frame = frame(policy);
            if now.contains(&frame) {
                continue;
            }
            // The keys have also met other limits: of plans, of keys, of hours, of earlier files.
            let life = life(&policy.1).max(layer.limiter().policies().holds_for(place));
            if let Some(until) = at.checked_add(life) {
                let layer = layer.clone();
                let last = LastLayer {
                    until,
                    layer,
                    place,
                };
                self.policies.insert(frame, last);
            }
        }
    }

    /// Drops layers whose states have no effect any more.
    pub(super) fn forget(&mut self, at: Instant) {
        self.policies.retain(|_, last| {
            if last.until <= at {
                // A request that was in flight may have been charged meanwhile.
                let limiter = last.layer.limiter();
                let more = at.checked_add(limiter.policies().holds_for(last.place));
                last.until = more.unwrap_or(last.until);
            }
            last.until > at
        });
    }
}

/// Returns the time after which a key that has used the whole limit of its policy is new. A debt can be twice as large.
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
    use tower_ratelimit::algorithm::{FixedWindow, TokenBucket};
    use tower_ratelimit::clock::ManualClock;
    use tower_ratelimit::key;
    use tower_ratelimit::policy::Policy;
    use tower_ratelimit::store::MemoryStore;

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
            departed.policies.len(),
            1,
            "another algorithm has another state"
        );
        departed.leave(&of("a", bucket), &of("b", window), &layer, start);
        assert_eq!(departed.policies.len(), 2);
        let higher = Algorithm::from(FixedWindow::per_minute(6));
        departed.leave(&of("b", window), &of("a", higher), &layer, start);
        assert_eq!(departed.policies.len(), 2, "one has left, and one is back");
        departed.forget(start + Duration::from_secs(200));
        assert_eq!(departed.policies.len(), 1);
        departed.forget(start + Duration::from_secs(240));
        assert!(departed.policies.is_empty());
    }

    /// An operator blocks a client for longer than the policy remembers what it has used.
    #[test]
    fn a_state_is_kept_until_the_last_block_has_ended() {
        let window = Algorithm::from(FixedWindow::per_second(9));
        let clock = ManualClock::new();
        let layer = RateLimitLayer::builder()
            .policy(Policy::new("default", window).key(key::global()))
            .store(MemoryStore::new().clock(clock.clone()));
        let layer = layer.build().unwrap();
        let (limiter, client) = (layer.limiter(), key::global().key_of(()).unwrap());
        let block = limiter.block(client, Duration::from_secs(3_600));
        let block = pin!(block.into_future());
        let blocked = block.poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(blocked, Poll::Ready(Ok(()))));
        let start = Instant::now();
        let mut departed = Departed::default();
        departed.leave(&[("default".to_owned(), window)], &[], &layer, start);
        departed.forget(start + Duration::from_secs(3_500));
        assert_eq!(departed.policies.len(), 1);
        departed.forget(start + Duration::from_secs(3_600));
        assert_eq!(
            departed.policies.len(),
            1,
            "by the clock of the store it holds"
        );
        clock.advance(Duration::from_secs(3_600));
        departed.forget(start + Duration::from_secs(7_200));
        assert!(departed.policies.is_empty());
    }
}
