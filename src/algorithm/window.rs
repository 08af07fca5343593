use super::State;

/// A window that counts: when it began, and what it has admitted.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) start: u64,
    pub(super) used: u64,
}

impl Window {
    pub(super) fn of(state: &State) -> Self {
        let [start, used] = state.first();
        Self { start, used }
    }

    /// Begins no later than `start`, and counts the same; `None` if it does already.
    pub(super) fn moved_back(self, start: u64) -> Option<State> {
        (self.start > start).then(|| State::from_words(&[start, self.used]))
    }

    pub(super) fn admits(self, cost: u32, limit: u32) -> bool {
        self.used.saturating_add(cost.into()) <= limit.into()
    }

    pub(super) fn charge(self, cost: u32, state: &mut State) {
        state.set([self.start, self.used + u64::from(cost)]);
    }

    pub(super) fn remaining(self, limit: u32) -> u32 {
        u32::try_from(self.used).map_or(0, |used| limit.saturating_sub(used))
    }
}
