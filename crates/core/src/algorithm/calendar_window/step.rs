//! The rule of a calendar window.

use super::CalendarWindow;
use crate::algorithm::State;
use crate::algorithm::step::{Fixed, Step, countable};
use crate::clock::Micros;

pub(super) const SECOND: u64 = 1_000_000;

/// The usage of a key, and until when that counts at least.
#[derive(Clone, Copy, Debug, Default)]
pub struct WindowUse {
    /// The end of the window in which it was charged.
    until: Micros,
    used: u64,
    /// When it was charged last: the present window of another calendar may begin before this.
    last: Micros,
}

impl WindowUse {
    pub(super) fn new(until: Micros, used: u64, last: Micros) -> Self {
        Self { until, used, last }
    }
}

impl CalendarWindow {
    /// Returns what counts now, and until when. It counts until both windows have ended: the one in which it
    /// was charged, and the one of this calendar that contains the last charge.
    fn counted(&self, state: WindowUse, now: Micros) -> WindowUse {
        let present = self.calendar.at(now);
        if state.last >= present.from && state.used > 0 {
            return WindowUse {
                until: state.until.max(present.until),
                ..state
            };
        }
        if state.until > now && state.used > 0 {
            return state;
        }
        WindowUse {
            until: present.until,
            used: 0,
            last: now,
        }
    }

    /// Returns what counts now after a charge, which counts to the end of the present window at least.
    fn charged(&self, state: WindowUse, now: Micros, charge: impl FnOnce(u64) -> u64) -> WindowUse {
        let counted = self.counted(state, now);
        WindowUse {
            until: counted.until.max(self.calendar.at(now).until),
            used: charge(counted.used),
            last: counted.last.max(now),
        }
    }

    fn left(&self, state: WindowUse, now: Micros) -> Micros {
        self.counted(state, now).until.saturating_sub(now)
    }
}

impl Step for CalendarWindow {
    type Form = WindowUse;

    fn read(&self, state: State) -> WindowUse {
        let [until, used, last] = state.first();
        self.of_words([until, used, last])
    }

    fn write(&self, state: WindowUse) -> State {
        State::unless_new(self.words(state))
    }

    fn limit(&self) -> u32 {
        self.limit
    }

    fn window(&self) -> Micros {
        self.unit().usual()
    }

    fn longest_wait(&self) -> Micros {
        self.unit().longest()
    }

    fn moved_back(&self, state: &WindowUse, now: Micros) -> Option<WindowUse> {
        let present = self.calendar.at(now);
        let is_later = state.last >= present.until;
        // The window of another zone may end later, but not by more than a window.
        let is_too_long =
            state.until > present.until && state.until.saturating_sub(now) > self.unit().longest();
        (is_later || is_too_long).then_some(WindowUse {
            until: present.until,
            used: state.used,
            last: state.last.min(now),
        })
    }

    fn admits(&self, state: &WindowUse, now: Micros, cost: u32) -> bool {
        let used = self.counted(*state, now).used;
        used.saturating_add(cost.into()) <= self.limit.into()
    }

    fn charge(&self, state: &mut WindowUse, now: Micros, cost: u32) {
        *state = self.charged(*state, now, |used| used + u64::from(cost));
    }

    fn settle(&self, state: &mut WindowUse, now: Micros, units: u32) {
        *state = self.charged(*state, now, |used| {
            used.saturating_add(countable(units, used))
        });
    }

    fn refund(&self, state: &mut WindowUse, now: Micros, units: u32) {
        *state = self.counted(*state, now);
        state.used = state.used.saturating_sub(units.into());
    }

    fn remaining(&self, state: &WindowUse, now: Micros) -> u32 {
        let used = u32::try_from(self.counted(*state, now).used);
        used.map_or(0, |used| self.limit.saturating_sub(used))
    }

    fn distance(&self, state: &WindowUse, now: Micros) -> u64 {
        self.counted(*state, now).used
    }

    fn reset_after(&self, state: &WindowUse, now: Micros) -> Micros {
        match self.counted(*state, now).used {
            0 => Micros::ZERO,
            _ => self.left(*state, now),
        }
    }

    fn retry_after(&self, state: &WindowUse, now: Micros, _: u32) -> Micros {
        self.left(*state, now)
    }

    fn effective_window(&self, state: &WindowUse, now: Micros) -> Micros {
        self.left(*state, now)
    }

    fn present_window(&self, state: &WindowUse, now: Micros) -> Option<Micros> {
        let present = self.calendar.at(now);
        let until = self.counted(*state, now).until.max(present.until);
        Some(until.saturating_sub(present.from))
    }
}

/// The times in words are in seconds, since windows begin at full ones: a server reads and writes fewer
/// digits.
impl Fixed for CalendarWindow {
    fn words(&self, WindowUse { until, used, last }: WindowUse) -> [u64; 3] {
        // The end of time is not a full second.
        [until.ceil_secs(), used, last.get() / SECOND]
    }

    fn of_words(&self, [until, used, last]: [u64; 3]) -> WindowUse {
        let moment = |seconds: u64| Micros::new(seconds.saturating_mul(SECOND));
        WindowUse {
            until: moment(until),
            used,
            last: moment(last),
        }
    }
}
