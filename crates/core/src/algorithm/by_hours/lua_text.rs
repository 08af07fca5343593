//! The hours in a call to a server, which knows no zone.

use std::fmt::Write as _;

use super::ByHours;
use crate::algorithm::Algorithm;
use crate::calendar::Stretch;
use crate::clock::Micros;

/// The clocks of a node and of a server may differ by this much around a switch: a quarter of an hour.
const APART: Micros = Micros::from_secs(900);

/// A time after all requests, in a number that a server reads exactly.
const NEVER: Micros = Micros::new((1 << 53) - 1);

/// The largest number of switches of the timetable in a call with a debt.
const MOST_SWITCHES: usize = 64;

impl ByHours {
    /// Returns the algorithm in force at this moment, if no other is in force while the state counts or the
    /// clocks differ, and the server needs no other limit to choose what it tells of the state.
    pub(in crate::algorithm) fn alone_at(&self, now: Micros) -> Option<Algorithm> {
        if self.is_log() {
            return None;
        }
        let around = self.longest_drain().saturating_add(APART);
        let from = now.saturating_sub(around);
        let mut stretches = self.stretches(from, now.saturating_add(around));
        let first = self.in_force(stretches.next()?.place);
        stretches
            .all(|stretch| self.in_force(stretch.place) == first)
            .then_some(first)
    }

    /// Returns when each algorithm holds that may be in force by the clock of a server, or that was in force
    /// when a debt was charged that may not be drained yet: moments and the four numbers of the rule. For a log, of
    /// which a server tells the entries that matter, the limits of all hours follow, as of a time that never comes.
    pub(in crate::algorithm) fn lua_text_at(&self, now: Micros) -> String {
        let from = now.saturating_sub(self.longest_drain().saturating_add(APART));
        let mut text = String::new();
        let mut write = |from: Micros, algorithm: Algorithm| {
            let lua = algorithm.lua();
            let [limit, a, b, c] = lua.map_or([0; 4], |lua| lua.numbers_at(|| now));
            // Writing to a string cannot fail.
            let _ = write!(text, "{} {limit} {a} {b} {c};", from.get());
        };
        let mut last = None;
        for Stretch { span, place } in self.stretches(from, now.saturating_add(APART)) {
            let algorithm = self.in_force(place);
            if last.replace(algorithm) != Some(algorithm) {
                write(span.from, algorithm);
            }
        }
        if self.is_log() {
            self.each().for_each(|algorithm| write(NEVER, algorithm));
        }
        text
    }

    /// Returns whether a debt may have drained through more switches than fit in a call.
    // For `tower-ratelimit-redis`.
    #[doc(hidden)]
    pub fn has_too_many_switches(&self, now: Micros) -> bool {
        let from = now.saturating_sub(self.longest_drain());
        self.stretches(from, now).take(MOST_SWITCHES + 1).count() > MOST_SWITCHES
    }

    fn is_log(&self) -> bool {
        matches!(self.plain(), Algorithm::SlidingLog(_))
    }

    /// Returns how long a debt lasts at most: one of twice the largest capacity, after a charge after the
    /// fact.
    fn longest_drain(&self) -> Micros {
        if !self.plain().drains() {
            return Micros::ZERO;
        }
        let longest = self
            .slowest()
            .longest_wait()
            .map_or(Micros::ZERO, Micros::from);
        longest.saturating_add(longest)
    }

    fn stretches(&self, from: Micros, until: Micros) -> impl Iterator<Item = Stretch> {
        let timetable = self.timetable();
        let mut next = Some(timetable.stretch(from));
        std::iter::from_fn(move || {
            let stretch = next?;
            let end = stretch.span.until;
            next = (end <= until).then(|| timetable.stretch(end));
            Some(stretch)
        })
    }
}

#[cfg(all(test, feature = "calendar"))]
mod tests {
    use super::*;
    use crate::algorithm::{Algorithm, Hours, TokenBucket};
    use crate::quota::Quota;
    use std::time::Duration;

    /// A debt lasts for two periods, and of each day there are two stretches.
    #[test]
    fn a_debt_drains_through_sixty_four_stretches_at_most() {
        let noon = Micros::from_secs(20_000 * 86_400 + 43_200);
        for (days, expected) in [(1, false), (15, false), (17, true), (366, true)] {
            let quota = Quota::new(1_000, Duration::from_secs(days * 86_400)).unwrap();
            let hours = Hours::in_zone("UTC").unwrap();
            let hours = hours.at("00:00-06:00", TokenBucket::of(quota).burst(500));
            let bucket = hours.unwrap().over(TokenBucket::of(quota)).unwrap();
            let Algorithm::ByHours(bucket) = bucket else {
                panic!("{bucket} has no hours");
            };
            assert_eq!(bucket.has_too_many_switches(noon), expected, "{days} days");
        }
    }
}
