//! The handle of an adaptive concurrency, and its builder.
//!
//! The counts are in `shared.rs` and the rule in `learning.rs`, so that this file has the public API alone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::learning::Bounds;
use super::partitions::Partitions;
use super::permit::{Permit, Saturated};
use super::shared::SharedCounts;
use tower_ratelimit::error::ConfigError;
use tower_ratelimit::factor::FactorCell;

/// Bounds how many requests are in flight at once, by a limit that it learns from their latency.
///
/// The limit rises while latency is normal, and falls when it grows: then requests wait for each other, and
/// more of them at once serves no client. A request beyond the limit is refused at once. Clones share the
/// limit and its slots.
///
/// [`AdaptiveConcurrencyLayer`](crate::middleware::AdaptiveConcurrencyLayer) is the layer for an HTTP service. Any other
/// code [takes a slot](Self::try_enter) itself:
///
/// ```
/// use tower_ratelimit_adapt::{AdaptiveConcurrency, Saturated};
///
/// let queries = AdaptiveConcurrency::builder().start(2).build()?;
///
/// let mut first = queries.try_enter().unwrap();
/// let second = queries.try_enter().unwrap();
/// let refused: Saturated = queries.try_enter().unwrap_err();
/// assert_eq!(refused.limit(), 2);
///
/// // The limit learns from this, and the slot is free.
/// first.answered();
/// drop(first);
/// assert!(queries.try_enter().is_ok());
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
///
/// # How the limit is learnt
///
/// Requests are grouped into windows of at least a second and at least 50 requests.
///
/// - **The reading** is the 90th percentile of a window; the limit follows the median of the last five.
/// - **The baseline** is the latency when few requests are in flight: the lower quartile of windows in which
///   at most half of the limit was used. A limit that refuses requests has no such windows. It makes one
///   every 30 seconds: for one window, it admits half. One lucky window changes nothing, and requests that
///   wait for each other do not count for the baseline. If the limit has fallen to a quarter and requests are
///   no faster, they are slow for another reason, and the baseline adapts.
/// - **The gradient** is 1.5 times the baseline, divided by the reading, from 0.5 to 2. The target is limit × gradient +
///   √limit ÷ 2. In each window the limit goes half of the way down to it, or a fifth of the way up. After a fall it goes
///   half of the way back to where it was.
/// - **It does not rise** while half of it or less is used, and it is at most five times the most that was in
///   flight, or its start.
/// - **Failures** are not samples. If a tenth of the requests are signs of an overload, the limit falls by a
///   tenth.
///
/// The gradient is that of Netflix's `Gradient2Limit` with the allowance of Envoy's adaptive concurrency.
#[derive(Clone)]
pub struct AdaptiveConcurrency {
    name: Arc<str>,
    shared: Arc<SharedCounts>,
    made: Instant,
}

/// Builds an [`AdaptiveConcurrency`]; see [`AdaptiveConcurrency::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct AdaptiveConcurrencyBuilder {
    name: Arc<str>,
    start: u32,
    least: u32,
    most: u32,
    healthy: Option<Duration>,
    freezing: Vec<FactorCell>,
    partitions: Vec<(Box<str>, u32)>,
}

impl AdaptiveConcurrency {
    /// Creates a limit with the defaults of its [builder](Self::builder).
    pub fn new() -> Self {
        AdaptiveConcurrencyBuilder::new().made()
    }

    /// Starts with the defaults.
    ///
    /// # Defaults
    ///
    /// - its name is `concurrency`
    /// - the limit starts at 20, and stays from 1 to 1,000
    /// - no partitions
    /// - no cap of the baseline, and nothing that freezes it
    pub fn builder() -> AdaptiveConcurrencyBuilder {
        AdaptiveConcurrencyBuilder::new()
    }

    fn of(name: Arc<str>, shared: SharedCounts) -> Self {
        Self {
            name,
            shared: Arc::new(shared),
            made: Instant::now(),
        }
    }

    /// Takes a slot, for a request of no [partition](AdaptiveConcurrencyBuilder::partition).
    ///
    /// # Errors
    ///
    /// When no slot is free. It is unknown when one will be.
    pub fn try_enter(&self) -> Result<Permit, Saturated> {
        self.enter(None)
    }

    /// Takes a slot, for a request of this [partition](AdaptiveConcurrencyBuilder::partition). An unknown
    /// name counts as no partition.
    ///
    /// # Errors
    ///
    /// When no slot is free, and the partition uses its share.
    pub fn try_enter_in(&self, partition: &str) -> Result<Permit, Saturated> {
        self.enter(Some(partition))
    }

