//! The rule of a bucket that refills by interval.

use crate::algorithm::State;
use crate::algorithm::drain::{Drain, narrow};
use crate::algorithm::lua::Lua;
use crate::algorithm::step::{Fixed, MOST_OWED, Pack, Step, bits_of_count, largest_beside};
use crate::clock::Micros;
use crate::quota::Quota;

/// A bucket whose tokens arrive together, once in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ByInterval {
    pub(super) quota: Quota,
    pub(super) burst: u32,
}

/// The tokens that a bucket lacked after its last refill. A full bucket has no next refill: its next
/// request starts the intervals.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) struct Missing {
    refilled: u64,
    tokens: u64,
    /// The highest rate at which any of them was charged; 0 if none is missing.
    rate: u32,
}

impl Missing {
    fn words(self) -> [u64; 3] {
        [self.refilled, self.tokens, self.rate.into()]
    }

    fn of_words([refilled, tokens, rate]: [u64; 3]) -> Self {
        Self {
            refilled,
            tokens: tokens.min(MOST_OWED),
            rate: u32::try_from(rate).unwrap_or(u32::MAX),
        }
    }
}

impl ByInterval {
    fn period(self) -> u64 {
        self.quota.period_micros().get()
    }

    /// Returns how many tokens arrive together. With a rate of 0 the limit is 0, and no outcome tells the wait.
    fn refill(self) -> u64 {
        self.quota.limit().max(1).into()
    }

    /// Returns the rule in Lua.
    pub(super) fn lua(self) -> Lua {
        Lua::of_numbers(
            "by_interval",
            include_str!("interval.lua"),
            [
                self.limit().into(),
                self.period(),
                0,
                self.quota.limit().into(),
            ],
        )
    }

    fn capacity(self) -> u64 {
        self.limit().into()
    }

    /// Returns the time in which this number of tokens arrives in the long run.
    fn time_at_rate(self, tokens: u32) -> Micros {
        let time = u128::from(tokens) * u128::from(self.period());
        Micros::wait(time.div_ceil(self.refill().into()))
    }

    /// How tokens arrive, in steps of a period.
    fn drain(self, rate: u32) -> Drain {
        let slow = self.refill();
        Drain {
            capacity: self.capacity().into(),
            fast: slow.max(rate.into()),
            slow,
        }
    }

    /// Returns what is missing at `now`, after the refills since `then`.
    fn missing_at(self, now: Micros, then: Missing) -> Missing {
        let refills = now.get().saturating_sub(then.refilled) / self.period();
        let tokens = self.drain(then.rate).after(refills, then.tokens.into());
        match narrow(tokens) {
            0 => Missing {
                refilled: now.get(),
                ..Missing::default()
            },
            tokens => Missing {
                refilled: then.refilled + refills * self.period(),
                tokens,
                ..then
            },
        }
    }

    /// Returns what is missing after a charge.
    fn charged(self, missing: Missing, tokens: u64) -> Missing {
        Missing {
            tokens,
            rate: missing.rate.max(self.quota.limit()),
            ..missing
        }
    }

    /// Returns how long until no more than `left` tokens are missing.
    fn time_to_refill(self, missing: Missing, left: u64, now: Micros) -> Micros {
        if missing.tokens <= left {
            return Micros::ZERO;
        }
        let drain = self.drain(missing.rate);
        let refills = drain.steps(missing.tokens.into(), left.into());
        let time = refills * u128::from(self.period());
        let since = now.get().saturating_sub(missing.refilled);
        Micros::wait(time.saturating_sub(since.into()))
    }
}

impl Step for ByInterval {
    type Form = Missing;

    fn read(&self, state: State) -> Missing {
        Missing::of_words(state.first())
    }

    fn write(&self, state: Missing) -> State {
        State::unless_new(state.words())
    }

    fn limit(&self) -> u32 {
        match self.quota.limit() {
            0 => 0,
            _ => self.burst,
        }
    }

    /// Returns the window of a continuous refill, so that limit and window have the ratio of the rate.
    fn window(&self) -> Micros {
        self.time_at_rate(self.limit())
    }

    fn longest_wait(&self) -> Micros {
        let refills = u64::from(self.limit()).div_ceil(self.refill());
        Micros::wait(u128::from(refills) * u128::from(self.period()))
    }

    fn moved_back(&self, then: &Missing, now: Micros) -> Option<Missing> {
        let refilled = now.get();
        (then.refilled > refilled).then_some(Missing { refilled, ..*then })
    }

    fn admits(&self, state: &Missing, now: Micros, cost: u32) -> bool {
        self.missing_at(now, *state).tokens + u64::from(cost) <= self.capacity()
    }

    fn charge(&self, state: &mut Missing, now: Micros, cost: u32) {
        let missing = self.missing_at(now, *state);
        *state = self.charged(missing, missing.tokens + u64::from(cost));
    }

    /// A deficit of more than twice the capacity stays as it is.
    fn settle(&self, state: &mut Missing, now: Micros, units: u32) {
        *state = self.missing_at(now, *state);
        let tokens = (state.tokens + u64::from(units)).min(2 * self.capacity());
        if tokens > state.tokens {
            *state = self.charged(*state, tokens);
        }
    }

    fn refund(&self, state: &mut Missing, now: Micros, units: u32) {
        *state = self.missing_at(now, *state);
        state.tokens = state.tokens.saturating_sub(units.into());
        if state.tokens == 0 {
            state.rate = 0;
        }
    }

    fn remaining(&self, state: &Missing, now: Micros) -> u32 {
        let missing = self.missing_at(now, *state).tokens;
        u32::try_from(missing).map_or(0, |missing| self.limit().saturating_sub(missing))
    }

    fn distance(&self, state: &Missing, now: Micros) -> u64 {
        self.missing_at(now, *state).tokens
    }

    fn reset_after(&self, state: &Missing, now: Micros) -> Micros {
        let missing = self.missing_at(now, *state);
        self.time_to_refill(missing, 0, now)
    }

    fn retry_after(&self, state: &Missing, now: Micros, cost: u32) -> Micros {
        let missing = self.missing_at(now, *state);
        let room = u64::from(self.limit() - cost);
        self.time_to_refill(missing, room, now)
    }

    fn effective_window(&self, state: &Missing, now: Micros) -> Micros {
        match self.remaining(state, now) {
            0 => self.next_unit(state, now),
            remaining => self.time_at_rate(remaining),
        }
    }

    /// Returns the next refill; `now` for a full bucket, which has none.
    fn bin_end(&self, state: &Missing, now: Micros) -> Micros {
        match self.missing_at(now, *state) {
            Missing { tokens: 0, .. } => now,
            Missing { refilled, .. } => Micros::new(refilled + self.period()),
        }
    }
}

impl Fixed for ByInterval {
    fn words(&self, state: Missing) -> [u64; 3] {
        state.words()
    }

    fn of_words(&self, words: [u64; 3]) -> Missing {
        Missing::of_words(words)
    }
}

impl Pack for ByInterval {
    fn packs_until(&self) -> Micros {
        Micros::new(largest_beside(bits_of_count(self.limit())))
    }

    /// Returns the time of the refill, and the tokens in the lowest bits.
    fn pack(&self, state: Missing) -> u64 {
        state.refilled << bits_of_count(self.limit()) | state.tokens
    }

    fn unpack(&self, word: u64, _: Micros) -> Missing {
        let bits = bits_of_count(self.limit());
        let refilled = word >> bits;
        let tokens = word ^ (refilled << bits);
        let rate = if tokens == 0 { 0 } else { self.quota.limit() };
        Missing {
            refilled,
            tokens,
            rate,
        }
    }
}
