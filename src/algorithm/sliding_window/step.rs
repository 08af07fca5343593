use super::SlidingWindow;
use crate::algorithm::State;
use crate::algorithm::step::Step;
use crate::clock::Micros;

/// The window that was last charged, and the count of the one before it.
#[derive(Clone, Copy)]
struct Windows {
    start: u64,
    previous: u64,
    current: u64,
}

impl Windows {
    fn of(state: &State) -> Self {
        let [start, previous, current] = state.first();
        Self {
            start,
            previous,
            current,
        }
    }

    fn words(self) -> [u64; 3] {
        [self.start, self.previous, self.current]
    }
}

/// Weighted counts below are in requests times microseconds: at most 2^33 · 2^45.
impl SlidingWindow {
    fn period(self) -> u64 {
        self.quota.period_micros().get()
    }

    fn start(self, now: Micros) -> u64 {
        now.get() - now.get() % self.period()
    }

    /// The time since the current window began.
    fn elapsed(self, now: Micros) -> u64 {
        now.get() % self.period()
    }

    /// The windows at `now`.
    fn windows_at(self, now: Micros, state: &State) -> Windows {
        let windows = Windows::of(state);
        let start = self.start(now);
        let (previous, current) = match start.checked_sub(windows.start) {
            Some(0) => (windows.previous, windows.current),
            Some(since) if since == self.period() => (windows.current, 0),
            _ => (0, 0),
        };
        Windows {
            start,
            previous,
            current,
        }
    }

    /// How much of the limit the two windows leave, weighted; 0 if they are above it.
    fn free(self, windows: Windows, now: Micros) -> u128 {
        let weight = self.period() - self.elapsed(now);
        let used = product(windows.previous, weight) + product(windows.current, self.period());
        product(self.limit().into(), self.period()).saturating_sub(used)
    }

    /// The time into a window at which `count` of the window before it weighs no more than
    /// `room` requests in full.
    fn slid_out(self, count: u64, room: u64) -> u64 {
        if count <= room {
            return 0;
        }
        let weight = product(room, self.period()) / u128::from(count);
        // Less than the period, since count is more than room.
        self.period() - u64::try_from(weight).unwrap_or(0)
    }
}

impl Step for SlidingWindow {
    fn limit(&self) -> u32 {
        self.quota.limit()
    }

    fn window(&self) -> Micros {
        self.quota.period_micros()
    }

    fn longest_wait(&self) -> Micros {
        Micros::new(2 * self.period())
    }

    fn moved_back(&self, state: &State, now: Micros) -> Option<State> {
        let windows = Windows::of(state);
        let start = self.start(now);
        (windows.start > start).then(|| State::from_words(&Windows { start, ..windows }.words()))
    }

    fn admits(&self, state: &State, now: Micros, cost: u32) -> bool {
        let windows = self.windows_at(now, state);
        product(cost.into(), self.period()) <= self.free(windows, now)
    }

    fn charge(&self, state: &mut State, now: Micros, cost: u32) {
        let mut windows = self.windows_at(now, state);
        windows.current += u64::from(cost);
        state.set(windows.words());
    }

    fn remaining(&self, state: &State, now: Micros) -> u32 {
        let free = self.free(self.windows_at(now, state), now) / u128::from(self.period());
        free.try_into().unwrap_or(self.limit())
    }

    fn reset_after(&self, state: &State, now: Micros) -> Micros {
        let to_the_next = self.period() - self.elapsed(now);
        let windows = self.windows_at(now, state);
        Micros::new(match (windows.previous, windows.current) {
            (0, 0) => 0,
            (_, 0) => to_the_next,
            (_, _) => to_the_next + self.period(),
        })
    }

    fn retry_after(&self, state: &State, now: Micros, cost: u32) -> Micros {
        let windows = self.windows_at(now, state);
        let elapsed = self.elapsed(now);
        let room = u64::from(self.limit() - cost);
        let wait = match room.checked_sub(windows.current) {
            Some(room) => self
                .slid_out(windows.previous, room)
                .saturating_sub(elapsed),
            None => self.period() - elapsed + self.slid_out(windows.current, room),
        };
        Micros::new(wait)
    }

    fn effective_window(&self, state: &State, now: Micros) -> Micros {
        self.next_unit(state, now)
    }
}

fn product(a: u64, b: u64) -> u128 {
    u128::from(a) * u128::from(b)
}
