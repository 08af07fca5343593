use super::FixedWindow;
use crate::algorithm::State;
use crate::algorithm::step::Step;
use crate::algorithm::window::Window;
use crate::clock::Micros;

impl FixedWindow {
    fn period(self) -> u64 {
        self.quota.period_micros().get()
    }

    fn start(self, now: Micros) -> u64 {
        now.get() - now.get() % self.period()
    }

    fn to_its_end(self, now: Micros) -> Micros {
        Micros::new(self.period() - now.get() % self.period())
    }

    /// The window at `now`, empty if the state is of an earlier one.
    fn window_at(self, now: Micros, state: &State) -> Window {
        let start = self.start(now);
        match Window::of(state) {
            window if window.start == start => window,
            _ => Window { start, used: 0 },
        }
    }
}

impl Step for FixedWindow {
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
        Window::of(state).moved_back(self.start(now))
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
            _ => self.to_its_end(now),
        }
    }

    fn retry_after(&self, _: &State, now: Micros, _: u32) -> Micros {
        self.to_its_end(now)
    }

    fn effective_window(&self, _: &State, now: Micros) -> Micros {
        self.to_its_end(now)
    }
}
