//! Sliding slots: the last period, counted in a few parts.
//!
//! A number of slots has to divide the period into whole microseconds, so that a slot can be told from the time
//! alone, without rounding. Errors therefore name the nearest number or length that does.

mod step;

use std::time::Duration;

use super::kind::{Kind, Replenishment};
use super::{WithRule, paved_constructors, table};
use crate::clock::Micros;
use crate::error::ConfigError;
use crate::quota::Quota;

/// A limit in the last period, counted in slots: the period is cut into `m` slots, and the current slot
/// counts together with the `m` slots before it.
///
/// ```text
///      limit 8, 5 slots
///                    2    0    3    1    1    1      sum 8: the next is denied
///               ├────┼────┼────┼────┼────┼────┤
///                 └─ leaves when a new slot begins
/// ```
///
/// A request of cost `c` is allowed if the sum and `c` are no more than the limit.
///
/// - **Choose it** if the limit must hold in every span of a period, and is too large for a
///   [log](crate::SlidingLog).
/// - **Keeps** one counter for each slot and one more: `8·(m + 2)` bytes for each key, 96 with
///   the default of 10 slots. A decision adds the counters up.
/// - **Admits** never more than the limit in a span of a period. In exchange for the memory, a request may
///   have to wait up to one slot longer than with a log.
/// - **Tells** a wait until enough of the oldest slots have left.
///
/// Metrics keep rolling sums in the same ring of counters. This ring has one slot more than the period, since
/// the oldest slot still overlaps the last period in part.
///
/// # Defaults
///
/// - slots: 10
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use std::time::Duration;
/// use tower_ratelimit::SlidingSlots;
///
/// let by_the_second = SlidingSlots::per_minute(1_000).slots(60)?;
/// assert_eq!(by_the_second, SlidingSlots::per_minute(1_000).slot(Duration::from_secs(1))?);
/// assert_eq!("1000/minute slots 60".parse(), Ok(by_the_second));
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlidingSlots {
    quota: Quota,
    slots: u8,
}

const DEFAULT_SLOTS: u8 = 10;
const MOST_SLOTS: u8 = 128;

impl SlidingSlots {
    paved_constructors!(
        u32,
        Self::by_default,
        "In 10 slots; [`slots`](Self::slots) sets another number."
    );

    const fn by_default(quota: Quota) -> Self {
        Self {
            quota,
            slots: DEFAULT_SLOTS,
        }
    }

    /// This many requests in this period, in 10 slots.
    ///
    /// # Errors
    ///
    /// If the period is shorter than 1 ms, longer than 366 days, or not a whole number of microseconds; and
    /// if it cannot be cut into 10 equal slots of whole microseconds. Every period of whole seconds can; for
    /// others see [`cut`](Self::cut).
    pub fn new(limit: u32, period: Duration) -> Result<Self, ConfigError> {
        Self::of(Quota::new(limit, period)?)
    }

    /// This quota, in 10 slots.
    ///
    /// # Errors
    ///
    /// If the period cannot be cut into 10 equal slots of whole microseconds: then use [`cut`](Self::cut).
    pub fn of(quota: Quota) -> Result<Self, ConfigError> {
        Self::cut(quota, DEFAULT_SLOTS.into())
    }

    /// This quota, in this number of slots.
    ///
    /// # Errors
    ///
    /// If the number is 0 or above 128, and if it does not cut the period into equal slots of whole
    /// microseconds; the error names the nearest number that does.
    pub fn cut(quota: Quota, slots: u32) -> Result<Self, ConfigError> {
        if let Some(cut) = Self::cuts(quota).find(|cut| cut.slot_count() == slots) {
            return Ok(cut);
        }
        let nearest = Self::cuts(quota)
            .map(|cut| cut.slot_count())
            .min_by_key(|other| other.abs_diff(slots))
            .unwrap_or(1);
        let remedy = format!(
            "give 1 to 128 slots that divide the period of {:?} into whole microseconds; the \
             nearest number is {nearest}",
            quota.period()
        );
        Err(ConfigError::new("slots", slots, remedy))
    }

    /// Sets the number of slots.
    ///
    /// # Errors
    ///
    /// As for [`cut`](Self::cut).
    pub fn slots(self, slots: u32) -> Result<Self, ConfigError> {
        Self::cut(self.quota, slots)
    }

    /// Sets the length of a slot.
    ///
    /// # Errors
    ///
    /// If the length does not divide the period, and as for [`cut`](Self::cut).
    pub fn slot(self, length: Duration) -> Result<Self, ConfigError> {
        if let Some(cut) = Self::cuts(self.quota).find(|cut| cut.length().to_duration() == length) {
            return Ok(cut);
        }
        let nearest = Self::cuts(self.quota)
            .map(|cut| cut.length().to_duration())
            .min_by_key(|other| other.abs_diff(length))
            .unwrap_or(self.quota.period());
        let remedy = format!(
            "1 to 128 slots have to make up the period of {:?}; the nearest length is {nearest:?}",
            self.quota.period()
        );
        Err(ConfigError::new("slot", format_args!("{length:?}"), remedy))
    }

