//! The leaky bucket as a queue: requests wait for their turn, and leave at a steady rate.
//!
//! The rule only says how long a request is held; the layer holds it. How many may wait has no default, since
//! it is the memory that a key may take: a constructor therefore returns an [`LeakyQueueRate`], which asks for it.

use std::time::Duration;

use super::kind::{Kind, Replenishment};
use super::{Gcra, WithRule, table};
use crate::clock::Micros;
use crate::error::ConfigError;
use crate::quota::Quota;

/// A queue that requests leave one by one, at the quota's rate and never faster. A request that finds all
/// places taken is denied.
///
/// ```text
///      5 a second, 2 places       ● arrives and leaves   ◌ arrives   ● leaves   ○ denied
///
///      ●◌◌○ ●    ●   ◌ ●    ●
///     ─┼────┼────┼────┼────┼────┼────┼────┼────┼──
///      0   0.2  0.4  0.6  0.8   1   1.2  1.4  1.6 s
/// ```
///
/// This algorithm shapes traffic: an allowed request is held for [`Outcome::delay`](crate::Outcome::delay),
/// and then goes on. A [`RateLimitLayer`][RateLimitLayer] holds the request; a
/// [`Limiter`](crate::Limiter) tells its caller how long to wait.
///
/// - **Choose it** in front of a service with a strict rate, such as a slow backend or an API of another
///   company, if clients would rather wait than ask again.
/// - **Keeps** what a [`Gcra`] keeps: 24 bytes for each key. The layer keeps each waiting request in memory;
///   the places bound their number for each key.
/// - **Admits** one request at once, and behind it as many as there are places; in a closed span of length `x`
///   at most `1 + ⌊limit · x / period⌋` leave. A request of cost `c` takes `c` turns.
/// - **Tells** a refused client how long until there is a place for it.
///
/// If tenants share the queue, [`fair`](crate::Policy::fair) has a layer serve them in turn, in place of the order in which they came.
///
/// Turns go by the store's clock. A request that starts late, as timers and threads do, is closer to the next
/// request. No request goes on before its turn, or before the request in front of it.
///
/// It decides as [`Gcra`] does with a burst of one more than the places.
///
/// How many requests may wait has no default. It is a number or a time:
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use std::time::Duration;
/// use tower_ratelimit::LeakyQueue;
///
/// let by_places = LeakyQueue::per_second(5).places(10);
/// let by_wait = LeakyQueue::per_second(5).longest_wait(Duration::from_secs(2))?;
/// assert_eq!(by_wait, by_places);
/// assert_eq!("5/second places 10".parse(), Ok(by_places));
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
///
/// [RateLimitLayer]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/middleware/struct.RateLimitLayer.html
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeakyQueue(Gcra);

/// The rate at which requests leave a [`LeakyQueue`]. [`places`](Self::places) or
/// [`longest_wait`](Self::longest_wait) makes a queue of it, by how many requests may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "say how many may wait: `.places(10)`, or how long: `.longest_wait(Duration)`"]
pub struct LeakyQueueRate(Quota);

impl LeakyQueue {
    /// This many requests leave in a second, one by one.
    pub const fn per_second(limit: u32) -> LeakyQueueRate {
        Self::of(Quota::per_second(limit))
    }

    /// This many requests leave in a minute, one by one.
    pub const fn per_minute(limit: u32) -> LeakyQueueRate {
        Self::of(Quota::per_minute(limit))
    }

    /// This many requests leave in an hour, one by one.
    pub const fn per_hour(limit: u32) -> LeakyQueueRate {
        Self::of(Quota::per_hour(limit))
    }

    /// This many requests leave in a day of 24 hours, one by one.
    pub const fn per_day(limit: u32) -> LeakyQueueRate {
        Self::of(Quota::per_day(limit))
    }

    /// Requests leave at this rate.
    pub const fn of(quota: Quota) -> LeakyQueueRate {
        LeakyQueueRate(quota)
    }

