//! The rule of a calendar window.

use super::CalendarWindow;
use crate::algorithm::State;
use crate::algorithm::step::{Fixed, Step, countable};
use crate::clock::Micros;

pub(super) const SECOND: u64 = 1_000_000;

/// The usage of a key, and until when that counts at least.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WindowUse {
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
    fn counted(&self, kept: WindowUse, now: Micros) -> WindowUse {
        let present = self.calendar.at(now);
        if kept.last >= present.from && kept.used > 0 {
            return WindowUse {
                until: kept.until.max(present.until),
                ..kept
            };
        }
        if kept.until > now && kept.used > 0 {
            return kept;
        }
        WindowUse {
            until: present.until,
            used: 0,
            last: now,
        }
    }

    /// Returns what counts now after a charge, which counts to the end of the present window at least.
    fn charged(&self, kept: WindowUse, now: Micros, charge: impl FnOnce(u64) -> u64) -> WindowUse {
        let counted = self.counted(kept, now);
        WindowUse {
            until: counted.until.max(self.calendar.at(now).until),
            used: charge(counted.used),
            last: counted.last.max(now),
        }
    }

    fn left(&self, kept: WindowUse, now: Micros) -> Micros {
        self.counted(kept, now).until.saturating_sub(now)
    }
}

impl Step for CalendarWindow {
    type Kept = WindowUse;

    fn read(&self, state: State) -> WindowUse {
        let [until, used, last] = state.first();
        self.of_words([until, used, last])
    }

    fn write(&self, kept: WindowUse) -> State {
        State::unless_new(self.words(kept))
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

    fn moved_back(&self, kept: &WindowUse, now: Micros) -> Option<WindowUse> {
        let present = self.calendar.at(now);
        let is_later = kept.last >= present.until;
        // The window of another zone may end later, but not by more than a window.
        let is_too_long =
            kept.until > present.until && kept.until.saturating_sub(now) > self.unit().longest();
        (is_later || is_too_long).then_some(WindowUse {
            until: present.until,
            used: kept.used,
            last: kept.last.min(now),
        })
    }

    fn admits(&self, kept: &WindowUse, now: Micros, cost: u32) -> bool {
        let used = self.counted(*kept, now).used;
        used.saturating_add(cost.into()) <= self.limit.into()
    }

    fn charge(&self, kept: &mut WindowUse, now: Micros, cost: u32) {
        *kept = self.charged(*kept, now, |used| used + u64::from(cost));
    }

    fn settle(&self, kept: &mut WindowUse, now: Micros, units: u32) {
        *kept = self.charged(*kept, now, |used| {
            used.saturating_add(countable(units, used))
        });
    }

    fn refund(&self, kept: &mut WindowUse, now: Micros, units: u32) {
        *kept = self.counted(*kept, now);
        kept.used = kept.used.saturating_sub(units.into());
    }

    fn remaining(&self, kept: &WindowUse, now: Micros) -> u32 {
        let used = u32::try_from(self.counted(*kept, now).used);
        used.map_or(0, |used| self.limit.saturating_sub(used))
    }

    fn distance(&self, kept: &WindowUse, now: Micros) -> u64 {
        self.counted(*kept, now).used
    }

    fn reset_after(&self, kept: &WindowUse, now: Micros) -> Micros {
        match self.counted(*kept, now).used {
            0 => Micros::ZERO,
            _ => self.left(*kept, now),
        }
    }

    fn retry_after(&self, kept: &WindowUse, now: Micros, _: u32) -> Micros {
        self.left(*kept, now)
    }

    fn effective_window(&self, kept: &WindowUse, now: Micros) -> Micros {
        self.left(*kept, now)
    }

    fn present_window(&self, kept: &WindowUse, now: Micros) -> Option<Micros> {
        let present = self.calendar.at(now);
        let until = self.counted(*kept, now).until.max(present.until);
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
