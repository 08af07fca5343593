//! The rule of a bucket: a debt in parts of a request, which drains at whole parts in each microsecond.
//!
//! The debt is stated as of one moment, in place of the moment at which it is drained, so that it survives a
//! change of the rate. It may need 128 bits, whose arithmetic is slower; most buckets need 64. Therefore the
//! rule is generic over its [`Parts`].

use super::Gcra;
use crate::algorithm::State;
use crate::algorithm::step::{Fixed, Step};
use crate::clock::Micros;

/// The rule of a bucket, in numbers of one width: 128 bits hold every debt, and 64 bits most debts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain<N> {
    gcra: Gcra,
    limit: u32,
    capacity: N,
    /// Whether requests wait for their turn. If so, the debt before a request is its place in the queue.
    holds: bool,
}

/// The debt at one moment, in parts of a request: see `Gcra::parts`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Debt<N> {
    at: u64,
    owed: N,
}

/// A number of parts. A debt is at most 2^33 requests of 2^45 parts (366 days in microseconds),
/// and what drains is at most 2^64 µs times 2^32 parts: 128 bits hold them all.
pub(crate) trait Parts: Copy + Default + Ord + Send + Sync + 'static {
    fn product(a: u64, b: u64) -> Self;

    fn plus(self, other: Self) -> Self;

    fn saturating_minus(self, other: Self) -> Self;

    fn widened(self) -> u128;

    /// A number in the same order, which is 0 only for 0.
    fn in_short(self) -> u64;

    fn of_halves(high: u64, low: u64) -> Self;
}

impl Parts for u128 {
    #[inline]
    fn product(a: u64, b: u64) -> Self {
        Self::from(a) * Self::from(b)
    }

    #[inline]
    fn plus(self, other: Self) -> Self {
        self + other
    }

    #[inline]
    fn saturating_minus(self, other: Self) -> Self {
        self.saturating_sub(other)
    }

    fn widened(self) -> u128 {
        self
    }

    fn in_short(self) -> u64 {
        narrow(self.div_ceil(1 << u32::BITS))
    }

    fn of_halves(high: u64, low: u64) -> Self {
        Self::from(high) << u64::BITS | Self::from(low)
    }
}

/// For buckets of less than 2^62 parts and their own debts: where the drained amount exceeds 64 bits, it also
/// exceeds each of these debts.
impl Parts for u64 {
    #[inline]
    fn product(a: u64, b: u64) -> Self {
        a.saturating_mul(b)
    }

    #[inline]
    fn plus(self, other: Self) -> Self {
        self.saturating_add(other)
    }

    #[inline]
    fn saturating_minus(self, other: Self) -> Self {
        self.saturating_sub(other)
    }

    #[inline]
    fn widened(self) -> u128 {
        self.into()
    }

    fn in_short(self) -> u64 {
        self
    }

    #[inline]
    fn of_halves(high: u64, low: u64) -> Self {
        if high > 0 { Self::MAX } else { low }
    }
}

impl Gcra {
    /// The rule in numbers that hold every debt, also of another limit.
    pub(super) fn rule(self, holds: bool) -> Drain<u128> {
        Drain {
            gcra: self,
            limit: self.limit(),
            capacity: u128::product(self.limit().into(), self.parts),
            holds,
        }
    }

    /// The rule in narrower numbers, if they hold the debts that it leaves itself.
    pub(super) fn narrow_rule(self, holds: bool) -> Option<Drain<u64>> {
        let capacity = u64::try_from(self.rule(holds).capacity).ok()?;
        (capacity < 1 << 62).then_some(Drain {
            gcra: self,
            limit: self.limit(),
            capacity,
            holds,
        })
    }

    /// What marks a debt above the capacity as left by this rule.
    fn mark(self) -> [u64; 2] {
        [self.burst.into(), self.quota.limit().into()]
    }

