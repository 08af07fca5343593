//! What a tenant has of a limit that is divided: [`shares`] has the rule, which all stores keep.

mod shares;

use crate::decision::Outcome;

pub(super) use self::shares::{Scale, Share, Shares};

impl Share {
    /// Writes into an outcome what is left for the tenant, and how long it waits. `taken` is what this request has taken.
    pub(super) fn tell(&self, outcome: &mut Outcome, (cost, taken): (u32, u32)) {
        let left = self.of(outcome.remaining(), taken);
        if outcome.is_allowed() {
            *outcome = outcome.with_remaining(left);
        } else if !outcome.is_blocked() && !self.is_below(cost) {
            let has_room_after = outcome.retry_micros().unwrap_or_default();
            let wait = self.wait(has_room_after, outcome.reset_micros());
            *outcome = outcome.with_remaining(left).denied(Some(wait));
        }
    }
}
