//! The rule of a bucket: a debt in parts of a request, and the rate at which it was charged.
//!
//! A request has as many parts as the period has microseconds, and as many parts drain in each microsecond as
//! the quota has requests. So all limits of a period count in the same parts: a change of the limit converts
//! nothing, and loses nothing. [`Drain`] defines how a debt above the capacity drains.
//!
//! A debt may need 78 bits. `packed.rs` has the same rule for one limit, in one word.

use crate::algorithm::State;
use crate::algorithm::drain::{Drain, div_ceil, divided, narrow, product};
use crate::algorithm::step::{Fixed, MOST_OWED, Step};
use crate::clock::Micros;
use crate::quota::Quota;

/// The rule of a bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    limit: u32,
    /// In parts.
    capacity: u128,
    /// The parts of a request.
    period: u64,
    /// The parts that drain in a microsecond.
    rate: u32,
    /// Whether requests wait for their turn. If so, the debt before a request is its place in the queue.
    holds: bool,
}

/// The debt at one moment, in parts of a request.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Debt {
    at: u64,
    /// At most 2^33 requests of 2^45 parts (366 days in microseconds).
    owed: u128,
    /// The highest rate at which any of it was charged; 0 if nothing is owed.
    rate: u32,
}

impl Bucket {
    pub(super) fn of(quota: Quota, limit: u32, holds: bool) -> Self {
        let period = quota.period_micros().get();
        Self {
            limit,
            capacity: product(limit.into(), period),
            period,
            rate: quota.limit(),
            holds,
        }
    }

    fn in_parts(&self, requests: u32) -> u128 {
        product(requests.into(), self.period)
    }

    /// Returns how a debt drains that was charged at this rate.
    fn drain(&self, rate: u32) -> Drain {
        let slow = u64::from(self.rate).max(1);
        Drain {
            capacity: self.capacity,
            fast: slow.max(rate.into()),
            slow,
        }
    }

    #[inline]
    fn owed(&self, debt: &Debt, now: Micros) -> u128 {
        let elapsed = now.get().saturating_sub(debt.at);
        self.drain(debt.rate).after(elapsed, debt.owed)
    }

    /// Returns how long it takes until no more than `left` of this debt is owed, of which `owed` is owed now.
    fn wait(&self, debt: &Debt, owed: u128, left: u128) -> Micros {
        Micros::wait(self.drain(debt.rate).steps(owed, left))
    }

    /// Returns the debt after a charge, of which `before` was owed until now.
    #[inline]
    fn charged(&self, debt: &Debt, now: Micros, before: u128, owed: u128) -> Debt {
        let rate = match before {
            0 => self.rate,
            _ => debt.rate.max(self.rate),
        };
        let at = now.get();
        Debt { at, owed, rate }
    }
}

impl Step for Bucket {
    type Form = Debt;

    fn read(&self, state: State) -> Debt {
        let [at, whole, part, rate] = state.first();
        let part = part.min(self.period - 1);
        let owed = product(whole, self.period) + u128::from(part);
        let most = product(MOST_OWED, self.period);
        Debt {
            at,
            owed: owed.min(most),
            rate: u32::try_from(rate).unwrap_or(u32::MAX),
        }
    }

    fn write(&self, Debt { at, owed, rate }: Debt) -> State {
        let (whole, part) = divided(owed, self.period);
        State::unless_new([at, whole, part, rate.into()])
    }

    fn limit(&self) -> u32 {
        self.limit
    }

    fn window(&self) -> Micros {
        Micros::wait(div_ceil(self.capacity, u64::from(self.rate).max(1)))
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
        self.owed(debt, now) + self.in_parts(cost) <= self.capacity
    }

    #[inline]
    fn charge(&self, debt: &mut Debt, now: Micros, cost: u32) {
        let before = self.owed(debt, now);
        *debt = self.charged(debt, now, before, before + self.in_parts(cost));
    }

    /// A debt that is above twice the capacity already stays as it is.
    fn settle(&self, debt: &mut Debt, now: Micros, units: u32) {
        let before = self.owed(debt, now);
        let owed = (before + self.in_parts(units)).min(2 * self.capacity);
        *debt = if owed > before {
            self.charged(debt, now, before, owed)
        } else {
            Debt {
                at: now.get(),
                owed: before,
                rate: debt.rate,
            }
        };
    }

    fn refund(&self, debt: &mut Debt, now: Micros, units: u32) {
        let owed = self.owed(debt, now);
        let left = owed.saturating_sub(self.in_parts(units));
        *debt = Debt {
            at: now.get(),
            owed: left,
            rate: if left == 0 { 0 } else { debt.rate },
        };
    }

    /// Every later request has added to the debt. So these turns are the last if the debt before them drains
    /// at the moment at which the first of them begins. A layer that has moved requests up may pass that
    /// moment a microsecond late, where a turn is not a whole number of microseconds.
    fn are_last(&self, debt: &Debt, now: Micros, turns: u32, begins: Micros) -> bool {
        let (owed, given_back) = (self.owed(debt, now), self.in_parts(turns));
        let before = owed.saturating_sub(given_back);
        let last = now.saturating_add(self.wait(debt, before, 0));
        let are_last = last == begins || last.saturating_add(Micros::new(1)) == begins;
        self.holds && owed >= given_back && are_last
    }

    fn remaining(&self, debt: &Debt, now: Micros) -> u32 {
        let free = self.capacity.saturating_sub(self.owed(debt, now));
        let (whole, _) = divided(free, self.period);
        whole.try_into().unwrap_or(self.limit)
    }

    fn distance(&self, debt: &Debt, now: Micros) -> u64 {
        // In order, and 0 only for 0.
        narrow(self.owed(debt, now).div_ceil(1 << u32::BITS))
    }

    fn reset_after(&self, debt: &Debt, now: Micros) -> Micros {
        self.wait(debt, self.owed(debt, now), 0)
    }

    fn retry_after(&self, debt: &Debt, now: Micros, cost: u32) -> Micros {
        let room = self.in_parts(self.limit - cost);
        self.wait(debt, self.owed(debt, now), room)
    }

    #[inline]
    fn delay(&self, debt: &Debt, now: Micros, cost: u32) -> Micros {
        if !self.holds || cost == 0 {
            return Micros::ZERO;
        }
        let before = self.owed(debt, now).saturating_sub(self.in_parts(cost));
        self.wait(debt, before, 0)
    }

    fn effective_window(&self, debt: &Debt, now: Micros) -> Micros {
        match self.remaining(debt, now) {
            0 => self.next_unit(debt, now),
            remaining => self.wait(debt, self.in_parts(remaining), 0),
        }
    }
}

impl Fixed for Bucket {
    #[expect(clippy::cast_possible_truncation, reason = "two halves of one number")]
    fn words(&self, Debt { at, owed, rate }: Debt) -> [u64; 3] {
        let high = (owed >> u64::BITS) as u64;
        [at, u64::from(rate) << u32::BITS | high, owed as u64]
    }

    #[expect(clippy::cast_possible_truncation, reason = "two halves of one number")]
    fn of_words(&self, [at, high, low]: [u64; 3]) -> Debt {
        let owed = u128::from(high as u32) << u64::BITS | u128::from(low);
        let rate = (high >> u32::BITS) as u32;
        Debt { at, owed, rate }
    }
}