    /// The time in which this number of parts drains, rounded up. With a rate of 0 the limit is 0, and no
    /// outcome tells the wait.
    fn time_to_drain(self, parts: u128) -> Micros {
        Micros::wait(div_ceil(parts, self.drain.max(1)))
    }

    /// Whole requests, and parts of one.
    fn divided(self, parts: u128) -> (u64, u64) {
        if let Ok(parts) = u64::try_from(parts) {
            return (parts / self.parts, parts % self.parts);
        }
        let divisor = u128::from(self.parts);
        (narrow(parts / divisor), narrow(parts % divisor))
    }
}

impl<N: Parts> Drain<N> {
    fn in_parts(&self, requests: u32) -> N {
        N::product(requests.into(), self.gcra.parts)
    }

    #[inline]
    fn owed(&self, debt: &Debt<N>, now: Micros) -> N {
        let elapsed = now.get().saturating_sub(debt.at);
        let drained = N::product(elapsed, self.gcra.drain);
        debt.owed.saturating_minus(drained)
    }

    /// Cuts a debt above `most`: subtracts what has drained, and states it as of now.
    fn cut(&self, debt: Debt<N>, most: N, now: Micros) -> Debt<N> {
        if debt.owed <= most {
            return debt;
        }
        Debt {
            at: now.get(),
            owed: self.owed(&debt, now).min(most),
        }
    }
}

impl<N: Parts> Step for Drain<N> {
    type Kept = Debt<N>;

    fn read(&self, state: State, now: Micros) -> Debt<N> {
        let [at, whole, part] = state.first();
        let part = N::product(part.min(self.gcra.parts - 1), 1);
        let owed = N::product(whole, self.gcra.parts).plus(part);
        let debt = Debt { at, owed };
        if state.words().get(3..) == Some(&self.gcra.mark()) {
            return debt;
        }
        self.cut(debt, self.capacity, now)
    }

    /// Marks a debt above the capacity.
    fn write(&self, Debt { at, owed }: Debt<N>) -> State {
        let (whole, part) = self.gcra.divided(owed.widened());
        if owed > self.capacity {
            let [burst, limit] = self.gcra.mark();
            return State::from_words(&[at, whole, part, burst, limit]);
        }
        State::unless_new([at, whole, part])
    }

    fn limit(&self) -> u32 {
        self.limit
    }

    fn window(&self) -> Micros {
        self.gcra.time_to_drain(self.capacity.widened())
    }

    fn longest_wait(&self) -> Micros {
        self.window()
    }

    fn moved_back(&self, debt: &Debt<N>, now: Micros) -> Option<Debt<N>> {
        let possible = Debt {
            at: debt.at.min(now.get()),
            ..*debt
        };
        let possible = self.cut(possible, self.capacity.plus(self.capacity), now);
        (possible != *debt).then_some(possible)
    }

    #[inline]
    fn admits(&self, debt: &Debt<N>, now: Micros, cost: u32) -> bool {
        self.owed(debt, now).plus(self.in_parts(cost)) <= self.capacity
    }

    #[inline]
    fn charge(&self, debt: &mut Debt<N>, now: Micros, cost: u32) {
        *debt = Debt {
            at: now.get(),
            owed: self.owed(debt, now).plus(self.in_parts(cost)),
        };
    }

    fn settle(&self, debt: &mut Debt<N>, now: Micros, units: u32) {
        let owed = self.owed(debt, now).plus(self.in_parts(units));
        *debt = Debt {
            at: now.get(),
            owed: owed.min(self.capacity.plus(self.capacity)),
        };
    }

    fn refund(&self, debt: &mut Debt<N>, now: Micros, units: u32) {
        let owed = self.owed(debt, now);
        *debt = Debt {
            at: now.get(),
            owed: owed.saturating_minus(self.in_parts(units)),
        };
    }

