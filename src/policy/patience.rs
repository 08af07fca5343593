use std::time::Duration;

use super::Policy;
use crate::error::ConfigError;

/// How long a policy's requests wait for their turn, and how many of a key; not at all, unless said.
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

impl<R> Policy<R> {
    /// Lets a request that the policy denies wait for its turn before a
    /// [`RateLimitLayer`](crate::RateLimitLayer), if it comes within this time; zero, as unless said,
    /// refuses at once. Any algorithm will do.
    ///
    /// Those of one key wait in one line, in which nobody overtakes: see
    /// [Waiting under any algorithm](crate::middleware#waiting-under-any-algorithm). Refused at once is
    /// whose turn would come later than that, or after its
    /// [`Deadline`](crate::middleware::Deadline); whom another policy denies that does not wait; and
    /// who finds the [places](Self::wait_places) taken. A [`Limiter`](crate::Limiter) lets nobody
    /// wait, and its builder refuses a policy that would. The layer's store has to know how to [peek](crate::store::Ledger::peek).
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// use axum::{Router, body::Body, http::Request, routing::get};
    /// use tower::ServiceExt;
    /// use tower_ratelimit::{Policy, RateLimitLayer, TokenBucket, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let policy = Policy::new("burst", TokenBucket::per_second(20).burst(2))
    ///     .wait_up_to(Duration::from_secs(1))
    ///     .key(key::global());
    /// let limit = RateLimitLayer::builder().policy(policy).build()?;
    /// let app: Router = Router::new().route("/", get(|| async {})).layer(limit);
    ///
    /// let start = Instant::now();
    /// for _ in 0..4 {
    ///     let response = app.clone().oneshot(Request::new(Body::empty())).await?;
    ///     assert_eq!(response.status(), 200);
    /// }
    /// // Two at once, and two that waited for a twentieth of a second each.
    /// assert!(start.elapsed() >= Duration::from_millis(100));
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_up_to(mut self, longest: Duration) -> Self {
        self.patience.longest = longest;
        self
    }

    /// How many requests of one key may [wait](Self::wait_up_to) at the same time; 100 unless said.
    /// Whoever comes when they do is refused at once. With 0 nobody waits.
    ///
    /// Each is held in memory; a layer bounds
    /// [those of all keys](crate::middleware::RateLimitLayerBuilder::wait_places) too.
    pub fn wait_places(mut self, places: u32) -> Self {
        self.patience.places = places;
        self
    }

    pub(crate) fn patience(&self) -> Patience {
        self.patience
    }

    /// Refuses a policy that denies nobody, and would have somebody wait.
    pub(super) fn check_patience(&self) -> Result<(), ConfigError> {
        if self.is_soft && self.patience.is_any() {
            let remedy = "let it not be soft, or leave `wait_up_to` out: what is over a soft limit \
                          goes on at once";
            return Err(ConfigError::quoting("wait_up_to", self.name(), remedy));
        }
        Ok(())
    }
}
