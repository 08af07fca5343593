use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::lines::{Bounds, Lines};
use super::{Heed, host};
use crate::clock::{Clock, Timers};
use crate::key::{Extract, IntoKey};

/// Holds calls to servers of HTTP or gRPC for as long as these have told, by what they answered
/// before.
///
/// Clones, and all services that they wrap, share what was learnt. See the [module](crate::client)
/// for examples.
///
/// # Defaults
///
/// - key: the [host] that a call goes to
/// - longest hold: an hour, whatever a server tells
/// - wait: as long as the hold
/// - waiting: 1,024 calls of each key
/// - clock: tokio's timers
/// - keys: 10,000, of which the one that was used longest ago is forgotten first
#[derive(Clone)]
#[must_use = "a layer does nothing until it wraps a service"]
pub struct HeedLayer {
    key: Arc<dyn Extract>,
    bounds: Bounds,
    lines: Arc<Lines>,
}

/// A time that the platform cannot hold is as good as this.
const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 86_400);

impl HeedLayer {
    /// A layer with the defaults.
    pub fn new() -> Self {
        Self {
            key: Arc::new(|head: &crate::key::Head<'_>| host(head)),
            bounds: Bounds {
                longest_hold: Duration::from_secs(3_600),
                longest_wait: None,
                waiting: 1_024,
                keys: 10_000,
            },
            lines: Arc::default(),
        }
    }

    /// Whose limit a call falls under: what a server counts apart should have keys that are apart, such as
    /// the token that calls are made with.
    ///
    /// It is one of the extractors of [`key`](crate::key), or a closure over the call's head. A call
    /// without a key goes at once, and nothing is learnt from it.
    pub fn key(mut self, key: impl Extract) -> Self {
        self.key = Arc::new(key);
        self
    }

    /// The longest that calls are held by one answer; an hour unless said. What is told beyond that
    /// is forgotten: one call then goes ahead, and is told again.
    pub fn longest_hold(mut self, longest: Duration) -> Self {
        self.bounds.longest_hold = longest.min(FOR_EVER);
        self
    }

    /// The longest that a call waits; until it may go, unless said. One that would have to wait for
    /// longer is answered at once with [`Held`](super::Held). With zero none ever waits.
    pub fn wait_up_to(mut self, longest: Duration) -> Self {
        self.bounds.longest_wait = Some(longest.min(FOR_EVER));
        self
    }

    /// How many calls of one key may wait, each of which is held in memory; 1,024 unless said. One
    /// more is answered at once with [`Held`](super::Held).
    pub fn max_waiting(mut self, calls: usize) -> Self {
        self.bounds.waiting = calls;
        self
    }

    /// Of how many keys it is remembered what was learnt; 10,000 unless said, and at least 1. Those
    /// without a call are forgotten for others, the one whose hold is over first; calls of a key for
    /// which there is no room go at once.
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.bounds.keys = keys.max(1);
        self
    }

    /// Waits by this clock in place of tokio's timers, and reads dates by it, if it is one that a test
    /// moves: a [`ManualClock`](crate::ManualClock), or another that
    /// [can be waited for](Clock::sleep_until). Calls that wait go on when it is moved.
    ///
    /// The layer shares nothing with the one that it is made of: what was learnt is of no use under another
    /// clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        let timers = Timers::of(Some(Arc::new(clock)));
        self.lines = Arc::new(Lines::new(timers));
        self
    }

    /// How much longer calls of this key are held, if they are.
    pub fn held_for(&self, key: impl IntoKey) -> Option<Duration> {
        self.lines.held_for(&key.into_key())
    }
}

impl Default for HeedLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for HeedLayer {
    type Service = Heed<S>;

    fn layer(&self, inner: S) -> Heed<S> {
        Heed::new(
            inner,
            Arc::clone(&self.key),
            self.bounds,
            Arc::clone(&self.lines),
        )
    }
}

impl fmt::Debug for HeedLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeedLayer")
            .field("bounds", &self.bounds)
            .field("lines", &self.lines)
            .finish_non_exhaustive()
    }
}
