use super::State;
use super::step::{bits_of_count, countable};

/// A window that counts: which one it is, and what it has admitted.
#[derive(Clone, Copy, Default)]
pub(crate) struct Window {
    /// When it began, or its number since the epoch.
    pub(super) begun: u64,
    pub(super) used: u64,
}

impl Window {
    pub(super) fn read(state: &State) -> Self {
        let [begun, used] = state.first();
        Self { begun, used }
    }

    pub(super) fn write(self) -> State {
        State::unless_new([self.begun, self.used])
    }

    pub(super) fn words(self) -> [u64; 3] {
        [self.begun, self.used, 0]
    }

    pub(super) fn of_words([begun, used, _]: [u64; 3]) -> Self {
        Self { begun, used }
    }

    /// Both numbers in one word, the count in its lowest bits.
    pub(super) fn pack(self, limit: u32) -> u64 {
        self.begun << bits_of_count(limit) | self.used
    }

    pub(super) fn unpack(word: u64, limit: u32) -> Self {
        let bits = bits_of_count(limit);
        let begun = word >> bits;
        Self {
            begun,
            used: word ^ (begun << bits),
        }
    }

    /// With a count that can be packed.
    pub(super) fn fitted(self, limit: u32) -> Self {
        Self {
            used: self.used.min((1 << bits_of_count(limit)) - 1),
            ..self
        }
    }

    /// Begins no later than `begun`, and counts the same; `None` if it does already.
    pub(super) fn moved_back(self, begun: u64) -> Option<Self> {
        (self.begun > begun).then_some(Self { begun, ..self })
    }

    pub(super) fn admits(self, cost: u32, limit: u32) -> bool {
        self.used.saturating_add(cost.into()) <= limit.into()
    }

    pub(super) fn charged(self, cost: u32) -> Self {
        Self {
            used: self.used + u64::from(cost),
            ..self
        }
    }

    pub(super) fn settled(self, units: u32) -> Self {
        Self {
            used: self.used.saturating_add(countable(units, self.used)),
            ..self
        }
    }

    pub(super) fn refunded(self, units: u32) -> Self {
        Self {
            used: self.used.saturating_sub(units.into()),
            ..self
        }
    }

    pub(super) fn remaining(self, limit: u32) -> u32 {
        u32::try_from(self.used).map_or(0, |used| limit.saturating_sub(used))
    }
}
