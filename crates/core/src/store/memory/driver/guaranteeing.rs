//! Decisions under limits of which the keys below have a guaranteed part.

use super::{Decision, Part};
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::store::memory::guarantee::Siblings;
use crate::store::memory::page_snapshot::Changed;

impl<'a> Decision<'a> {
    /// Adds a part whose limit is guaranteed in part to children, of which this one asks.
    pub(in crate::store::memory) fn add_beside(&mut self, siblings: Siblings<'a>, part: Part<'a>) {
        self.families.push((self.parts.len(), siblings));
        self.add(part);
    }

    /// Finds out what each request may take beside the guarantees of others.
    #[inline]
    pub(super) fn ask_for_guarantees(&mut self, now: Micros) -> Result<(), Changed> {
        if self.families.is_empty() {
            return Ok(());
        }
        self.ask_families(now)
    }

    #[inline(never)]
    fn ask_families(&mut self, now: Micros) -> Result<(), Changed> {
        let is_charged = self.purpose.writes();
        for (place, siblings) in &mut self.families {
            let part = &mut self.parts[*place];
            let left = part.left(now)?;
            let answer = siblings.ask((left, now), part.snapshot.limit(), is_charged);
            (part.beside, part.granted) = answer(part.probe.cost);
        }
        Ok(())
    }

    /// Charges the children, and writes into the outcomes what is left for each, and how long it waits.
    pub(super) fn conclude_guarantees(&mut self, allowed: bool, outcomes: &mut Outcomes) {
        let writes = self.purpose.writes();
        for (place, siblings) in &mut self.families {
            let part = &self.parts[*place];
            let cost = part.probe.cost;
            let taken = if allowed && part.charges() { cost } else { 0 };
            if writes && taken > 0 {
                siblings.charge(taken);
            }
            outcomes.change_each(|policy, outcome| {
                if policy == part.policy {
                    siblings.tell(outcome, (cost, taken));
                }
            });
        }
    }
}
