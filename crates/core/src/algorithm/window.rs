//! Rules that count in one window at a time: the fixed window and the anchored window.

use super::State;
use super::step::{Fixed, Pack, Step, bits_of_count, countable};
use crate::clock::Micros;
use crate::quota::Quota;

/// A window, and how much it has admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    /// The moment at which the window began, or its number since the epoch.
    pub(super) begun: u64,
    pub(super) used: u64,
}

/// A rule that admits its limit in each window. Such rules differ in the boundaries of the windows.
pub(super) trait InWindows: Copy + Send + Sync + 'static {
    fn quota(&self) -> Quota;

    /// [`Window::begun`] of the latest window that can have begun at `now`.
    fn begun_at(self, now: Micros) -> u64;

    /// The window at `now`, which is empty if `state` is an earlier window.
    fn window_at(self, now: Micros, state: Window) -> Window;

    fn to_its_end(self, state: Window, now: Micros) -> Micros;

    /// Returns whether a window opens with a request, and not by itself.
    fn opens_with_a_request(self) -> bool {
        false
    }

    /// Returns the last moment at which a window fits into the bits that the count leaves.
    fn packs_until(self) -> Micros;
}

impl<W: InWindows> Step for W {
    type Form = Window;

    fn read(&self, state: State) -> Window {
        let [begun, used] = state.first();
        Window { begun, used }
    }

    fn write(&self, Window { begun, used }: Window) -> State {
        State::unless_new([begun, used])
    }

    #[inline]
    fn limit(&self) -> u32 {
        self.quota().limit()
    }

    fn window(&self) -> Micros {
        self.quota().period_micros()
    }

    fn longest_wait(&self) -> Micros {
        self.window()
    }

    fn moved_back(&self, state: &Window, now: Micros) -> Option<Window> {
        let begun = self.begun_at(now);
        (state.begun > begun).then_some(Window { begun, ..*state })
    }

    #[inline]
    fn admits(&self, state: &Window, now: Micros, cost: u32) -> bool {
        let used = self.window_at(now, *state).used;
        used.saturating_add(cost.into()) <= self.limit().into()
    }

    #[inline]
    fn charge(&self, state: &mut Window, now: Micros, cost: u32) {
        *state = self.window_at(now, *state);
        state.used += u64::from(cost);
    }

    fn settle(&self, state: &mut Window, now: Micros, units: u32) {
        *state = self.window_at(now, *state);
        state.used = state.used.saturating_add(countable(units, state.used));
    }

    fn refund(&self, state: &mut Window, now: Micros, units: u32) {
        *state = self.window_at(now, *state);
        state.used = state.used.saturating_sub(units.into());
    }

    fn ends_at_once(&self) -> bool {
        true
    }

    fn remaining(&self, state: &Window, now: Micros) -> u32 {
        let used = u32::try_from(self.window_at(now, *state).used);
        used.map_or(0, |used| self.limit().saturating_sub(used))
    }

    fn distance(&self, state: &Window, now: Micros) -> u64 {
        self.window_at(now, *state).used
    }

    fn reset_after(&self, state: &Window, now: Micros) -> Micros {
        match self.window_at(now, *state).used {
            0 => Micros::ZERO,
            _ => self.to_its_end(*state, now),
        }
    }

    fn retry_after(&self, state: &Window, now: Micros, _: u32) -> Micros {
        self.to_its_end(*state, now)
    }

    fn effective_window(&self, state: &Window, now: Micros) -> Micros {
        self.to_its_end(*state, now)
    }

    fn bin_end(&self, state: &Window, now: Micros) -> Micros {
        if self.opens_with_a_request() && self.window_at(now, *state).used == 0 {
            return now;
        }
        now.saturating_add(self.to_its_end(*state, now))
    }
}

impl<W: InWindows> Fixed for W {
    #[inline]
    fn words(&self, Window { begun, used }: Window) -> [u64; 3] {
        [begun, used, 0]
    }

    #[inline]
    fn of_words(&self, [begun, used, _]: [u64; 3]) -> Window {
        Window { begun, used }
    }
}

impl<W: InWindows> Pack for W {
    fn packs_until(&self) -> Micros {
        InWindows::packs_until(*self)
    }

    /// Both numbers in one word, with the count in the lowest bits.
    #[inline]
    fn pack(&self, Window { begun, used }: Window) -> u64 {
        begun << bits_of_count(self.limit()) | used
    }

    #[inline]
    fn unpack(&self, word: u64, _: Micros) -> Window {
        let bits = bits_of_count(self.limit());
        let begun = word >> bits;
        Window {
            begun,
            used: word ^ (begun << bits),
        }
    }
}
