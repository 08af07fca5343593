//! The rule of the sliding window.
//!
//! Counts are weighted by time, in requests times microseconds, and are compared without a division, so a decision is exact.

use super::SlidingWindow;
use crate::algorithm::State;
use crate::algorithm::step::{Fixed, Pack, Step, bits_of_count, countable, largest_beside};
use crate::clock::Micros;

/// The window that was charged last, by its number since the epoch, its count, and the count of the window
/// before it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Windows {
    number: u64,
    previous: u64,
    current: u64,
}

impl Windows {
    #[inline]
    fn of_words([number, previous, current]: [u64; 3]) -> Self {
        Self {
            number,
            previous,
            current,
        }
    }

    #[inline]
    fn words(self) -> [u64; 3] {
        [self.number, self.previous, self.current]
    }
}

/// Weighted counts below are in requests times microseconds: at most 2^33 · 2^45.
impl SlidingWindow {
    #[inline]
    fn period(self) -> u64 {
        self.quota.period_micros().get()
    }

    /// Returns the number of the window at `now`.
    #[inline]
    fn number(self, now: Micros) -> u64 {
        now.get() / self.period()
    }

    /// Returns the time since the current window began.
    #[inline]
    fn elapsed(self, now: Micros) -> u64 {
        now.get() % self.period()
    }

    /// Returns the windows at `now`.
    #[inline]
    fn windows_at(self, now: Micros, state: Windows) -> Windows {
        let number = self.number(now);
        let (previous, current) = match number.checked_sub(state.number) {
            Some(0) => (state.previous, state.current),
            Some(1) => (state.current, 0),
            _ => (0, 0),
        };
        Windows {
            number,
            previous,
            current,
        }
    }

    /// Returns how much the two windows use, weighted.
    #[inline]
    fn used(self, windows: Windows, now: Micros) -> u128 {
        let weight = self.period() - self.elapsed(now);
        product(windows.previous, weight) + product(windows.current, self.period())
    }

    /// Returns how much of the limit the two windows leave, weighted; 0 if they exceed it.
    #[inline]
    fn free(self, windows: Windows, now: Micros) -> u128 {
        product(self.limit().into(), self.period()).saturating_sub(self.used(windows, now))
    }

    /// Returns how far into a window the `count` of the window before it weighs no more than `room` requests.
    fn slid_out(self, count: u64, room: u64) -> u64 {
        if count <= room {
            return 0;
        }
        let weight = product(room, self.period()) / u128::from(count);
        // The weight is less than the period, since the count is more than the room.
        self.period() - u64::try_from(weight).unwrap_or(0)
    }
}

impl Step for SlidingWindow {
    type Form = Windows;

    fn read(&self, state: State) -> Windows {
        Windows::of_words(state.first())
    }

    fn write(&self, state: Windows) -> State {
        State::unless_new(state.words())
    }

    #[inline]
    fn limit(&self) -> u32 {
        self.quota.limit()
    }

    fn window(&self) -> Micros {
        self.quota.period_micros()
    }

    fn longest_wait(&self) -> Micros {
        Micros::new(2 * self.period())
    }

    #[inline]
    fn moved_back(&self, state: &Windows, now: Micros) -> Option<Windows> {
        let number = self.number(now);
        (state.number > number).then_some(Windows { number, ..*state })
    }

    #[inline]
    fn admits(&self, state: &Windows, now: Micros, cost: u32) -> bool {
        let windows = self.windows_at(now, *state);
        product(cost.into(), self.period()) <= self.free(windows, now)
    }

    #[inline]
    fn charge(&self, state: &mut Windows, now: Micros, cost: u32) {
        *state = self.windows_at(now, *state);
        state.current += u64::from(cost);
    }

    fn settle(&self, state: &mut Windows, now: Micros, units: u32) {
        *state = self.windows_at(now, *state);
        state.current = state
            .current
            .saturating_add(countable(units, state.current));
    }

    fn refund(&self, state: &mut Windows, now: Micros, units: u32) {
        *state = self.windows_at(now, *state);
        let of_previous = u64::from(units).saturating_sub(state.current);
        state.current = state.current.saturating_sub(units.into());
        state.previous = state.previous.saturating_sub(of_previous);
    }

    fn remaining(&self, state: &Windows, now: Micros) -> u32 {
        let free = self.free(self.windows_at(now, *state), now) / u128::from(self.period());
        free.try_into().unwrap_or(self.limit())
    }

    fn distance(&self, state: &Windows, now: Micros) -> u64 {
        let used = self.used(self.windows_at(now, *state), now);
        // In whole requests, rounded up: a part of a request is not 0.
        u64::try_from(used.div_ceil(self.period().into())).unwrap_or(u64::MAX)
    }

    fn reset_after(&self, state: &Windows, now: Micros) -> Micros {
        let to_the_next = self.period() - self.elapsed(now);
        let windows = self.windows_at(now, *state);
        Micros::new(match (windows.previous, windows.current) {
            (0, 0) => 0,
            (_, 0) => to_the_next,
            (_, _) => to_the_next + self.period(),
        })
    }

    fn retry_after(&self, state: &Windows, now: Micros, cost: u32) -> Micros {
        let windows = self.windows_at(now, *state);
        let elapsed = self.elapsed(now);
        let room = u64::from(self.limit() - cost);
        let wait = match room.checked_sub(windows.current) {
            Some(room) => self
                .slid_out(windows.previous, room)
                .saturating_sub(elapsed),
            None => self.period() - elapsed + self.slid_out(windows.current, room),
        };
        Micros::new(wait)
    }

    fn effective_window(&self, state: &Windows, now: Micros) -> Micros {
        self.next_unit(state, now)
    }

    fn bin_end(&self, _: &Windows, now: Micros) -> Micros {
        now.saturating_add(Micros::new(self.period() - self.elapsed(now)))
    }
}

impl Fixed for SlidingWindow {
    #[inline]
    fn words(&self, state: Windows) -> [u64; 3] {
        state.words()
    }

    #[inline]
    fn of_words(&self, words: [u64; 3]) -> Windows {
        Windows::of_words(words)
    }
}

impl Pack for SlidingWindow {
    fn packs_until(&self) -> Micros {
        let windows = largest_beside(2 * bits_of_count(self.limit()));
        Micros::new(windows.saturating_mul(self.period()))
    }

    /// Returns the number of the window, the count of the window before it, and its own count.
    #[inline]
    fn pack(&self, state: Windows) -> u64 {
        let bits = bits_of_count(self.limit());
        (state.number << bits | state.previous) << bits | state.current
    }

    #[inline]
    fn unpack(&self, word: u64, _: Micros) -> Windows {
        let bits = bits_of_count(self.limit());
        let (above, current) = split(word, bits);
        let (number, previous) = split(above, bits);
        Windows {
            number,
            previous,
            current,
        }
    }
}

/// Returns the part of a word above its lowest bits, and these bits.
#[inline]
fn split(word: u64, bits: u32) -> (u64, u64) {
    let above = word >> bits;
    (above, word ^ (above << bits))
}

#[inline]
fn product(a: u64, b: u64) -> u128 {
    u128::from(a) * u128::from(b)
}