    /// Every later request has added to the debt. So these turns are the last if the debt before them drains at
    /// the moment at which the first of them begins. A layer that has moved requests up can tell that moment a
    /// microsecond late, where a turn is no whole number of microseconds.
    fn give_back(&self, debt: &mut Debt<N>, now: Micros, turns: u32, begins: Micros) {
        let (owed, given_back) = (self.owed(debt, now), self.in_parts(turns));
        let before = owed.saturating_minus(given_back);
        let last = now.saturating_add(self.gcra.time_to_drain(before.widened()));
        let are_last = last == begins || last.saturating_add(Micros::new(1)) == begins;
        if self.holds && owed >= given_back && are_last {
            self.refund(debt, now, turns);
        }
    }

    fn remaining(&self, debt: &Debt<N>, now: Micros) -> u32 {
        let free = self.capacity.saturating_minus(self.owed(debt, now));
        let (whole, _) = self.gcra.divided(free.widened());
        whole.try_into().unwrap_or(self.limit())
    }

    fn distance(&self, debt: &Debt<N>, now: Micros) -> u64 {
        self.owed(debt, now).in_short()
    }

    fn reset_after(&self, debt: &Debt<N>, now: Micros) -> Micros {
        self.gcra.time_to_drain(self.owed(debt, now).widened())
    }

    fn retry_after(&self, debt: &Debt<N>, now: Micros, cost: u32) -> Micros {
        let room = self.in_parts(self.limit() - cost);
        let excess = self.owed(debt, now).saturating_minus(room);
        self.gcra.time_to_drain(excess.widened())
    }

    #[inline]
    fn delay(&self, debt: &Debt<N>, now: Micros, cost: u32) -> Micros {
        if !self.holds || cost == 0 {
            return Micros::ZERO;
        }
        let before = self.owed(debt, now).saturating_minus(self.in_parts(cost));
        self.gcra.time_to_drain(before.widened())
    }

    fn effective_window(&self, debt: &Debt<N>, now: Micros) -> Micros {
        match self.remaining(debt, now) {
            0 => self.next_unit(debt, now),
            remaining => self.gcra.time_to_drain(self.in_parts(remaining).widened()),
        }
    }
}

impl<N: Parts> Fixed for Drain<N> {
    #[expect(clippy::cast_possible_truncation, reason = "two halves of one number")]
    fn words(&self, Debt { at, owed }: Debt<N>) -> [u64; 3] {
        let owed = owed.widened();
        [at, (owed >> u64::BITS) as u64, owed as u64]
    }

    fn of_words(&self, [at, high, low]: [u64; 3]) -> Debt<N> {
        let owed = N::of_halves(high, low);
        Debt { at, owed }
    }

    fn packs_until(&self) -> Micros {
        let most = 2 * self.capacity.widened();
        let room = u128::from(u64::MAX).saturating_sub(most);
        Micros::new(narrow(room / u128::from(self.gcra.drain.max(1))))
    }

    /// The theoretical arrival time: the moment at which all debt is drained. It is exact in units of
    /// microseconds times `drain`.
    #[inline]
    fn pack(&self, Debt { at, owed }: Debt<N>) -> u64 {
        at * self.gcra.drain + narrow(owed.widened())
    }

    /// Every debt does: it is at most twice the capacity.
    fn packs(&self, _: Debt<N>, _: Micros) -> bool {
        true
    }

    #[inline]
    fn unpack(&self, arrival: u64, latest: Micros) -> Debt<N> {
        let at = latest.get();
        let owed = arrival.saturating_sub(at * self.gcra.drain);
        Debt {
            at,
            owed: N::of_halves(0, owed),
        }
    }
}

/// The number, or the largest number of 64 bits.
fn narrow(number: u128) -> u64 {
    number.try_into().unwrap_or(u64::MAX)
}

fn div_ceil(dividend: u128, divisor: u64) -> u128 {
    match u64::try_from(dividend) {
        Ok(dividend) => dividend.div_ceil(divisor).into(),
        Err(_) => dividend.div_ceil(divisor.into()),
    }
}
