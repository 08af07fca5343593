//! The rule of a bucket that has met one limit only, in one word.
//!
//! A request has fewer parts here: limit and period are in lowest terms. The debts of one limit are whole
//! numbers of such parts, and all of them were charged at its rate. A debt that another limit has left may
//! not fit, and then needs the rule of `step.rs`: see [`Pack::fits`].

use crate::algorithm::State;
use crate::algorithm::step::{Pack, Step};
use crate::clock::Micros;
use crate::quota::Quota;

/// The rule of a bucket of less than 2^62 parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed {
    limit: u32,
    /// In parts.
    capacity: u64,
    /// The numerator of the rate in lowest terms: the requests that drain in `parts` microseconds.
    drain: u64,
    /// The denominator of the rate, in microseconds, and the number of parts of a request. So `drain` parts
    /// drain in each microsecond, without a remainder.
    parts: u64,
    quota: Quota,
    /// Whether requests wait for their turn. If so, the debt before a request is its place in the queue.
    holds: bool,
}

/// The debt at one moment, in parts of a request. It is stated as of that moment, in place of the moment at which it is
/// drained, since a charge reads it as of now.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Debt {
    at: u64,
    owed: u64,
}

impl Packed {
    /// Returns `None` if the numbers do not fit.
    pub(super) fn of(quota: Quota, limit: u32, holds: bool) -> Option<Self> {
        let (rate, period) = (u64::from(quota.limit()), quota.period_micros().get());
        let common = greatest_common_divisor(rate, period);
        let parts = period / common;
        let capacity = u64::from(limit).checked_mul(parts)?;
        (capacity < 1 << 62).then_some(Self {
            limit,
            capacity,
            drain: rate / common,
            parts,
            quota,
            holds,
        })
    }

    /// Returns the time in which this number of parts drains, rounded up. With a rate of 0 the limit is 0, and no
    /// outcome tells the wait.
    fn time_to_drain(&self, parts: u64) -> Micros {
        Micros::new(parts.div_ceil(self.drain.max(1))).min(Micros::LONGEST)
    }

    fn in_parts(&self, requests: u32) -> u64 {
        u64::from(requests).saturating_mul(self.parts)
    }

    /// Where the drained amount exceeds 64 bits, it also exceeds the debt.
    #[inline]
    fn owed(&self, debt: &Debt, now: Micros) -> u64 {
        let elapsed = now.get().saturating_sub(debt.at);
        debt.owed.saturating_sub(elapsed.saturating_mul(self.drain))
    }

    /// Returns the number of parts of a state for each part here.
    fn common(&self) -> u64 {
        self.quota.period_micros().get() / self.parts
    }

    /// Returns the most that a charge after the fact can leave.
    fn most(&self) -> u64 {
        2 * self.capacity
    }
}

impl Step for Packed {
    type Form = Debt;

    /// A debt that does not [fit](Pack::fits) is rounded up, and cut to twice the capacity.
    fn read(&self, state: State) -> Debt {
        let [at, whole, part, _] = state.first();
        let part = part.div_ceil(self.common()).min(self.parts);
        let owed = whole.saturating_mul(self.parts).saturating_add(part);
        Debt {
            at,
            owed: owed.min(self.most()),
        }
    }

    fn write(&self, Debt { at, owed }: Debt) -> State {
        let (whole, part) = (owed / self.parts, owed % self.parts);
        let rate = if owed == 0 { 0 } else { self.quota.limit() };
        State::unless_new([at, whole, part * self.common(), rate.into()])
    }

    fn limit(&self) -> u32 {
        self.limit
    }

    fn window(&self) -> Micros {
        self.time_to_drain(self.capacity)
    }

    fn longest_wait(&self) -> Micros {
        self.window()
    }

    fn moved_back(&self, debt: &Debt, now: Micros) -> Option<Debt> {
        let at = now.get();
        (debt.at > at).then_some(Debt { at, ..*debt })
    }

    #[inline]
    fn admits(&self, debt: &Debt, now: Micros, cost: u32) -> bool {
        // A cost is within the limit, so it is within the capacity.
        self.owed(debt, now) <= self.capacity - u64::from(cost) * self.parts
    }

    #[inline]
    fn charge(&self, debt: &mut Debt, now: Micros, cost: u32) {
        *debt = Debt {
            at: now.get(),
            owed: self.owed(debt, now) + u64::from(cost) * self.parts,
        };
    }

