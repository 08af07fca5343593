use super::AnchoredWindow;
use crate::algorithm::State;
use crate::algorithm::step::{Fixed, Step, bits_of_count, largest_beside};
use crate::algorithm::window::Window;
use crate::clock::Micros;

impl AnchoredWindow {
    fn period(self) -> u64 {
        self.quota.period_micros().get()
    }

    /// The open window, or the one that would open now. A window in which nothing is used was
    /// never opened.
    fn window_at(self, now: Micros, kept: Window) -> Window {
        match kept {
            window if window.used > 0 && age(window, now) < self.period() => window,
            _ => Window {
                begun: now.get(),
                used: 0,
            },
        }
    }

    fn to_its_end(self, kept: Window, now: Micros) -> Micros {
        let window = self.window_at(now, kept);
        Micros::new(self.period() - age(window, now))
    }
}

fn age(window: Window, now: Micros) -> u64 {
    now.get().saturating_sub(window.begun)
}

impl Step for AnchoredWindow {
    type Kept = Window;

    fn read(&self, state: State, _: Micros) -> Window {
        Window::read(&state)
    }

    fn write(&self, kept: Window) -> State {
        kept.write()
    }

    fn limit(&self) -> u32 {
        self.quota.limit()
    }

    fn window(&self) -> Micros {
        self.quota.period_micros()
    }

    fn longest_wait(&self) -> Micros {
        self.quota.period_micros()
    }

    fn moved_back(&self, kept: &Window, now: Micros) -> Option<Window> {
        kept.moved_back(now.get())
    }

    fn admits(&self, kept: &Window, now: Micros, cost: u32) -> bool {
        self.window_at(now, *kept).admits(cost, self.limit())
    }

    fn charge(&self, kept: &mut Window, now: Micros, cost: u32) {
        *kept = self.window_at(now, *kept).charged(cost);
    }

    fn settle(&self, kept: &mut Window, now: Micros, units: u32) {
        *kept = self.window_at(now, *kept).settled(units);
    }

    fn refund(&self, kept: &mut Window, now: Micros, units: u32) {
        *kept = self.window_at(now, *kept).refunded(units);
    }

    fn remaining(&self, kept: &Window, now: Micros) -> u32 {
        self.window_at(now, *kept).remaining(self.limit())
    }

    fn distance(&self, kept: &Window, now: Micros) -> u64 {
        self.window_at(now, *kept).used
    }

    fn reset_after(&self, kept: &Window, now: Micros) -> Micros {
        match self.window_at(now, *kept).used {
            0 => Micros::ZERO,
            _ => self.to_its_end(*kept, now),
        }
    }

    fn retry_after(&self, kept: &Window, now: Micros, _: u32) -> Micros {
        self.to_its_end(*kept, now)
    }

    fn effective_window(&self, kept: &Window, now: Micros) -> Micros {
        self.to_its_end(*kept, now)
    }
}

impl Fixed for AnchoredWindow {
    fn words(&self, kept: Window) -> [u64; 3] {
        kept.words()
    }

    fn of_words(&self, words: [u64; 3]) -> Window {
        Window::of_words(words)
    }

    fn packs_until(&self) -> Micros {
        Micros::new(largest_beside(bits_of_count(self.limit())))
    }

    fn pack(&self, kept: Window) -> u64 {
        kept.pack(self.limit())
    }

    fn unpack(&self, word: u64, _: Micros) -> Window {
        Window::unpack(word, self.limit())
    }

    fn fitted(&self, kept: Window) -> Window {
        kept.fitted(self.limit())
    }
}
