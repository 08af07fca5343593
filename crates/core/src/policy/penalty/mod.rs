//! Penalties: a key that a policy refuses too often is blocked for a time.

mod offences;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::offences::Offences;

use super::Policy;
use crate::clock::Micros;
use crate::error::ConfigError;

/// When a policy blocks a key that it refuses too often, and for how long: see [`Policy::penalty`].
///
/// # Defaults
///
/// - a block lasts for a minute
/// - a further block lasts as long as the first
/// - blocks are forgotten after a day without one
/// - refusals during a block neither count nor lengthen it
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use std::time::Duration;
/// use tower_ratelimit::policy::Penalty;
///
/// // Ten refusals within a minute block for a minute, then for 2, 4, 8 … minutes, up to an hour.
/// let penalty = Penalty::after(10, Duration::from_secs(60))
///     .block(Duration::from_secs(60))
///     .times(2)
///     .up_to(Duration::from_secs(3_600));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a penalty blocks no key until a policy has it"]
pub struct Penalty {
    refusals: u32,
    within: Micros,
    block: Micros,
    factor: u32,
    most: Option<Micros>,
    memory: Micros,
    is_extended: bool,
}

/// The times of at most this many refusals are kept for each key.
const MOST_REFUSALS: u32 = 100;

const DAY: Micros = Micros::from_secs(86_400);

impl Penalty {
    /// Blocks a key at this number of refusals by the policy within this time, from 1 to 100 refusals.
    pub fn after(refusals: u32, within: Duration) -> Self {
        Self {
            refusals,
            within: within.into(),
            block: Micros::from_secs(60),
            factor: 1,
            most: None,
            memory: DAY,
            is_extended: false,
        }
    }

    /// Sets how long the first block lasts; the default is a minute.
    pub fn block(mut self, length: Duration) -> Self {
        self.block = length.into();
        self
    }

    /// Makes each further block this many times as long as the previous one; the default is 1.
    pub fn times(mut self, factor: u32) -> Self {
        self.factor = factor;
        self
    }

    /// Sets how long a block can last at most; the default is a day, or the first block if that is longer.
    pub fn up_to(mut self, most: Duration) -> Self {
        self.most = Some(most.into());
        self
    }

    /// Sets after how long without a block the earlier blocks of a key are forgotten, counted from the end of the last
    /// one; the default is a day. The next block is then a first one.
    pub fn forget_after(mut self, time: Duration) -> Self {
        self.memory = time.into();
        self
    }

    /// Lets each refusal during a block begin the block again. By default, a block ends at the time that the
    /// response has announced.
    ///
    /// A client that waits as told still passes, since it sends nothing meanwhile.
    pub fn extended_by_refusals(mut self) -> Self {
        self.is_extended = true;
        self
    }

    /// Returns the number of refusals at which a key is blocked.
    pub fn refusals(&self) -> u32 {
        self.refusals
    }

    /// Returns the length of a block of a key that has had this many blocks.
    fn length(&self, blocks: u32) -> Micros {
        let most = self.most();
        let mut length = self.block.min(most);
        for _ in 0..blocks {
            if self.factor == 1 || length == most {
                break;
            }
            let longer = length.get().saturating_mul(self.factor.into());
            length = Micros::new(longer).min(most);
        }
        length
    }

    fn most(&self) -> Micros {
        let most = self.most.unwrap_or(DAY.max(self.block));
        most.min(Micros::LONGEST)
    }

    /// Returns the numbers of the rule in Lua, in the order in which it reads them.
    // For `tower-ratelimit-redis`.
    #[doc(hidden)]
    pub fn numbers(&self) -> [u64; 7] {
        [
            self.refusals.into(),
            self.within.min(Micros::LONGEST).get(),
            self.block.min(self.most()).get(),
            self.factor.into(),
            self.most().get(),
            self.memory.min(Micros::LONGEST).get(),
            self.is_extended.into(),
        ]
    }