    fn settle(&self, debt: &mut Debt, now: Micros, units: u32) {
        let owed = self.owed(debt, now).saturating_add(self.in_parts(units));
        *debt = Debt {
            at: now.get(),
            owed: owed.min(self.most()),
        };
    }

    fn refund(&self, debt: &mut Debt, now: Micros, units: u32) {
        *debt = Debt {
            at: now.get(),
            owed: self.owed(debt, now).saturating_sub(self.in_parts(units)),
        };
    }

    /// See `step.rs`.
    fn are_last(&self, debt: &Debt, now: Micros, turns: u32, begins: Micros) -> bool {
        let (owed, given_back) = (self.owed(debt, now), self.in_parts(turns));
        let before = owed.saturating_sub(given_back);
        let last = now.saturating_add(self.time_to_drain(before));
        let are_last = last == begins || last.saturating_add(Micros::new(1)) == begins;
        self.holds && owed >= given_back && are_last
    }

    fn remaining(&self, debt: &Debt, now: Micros) -> u32 {
        let free = self.capacity.saturating_sub(self.owed(debt, now));
        (free / self.parts).try_into().unwrap_or(self.limit)
    }

    fn distance(&self, debt: &Debt, now: Micros) -> u64 {
        self.owed(debt, now)
    }

    fn reset_after(&self, debt: &Debt, now: Micros) -> Micros {
        self.time_to_drain(self.owed(debt, now))
    }

    fn retry_after(&self, debt: &Debt, now: Micros, cost: u32) -> Micros {
        let room = self.in_parts(self.limit - cost);
        self.time_to_drain(self.owed(debt, now).saturating_sub(room))
    }

    #[inline]
    fn delay(&self, debt: &Debt, now: Micros, cost: u32) -> Micros {
        if !self.holds || cost == 0 {
            return Micros::ZERO;
        }
        self.time_to_drain(self.owed(debt, now).saturating_sub(self.in_parts(cost)))
    }

    fn effective_window(&self, debt: &Debt, now: Micros) -> Micros {
        match self.remaining(debt, now) {
            0 => self.next_unit(debt, now),
            remaining => self.time_to_drain(self.in_parts(remaining)),
        }
    }
}

impl Pack for Packed {
    fn packs_until(&self) -> Micros {
        let room = u64::MAX.saturating_sub(self.most());
        Micros::new(room / self.drain.max(1))
    }

    /// The theoretical arrival time: the moment at which all debt is drained. It is exact in units of
    /// microseconds times `drain`.
    #[inline]
    fn pack(&self, Debt { at, owed }: Debt) -> u64 {
        at * self.drain + owed
    }

    #[inline]
    fn unpack(&self, arrival: u64, latest: Micros) -> Debt {
        let at = latest.get();
        let owed = arrival.saturating_sub(at * self.drain);
        Debt { at, owed }
    }

    /// Every debt fits: it is at most twice the capacity.
    fn packs(&self, _: Debt, _: Micros) -> bool {
        true
    }

    fn fits(&self, state: &State, _: Micros) -> bool {
        let [_, whole, part, rate] = state.first();
        let owed = u128::from(whole) * u128::from(self.parts);
        let owed = owed + u128::from(part / self.common());
        let is_of_this_rate = rate == u64::from(self.quota.limit());
        owed == 0 && part == 0
            || is_of_this_rate && part % self.common() == 0 && owed <= self.most().into()
    }
}

const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two parts of a state are one part here.
    #[test]
    fn a_state_fits_if_it_is_read_as_it_is() {
        let quota = Quota::per_second(2);
        let packed = Packed::of(quota, 5, false).unwrap();
        for (state, fits) in [
            ([0; 4], true),
            ([7, 1, 2, 2], true),
            ([7, 1, 1, 2], false),
            ([7, 1, 2, 3], false),
            ([7, 10, 0, 2], true),
            ([7, 10, 2, 2], false),
        ] {
            let state = State::unless_new(state);
            assert_eq!(packed.fits(&state, Micros::ZERO), fits, "{state:?}");
        }
    }

    #[test]
    fn its_window_is_the_time_in_which_all_of_it_drains() {
        let packed = Packed::of(Quota::per_second(2), 5, false).unwrap();
        assert_eq!(packed.window(), Micros::new(2_500_000));
    }
}
