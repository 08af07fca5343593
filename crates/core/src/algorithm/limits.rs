//! The limits of an algorithm, and the frame in which its states are read.

use std::num::NonZeroU32;
use std::time::Duration;

use super::Algorithm;
use super::kind::{Kind, match_kind};
use crate::calendar::{Calendar, There};
use crate::clock::Micros;
use crate::quota::Quota;
use crate::quota::show_period;

/// The two numbers in which algorithms of one kind, period and number of slots differ.
///
/// They are not part of a state: a key has one state under a policy, whatever limits its requests have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    quota: u32,
    size: u32,
    /// The calendar of the windows, if the limit has its own.
    calendar: Option<Calendar>,
    /// The part of the limit of the hour that has to remain; 0 if the numbers are already without it.
    reserve: u32,
}

impl Limit {
    /// Creates a limit: that of the quota, in units per period, and the most units at one instant, which are
    /// a window's limit again, the capacity of a bucket, or one more than the places of a queue.
    pub fn new(quota: u32, size: u32) -> Self {
        Self {
            quota,
            size,
            calendar: None,
            reserve: 0,
        }
    }

    /// Returns the limit of the quota, in units per period.
    pub fn quota(self) -> u32 {
        self.quota
    }

    /// Returns the most units at one instant.
    pub fn size(self) -> u32 {
        self.size
    }

    /// The largest size in parts: a charge can take as much again beyond it, and all of it fits in 32 bits.
    pub(crate) const MOST_PARTS: u32 = u32::MAX / 2;

    /// Returns the limit in parts of a unit, or `None` if it is too large.
    pub(crate) fn in_parts(self, of_a_unit: u32) -> Option<Self> {
        let quota = self.quota.checked_mul(of_a_unit)?;
        let size = self.size.checked_mul(of_a_unit)?;
        (size <= Self::MOST_PARTS).then_some(self.with(quota, size))
    }

    /// Returns one node's share, rounded up.
    pub(crate) fn shared_by(self, nodes: NonZeroU32) -> Self {
        self.map(|number| number.div_ceil(nodes.get()))
    }

    /// Replaces both numbers.
    pub(crate) fn with(mut self, quota: u32, size: u32) -> Self {
        self.quota = quota;
        self.size = size;
        self
    }

    /// Returns this limit with another size, at a rate in proportion.
    pub(crate) fn resized(self, size: u32) -> Self {
        let quota = u64::from(self.quota) * u64::from(size) / u64::from(self.size.max(1));
        self.with(u32::try_from(quota).unwrap_or(u32::MAX), size)
    }

    pub(super) fn map(self, change: impl Fn(u32) -> u32) -> Self {
        Self {
            quota: change(self.quota),
            size: change(self.size),
            calendar: self.calendar,
            reserve: change(self.reserve),
        }
    }

    /// Returns the limit of the hour without the reserve, and the reserve.
    pub(super) fn and_reserve(self) -> (Self, u32) {
        let reserve = self.reserve;
        (Self { reserve: 0, ..self }, reserve)
    }

    /// Returns the most units that one request can cost.
    pub(crate) fn most(self) -> u32 {
        self.size.saturating_sub(self.reserve)
    }
}

