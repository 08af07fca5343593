//! Concurrency: how many requests of a key are in flight at once.

mod step;

use std::fmt;

use super::WithRule;
use super::kind::{Kind, Replenishment};
use crate::error::ConfigError;
use crate::quota::{Quota, not_a_number, whole_number};

/// Admits this many requests at once for each key: a slot for each, from the decision to the end of its
/// response.
///
/// - A request takes as many slots as it costs, and gives them back when the body of its response has ended or is
///   dropped. A layer does that; [`Limiter::reserve`](crate::Limiter::reserve) does it for other code. A request whose
///   client goes away, or whose stream is reset, gives its slots back at once.
/// - [`Limiter::check`](crate::Limiter::check) and similar verbs ask, and take no slot: they have no end at
///   which to give it back.
/// - It is unknown when a slot will be free, so a refusal has no `Retry-After`, and
///   [`Outcome::retry_after`](crate::Outcome::retry_after) is `None`.
/// - Together with policies on a rate, a request has all or nothing: if its rate denies it, it takes no slot, and if no
///   slot is free, its rate is not charged.
/// - Slots belong to requests: `reset`, `refund` and `settle` do not change them.
///
/// See [concurrency][concurrency] for slots in Redis, and for examples.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::{Concurrency, Limiter, Policy};
///
/// let limiter = Limiter::builder()
///     .policy(Policy::new("at once", Concurrency::of(2)))
///     .build_local()?;
/// let first = limiter.reserve("ann", 1).now();
/// let second = limiter.reserve("ann", 1).now();
/// assert!(first.is_allowed() && second.is_allowed());
/// assert!(!limiter.reserve("ann", 1).now().is_allowed());
/// drop(first);
/// assert!(limiter.reserve("ann", 1).now().is_allowed());
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
///
/// [concurrency]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/concurrency/index.html
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Concurrency {
    most: u32,
}

impl Concurrency {
    /// This many requests at once. 0 denies every request.
    pub const fn of(most: u32) -> Self {
        Self { most }
    }

    /// Returns how many requests are admitted at once.
    pub const fn most(&self) -> u32 {
        self.most
    }
}

impl Kind for Concurrency {
    const NAME: &'static str = "concurrency";

    fn of_number(quota: Quota, _: Option<u32>) -> Result<Self, ConfigError> {
        Ok(Self::of(quota.limit()))
    }

    /// Its period means nothing.
    fn quota(&self) -> Quota {
        Quota::per_second(self.most)
    }

    fn replenishment(&self) -> Replenishment {
        Replenishment::OnRelease
    }

    fn with_rule<W: WithRule>(&self, act: W) -> W::Result {
        act.fixed(*self)
    }

    fn lua(&self) -> super::Lua {
        let numbers = [self.most.into(), 0, 0, self.most.into()];
        super::Lua::of_numbers("concurrency", include_str!("step.lua"), numbers)
    }

    fn parse(text: &str) -> Result<Self, ConfigError> {
        let text = text.trim();
        let most = whole_number(text).ok_or_else(|| not_a_number("concurrency", text))?;
        Ok(Self::of(most))
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.most)
    }

    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show(f)
    }
}

#[cfg(feature = "serde")]
mod table {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Concurrency;

    #[derive(Deserialize, Serialize)]
    #[serde(deny_unknown_fields)]
    struct Table {
        limit: u32,
    }

    impl<'de> Deserialize<'de> for Concurrency {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let Table { limit } = Table::deserialize(deserializer)?;
            Ok(Self::of(limit))
        }
    }

    impl Serialize for Concurrency {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            Table { limit: self.most }.serialize(serializer)
        }
    }
}