    fn check(&self) -> Result<(), ConfigError> {
        if !(1..=MOST_REFUSALS).contains(&self.refusals) {
            let remedy = format!("give 1 to {MOST_REFUSALS}");
            return Err(ConfigError::new("refusals", self.refusals, remedy));
        }
        let times = [("within", self.within), ("block", self.block)];
        for (field, time) in times {
            if time == Micros::ZERO {
                let remedy = "give a microsecond or more";
                return Err(ConfigError::new(field, "zero", remedy));
            }
        }
        if self.factor == 0 {
            let remedy = "give 1 or more: 1 makes all blocks equally long";
            return Err(ConfigError::new("times", 0, remedy));
        }
        if let Some(most) = self.most.filter(|most| *most < self.block) {
            let remedy = format!(
                "give at least the first block, {:?}",
                self.block.to_duration()
            );
            let most = format!("{:?}", most.to_duration());
            return Err(ConfigError::new("up_to", most, remedy));
        }
        Ok(())
    }
}

/// The penalty of a policy, with its name.
#[derive(Clone)]
pub struct NamedPenalty {
    /// The name of the policy.
    pub policy: Arc<str>,
    /// Its penalty.
    pub penalty: Penalty,
}

impl fmt::Debug for NamedPenalty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.penalty, f)
    }
}

impl Policy {
    /// Blocks a key that this policy refuses too often.
    pub fn penalty(mut self, penalty: Penalty) -> Self {
        self.penalty = Some(penalty);
        self
    }
}

impl Policy {
    /// Returns the penalty, if the policy has a limit.
    // For `tower-ratelimit-redis`.
    #[doc(hidden)]
    pub fn named_penalty(&self) -> Option<NamedPenalty> {
        let penalty = self.penalty.filter(|_| self.is_limited())?;
        let name = self.shown.as_ref().map_or(&self.name, |(name, _)| name);
        let policy = name.as_str().into();
        Some(NamedPenalty { policy, penalty })
    }

    /// Removes the penalty.
    pub(crate) fn without_penalty(mut self) -> Self {
        self.penalty = None;
        self
    }

    /// Rejects a penalty that blocks clients which wait as told, and one that the policy does not support.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn check_penalty(&self) -> Result<(), ConfigError> {
        let Some(penalty) = self.penalty.filter(|_| self.is_limited()) else {
            return Ok(());
        };
        penalty.check()?;
        if self.is_soft {
            let remedy = "leave one out: a soft policy refuses no request";
            return Err(ConfigError::quoting("penalty", &self.name, remedy));
        }
        if self.patience.is_any() {
            let remedy =
                "leave the penalty or `wait_up_to` out: a request that waits asks several times";
            return Err(ConfigError::quoting("penalty", &self.name, remedy));
        }
        if self.algorithm.has_hours() {
            let remedy = "leave the penalty or the hours out, or give the penalty to a second policy of the same key without hours: each \
                          switch of the hours can refuse a client once more that waits as it is told, and how many switches lie \
                          within the time differs from day to day";
            return Err(ConfigError::quoting("penalty", &self.name, remedy));
        }
        let refusals = self.algorithm.most_refusals(penalty.within);
        if u64::from(penalty.refusals) <= refusals {
            let within = penalty.within.to_duration();
            let remedy = if refusals < u64::from(MOST_REFUSALS) {
                format!(
                    "give {} or more: under policy {:?}, {}, a client that sends one request at a time and waits each \
                     `Retry-After` can be refused {refusals} times within {within:?}",
                    refusals + 1,
                    self.name,
                    self.algorithm,
                )
            } else {
                format!(
                    "give a shorter time than {within:?}, or a window: under policy {:?}, {}, a client that waits each \
                     `Retry-After` can be refused {refusals} times meanwhile, and {MOST_REFUSALS} is the most",
                    self.name, self.algorithm,
                )
            };
            return Err(ConfigError::new("refusals", penalty.refusals, remedy));
        }
        Ok(())
    }
}
