use std::time::Duration;

use super::Policy;
use crate::error::ConfigError;

/// How long the requests of a policy wait for their turn, and how many of a key may wait. By default no
/// request waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    longest: Duration,
    places: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            longest: Duration::ZERO,
            places: 100,
        }
    }
}

impl Patience {
    pub(crate) fn longest(self) -> Duration {
        self.longest
    }

    pub(crate) fn places(self) -> u32 {
        self.places
    }

    pub(crate) fn is_any(self) -> bool {
        self.longest > Duration::ZERO && self.places > 0
    }
}

impl Policy {
    /// Lets a request that the policy denies wait for its turn in a layer, for at most this time: in a
    /// [`RateLimitLayer`][RateLimitLayer] or a [`LimitLayer`](crate::LimitLayer).
    ///
    /// [RateLimitLayer]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/middleware/struct.RateLimitLayer.html
    pub fn wait_up_to(mut self, longest: Duration) -> Self {
        self.patience.longest = longest;
        self
    }

    /// Sets how many requests of one key may [wait](Self::wait_up_to) at the same time; the default
    /// is 100.
    pub fn wait_places(mut self, places: u32) -> Self {
        self.patience.places = places;
        self
    }

    /// Returns whether requests wait by [`wait_up_to`](Self::wait_up_to).
    // For interceptors, which cannot hold a call.
    #[doc(hidden)]
    pub fn may_hold(&self) -> bool {
        self.patience.is_any()
    }

    pub(crate) fn patience(&self) -> Patience {
        self.patience
    }

    /// Rejects a policy that denies no request, but would let requests wait.
    pub(crate) fn check_patience(&self) -> Result<(), ConfigError> {
        if self.is_soft && self.patience.is_any() {
            let remedy = "let it not be soft, or leave `wait_up_to` out: what is over a soft limit \
                          goes on at once";
            return Err(ConfigError::quoting("wait_up_to", self.name(), remedy));
        }
        Ok(())
    }
}
