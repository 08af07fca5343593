use super::AnchoredWindow;
use crate::algorithm::State;
use crate::algorithm::step::Step;
use crate::clock::Micros;

/// The window that is open, or was; with nothing used, none ever was.
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

impl AnchoredWindow {
    /// The open window, or the one that would open now.
    fn window_at(self, now: Micros, state: &State) -> Window {
        match Window::of(state) {
            window if window.used > 0 && Self::age(window, now) < self.period() => window,
            _ => Window {
                start: now.get(),
                used: 0,
            },
        }
    }

    fn period(self) -> u64 {
        self.quota.period_micros().get()
    }

    fn age(window: Window, now: Micros) -> u64 {
        now.get().saturating_sub(window.start)
    }

    fn to_its_end(self, state: &State, now: Micros) -> Micros {
        let window = self.window_at(now, state);
        Micros::new(self.period() - Self::age(window, now))
    }
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
        let window = Window::of(state);
        let start = now.get();
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
