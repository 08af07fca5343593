//! The rule of a calendar window that has met one calendar only, in one word.
//!
//! Windows begin at full seconds. So the second of the last charge identifies its window, and with one
//! calendar that is all that the rule of `step.rs` needs.

use super::CalendarWindow;
use super::step::{SECOND, WindowUse};
use crate::algorithm::State;
use crate::algorithm::step::{Fixed, Pack, Step, countable, largest_beside};
use crate::calendar::Span;
use crate::clock::Micros;
use crate::decision::Outcome;

/// The rule of a calendar window of less than 2^28.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed(CalendarWindow);

/// The usage of a key, and its last charge in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Used {
    last: u64,
    used: u64,
}

/// The number of bits of a count. A settlement may leave twice the limit.
const COUNT: u32 = 29;

const fn seconds(at: Micros) -> u64 {
    at.get() / SECOND
}

impl Packed {
    /// The largest limit.
    pub(crate) const MOST: u32 = (1 << (COUNT - 1)) - 1;

    /// Returns `None` if the limit is too large.
    pub(crate) fn of(window: CalendarWindow) -> Option<Self> {
        (window.limit <= Self::MOST).then_some(Self(window))
    }

    /// Packs a window whose limit is known to be small enough.
    #[inline]
    pub(crate) fn within_a_word(window: CalendarWindow) -> Self {
        let limit = window.limit.min(Self::MOST);
        Self(CalendarWindow { limit, ..window })
    }

    #[inline]
    fn present(self, now: Micros) -> Span {
        self.0.calendar.at(now)
    }

    /// Returns what counts in this window, which is the present one.
    #[inline]
    fn used(state: Used, present: Span) -> u64 {
        if state.last >= seconds(present.from) {
            state.used
        } else {
            0
        }
    }

    fn changed(self, state: Used, now: Micros, change: impl FnOnce(u64) -> u64) -> Used {
        let used = Self::used(state, self.present(now));
        let last = if used > 0 { state.last } else { 0 };
        Used {
            last: last.max(seconds(now)),
            used: change(used),
        }
    }

    fn left(self, now: Micros) -> Micros {
        self.present(now).until.saturating_sub(now)
    }

    /// Returns the state in the form of the rule in `step.rs`.
    fn counted(self, state: Used) -> WindowUse {
        let last = Micros::new(state.last.saturating_mul(SECOND));
        let until = self.0.windows().at(last).until;
        WindowUse::new(until, state.used, last)
    }
}

impl Step for Packed {
    type Form = Used;

    fn read(&self, state: State) -> Used {
        let [_, used, last] = state.first();
        Used { last, used }
    }

    fn write(&self, state: Used) -> State {
        match state.used {
            0 => State::NEW,
            _ => self.0.write(self.counted(state)),
        }
    }

    fn limit(&self) -> u32 {
        self.0.limit
    }

    fn window(&self) -> Micros {
        self.0.window()
    }

    fn longest_wait(&self) -> Micros {
        Step::longest_wait(&self.0)
    }

    fn moved_back(&self, state: &Used, now: Micros) -> Option<Used> {
        let is_later = state.last >= seconds(self.present(now).until);
        is_later.then_some(Used {
            last: seconds(now),
            ..*state
        })
    }

    #[inline]
    fn admits(&self, state: &Used, now: Micros, cost: u32) -> bool {
        let used = Self::used(*state, self.present(now));
        used + u64::from(cost) <= self.0.limit.into()
    }

    #[inline]
    fn charge(&self, state: &mut Used, now: Micros, cost: u32) {
        *state = self.changed(*state, now, |used| used + u64::from(cost));
    }

    fn settle(&self, state: &mut Used, now: Micros, units: u32) {
        *state = self.changed(*state, now, |used| {
            used.saturating_add(countable(units, used))
        });
    }

    fn refund(&self, state: &mut Used, now: Micros, units: u32) {
        let used = Self::used(*state, self.present(now));
        state.used = used.saturating_sub(units.into());
    }

    fn remaining(&self, state: &Used, now: Micros) -> u32 {
        let used = u32::try_from(Self::used(*state, self.present(now)));
        used.map_or(0, |used| self.0.limit.saturating_sub(used))
    }

    fn distance(&self, state: &Used, now: Micros) -> u64 {
        Self::used(*state, self.present(now))
    }

    fn reset_after(&self, state: &Used, now: Micros) -> Micros {
        match Self::used(*state, self.present(now)) {
            0 => Micros::ZERO,
            _ => self.left(now),
        }
    }

    fn retry_after(&self, _: &Used, now: Micros, _: u32) -> Micros {
        self.left(now)
    }

    fn effective_window(&self, _: &Used, now: Micros) -> Micros {
        self.left(now)
    }

    fn present_window(&self, _: &Used, now: Micros) -> Option<Micros> {
        Some(self.present(now).length())
    }