    /// Every way to cut a period.
    fn cuts(quota: Quota) -> impl Iterator<Item = Self> {
        let period = quota.period_micros().get();
        (1..=MOST_SLOTS)
            .filter(move |slots| period.is_multiple_of((*slots).into()))
            .map(move |slots| Self { quota, slots })
    }

    /// Returns the quota: the limit and its period.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// Returns the number of slots in a period.
    pub const fn slot_count(&self) -> u32 {
        self.slots as u32
    }

    /// Returns the number of slots that count: the current slot, and a period of slots before it.
    fn places(self) -> u64 {
        u64::from(self.slots) + 1
    }

    pub(crate) fn length(self) -> Micros {
        Micros::new(self.quota.period_micros().get() / u64::from(self.slots))
    }
}

impl Kind for SlidingSlots {
    const NAME: &'static str = "sliding-slots";
    const NUMBER: &'static str = "slots";

    fn of_number(quota: Quota, slots: Option<u32>) -> Result<Self, ConfigError> {
        Self::cut(quota, slots.unwrap_or(DEFAULT_SLOTS.into()))
    }

    fn quota(&self) -> Quota {
        self.quota
    }

    fn number(&self) -> Option<u32> {
        Some(self.slot_count())
    }

    fn slots(&self) -> Option<u32> {
        Some(self.slot_count())
    }

    fn refunds_newest(&self) -> Option<Micros> {
        Some(self.length())
    }

    fn replenishment(&self) -> Replenishment {
        Replenishment::Slots
    }

    fn with_rule<W: WithRule>(&self, act: W) -> W::Result {
        act.long(*self)
    }

    fn lua(&self) -> super::Lua {
        let limit = self.quota.limit().into();
        super::Lua::of_numbers(
            "sliding_slots",
            include_str!("step.lua"),
            [limit, self.length().get(), self.places(), limit],
        )
    }
}

table!(SlidingSlots { slots });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Algorithm;

    const MINUTE: SlidingSlots = SlidingSlots::per_minute(100);

    #[test]
    fn slots_can_be_said_by_their_number_or_by_their_length() {
        let cut = MINUTE.slot(Duration::from_millis(500)).unwrap();
        assert_eq!(cut, MINUTE.slots(120).unwrap());
        assert_eq!(cut.slot_count(), 120);
    }

    #[test]
    fn a_charge_can_be_taken_back_until_its_slot_ends_or_all_is_reset() {
        let algorithm = Algorithm::from(MINUTE.slots(6).unwrap());
        let seconds = |count: u64| Micros::new(1_000_000 * count);
        for (reset_after, until) in [(60, 30), (3, 28)] {
            let told = algorithm.refundable_until(seconds(25), seconds(reset_after));
            assert_eq!(told, seconds(until));
        }
    }

    #[test]
    fn slots_that_do_not_divide_the_period_are_refused_with_the_nearest_that_do() {
        for (slots, nearest) in [(7, 6), (0, 1), (129, 128), (u32::MAX, 128)] {
            let error = MINUTE.slots(slots).unwrap_err();
            assert_eq!(
                (error.field(), error.value()),
                ("slots", &*slots.to_string())
            );
            let ending = format!("the nearest number is {nearest}");
            assert!(error.remedy().ends_with(&ending), "{error}");
            assert!(MINUTE.slots(nearest).is_ok());
        }
        let prime = Quota::new(1, Duration::from_micros(1_000_003)).unwrap();
        let error = SlidingSlots::of(prime).unwrap_err();
        assert!(
            error.remedy().ends_with("the nearest number is 1"),
            "{error}"
        );
        assert_eq!(SlidingSlots::cut(prime, 1).unwrap().slot_count(), 1);
    }

    #[test]
    fn a_length_that_does_not_divide_the_period_is_refused_with_the_nearest_that_does() {
        for (length, nearest) in [
            (Duration::from_millis(700), Duration::from_millis(750)),
            (Duration::ZERO, Duration::from_micros(468_750)),
            (Duration::from_secs(61), Duration::from_secs(60)),
            (Duration::MAX, Duration::from_secs(60)),
        ] {
            let error = MINUTE.slot(length).unwrap_err();
            assert_eq!(
                (error.field(), error.value()),
                ("slot", &*format!("{length:?}"))
            );
            let ending = format!("the nearest length is {nearest:?}");
            assert!(error.remedy().ends_with(&ending), "{error}");
            assert!(MINUTE.slot(nearest).is_ok());
        }
    }
}
