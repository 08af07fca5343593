//! The generic cell rate algorithm: a debt in requests that drains at a steady rate.
//!
//! The token bucket, the leaky bucket and the leaky queue are the same mechanism in other words: they wrap a
//! [`Gcra`] and use its rule.

mod packed;
mod step;

use std::time::Duration;

use self::packed::Packed;
use self::step::Bucket;
use super::kind::{Kind, Replenishment};
use super::{WithRule, quota_constructors, table};
use crate::error::ConfigError;
use crate::quota::Quota;

/// The generic cell rate algorithm: each request is due one emission interval after the request before
/// it, and may come early by as much as the burst allows.
///
/// ```text
///      5 a second, burst 3        ● admitted   ○ denied
///
///      ●●●○  ●   ○ ●    ●               ●●●○
///     ─┼────┼────┼────┼────┼────┼────┼────┼────┼──
///      0   0.2  0.4  0.6  0.8   1   1.2  1.4  1.6 s
/// ```
///
/// With the theoretical arrival time `tat` (the moment at which all debt is drained), the
/// emission interval `T = period / limit` and the burst `B`, a request of cost `c` at time `t`
/// is allowed if `max(tat, t) + c·T − t ≤ B·T`, and leaves `tat = max(tat, t) + c·T`.
///
/// - **Choose it** as you would a [token bucket](crate::TokenBucket), if you think in emission intervals and
///   bursts.
/// - **Keeps** the debt, as whole requests and an exact fraction, and its time: 24 bytes for each key. A
///   decision is a multiplication and a comparison; a charge, one division more.
/// - **Admits** at most the burst at one instant, and in a closed span of length `x` at most
///   `burst + ⌊limit · x / period⌋`.
/// - **Tells** each client its own wait, so that clients that obey do not come back all at the same time.
///
/// The quota is a rate: with equal bursts, 60 a minute and one a second decide alike.
/// [`TokenBucket`](crate::TokenBucket) and [`LeakyBucket`](crate::LeakyBucket) decide in the same way; each
/// has the name by which some readers search for it.
///
/// The rule is the virtual scheduling algorithm of ITU-T I.371 and of the ATM Forum's Traffic Management 4.0,
/// with a burst in requests in place of a tolerance in time.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::Gcra;
///
/// let steady = Gcra::per_second(5).burst(3);
/// assert_eq!("5/second burst 3".parse(), Ok(steady));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gcra {
    quota: Quota,
    burst: u32,
}

impl Gcra {
    quota_constructors!();

    /// This quota as a rate, with its limit as the burst.
    pub const fn of(quota: Quota) -> Self {
        Self {
            quota,
            burst: quota.limit(),
        }
    }

    /// Sets how many requests may come at one instant; by default the quota's limit.
    ///
    /// A burst of 0 denies every request, and so does a rate of 0.
    pub const fn burst(self, burst: u32) -> Self {
        Self { burst, ..self }
    }

    /// The rate in the long run.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// Returns how many requests may come at one instant.
    pub const fn burst_size(&self) -> u32 {
        self.burst
    }

    fn limit(self) -> u32 {
        match self.quota.limit() {
            0 => 0,
            _ => self.burst,
        }
    }

    /// Returns the rule under which requests wait for their turn.
    pub(super) fn with_queue<W: WithRule>(self, act: W) -> W::Result {
        self.with_rule_of(true, act)
    }

    #[inline]
    fn with_rule_of<W: WithRule>(self, holds: bool, act: W) -> W::Result {
        let (quota, limit) = (self.quota, self.limit());
        let packed = || Packed::of(quota, limit, holds);
        act.in_two_forms(Bucket::of(quota, limit, holds), packed)
    }

    /// Returns the time between two requests at the steady rate, rounded up to whole microseconds;
    /// `None` for a rate of 0.
    ///
    /// Decisions do not use this rounded number: they are exact at any rate.
    pub(super) fn emission_interval(&self) -> Option<Duration> {
        let period = self.quota.period_micros().get();
        let limit = u64::from(self.quota.limit());
        (limit > 0).then(|| Duration::from_micros(period.div_ceil(limit)))
    }
}

impl Kind for Gcra {
    const NAME: &'static str = "gcra";
    const NUMBER: &'static str = "burst";

    fn of_number(quota: Quota, burst: Option<u32>) -> Result<Self, ConfigError> {
        Ok(Self::of(quota).burst(burst.unwrap_or(quota.limit())))
    }

    fn quota(&self) -> Quota {
        self.quota
    }

    fn number(&self) -> Option<u32> {
        Some(self.burst)
    }

    fn size(&self) -> u32 {
        self.burst
    }

    fn resized(&self, quota: Quota, burst: u32) -> Result<Self, ConfigError> {
        Ok(Self::of(quota).burst(burst))
    }

    fn replenishment(&self) -> Replenishment {
        Replenishment::Steady
    }

    fn with_rule<W: WithRule>(&self, act: W) -> W::Result {
        self.with_rule_of(false, act)
    }

    fn lua(&self) -> super::Lua {
        super::Lua::of_numbers(
            "gcra",
            include_str!("step.lua"),
            [
                self.limit().into(),
                self.quota.period_micros().get(),
                0,
                self.quota.limit().into(),
            ],
        )
    }
}

table!(Gcra { burst });
