//! Decisions under limits that are divided among tenants.

use super::{Ask, Changed, Decision, OutcomeSink, Part, Purpose};
use crate::clock::Micros;
use crate::decision::{Outcome, Outcomes};
use crate::store::Wanted;
use crate::store::memory::fair::{Seat, Share};

impl<'a> Decision<'a> {
    /// Adds a part whose limit is divided among tenants, of which this one asks. A tenant may be blocked.
    pub(in crate::store::memory) fn add_for(
        &mut self,
        tenant: u64,
        seat: Seat<'a>,
        part: Part<'a>,
    ) {
        self.seats.push((self.parts.len(), seat));
        self.add(Part {
            blockable: tenant,
            share: Some(Share::UNDIVIDED),
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
    pub(super) fn conclude_shares(&mut self, allowed: bool, now: Micros, outcomes: &mut Outcomes) {
        if self.seats.is_empty() {
            return;
        }
        let writes = self.purpose.writes();
        for (place, seat) in &mut self.seats {
            let part = &self.parts[*place];
            let cost = part.ask.cost;
            let has_passed = writes && allowed && part.charges();
            let is_refused = self.purpose == Purpose::Charge && cost > 0 && !part.allowed;
            if has_passed || is_refused {
                seat.conclude(has_passed, cost);
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
            let cost = part.ask.cost;
            let taken = if allowed && part.charges() { cost } else { 0 };
            share.tell(outcome, (cost, taken), |_| part.wait(share, now));
        });
    }
}

impl Part<'_> {
    /// Returns the units that the limit needs to have.
    #[inline]
    pub(super) fn needed(&self) -> Ask {
        match &self.share {
            None => self.ask,
            Some(share) => self.asking(share.needs(self.ask.cost)),
        }
    }

    /// Returns how many of the units that are left the request may take.
    pub(super) fn share_of(&self, left: u32) -> u32 {
        self.share.map_or(left, |share| share.of(left, 0))
    }

    /// Returns how long the refused request of a tenant waits.
    fn wait(&self, share: &Share, now: Micros) -> Micros {
        // Only a settlement changes the page meanwhile, and the next request sees it.
        let wait_for = |units| self.wait_for(units, now).unwrap_or_default();
        share.wait(self.ask.cost, wait_for).max(Micros::new(1))
    }

    /// Returns how long it takes until the limit has so many units.
    fn wait_for(&self, units: u32, now: Micros) -> Result<Micros, Changed> {
        let mut outcomes = Outcomes::new(now);
        let mut sink = OutcomeSink {
            wanted: Wanted::Everything,
            policy: self.policy,
            outcomes: &mut outcomes,
        };
        self.write_uncharged(self.asking(units), now, Some(false), &mut sink)?;
        let outcome = outcomes.first();
        Ok(outcome.and_then(Outcome::retry_micros).unwrap_or_default())
    }

    fn asking(&self, cost: u32) -> Ask {
        Ask { cost, ..self.ask }
    }
}
