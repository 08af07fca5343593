//! The boundaries of anchored windows. `window.rs` has the rule.

use super::AnchoredWindow;
use crate::algorithm::step::{bits_of_count, largest_beside};
use crate::algorithm::window::{InWindows, Window};
use crate::clock::Micros;
use crate::quota::Quota;

impl AnchoredWindow {
    fn period(self) -> u64 {
        self.quota.period_micros().get()
    }
}

fn age(window: Window, now: Micros) -> u64 {
    now.get().saturating_sub(window.begun)
}

/// `Window::begun` is the moment at which a window began.
impl InWindows for AnchoredWindow {
    #[inline]
    fn quota(&self) -> Quota {
        self.quota
    }

    #[inline]
    fn begun_at(self, now: Micros) -> u64 {
        now.get()
    }

    /// Returns the open window, or the window that opens now. A window without charges has not opened.
    #[inline]
    fn window_at(self, now: Micros, state: Window) -> Window {
        match state {
            window if window.used > 0 && age(window, now) < self.period() => window,
            _ => Window {
                begun: now.get(),
                used: 0,
            },
        }
    }

    fn to_its_end(self, state: Window, now: Micros) -> Micros {
        let window = self.window_at(now, state);
        Micros::new(self.period() - age(window, now))
    }

    fn opens_with_a_request(self) -> bool {
        true
    }

    fn packs_until(self) -> Micros {
        Micros::new(largest_beside(bits_of_count(self.quota.limit())))
    }
}