    /// Returns the outcome of the default method, with one look at the calendar.
    fn outcome(&self, state: &Used, now: Micros, cost: u32, allowed: bool) -> Outcome {
        let limit = self.0.limit;
        let present = self.present(now);
        let left = present.until.saturating_sub(now);
        let used = Self::used(*state, present);
        let outcome = if limit == 0 {
            Outcome::allowed(0, 0, Micros::ZERO)
        } else {
            let remaining = u32::try_from(used).map_or(0, |used| limit.saturating_sub(used));
            let reset = if used == 0 { Micros::ZERO } else { left };
            let outcome = Outcome::allowed(limit, remaining, reset).lasting(left);
            outcome.in_window(present.length())
        };
        if allowed {
            return outcome;
        }
        outcome.denied((1..=limit).contains(&cost).then_some(left))
    }
}

impl Pack for Packed {
    fn packs_until(&self) -> Micros {
        Micros::new(largest_beside(COUNT).saturating_mul(SECOND))
    }

    #[inline]
    fn pack(&self, Used { last, used }: Used) -> u64 {
        last << COUNT | used
    }

    #[inline]
    fn unpack(&self, word: u64, _: Micros) -> Used {
        Used {
            last: word >> COUNT,
            used: word & ((1 << COUNT) - 1),
        }
    }

    /// A state that counts to the end of another window was left by another calendar.
    fn fits(&self, state: &State, now: Micros) -> bool {
        let [until, used, _] = state.first();
        let read = self.read(state.clone());
        used == 0 || self.packs(read, now) && self.0.words(self.counted(read))[0] == until
    }
}

#[cfg(all(test, feature = "calendar"))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::algorithm::FixedWindow;
    use crate::calendar::{Weekday, Zone};

    fn windows(limit: u32) -> [CalendarWindow; 4] {
        let zone = Zone::named("America/Sao_Paulo").unwrap();
        [
            FixedWindow::per_calendar_day(limit),
            FixedWindow::per_calendar_week(limit, Weekday::Sunday),
            FixedWindow::per_calendar_month(limit),
            FixedWindow::per_calendar_year(limit),
        ]
        .map(|window| window.zone(zone))
    }

    #[derive(Clone, Debug)]
    enum Verb {
        Charge,
        Settle,
        Refund,
        StepBack,
    }

    fn verb() -> impl Strategy<Value = Verb> {
        prop_oneof![
            6 => Just(Verb::Charge),
            1 => Just(Verb::Settle),
            1 => Just(Verb::Refund),
            1 => Just(Verb::StepBack),
        ]
    }

    proptest! {
        /// One word has the same outcomes as three, whatever happens under one calendar.
        #[test]
        fn one_word_tells_what_three_do(
            which in 0..4_usize,
            limit in 0..6_u32,
            start in 1_400_000_000_u64..1_500_000_000,
            steps in prop::collection::vec((verb(), 0..200_000_000_000_u64, 0..4_u32), 1..60),
        ) {
            let wide = windows(limit)[which];
            let packed = Packed::of(wide).unwrap();
            let (mut three, mut word) = (WindowUse::default(), 0);
            let mut now = Micros::new(start * SECOND);
            for (verb, micros, units) in steps {
                if matches!(verb, Verb::StepBack) {
                    now = now.saturating_sub(Micros::new(micros));
                    three = wide.moved_back(&three, now).unwrap_or(three);
                    let one = packed.unpack(word, now);
                    word = packed.pack(packed.moved_back(&one, now).unwrap_or(one));
                    continue;
                }
                now = now.saturating_add(Micros::new(micros));
                let mut one = packed.unpack(word, now);
                let allowed = wide.allows(&three, now, units);
                prop_assert_eq!(packed.allows(&one, now, units), allowed);
                match verb {
                    Verb::Charge if allowed && units > 0 => {
                        wide.charge(&mut three, now, units);
                        packed.charge(&mut one, now, units);
                    }
                    Verb::Settle if limit > 0 => {
                        wide.settle(&mut three, now, units);
                        packed.settle(&mut one, now, units);
                    }
                    Verb::Refund => {
                        wide.refund(&mut three, now, units);
                        packed.refund(&mut one, now, units);
                    }
                    _ => {}
                }
                prop_assert!(packed.packs(one, now));
                word = packed.pack(one);
                let numbers = |allowed| (wide.outcome(&three, now, units, allowed), packed.outcome(&one, now, units, allowed));
                let (by_three, by_one) = numbers(allowed);
                prop_assert_eq!(by_one, by_three);
                prop_assert_eq!(packed.distance(&one, now), wide.distance(&three, now));
                prop_assert_eq!(packed.longest_wait(), Step::longest_wait(&wide));
                // A state of the one is read by the other.
                let state = packed.write(one);
                prop_assert!(packed.fits(&state, now));
                let read = wide.read(state);
                prop_assert_eq!(wide.outcome(&read, now, units, allowed), by_three);
            }
        }
    }

    #[test]
    fn a_state_that_another_calendar_has_left_does_not_fit() {
        let [day, _, month, _] = windows(5);
        let now = Micros::new(1_450_000_000 * SECOND);
        let mut by_month = WindowUse::default();
        month.charge(&mut by_month, now, 1);
        let packed = Packed::of(day).unwrap();
        assert!(!packed.fits(&month.write(by_month), now));
        let mut by_day = WindowUse::default();
        day.charge(&mut by_day, now, 1);
        assert!(packed.fits(&day.write(by_day), now));
        assert!(Packed::of(windows(1 << 28)[0]).is_none());
    }
}
