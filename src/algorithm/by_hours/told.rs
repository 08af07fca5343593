//! What a server is told of hours: it knows no zone.

use std::fmt::Write as _;

use super::ByHours;
use crate::algorithm::Algorithm;
use crate::calendar::Stretch;
use crate::clock::Micros;

/// The clocks of a node and of a server may differ by so much around a switch: a quarter of an hour.
const APART: Micros = Micros::from_secs(900);

/// The most switches of the timetable that a server is told with a debt.
const MOST_SWITCHES: usize = 64;

impl ByHours {
    /// The algorithm in force at this moment, if no other is in force while what is kept counts or the clocks differ.
    pub(in crate::algorithm) fn alone_at(&self, now: Micros) -> Option<Algorithm> {
        let around = self.longest_drain().saturating_add(APART);
        let from = now.saturating_sub(around);
        let mut stretches = self.stretches(from, now.saturating_add(around));
        let first = self.in_force(stretches.next()?.place);
        stretches
            .all(|stretch| self.in_force(stretch.place) == first)
            .then_some(first)
    }

    /// From when on each algorithm holds that may be in force by the clock of a server, or that was in force when a debt
    /// was charged that may not be drained yet: moments and the four numbers of the rule.
    pub(in crate::algorithm) fn told_at(&self, now: Micros) -> String {
        let from = now.saturating_sub(self.longest_drain().saturating_add(APART));
        let mut text = String::new();
        let mut last = None;
        for Stretch { span, place } in self.stretches(from, now.saturating_add(APART)) {
            let algorithm = self.in_force(place);
            if last.replace(algorithm) == Some(algorithm) {
                continue;
            }
            let lua = algorithm.lua();
            let [limit, a, b, c] = lua.map_or([0; 4], |lua| lua.numbers_at(|| now));
            // To write to a string cannot fail.
            let _ = write!(text, "{} {limit} {a} {b} {c};", span.from.get());
        }
        text
    }

    /// Whether a debt may have drained through more switches than a server can be told of.
    pub(crate) fn has_too_many_switches(&self, now: Micros) -> bool {
        let from = now.saturating_sub(self.longest_drain());
        self.stretches(from, now).take(MOST_SWITCHES + 1).count() > MOST_SWITCHES
    }

    /// How long it takes at most until nothing of a debt is left: of twice the largest capacity, after a charge after the
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