impl Algorithm {
    /// Returns what a state depends on besides the limits: name, period and slots.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn frame(&self) -> (&'static str, Option<Duration>, Option<u32>) {
        let (period, slots) = match_kind!(
            self,
            kind => (Some(kind.quota().period()), Kind::slots(kind)),
            (None, None)
        );
        (self.name(), period, slots)
    }

    /// Returns the frame as text without spaces.
    // For `tower-ratelimit-redis`.
    #[doc(hidden)]
    pub fn frame_text(&self) -> String {
        let (name, period, slots) = self.frame();
        let period = period.map(|period| show_period(Micros::from(period)));
        let slots = slots.map(|slots| slots.to_string());
        let parts = [Some(name.to_owned()), period, slots];
        parts.into_iter().flatten().collect::<Vec<_>>().join("/")
    }

    /// Returns whether both read a state alike: their frames are equal, and their limits may differ.
    pub(crate) fn differs_in_its_limit_alone(&self, other: &Self) -> bool {
        self.frame() == other.frame()
    }

    /// Returns its numbers, in which two algorithms of the same kind and period may differ, or `None` if it is unlimited.
    pub fn limits(&self) -> Option<Limit> {
        if let Self::ByHours(hours) = self {
            return Some(hours.limit());
        }
        let limit = match_kind!(self, kind => Limit::new(kind.quota().limit(), Kind::size(kind)), return None);
        if let Self::CalendarWindow(window) = self {
            let calendar = Some(window.calendar());
            return Some(Limit { calendar, ..limit });
        }
        Some(limit)
    }

    /// Returns the limit under which a charge can exceed this limit by `more`, at the same rate.
    pub(crate) fn beyond(&self, limit: Limit, more: u32) -> Option<Limit> {
        let size = limit.size.checked_add(more)?;
        // A window has one number for both.
        let quota = if self.drains() { limit.quota } else { size };
        Some(limit.with(quota, size))
    }

    /// Returns this limit reduced by `reserve`, at the same rate, or `None` if it does not exceed that. If
    /// the limit depends on the hour, each of its limits is reduced.
    pub(crate) fn leaving(&self, limit: Limit, reserve: u32) -> Option<Limit> {
        if self.has_hours() {
            return Some(Limit { reserve, ..limit });
        }
        let size = limit.size.checked_sub(reserve).filter(|size| *size > 0)?;
        // A window has one number for both.
        let quota = if self.drains() { limit.quota } else { size };
        Some(limit.with(quota, size))
    }

    /// Returns the limit of which this one is [reduced](Self::leaving).
    pub(crate) fn before_leaving(&self, limit: Limit, reserve: u32) -> Option<Limit> {
        if self.has_hours() {
            return Some(limit.and_reserve().0);
        }
        self.beyond(limit, reserve)
    }

    /// Returns the rate at which it drains steadily, as units and the time that they take, or `None` for an
    /// algorithm that does not drain, and at a rate of 0.
    pub(crate) fn rate(&self) -> Option<(u32, Duration)> {
        let quota = self.limits()?.quota;
        let (_, period, _) = self.frame();
        (self.has_rate() && quota > 0).then_some((quota, period?))
    }

    /// Returns the algorithm under the limit that holds outside all hours, at any time.
    // For `tower-ratelimit-redis`.
    #[doc(hidden)]
    pub fn without_hours(&self) -> Self {
        match self {
            Self::ByHours(hours) => hours.plain(),
            _ => *self,
        }
    }

    /// Returns the most units that can be admitted at one instant at this moment, or `None` if unlimited.
    pub(crate) fn limit_at(&self, now: Micros) -> Option<u32> {
        match self {
            Self::ByHours(hours) => hours.in_force_at(now).limit(),
            _ => self.limit(),
        }
    }

    /// Returns whether its limit depends on the hour.
    pub(crate) fn has_hours(&self) -> bool {
        self.hours().is_some()
    }

    /// Returns a value if its limit depends on the hour.
    pub(crate) fn hours(&self) -> Option<There> {
        match self {
            Self::ByHours(hours) => Some(There::of(hours.timetable())),
            _ => None,
        }
    }

    /// Returns one node's share: the limits divided by the number of nodes, rounded up.
    pub(crate) fn shared_by(&self, nodes: NonZeroU32) -> Self {
        self.with_each_limit(&|limit| limit.shared_by(nodes))
    }

    /// Returns the algorithm with its limit changed, also in its hours, or as it is if it cannot have that.
    pub(super) fn with_each_limit(&self, change: &dyn Fn(Limit) -> Limit) -> Self {
        if let Self::ByHours(hours) = self {
            return hours.with_each_limit(change).into();
        }
        let limit = self.limits().map(change);
        limit.and_then(|limit| self.under(limit)).unwrap_or(*self)
    }

    /// Returns the algorithm with this quota, in units per period, and with a burst or a capacity in proportion, rounded up, or
    /// `None` if it cannot have that. A queue keeps its places.
    pub fn scaled_to(&self, quota: u32) -> Option<Self> {
        let now = self.limits()?;
        let size = match now.quota {
            _ if self.shapes() => now.size,
            0 => quota,
            before => {
                let size = u64::from(now.size) * u64::from(quota);
                u32::try_from(size.div_ceil(before.into())).ok()?
            }
        };
        self.under(now.with(quota, size))
    }

    /// Returns the algorithm with this limit, or `None` if it cannot have it.
    pub fn under(&self, limit: Limit) -> Option<Self> {
        if let Self::ByHours(hours) = self {
            return hours.under(limit).map(Self::from);
        }
        let (_, period, _) = self.frame();
        let quota = Quota::new(limit.quota, period?).ok()?;
        let algorithm = match_kind!(self, kind => Self::from(kind.resized(quota, limit.size).ok()?), return None);
        if let (Self::CalendarWindow(window), Some(calendar)) = (algorithm, limit.calendar) {
            return Some(window.with_calendar(calendar).into());
        }
        Some(algorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_make_of_one_algorithm_another_of_its_frame() {
        let all = [
            "fixed-window 7/minute",
            "anchored-window 7/minute",
            "sliding-window 7/minute",
            "sliding-log 70000/minute up-to 70000",
            "sliding-slots 7/minute slots 60",
            "token-bucket 7/minute burst 9",
            "token-bucket-interval 7/minute burst 9",
            "leaky-bucket 7/minute capacity 9",
            "gcra 7/minute burst 9",
            "leaky-queue 7/minute places 9",
            #[cfg(feature = "calendar")]
            "calendar-week 7 zone Europe/London",
        ];
        for text in all {
            let algorithm: Algorithm = text.parse().unwrap();
            let other = algorithm.under(Limit::new(3, 4)).unwrap();
            assert_ne!(other, algorithm);
            assert!(other.differs_in_its_limit_alone(&algorithm));
            let same = other.under(algorithm.limits().unwrap());
            assert_eq!(same, Some(algorithm));
        }
        assert_eq!(Algorithm::Unlimited.limits(), None);
        assert_eq!(Algorithm::Unlimited.under(Limit::new(1, 1)), None);
    }

    #[test]
    fn a_limit_of_another_size_comes_back_in_the_same_time() {
        let limit = Limit::new(10, 20).resized(40);
        assert_eq!((limit.quota(), limit.size()), (20, 40));
    }

    #[test]
    fn nodes_take_equal_shares_that_are_the_whole_at_least() {
        let shared = |text: &str, nodes| {
            let algorithm: Algorithm = text.parse().unwrap();
            algorithm.shared_by(NonZeroU32::new(nodes).unwrap())
        };
        for (text, nodes, share) in [
            ("fixed-window 10/minute", 3, "fixed-window 4/minute"),
            ("fixed-window 0/minute", 3, "fixed-window 0/minute"),
            ("sliding-window 1/minute", 100, "sliding-window 1/minute"),
            (
                "sliding-log 70000/minute up-to 70000",
                2,
                "sliding-log 35000/minute up-to 35000",
            ),
            (
                "sliding-slots 10/minute slots 60",
                3,
                "sliding-slots 4/minute slots 60",
            ),
            (
                "token-bucket 5/second burst 10",
                2,
                "token-bucket 3/second burst 5",
            ),
            ("gcra 5/second burst 1", 2, "gcra 3/second burst 1"),
            (
                "leaky-queue 9/minute places 9",
                2,
                "leaky-queue 5/minute places 4",
            ),
            ("fixed-window 10/minute", 1, "fixed-window 10/minute"),
            #[cfg(feature = "calendar")]
            (
                "calendar-day 10 zone Europe/London",
                3,
                "calendar-day 4 zone Europe/London",
            ),
        ] {
            let share: Algorithm = share.parse().unwrap();
            assert_eq!(shared(text, nodes).limits(), share.limits(), "{text}");
            assert!(shared(text, nodes).differs_in_its_limit_alone(&text.parse().unwrap()));
        }
        let nodes = NonZeroU32::new(7).unwrap();
        assert_eq!(Algorithm::Unlimited.shared_by(nodes), Algorithm::Unlimited);
    }
}
