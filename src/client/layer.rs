//! The layer of outgoing calls, and its settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use tower_ratelimit_core::__internal::Timers;

use super::lines::{Bounds, Lines};
use super::{ClientThrottle, host};
use crate::clock::Clock;
use crate::key::{Extract, IntoKey};

/// Holds calls to HTTP and gRPC servers for as long as the responses of these servers say.
///
/// Clones, and all services that they wrap, share what the layer has learnt. See the
/// [module](crate::client) for examples.
///
/// # Defaults
///
/// - key: the [host] that a call goes to
/// - longest hold: an hour, even if a server announces more
/// - wait: as long as the hold
/// - waiting: 1,024 calls of each key
/// - clock: tokio's timers
/// - keys: 10,000, of which the layer forgets the least recently used first
#[derive(Clone)]
#[must_use = "a layer does nothing until it wraps a service"]
pub struct ClientThrottleLayer {
    key: Arc<dyn Extract>,
    bounds: Bounds,
    lines: Arc<Lines>,
}

/// Longer times are cut to this, since a platform may not be able to represent them.
const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 86_400);

impl ClientThrottleLayer {
    /// A layer with the defaults.
    pub fn new() -> Self {
        Self {
            key: Arc::new(|head: &crate::key::Head<'_>| host(head)),
            bounds: Bounds {
                max_hold: Duration::from_secs(3_600),
                longest_wait: None,
                waiting: 1_024,
                keys: 10_000,
            },
            lines: Arc::default(),
        }
    }

    /// Sets the limit to which a call belongs. Calls that a server counts separately need different keys, such as
    /// their tokens.
    ///
    /// It is one of the extractors of [`key`](crate::key), or a closure over the head of the call. A call
    /// without a key goes at once, and the layer learns nothing from it.
    pub fn key(mut self, key: impl Extract) -> Self {
        self.key = Arc::new(key);
        self
    }

    /// Sets the longest time for which one response holds calls; by default an hour. If a server announces more,
    /// one call goes ahead after this time, and its response announces the rest.
    pub fn max_hold(mut self, longest: Duration) -> Self {
        self.bounds.max_hold = longest.min(FOR_EVER);
        self
    }

    /// Sets the longest time for which a call waits; by default until it may go. A call that would have to wait
    /// for longer fails at once with [`Throttled`](super::Throttled). With zero no call waits.
    pub fn wait_up_to(mut self, longest: Duration) -> Self {
        self.bounds.longest_wait = Some(longest.min(FOR_EVER));
        self
    }

    /// Sets how many calls of one key may wait; by default 1,024. Each of them is kept in memory. A further call
    /// fails at once with [`Throttled`](super::Throttled).
    pub fn wait_places(mut self, calls: usize) -> Self {
        self.bounds.waiting = calls;
        self
    }

    /// Sets how many keys the layer remembers; by default 10,000, and at least 1. To make room it forgets a key
    /// without calls, the key whose hold ends first. If every key has calls, calls of a new key go at once.
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.bounds.keys = keys.max(1);
        self
    }

    /// Waits by this clock in place of tokio's timers, and reads dates by it, if a test moves the clock: a
    /// [`ManualClock`](crate::ManualClock), or another clock that
    /// [can be waited for](Clock::sleep_until). Calls that wait go on when the test moves it.
    ///
    /// The new layer shares no state with `self`: what a layer has learnt under one clock is of no use under
    /// another.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        let timers = Timers::of(Some(Arc::new(clock)));
        self.lines = Arc::new(Lines::new(timers));
        self
    }

    /// Returns how much longer calls of this key are held; `None` if they are not.
    pub fn remaining_hold(&self, key: impl IntoKey) -> Option<Duration> {
        self.lines.remaining_hold(&key.into_key())
    }
}

impl Default for ClientThrottleLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for ClientThrottleLayer {
    type Service = ClientThrottle<S>;

    fn layer(&self, inner: S) -> ClientThrottle<S> {
        ClientThrottle::new(
            inner,
            Arc::clone(&self.key),
            self.bounds,
            Arc::clone(&self.lines),
        )
    }
}

impl fmt::Debug for ClientThrottleLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientThrottleLayer")
            .field("bounds", &self.bounds)
            .field("lines", &self.lines)
            .finish_non_exhaustive()
    }
}