    /// Takes a slot, for a request of this partition or of none.
    #[inline]
    pub(crate) fn enter(&self, partition: Option<&str>) -> Result<Permit, Saturated> {
        Permit::enter(&self.shared, partition, self.made)
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns how many requests may be in flight at once.
    pub fn limit(&self) -> u32 {
        self.shared.limit()
    }

    /// Returns how many are in flight.
    pub fn in_flight(&self) -> u32 {
        self.shared.in_flight()
    }

    /// Returns how many were refused since the limit was created.
    pub fn refused(&self) -> u64 {
        self.shared.refused()
    }

    /// Returns the latency under low load, or `None` before the first window.
    pub fn baseline(&self) -> Option<Duration> {
        self.shared.baseline()
    }

    /// Returns how many requests of each partition are in flight. The last entry, without a name, counts all
    /// others.
    pub fn partitions(&self) -> impl Iterator<Item = (&str, u32)> {
        self.shared.partitions.in_flight()
    }
}

impl AdaptiveConcurrencyBuilder {
    fn new() -> Self {
        Self {
            name: "concurrency".into(),
            start: 20,
            least: 1,
            most: 1_000,
            healthy: None,
            freezing: Vec::new(),
            partitions: Vec::new(),
        }
    }

    /// Sets its name in headers and metrics.
    pub fn name(self, name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        Self { name, ..self }
    }

    /// Sets the initial limit.
    pub fn start(self, start: u32) -> Self {
        Self { start, ..self }
    }

    /// Sets the least that the limit can be.
    pub fn least(self, least: u32) -> Self {
        Self { least, ..self }
    }

    /// Sets the most that the limit can be.
    pub fn most(self, most: u32) -> Self {
        Self { most, ..self }
    }

    /// Sets the largest healthy latency: the baseline never rises above it. Without it, a service that stays
    /// slow for a minute is taken to have changed, as after a deployment.
    pub fn healthy(self, healthy: Duration) -> Self {
        let healthy = Some(healthy);
        Self { healthy, ..self }
    }

    /// Freezes the baseline while this factor is below 1, as when [`Steps`](super::super::Steps) find a high
    /// processor load.
    pub fn frozen_below_one(mut self, factor: &FactorCell) -> Self {
        self.freezing.push(factor.clone());
        self
    }

    /// Keeps a share of the limit, in percent, for the requests of a partition.
    ///
    /// - A partition always finds the slots of its share, and at least one. While it leaves them idle, other
    ///   requests use them.
    /// - Requests of no partition use what the shares leave, on the same terms.
    /// - A partition that becomes busy again finds its share at once, while lent slots are still in use. So
    ///   for a moment more than the limit can be in flight, by at most the shares.
    pub fn partition(mut self, name: impl Into<Box<str>>, percent: u32) -> Self {
        self.partitions.push((name.into(), percent));
        self
    }

    /// Builds the limit.
    ///
    /// # Errors
    ///
    /// When the name is not 1 to 64 printable characters of ASCII; when `least`, `start` and `most` are not
    /// in this order, or are 0; when the shares exceed 100 % together, or one is 0; and when two partitions
    /// have the same name, or one has none.
    pub fn build(self) -> Result<AdaptiveConcurrency, ConfigError> {
        self.check()?;
        Ok(self.made())
    }

    /// Creates the limit of checked numbers.
    fn made(self) -> AdaptiveConcurrency {
        let bounds = Bounds {
            start: self.start,
            least: self.least,
            most: self.most,
            healthy: self
                .healthy
                .map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
        };
        let partitions = Partitions::new(self.partitions);
        AdaptiveConcurrency::of(
            self.name,
            SharedCounts::new(bounds, partitions, self.freezing),
        )
    }

    fn check(&self) -> Result<(), ConfigError> {
        let wrong = |field, value: u32, remedy| Err(ConfigError::new(field, value, remedy));
        let is_good = (1..=64).contains(&self.name.len())
            && self.name.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
        if !is_good {
            let remedy = "give 1 to 64 printable characters of ASCII";
            return Err(ConfigError::quoting("name", &self.name, remedy));
        }
        if self.least == 0 {
            return wrong("least", 0, "give 1 or more, so that requests can be served");
        }
        if self.start < self.least {
            return wrong("start", self.start, "give at least `least`");
        }
        if self.most < self.start {
            return wrong("most", self.most, "give at least `start`");
        }
        let mut sum = 0_u32;
        for (place, (name, percent)) in self.partitions.iter().enumerate() {
            let mut before = self.partitions.iter().take(place);
            if name.is_empty() || before.any(|(other, _)| other == name) {
                let remedy = "give each partition a name of its own";
                return Err(ConfigError::quoting("partition", name, remedy));
            }
            sum = sum.saturating_add(*percent);
            if *percent == 0 || sum > 100 {
                let remedy = "give each partition 1 % or more, and all together at most 100 %";
                return wrong("partition", *percent, remedy);
            }
        }
        Ok(())
    }
}

impl Default for AdaptiveConcurrency {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for AdaptiveConcurrency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveConcurrency")
            .field("limit", &self.limit())
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}
