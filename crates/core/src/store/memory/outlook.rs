//! The states from which the waits of requests beside others are computed.

use super::backend::MemoryBackend;
use super::page_snapshot::Counted;
use super::tiers::{Tier, ask_tier};
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::store::{Charge, KeyOutlook, Outlook};

impl MemoryBackend {
    /// Peeks, and returns the states too.
    pub(super) fn outlook_now(&self, charges: &[Charge]) -> Outlook {
        let outcomes = self.peek_now(charges);
        let key = |charge| self.key_outlook(charge, &outcomes);
        let keys = charges.iter().filter_map(key).collect();
        Outlook { outcomes, keys }
    }

    /// Returns the state of the key of a charge as of this moment, for a policy without slots.
    fn key_outlook(&self, charge: &Charge, peeked: &Outcomes) -> Option<KeyOutlook> {
        let opened = self
            .policies
            .get(charge.policy)
            .filter(|it| !it.takes_slots())?;
        let mut outcomes = peeked.iter();
        let (_, outcome) = outcomes.find(|(policy, _)| *policy == charge.policy)?;
        let counted = Counted::of(outcome.is_overflow());
        let key = opened.counted(&charge.key);
        let (probe, limit) = (self.probe(&key, charge.cost), opened.limit_of(charge));
        let general = opened.general();
        let now = peeked.at();
        let (tier, snapshot, _lock) =
            general.snapshot_and_lock(probe, limit.as_ref(), counted, now, &self.clock);
        let own = snapshot.own.filter(|own| own.is_overridden);
        let blocks = &opened.blocks;
        let blocked = blocks.left(self.fingerprint(&charge.key), now, &self.clock, true);
        Some(KeyOutlook {
            policy: charge.policy,
            algorithm: opened.algorithm,
            own: own.map(|own| own.algorithm),
            state: ask_tier!(tier, table => table.state(&snapshot, probe, now)).ok()?,
            at: now,
            blocked: blocked.unwrap_or(Micros::ZERO),
        })
    }
}
