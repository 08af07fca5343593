//! The debt of a key to a bucket under changing limits, computed the slow and obvious way.

use super::driver::Seen;
use super::model::{most_admitted, shortest_wait};

/// The pace at which the debt of a bucket drains under one limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The capacity in requests; 0 denies everything.
    pub(crate) capacity: i128,
    /// The parts of a request that drain in a step.
    pub(crate) rate: i128,
    /// The parts of a request.
    pub(crate) parts: i128,
    /// The length of a step in microseconds: 1, or the period of a bucket by interval.
    pub(crate) step: i128,
}

/// The debt of one key, which each limit reads in the same way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Debt {
    at: i128,
    /// The debt in parts.
    owed: i128,
    /// The highest rate at which any part of it was charged.
    rate: i128,
}

impl Pace {
    /// Drains one step: the excess over the capacity drains at the rate at which it was charged, or at the
    /// present rate if that is higher, and the rest drains at the present rate.
    pub(crate) fn step(self, debt: &mut Debt) {
        let capacity = self.capacity * self.parts;
        let slower = debt.owed - self.rate;
        let faster = debt.owed - debt.rate.max(self.rate);
        debt.owed = slower.min(faster.max(capacity)).max(0);
    }

    /// Drains many steps, as many at once as all drain the excess or all drain the rest.
    fn steps(self, debt: &mut Debt, mut steps: i128) {
        let excess = debt.owed - self.capacity * self.parts;
        let fast = debt.rate.max(self.rate);
        if excess > 0 {
            let at_once = (excess / fast.max(1)).min(steps);
            debt.owed -= at_once * fast;
            steps -= at_once;
        }
        if steps > 0 {
            self.step(debt);
            debt.owed = (debt.owed - (steps - 1) * self.rate).max(0);
        }
    }

    /// Returns the debt as of now.
    pub(crate) fn pass(self, mut debt: Debt, now: i128) -> Debt {
        debt.at = debt.at.min(now);
        let steps = (now - debt.at) / self.step;
        self.steps(&mut debt, steps);
        debt.at += steps * self.step;
        if debt.owed == 0 {
            return Debt {
                at: now,
                ..Debt::default()
            };
        }
        debt
    }

    pub(crate) fn allows(self, debt: Debt, now: i128, cost: i128) -> bool {
        let owed = self.pass(debt, now).owed;
        self.capacity > 0 && (cost == 0 || owed + cost * self.parts <= self.capacity * self.parts)
    }

    fn charge(self, debt: &mut Debt, owed: i128) {
        if owed > debt.owed {
            debt.owed = owed;
            debt.rate = debt.rate.max(self.rate);
        }
    }
}

impl Debt {
    pub(crate) fn is_none_owed(&self) -> bool {
        self.owed == 0
    }

    pub(crate) fn decide(&mut self, pace: Pace, now: u64, cost: u32) -> Seen {
        let (now, cost) = (i128::from(now), i128::from(cost));
        let allowed = pace.allows(*self, now, cost);
        // Law 8.
        let mut told = *self;
        told.at = told.at.min(now);
        if cost > 0 {
            *self = told;
        }
        if allowed && cost > 0 {
            *self = pace.pass(*self, now);
            pace.charge(self, self.owed + cost * pace.parts);
            told = *self;
        }
        let retry = || shortest_wait(|wait| pace.allows(told, now + wait, cost));
        let never = cost > pace.capacity || pace.capacity == 0;
        Seen {
            allowed,
            limit: u32::try_from(pace.capacity).unwrap(),
            remaining: most_admitted(pace.capacity, |count| pace.allows(told, now, count)),
            reset_after: match pace.capacity {
                0 => 0,
                _ => shortest_wait(|wait| pace.pass(told, now + wait).owed == 0),
            },
            retry_after: (!allowed && !never).then(retry),
        }
    }

    pub(crate) fn settle(&mut self, pace: Pace, now: u64, units: u32) {
        if units > 0 && pace.capacity > 0 {
            *self = pace.pass(*self, now.into());
            let owed = self.owed + i128::from(units) * pace.parts;
            pace.charge(self, owed.min(2 * pace.capacity * pace.parts));
        }
    }

    pub(crate) fn refund(&mut self, pace: Pace, now: u64, units: u32) {
        *self = pace.pass(*self, now.into());
        self.owed = (self.owed - i128::from(units) * pace.parts).max(0);
        if self.owed == 0 {
            self.rate = 0;
        }
    }

    #[cfg(test)]
    pub(crate) fn of(owed: i128, rate: i128) -> Self {
        Self { at: 0, owed, rate }
    }

    #[cfg(test)]
    pub(crate) fn owed_at(self, pace: Pace, now: i128) -> i128 {
        pace.pass(self, now).owed
    }
}
