//! The trait that the room of an algorithm implements for [`Algorithm`](super::Algorithm), and the list of the
//! algorithms.
//!
//! `Algorithm` treats all kinds alike: the room of each kind implements [`Kind`], and `each_kind!` lists
//! them. From the list come the enum, its conversions, and how an algorithm is read and written. The list is
//! a macro because Rust cannot iterate over types.

use std::fmt;

use super::{WithRule, shape};
use crate::clock::Micros;
use crate::error::ConfigError;
use crate::quota::Quota;

/// A kind of algorithm: a quota, a rule that enforces it, and at most one more number, such as a burst.
pub(crate) trait Kind: Copy {
    /// Its name as text: `sliding-slots`.
    const NAME: &'static str;

    /// The word before its number in text: `slots`. Empty for a kind without a number.
    const NUMBER: &'static str = "";

    /// The algorithm with this quota and this number, or its default.
    fn of_number(quota: Quota, number: Option<u32>) -> Result<Self, ConfigError>;

    fn quota(&self) -> Quota;

    /// Its number; `None` if it has none.
    fn number(&self) -> Option<u32> {
        None
    }

    /// Returns the name of this value, if the kind has several.
    fn name(&self) -> &'static str {
        Self::NAME
    }

    /// Returns the most at one instant: the quota's limit, or the capacity of a bucket.
    fn size(&self) -> u32 {
        self.quota().limit()
    }

    /// Returns the number of slots in a period; `None` if it has none.
    fn slots(&self) -> Option<u32> {
        None
    }

    /// How used units come back.
    fn replenishment(&self) -> Replenishment;

    /// Returns whether it holds requests until their turn.
    fn shapes(&self) -> bool {
        false
    }

    /// Returns the length of its windows or slots, if it counts several of them at a time: a refund then takes from
    /// the newest first.
    fn refunds_newest(&self) -> Option<Micros> {
        None
    }

    /// Replaces the quota and the size.
    fn resized(&self, quota: Quota, _size: u32) -> Result<Self, ConfigError> {
        Self::of_number(quota, self.number())
    }

    fn with_rule<W: WithRule>(&self, act: W) -> W::Result;

    /// Returns the rule in Lua.
    fn lua(&self) -> super::Lua;

    /// Reads its text: a quota, then its number behind its word.
    fn parse(text: &str) -> Result<Self, ConfigError> {
        parse(text)
    }

    /// Writes the text after its name.
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self, f)
    }

    /// Writes its text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self, f)
    }
}

/// How used units come back. Other parts of the crate depend on this alone, such as how long several requests
/// wait one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replenishment {
    /// All at once, at the next multiple of the period.
    Aligned,
    /// All at once, a period after the first request of the window.
    Anchored,
    /// All at once, at the end of a day, week, month or year.
    Calendar,
    /// As the estimate of the window before falls.
    Sliding,
    /// The units of each slot, a period after it.
    Slots,
    /// The units of each request, a period after it.
    Log,
    /// One by one, at the rate of the quota.
    Steady,
    /// A whole quota at once, at the end of each interval.
    Interval,
    /// At the end of their request.
    OnRelease,
    /// As in another algorithm, whose limit depends on the hour.
    ByHours,
}

/// Reads a quota and, if the word of this kind follows, its number.
pub(super) fn parse<K: Kind>(text: &str) -> Result<K, ConfigError> {
    let (quota, number) = shape::read(text, K::NUMBER)?;
    K::of_number(quota, number)
}

/// Writes the quota and, unless it is the default, the number.
pub(super) fn show<K: Kind>(kind: &K, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let default = K::of_number(kind.quota(), None).map(|kind| kind.number());
    let number = kind.number().filter(|own| default != Ok(Some(*own)));
    shape::write(kind.quota(), K::NUMBER, number, f)
}

/// The list of the algorithms that have a quota. Passes it to another macro, which repeats something for each of them.
macro_rules! each_kind_of_a_quota {
    ($repeat:ident $($arguments:tt)*) => {
        $crate::algorithm::kind::with_these! { [] $repeat $($arguments)* }
    };
}
pub(super) use each_kind_of_a_quota;

/// The list with the kinds that have a calendar.
macro_rules! each_kind {
    ($repeat:ident $($arguments:tt)*) => {
        $crate::algorithm::kind::with_these! { [CalendarWindow ByHours] $repeat $($arguments)* }
    };
}

/// The list, and these kinds.
macro_rules! with_these {
    ([$($more:ident)*] $repeat:ident $($arguments:tt)*) => {
        $repeat! {
            [
                FixedWindow
                AnchoredWindow
                SlidingLog
                SlidingWindow
                SlidingSlots
                TokenBucket
                LeakyBucket
                Gcra
                LeakyQueue
                Concurrency
                $($more)*
            ]
            $($arguments)*
        }
    };
}
pub(super) use {each_kind, with_these};

/// A `match` with the same arm for every kind, and another arm for no limit:
/// `match_kind!(self, kind => kind.name(), "unlimited")`.
macro_rules! match_kind {
    ([$($kind:ident)+] $algorithm:expr, $value:ident => $then:expr, $unlimited:expr) => {
        match $algorithm {
            $($crate::algorithm::Algorithm::$kind($value) => $then,)+
            $crate::algorithm::Algorithm::Unlimited => $unlimited,
        }
    };
    ($($arguments:tt)+) => {
        $crate::algorithm::kind::each_kind!(match_kind $($arguments)+)
    };
}
pub(super) use match_kind;
