use super::AnchoredWindow;
use crate::algorithm::State;
use crate::algorithm::step::Step;
use crate::algorithm::window::Window;
use crate::clock::Micros;

impl AnchoredWindow {
    fn period(self) -> u64 {
        self.quota.period_micros().get()
    }

    /// The open window, or the one that would open now. A window in which nothing is used was
    /// never opened.
    fn window_at(self, now: Micros, state: &State) -> Window {
        match Window::of(state) {
            window if window.used > 0 && age(window, now) < self.period() => window,
            _ => Window {
                start: now.get(),
                used: 0,
            },
        }
    }

    fn to_its_end(self, state: &State, now: Micros) -> Micros {
        let window = self.window_at(now, state);
        Micros::new(self.period() - age(window, now))
    }
}

fn age(window: Window, now: Micros) -> u64 {
    now.get().saturating_sub(window.start)
}

impl Step for AnchoredWindow {
    fn limit(&self) -> u32 {
        self.quota.limit()
    }

    fn window(&self) -> Micros {
        self.quota.period_micros()
    }

    fn longest_wait(&self) -> Micros {
        self.quota.period_micros()
    }

    fn moved_back(&self, state: &State, now: Micros) -> Option<State> {
        Window::of(state).moved_back(now.get())
    }

    fn admits(&self, state: &State, now: Micros, cost: u32) -> bool {
        self.window_at(now, state).admits(cost, self.limit())
    }

    fn charge(&self, state: &mut State, now: Micros, cost: u32) {
        self.window_at(now, state).charge(cost, state);
    }

    fn remaining(&self, state: &State, now: Micros) -> u32 {
        self.window_at(now, state).remaining(self.limit())
    }

    fn reset_after(&self, state: &State, now: Micros) -> Micros {
        match self.window_at(now, state).used {
            0 => Micros::ZERO,
            _ => self.to_its_end(state, now),
        }
    }

    fn retry_after(&self, state: &State, now: Micros, _: u32) -> Micros {
        self.to_its_end(state, now)
    }

    fn effective_window(&self, state: &State, now: Micros) -> Micros {
        self.to_its_end(state, now)
    }
}
