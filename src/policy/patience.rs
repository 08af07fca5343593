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

impl<R> Policy<R> {
    /// Lets a request that the policy denies wait for its turn in a layer, for at most this time: in a
    /// [`RateLimitLayer`](crate::RateLimitLayer) or a [`LimitLayer`](crate::LimitLayer).
    ///
    /// The default is zero, which refuses at once. It works with any algorithm. The requests of one
    /// key wait in one line, in order: see [Waiting under any
    /// algorithm](crate::middleware#waiting-under-any-algorithm). A request is refused at once if
    ///
    /// - its turn would come later than this time, or after its
    ///   [`Deadline`](crate::middleware::Deadline);
    /// - another policy that does not wait denies it;
    /// - the [places](Self::wait_places) are taken.
    ///
    /// A [`Limiter`](crate::Limiter) holds no requests: its verbs deny at once, and the decision has the
    /// [wait](crate::Decision::retry_after). The store of the layer has to support
    /// [`peek`](crate::store::Ledger::peek).
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
    /// // Two pass at once, and two wait for a twentieth of a second each.
    /// assert!(start.elapsed() >= Duration::from_millis(100));
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_up_to(mut self, longest: Duration) -> Self {
        self.patience.longest = longest;
        self
    }

    /// Sets how many requests of one key may [wait](Self::wait_up_to) at the same time; the default
    /// is 100.
    ///
    /// A request beyond that is refused at once. With 0 no request waits. Waiting requests stay in
    /// memory; a layer also bounds [those of all
    /// keys](crate::middleware::RateLimitLayerBuilder::wait_places). Requests of low priority that leave a
    /// [reserve](Self::reserve) have as many places of their own.
    pub fn wait_places(mut self, places: u32) -> Self {
        self.patience.places = places;
        self
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
