//! Decisions on a request of one tenant, under a limit that is divided and no other.
//!
//! A request that is within its tenant's share is decided as if nobody shared the limit, on the fast path of the table. Any other request
//! takes the general path, as one of several policies does.

use super::Division;
use crate::decision::Outcomes;
use crate::store::fair::Ending;
use crate::store::memory::backend::MemoryBackend;
use crate::store::memory::driver::{Decision, Part, Purpose};
use crate::store::memory::sink::OutcomeSink;
use crate::store::{Charge, Wanted};

impl MemoryBackend {
    /// Decides a request of a tenant that concerns no other policy.
    #[inline(never)]
    pub(in crate::store::memory) fn decide_divided(
        &self,
        charge: &Charge,
        division: &Division,
        wanted: Wanted,
        outcomes: &mut Outcomes,
    ) -> bool {
        let Charge { policy, cost, .. } = *charge;
        let opened = &self.policies[policy];
        let tenant = self.fingerprint(&charge.key);
        let probe = self.probe(&charge.key.root(), cost);
        let mut seat = division.seat(probe.fingerprint, (tenant, charge.weight));
        if cost > 0 && opened.limit.is_none() && !opened.blocks.are_any() {
            let now = self.clock().now();
            let mut share = seat.ask(now);
            let sink = &mut OutcomeSink {
                // The turn of a refused request depends on what the limit has.
                wanted: wanted.with_refusals(),
                policy,
                outcomes,
            };
            if share.needs(cost) == cost
                && let Some(allowed) = opened.counter.decide_at_once(None, probe, now, Some(sink))
            {
                let ending = if allowed {
                    Ending::Passed
                } else if share.is_below(cost) {
                    Ending::Elsewhere
                } else {
                    Ending::Refused(outcomes.whole_after(policy))
                };
                share = seat.conclude(ending, cost).unwrap_or(share);
                let taken = if allowed { cost } else { 0 };
                outcomes.change_each(|_, outcome| share.tell(outcome, (cost, taken)));
                return allowed;
            }
        }
        let mut decision = Decision::new(self.clock(), wanted, Purpose::Charge);
        let part = Part::new(policy, opened, probe, opened.limit, charge.effect());
        decision.add_for(tenant, seat, part);
        decision.decide(outcomes)
    }
}
