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

impl From<State> for Window {
    fn from(state: State) -> Self {
        let [start, used, _] = state.words();
        Self { start, used }
    }
}

impl From<Window> for State {
    fn from(window: Window) -> Self {
        State::from_words([window.start, window.used, 0])
    }
}

impl FixedWindow {
    fn start(self, now: Micros) -> u64 {
        now.get() - now.get() % self.period()
    }

    fn period(self) -> u64 {
        self.quota.period_micros().get()
    }

    /// The window at `now`, empty if the state is of an earlier one.
    fn window(self, state: State, now: Micros) -> Window {
        let start = self.start(now);
        let used = match Window::from(state) {
            last if last.start == start => last.used,
            _ => 0,
        };
        Window { start, used }
    }

    fn to_its_end(self, now: Micros) -> Micros {
        Micros::new(self.period() - now.get() % self.period())
    }
}

impl Step for FixedWindow {
    fn limit(&self) -> u32 {
        self.quota.limit()
    }

    fn longest_wait(&self) -> Option<Micros> {
        (self.limit() > 0).then(|| self.quota.period_micros())
    }

    fn moved_back(&self, state: State, now: Micros) -> State {
        let start = self.start(now);
        match Window::from(state) {
            window if window.start > start => Window { start, ..window }.into(),
            _ => state,
        }
    }

    fn admit(&self, state: State, now: Micros, cost: u32) -> Option<State> {
        if cost == 0 {
            return (self.limit() > 0).then_some(state);
        }
        let Window { start, used } = self.window(state, now);
        let used = used + u64::from(cost);
        (used <= u64::from(self.limit())).then(|| Window { start, used }.into())
    }

    fn remaining(&self, state: State, now: Micros) -> u32 {
        let used = self.window(state, now).used;
        u32::try_from(used).map_or(0, |used| self.limit().saturating_sub(used))
    }

    fn reset_after(&self, state: State, now: Micros) -> Micros {
        match self.window(state, now).used {
            0 => Micros::ZERO,
            _ => self.to_its_end(now),
        }
    }

    fn retry_after(&self, _: State, now: Micros, cost: u32) -> Option<Micros> {
        (1..=self.limit())
            .contains(&cost)
            .then(|| self.to_its_end(now))
    }

    fn effective_window(&self, _: State, now: Micros) -> Option<Micros> {
        (self.limit() > 0).then(|| self.to_its_end(now))
    }
}
