//! The slow model: it reads the wall clock to find each edge of an interval.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use super::MINUTE;
use super::cases::{Case, Interval};
use crate::subject::Subject;
use crate::support::debt::{Debt, Pace};
use crate::support::driver::Seen;
use crate::support::model::Model;

/// The wall clock.
pub(super) struct Wall {
    pub(super) zone: TimeZone,
    pub(super) intervals: Vec<Interval>,
    pub(super) edges: RefCell<HashMap<DateTime, i128>>,
}

impl Wall {
    pub(super) fn shows(&self, at: i128) -> DateTime {
        let at = Timestamp::from_microsecond(at.try_into().unwrap()).unwrap();
        self.zone.to_datetime(at)
    }

    /// Returns the first minute at which the clock shows this time, or a later one.
    pub(super) fn first(&self, shown: DateTime) -> i128 {
        let known = self.edges.borrow().get(&shown).copied();
        known.unwrap_or_else(|| {
            let utc = shown.to_zoned(TimeZone::UTC).unwrap().timestamp();
            let mut at = i128::from(utc.as_microsecond()) - 15 * 60 * MINUTE;
            while self.shows(at) < shown {
                at += MINUTE;
            }
            self.edges.borrow_mut().insert(shown, at);
            at
        })
    }

    /// Returns the beginning and the end of each interval that begins within two days of these moments.
    pub(super) fn edges(&self, from: i128, until: i128) -> Vec<(i128, i128, usize)> {
        let mut date = self.shows(from).date().checked_sub(2.days()).unwrap();
        let last = self.shows(until).date().checked_add(2.days()).unwrap();
        let mut edges = Vec::new();
        while date <= last {
            for (place, interval) in (1..).zip(&self.intervals) {
                if interval.weekdays >> date.weekday().to_monday_zero_offset() & 1 == 1 {
                    let midnight = date.at(0, 0, 0, 0);
                    let at = |minutes: u16| midnight.checked_add(i64::from(minutes).minutes());
                    let begins = self.first(at(interval.from).unwrap());
                    let ends = self.first(at(interval.from + interval.length).unwrap());
                    edges.push((begins, ends, place));
                }
            }
            date = date.tomorrow().unwrap();
        }
        edges
    }

    pub(super) fn place(&self, at: i128) -> usize {
        let edges = self.edges(at, at);
        let inside = edges
            .iter()
            .find(|(begins, ends, _)| (*begins..*ends).contains(&at));
        inside.map_or(0, |(.., place)| *place)
    }

    /// Returns the moments after the first and up to the second at which the limit may change.
    pub(super) fn switches(&self, after: i128, until: i128) -> Vec<i128> {
        let edges = self.edges(after, until);
        let all = edges.iter().flat_map(|(begins, ends, _)| [*begins, *ends]);
        let mut all: Vec<_> = all.filter(|at| (after + 1..=until).contains(at)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// The usage of a key: a count, or a debt.
#[derive(Clone)]
pub(super) enum Past {
    Counted(Model),
    Owed(Debt),
}

pub(super) struct Slow {
    pub(super) wall: Wall,
    pub(super) subjects: Vec<Subject>,
    pub(super) past: Past,
    pub(super) at: i128,
}

/// The distance up to which the model looks.
pub(super) const HORIZON: i128 = 16 * 24 * 60 * MINUTE;

/// The result for a moment that is further away.
pub(super) const BEYOND: u64 = u64::MAX;

impl Slow {
    pub(super) fn new(case: &Case) -> Self {
        let numbers = case.numbers();
        let subjects: Vec<_> = numbers
            .iter()
            .map(|numbers| case.subject(numbers))
            .collect();
        let past = match subjects[0].rule.pace() {
            Some(_) => Past::Owed(Debt::default()),
            None => Past::Counted(subjects[0].model()),
        };
        Self {
            wall: Wall {
                zone: TimeZone::get(case.zone).unwrap(),
                intervals: case.intervals.clone(),
                edges: RefCell::default(),
            },
            subjects,
            past,
            at: case.start.into(),
        }
    }

    /// A debt drains under a limit of 0 too: in each step, by the least that there is.
    pub(super) fn pace(&self, place: usize) -> Pace {
        let its = self.subjects[place].rule.pace().expect("a bucket");
        Pace {
            rate: its.rate.max(1),
            ..its
        }
    }

    /// Returns the past as of a later moment.
    pub(super) fn passed(&self, mut past: Past, from: i128, until: i128) -> Past {
        if let Past::Owed(debt) = &mut past {
            for switch in self.wall.switches(from, until) {
                *debt = self.pace(self.wall.place(switch - 1)).pass(*debt, switch);
            }
        }
        past
    }

    pub(super) fn allows(&self, past: &Past, at: i128, cost: i128) -> bool {
        let subject = &self.subjects[self.wall.place(at)];
        match past {
            Past::Counted(model) => model
                .clone()
                .under(Arc::clone(&subject.rule))
                .allows(at, cost),
            Past::Owed(debt) => self.pace(self.wall.place(at)).allows(*debt, at, cost),
        }
    }

    pub(super) fn decide(&mut self, at: u64, cost: u32) -> Seen {
        let now = i128::from(at);
        self.past = self.passed(self.past.clone(), self.at, now);
        self.at = now;
        let place = self.wall.place(now);
        let drained = self.subjects[place].rule.pace().map(|_| self.pace(place));
        let rule = Arc::clone(&self.subjects[place].rule);
        let seen = match &mut self.past {
            Past::Counted(model) => {
                *model = model.clone().under(rule);
                model.decide(at, cost)
            }
            Past::Owed(debt) => debt.decide(drained.expect("a bucket"), at, cost),
        };
        let reset_after = match &self.past {
            Past::Counted(_) => seen.reset_after,
            Past::Owed(_) => {
                let is_new = |past: &Past, place: usize, at| match past {
                    Past::Owed(debt) => self.pace(place).pass(*debt, at).is_none_owed(),
                    Past::Counted(_) => false,
                };
                self.first(now, is_new).unwrap_or(BEYOND)
            }
        };
        let retry_after = (!seen.allowed)
            .then(|| self.first(now, |past, _, at| self.allows(past, at, cost.into())));
        Seen {
            reset_after,
            retry_after: retry_after.flatten(),
            ..seen
        }
    }

    /// Returns how long until something first holds that then holds to the next switch.
    pub(super) fn first(
        &self,
        now: i128,
        holds: impl Fn(&Past, usize, i128) -> bool,
    ) -> Option<u64> {
        let mut edges = self.wall.switches(now, now + HORIZON);
        edges.push(now + HORIZON);
        let (mut past, mut from) = (self.past.clone(), now);
        for until in edges {
            let place = self.wall.place(from);
            if holds(&past, place, until - 1) {
                let (mut low, mut high) = (from, until - 1);
                while low < high {
                    let middle = i128::midpoint(low, high);
                    if holds(&past, place, middle) {
                        high = middle;
                    } else {
                        low = middle + 1;
                    }
                }
                return Some(u64::try_from(low - now).unwrap());
            }
            past = self.passed(past, from, until);
            from = until;
        }
        None
    }
}