    /// This many requests leave in this period, one by one.
    ///
    /// # Errors
    ///
    /// If the period is shorter than 1 ms, longer than 366 days, or not a whole number of
    /// microseconds.
    #[expect(
        clippy::new_ret_no_self,
        reason = "named as in the other algorithms; the places make it a queue"
    )]
    pub fn new(limit: u32, period: Duration) -> Result<LeakyQueueRate, ConfigError> {
        Quota::new(limit, period).map(Self::of)
    }

    /// Returns how many requests of cost 1 may wait behind a request that goes on at once.
    pub const fn place_count(&self) -> u32 {
        self.0.burst_size() - 1
    }

    /// Returns the rate at which requests leave.
    pub const fn quota(&self) -> Quota {
        self.0.quota()
    }

    /// Returns the time between two requests that leave, rounded up to whole microseconds; `None` for a rate of 0,
    /// which denies every request.
    pub fn interval(&self) -> Option<Duration> {
        self.0.emission_interval()
    }
}

impl LeakyQueueRate {
    /// This many requests may wait behind a request that goes on at once: at most 2^32 − 2. With 0 places a
    /// request that comes too early is denied.
    pub const fn places(self, places: u32) -> LeakyQueue {
        LeakyQueue(Gcra::of(self.0).burst(places.saturating_add(1)))
    }

    /// As many requests may wait as leave within this time: `⌊limit · wait / period⌋`.
    ///
    /// # Errors
    ///
    /// If this number is 0, because the wait is shorter than the time between two requests, and if it is
    /// above 2^32 − 2.
    pub fn longest_wait(self, wait: Duration) -> Result<LeakyQueue, ConfigError> {
        let period = u128::from(self.0.period_micros().get());
        let places = wait.as_micros().saturating_mul(self.0.limit().into()) / period;
        match u32::try_from(places) {
            Ok(places) if (1..u32::MAX).contains(&places) => Ok(self.places(places)),
            _ => {
                let interval = Gcra::of(self.0).emission_interval();
                let interval = interval.unwrap_or(Micros::LONGEST.to_duration());
                let remedy = format!(
                    "give at least the time between two requests, {interval:?}, and at most 2^32 - 2 of them",
                );
                Err(ConfigError::new(
                    "longest wait",
                    format_args!("{wait:?}"),
                    remedy,
                ))
            }
        }
    }
}

impl Kind for LeakyQueue {
    const NAME: &'static str = "leaky-queue";
    const NUMBER: &'static str = "places";

    fn of_number(quota: Quota, places: Option<u32>) -> Result<Self, ConfigError> {
        let remedy = "say how many may wait, such as 5/second places 10";
        let places = places.ok_or_else(|| ConfigError::new("places", "left out", remedy))?;
        Ok(Self::of(quota).places(places))
    }

    fn quota(&self) -> Quota {
        self.0.quota()
    }

    fn number(&self) -> Option<u32> {
        Some(self.place_count())
    }

    /// Returns a request that goes on at once, and the places behind it.
    fn size(&self) -> u32 {
        self.0.burst_size()
    }

    fn resized(&self, quota: Quota, size: u32) -> Result<Self, ConfigError> {
        Ok(Self::of(quota).places(size.saturating_sub(1)))
    }

    fn replenishment(&self) -> Replenishment {
        Replenishment::Steady
    }

    fn shapes(&self) -> bool {
        true
    }

    fn with_rule<W: WithRule>(&self, act: W) -> W::Result {
        self.0.with_queue(act)
    }

    fn lua(&self) -> super::Lua {
        self.0.lua()
    }
}

table!(
    LeakyQueue {
        places: u32,
        longest_wait: crate::quota::Period
    },
    |quota, places, longest_wait: Option<crate::quota::Period>| match (places, longest_wait) {
        (Some(places), None) => Ok(LeakyQueue::of(quota).places(places)),
        (None, Some(wait)) => LeakyQueue::of(quota).longest_wait(wait.length()),
        (None, None) => {
            let remedy = "say how many may wait as `places`, or how long as `longest-wait`";
            Err(ConfigError::new("places", "left out", remedy))
        }
        (Some(places), Some(_)) => {
            let remedy = "leave it out, or leave `longest-wait` out";
            Err(ConfigError::new("places", places, remedy))
        }
    },
    |queue| (Some(queue.place_count()), None)
);
