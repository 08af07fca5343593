//! Decisions under limits that are divided among tenants.

use super::{Decision, Part, Probe};
use crate::clock::Micros;
use crate::decision::{DenialEffect, Outcomes};
use crate::store::fair::Ending;
use crate::store::memory::fair::Seat;

impl<'a> Decision<'a> {
    /// Adds a part whose limit is divided among tenants, of which this one asks. A tenant may be blocked.
    pub(in crate::store::memory) fn add_for(
        &mut self,
        tenant: u64,
        seat: Seat<'a>,
        part: Part<'a>,
    ) {
        self.seats.push((self.parts.len(), seat));
        // The turn of a refused request depends on what the limit has.
        self.wanted = self.wanted.with_refusals();
        self.add(Part {
            blockable: tenant,
            ..part
        });
    }

    /// Finds out what each tenant may take.
    #[inline]
    pub(super) fn ask_for_shares(&mut self, now: Micros) {
        for (place, seat) in &mut self.seats {
            let share = if self.purpose.writes() {
                seat.ask(now)
            } else {
                seat.look(now)
            };
            self.parts[*place].share = Some(share);
        }
    }

    /// Charges the tenants, and writes into the outcomes what is left for each, and how long it waits.
    pub(super) fn conclude_shares(&mut self, allowed: bool, outcomes: &mut Outcomes) {
        if self.seats.is_empty() {
            return;
        }
        // A limit whose room another policy does not let the request take gives it no turn.
        let denied_otherwise = self
            .parts
            .iter()
            .any(|part| part.denies() && !(part.share.is_some() && part.is_refused()));
        if self.purpose.writes() {
            for (place, seat) in &mut self.seats {
                let part = &mut self.parts[*place];
                let is_refused = part.is_refused() && !denied_otherwise;
                let ending = if allowed && part.charges() {
                    Ending::Passed
                } else if is_refused {
                    Ending::Refused(outcomes.whole_after(part.policy))
                } else {
                    Ending::Elsewhere
                };
                part.share = seat.conclude(ending, part.probe.cost).or(part.share);
            }
        }
        outcomes.change_each(|policy, outcome| {
            let of_policy = |part: &&Part<'_>| part.policy == policy;
            let Some(part) = self.parts.iter().find(of_policy) else {
                return;
            };
            let Some(share) = &part.share else {
                return;
            };
            let cost = part.probe.cost;
            let taken = if allowed && part.charges() { cost } else { 0 };
            share.tell(outcome, (cost, taken));
        });
    }
}

impl Part<'_> {
    /// Returns whether it denies the request.
    fn denies(&self) -> bool {
        match self.effect {
            DenialEffect::Full => !self.allowed || self.blocked.is_some(),
            DenialEffect::Soft => self.blocked.is_some(),
            DenialEffect::Shadow => false,
        }
    }

    /// Returns whether the limit has no room for a request that it could have room for.
    fn is_refused(&self) -> bool {
        let cost = self.probe.cost;
        let is_too_large = self.share.is_some_and(|share| share.is_below(cost));
        !self.allowed && cost > 0 && !is_too_large && self.blocked.is_none()
    }

    /// Returns the units that the limit needs to have.
    #[inline]
    pub(super) fn needed(&self) -> Probe {
        match &self.share {
            None => self.probe,
            Some(share) => self.asking(share.needs(self.probe.cost)),
        }
    }

    /// Returns how many of the units that are left the request may take.
    pub(super) fn share_of(&self, left: u32) -> u32 {
        self.share.map_or(left, |share| share.of(left, 0))
    }

    fn asking(&self, cost: u32) -> Probe {
        Probe { cost, ..self.probe }
    }
}
