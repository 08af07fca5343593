//! Decisions on requests that bring limits of their own.

use super::backend::MemoryBackend;
use super::driver::Purpose;
use super::sink::OutcomeSink;
use crate::algorithm::Limit;
use crate::clock::{Clock, Micros};
use crate::decision::Outcomes;
use crate::key::Key;
use crate::store::{Charge, Wanted};

impl MemoryBackend {
    /// Decides a request that concerns one policy alone, under this limit.
    #[inline]
    pub(super) fn decide_one_under(
        &self,
        policy: usize,
        key: &Key,
        cost: u32,
        limit: Limit,
        mut sink: Option<&mut OutcomeSink<'_>>,
    ) -> bool {
        let opened = &self.policies[policy];
        let (probe, now) = (self.probe(key, cost), self.clock.now());
        if opened.blocks.are_any() && opened.blocks.may_hold(probe.fingerprint, now) {
            let charge = Charge::new(policy, *key, cost).under(limit);
            let mut unwanted = Outcomes::new(Micros::ZERO);
            let (wanted, outcomes) = match sink {
                Some(sink) => (sink.wanted, &mut *sink.outcomes),
                None => (Wanted::Verdict, &mut unwanted),
            };
            return self.decide_as(&[charge], wanted, Purpose::Charge, outcomes);
        }
        let mut made = None;
        let limit = opened.limit_under(Some(limit), &mut made);
        let counter = &*opened.counter;
        if let Some(allowed) = counter.decide_at_once(limit, probe, now, sink.as_deref_mut()) {
            return allowed;
        }
        self.decide_further(opened, limit, probe, now, sink)
    }

    /// Decides a request that concerns one policy alone and brings its limit.
    #[inline(never)]
    pub(super) fn decide_under_its_limit(
        &self,
        charge: &Charge,
        limit: Limit,
        wanted: Wanted,
        outcomes: &mut Outcomes,
    ) -> bool {
        let sink = Some(&mut OutcomeSink {
            wanted,
            policy: charge.policy,
            outcomes,
        });
        self.decide_one_under(charge.policy, &charge.key, charge.cost, limit, sink)
    }
}
