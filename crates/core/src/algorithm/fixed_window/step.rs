//! The boundaries of fixed windows. `window.rs` has the rule.

use super::FixedWindow;
use crate::algorithm::step::{bits_of_count, largest_beside};
use crate::algorithm::window::{InWindows, Window};
use crate::clock::Micros;
use crate::quota::Quota;

impl FixedWindow {
    fn period(self) -> u64 {
        self.quota.period_micros().get()
    }
}

/// `Window::begun` is the number of a window since the epoch.
impl InWindows for FixedWindow {
    #[inline]
    fn quota(&self) -> Quota {
        self.quota
    }

    #[inline]
    fn begun_at(self, now: Micros) -> u64 {
        now.get() / self.period()
    }

    #[inline]
    fn window_at(self, now: Micros, state: Window) -> Window {
        let begun = self.begun_at(now);
        match state {
            window if window.begun == begun => window,
            _ => Window { begun, used: 0 },
        }
    }

    fn to_its_end(self, _: Window, now: Micros) -> Micros {
        Micros::new(self.period() - now.get() % self.period())
    }

    fn packs_until(self) -> Micros {
        let windows = largest_beside(bits_of_count(self.quota.limit()));
        Micros::new(windows.saturating_mul(self.period()))
    }
}
