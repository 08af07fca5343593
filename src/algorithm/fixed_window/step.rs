use super::FixedWindow;
use crate::algorithm::State;
use crate::algorithm::step::Step;
use crate::clock::Micros;

/// The window that was last charged.
#[derive(Clone, Copy)]
struct Window {
    start: u64,
    used: u64,
}

impl Window {
    fn of(state: &State) -> Self {
        let [start, used] = state.first();
        Self { start, used }
    }

    fn words(self) -> [u64; 2] {
        [self.start, self.used]
    }
}

impl FixedWindow {
    fn period(self) -> u64 {
        self.quota.period_micros().get()
    }

    fn start(self, now: Micros) -> u64 {
        now.get() - now.get() % self.period()
    }

    fn end(self, now: Micros) -> Micros {
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
        let window = Window::of(state);
        let start = self.start(now);
        (window.start > start).then(|| State::from_words(&Window { start, ..window }.words()))
    }

    fn admits(&self, state: &State, now: Micros, cost: u32) -> bool {
        let used = self.window_at(now, state).used;
        used.saturating_add(cost.into()) <= self.limit().into()
    }

    fn charge(&self, state: &mut State, now: Micros, cost: u32) {
        let mut window = self.window_at(now, state);
        window.used += u64::from(cost);
        state.set(window.words());
    }

    fn remaining(&self, state: &State, now: Micros) -> u32 {
        let used = self.window_at(now, state).used;
        u32::try_from(used).map_or(0, |used| self.limit().saturating_sub(used))
    }

    fn reset_after(&self, state: &State, now: Micros) -> Micros {
        match self.window_at(now, state).used {
            0 => Micros::ZERO,
            _ => self.end(now),
        }
    }

    fn retry_after(&self, _: &State, now: Micros, _: u32) -> Micros {
        self.end(now)
    }

    fn effective_window(&self, _: &State, now: Micros) -> Micros {
        self.end(now)
    }
}
