//! The rule of a bucket that refills by interval.

use crate::algorithm::State;
#[cfg(feature = "redis")]
use crate::algorithm::lua::Lua;
use crate::algorithm::step::{Fixed, Step, bits_of_count, largest_beside};
use crate::clock::Micros;
use crate::quota::Quota;

/// A bucket whose tokens arrive together, once in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ByInterval {
    pub(super) quota: Quota,
    pub(super) burst: u32,
}

/// What was missing from a full bucket after its last refill. A full bucket waits for no refill: its next
/// request starts the intervals.
#[derive(Clone, Copy, Default)]
pub(crate) struct Missing {
    refilled: u64,
    tokens: u64,
}

impl Missing {
    fn words(self) -> [u64; 2] {
        [self.refilled, self.tokens]
    }
}

impl ByInterval {
    fn period(self) -> u64 {
        self.quota.period_micros().get()
    }

    /// How many tokens arrive together. With a rate of 0 the limit is 0, and no outcome tells the wait.
    fn refill(self) -> u64 {
        self.quota.limit().max(1).into()
    }

    /// The same rule in Lua.
    #[cfg(feature = "redis")]
    pub(super) fn lua(self) -> Lua {
        Lua::of_numbers(
            "by_interval",
            include_str!("interval.lua"),
            [
                self.limit().into(),
                self.refill(),
                self.period(),
                self.quota.limit().into(),
            ],
        )
    }

    fn capacity(self) -> u64 {
        self.limit().into()
    }

    /// What marks a state in which more than the capacity is missing as left by this rule.
    fn mark(self) -> [u64; 2] {
        [self.burst.into(), self.quota.limit().into()]
    }

    /// The time in which this number of tokens arrives in the long run.
    fn time_at_rate(self, tokens: u32) -> Micros {
        let time = u128::from(tokens) * u128::from(self.period());
        Micros::wait(time.div_ceil(self.refill().into()))
    }

    /// What is missing at `now`, after the refills since `then`.
    fn missing_at(self, now: Micros, then: Missing) -> Missing {
        let refills = now.get().saturating_sub(then.refilled) / self.period();
        let tokens = then
            .tokens
            .saturating_sub(refills.saturating_mul(self.refill()));
        let refilled = match tokens {
            0 => now.get(),
            _ => then.refilled + refills * self.period(),
        };
        Missing { refilled, tokens }
    }

    /// Cuts what is missing to `most`: if it exceeds that, subtracts what has arrived, and states it as of
    /// now.
    fn cut(self, then: Missing, most: u64, now: Micros) -> Missing {
        if then.tokens <= most {
            return then;
        }
        let missing = self.missing_at(now, then);
        Missing {
            tokens: missing.tokens.min(most),
            ..missing
        }
    }

    /// How long until this number of tokens has arrived.
    fn time_to_refill(self, missing: Missing, tokens: u64, now: Micros) -> Micros {
        if tokens == 0 {
            return Micros::ZERO;
        }
        let refills = tokens.div_ceil(self.refill());
        let time = u128::from(refills) * u128::from(self.period());
        let since = now.get().saturating_sub(missing.refilled);
        Micros::wait(time.saturating_sub(since.into()))
    }
}

impl Step for ByInterval {
    type Kept = Missing;

    fn read(&self, state: State, now: Micros) -> Missing {
        let [refilled, tokens] = state.first();
        let then = Missing { refilled, tokens };
        if state.words().get(2..) == Some(&self.mark()) {
            return then;
        }
        self.cut(then, self.capacity(), now)
    }

    /// Marks what is above the capacity.
    fn write(&self, kept: Missing) -> State {
        if kept.tokens > self.capacity() {
            let ([refilled, tokens], [burst, limit]) = (kept.words(), self.mark());
            return State::from_words(&[refilled, tokens, burst, limit]);
        }
        State::unless_new(kept.words())
    }

    fn limit(&self) -> u32 {
        match self.quota.limit() {
            0 => 0,
            _ => self.burst,
        }
    }

    /// The window of a continuous refill, so that limit and window have the ratio of the rate.
    fn window(&self) -> Micros {
        self.time_at_rate(self.limit())
    }

    fn longest_wait(&self) -> Micros {
        let refills = u64::from(self.limit()).div_ceil(self.refill());
        Micros::wait(u128::from(refills) * u128::from(self.period()))
    }

    fn moved_back(&self, then: &Missing, now: Micros) -> Option<Missing> {
        let possible = Missing {
            refilled: then.refilled.min(now.get()),
            ..*then
        };
        let possible = self.cut(possible, 2 * self.capacity(), now);
        (possible.words() != then.words()).then_some(possible)
    }

    fn admits(&self, kept: &Missing, now: Micros, cost: u32) -> bool {
        self.missing_at(now, *kept).tokens + u64::from(cost) <= self.limit().into()
    }

    fn charge(&self, kept: &mut Missing, now: Micros, cost: u32) {
        *kept = self.missing_at(now, *kept);
        kept.tokens += u64::from(cost);
    }

    fn settle(&self, kept: &mut Missing, now: Micros, units: u32) {
        *kept = self.missing_at(now, *kept);
        let tokens = kept.tokens.saturating_add(units.into());
        kept.tokens = tokens.min(2 * self.capacity());
    }

    fn refund(&self, kept: &mut Missing, now: Micros, units: u32) {
        *kept = self.missing_at(now, *kept);
        kept.tokens = kept.tokens.saturating_sub(units.into());
    }

    fn remaining(&self, kept: &Missing, now: Micros) -> u32 {
        let missing = self.missing_at(now, *kept).tokens;
        u32::try_from(missing).map_or(0, |missing| self.limit().saturating_sub(missing))
    }

    fn distance(&self, kept: &Missing, now: Micros) -> u64 {
        self.missing_at(now, *kept).tokens
    }

    fn reset_after(&self, kept: &Missing, now: Micros) -> Micros {
        let missing = self.missing_at(now, *kept);
        self.time_to_refill(missing, missing.tokens, now)
    }

    fn retry_after(&self, kept: &Missing, now: Micros, cost: u32) -> Micros {
        let missing = self.missing_at(now, *kept);
        let room = u64::from(self.limit() - cost);
        self.time_to_refill(missing, missing.tokens.saturating_sub(room), now)
    }

    fn effective_window(&self, kept: &Missing, now: Micros) -> Micros {
        match self.remaining(kept, now) {
            0 => self.next_unit(kept, now),
            remaining => self.time_at_rate(remaining),
        }
    }
}

impl Fixed for ByInterval {
    fn words(&self, kept: Missing) -> [u64; 3] {
        [kept.refilled, kept.tokens, 0]
    }

    fn of_words(&self, [refilled, tokens, _]: [u64; 3]) -> Missing {
        Missing { refilled, tokens }
    }

    fn packs_until(&self) -> Micros {
        Micros::new(largest_beside(bits_of_count(self.limit())))
    }

    /// The time of the refill, and the tokens in the lowest bits.
    fn pack(&self, kept: Missing) -> u64 {
        kept.refilled << bits_of_count(self.limit()) | kept.tokens
    }

    fn unpack(&self, word: u64, _: Micros) -> Missing {
        let bits = bits_of_count(self.limit());
        let refilled = word >> bits;
        Missing {
            refilled,
            tokens: word ^ (refilled << bits),
        }
    }
}
