//! What a request of a tenant may take of the slots, and how it is told.

use crate::decision::Outcome;

/// What a request of a tenant may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct SlotShare {
    /// The slots by which the tenant is below the level.
    pub(super) whole: u32,
    /// The same, and the part of one more that is left, if it is its turn.
    pub(super) in_turn: u32,
    /// Whether a request may pass that asks for more than that, because it is its turn.
    pub(super) is_next: bool,
    /// The free slots that are kept for others.
    pub(super) others: u32,
    /// The free slots that a large request of another tenant waits for.
    pub(super) claimed: u32,
    /// Whether another tenant was refused lately, so that unused slots are left to it.
    pub(super) is_contended: bool,
    pub(super) limit: u32,
}

impl SlotShare {
    /// The rule in Lua, for stores that run it where the state is.
    pub(in crate::store) const LUA: &str = include_str!("../holders.lua");

    /// Reads what the rule in Lua has told, and how many slots the request has taken.
    pub(in crate::store) fn read(words: &[u64]) -> Option<(Self, u32)> {
        let &[
            whole,
            in_turn,
            is_next,
            others,
            claimed,
            is_contended,
            limit,
            taken,
        ] = words
        else {
            return None;
        };
        let share = Self {
            whole: whole.try_into().ok()?,
            in_turn: in_turn.try_into().ok()?,
            is_next: is_next != 0,
            others: others.try_into().ok()?,
            claimed: claimed.try_into().ok()?,
            is_contended: is_contended != 0,
            limit: limit.try_into().ok()?,
        };
        Some((share, taken.try_into().ok()?))
    }

    /// Writes into an outcome of the limit what is left for the tenant, whose request has taken so many slots.
    pub(in crate::store) fn tell(&self, outcome: &mut Outcome, taken: u32) {
        if outcome.is_blocked() {
            return;
        }
        let told = outcome.with_remaining(self.of(outcome.remaining(), taken));
        *outcome = if outcome.is_allowed() {
            told
        } else {
            told.denied(None)
        };
    }

    /// The whole of this limit, undivided.
    pub(in crate::store) fn whole(limit: u32) -> Self {
        Self {
            whole: limit,
            in_turn: limit,
            is_next: true,
            others: 0,
            claimed: 0,
            is_contended: false,
            limit,
        }
    }

    /// Returns whether a request of this cost passes if so many slots are free.
    pub(in crate::store) fn passes(&self, free: u32, cost: u32) -> bool {
        let is_free = self.is_all_free(free);
        let free = free.saturating_sub(self.claimed);
        let passes = cost <= self.whole || self.is_next || cost <= self.beside_others(free);
        cost <= free && (passes || is_free)
    }

    /// Returns how many slots the tenant may take one by one, if so many are free and it has just taken some.
    pub(in crate::store) fn of(&self, free: u32, taken: u32) -> u32 {
        let is_free = self.is_all_free(free);
        let free = free.saturating_sub(self.claimed);
        let own = self.in_turn.saturating_sub(taken).max(is_free.into());
        own.max(self.beside_others(free)).min(free)
    }

    /// Returns whether all slots are free, and no other tenant waits for them.
    fn is_all_free(&self, free: u32) -> bool {
        free == self.limit && !self.is_contended
    }

    fn beside_others(&self, free: u32) -> u32 {
        free.saturating_sub(self.others)
    }
}
