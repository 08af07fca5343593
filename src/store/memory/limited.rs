//! Decisions on requests that bring limits of their own.

use super::counter::OutcomeSink;
use super::driver::Purpose;
use super::ledger::MemoryLedger;
use super::opened::Opened;
use super::page_snapshot::{Ask, Counted};
use super::prepared::LimitSource;
use crate::algorithm::Limit;
use crate::clock::{Clock, Micros};
use crate::decision::Outcomes;
use crate::key::Key;
use crate::store::{Charge, Wanted};

impl MemoryLedger {
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
        let (ask, now) = (self.ask(key, cost), self.clock.now());
        if opened.blocks.are_any() && opened.blocks.may_hold(ask.fingerprint, now) {
            let charge = Charge::new(policy, *key, cost).under(limit);
            let mut unwanted = Outcomes::new(Micros::ZERO);
            let (wanted, outcomes) = match sink {
                Some(sink) => (sink.wanted, &mut *sink.outcomes),
                None => (Wanted::Verdict, &mut unwanted),
            };
            return self.decide_as(&[charge], wanted, Purpose::Charge, outcomes);
        }
        if let Some(place) = opened.place_of(limit) {
            let (counter, limit) = (&*opened.counter, LimitSource::Prepared(place));
            let sink = sink.as_deref_mut();
            if let Some(allowed) = counter.decide_at_once_under(limit, ask, now, sink) {
                return allowed;
            }
        }
        self.decide_under_any_limit(opened, limit, ask, now, sink)
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

    /// Decides a request whose limit is not prepared, or whose key is not known.
    #[inline(never)]
    fn decide_under_any_limit(
        &self,
        opened: &Opened,
        limit: Limit,
        ask: Ask,
        now: Micros,
        mut sink: Option<&mut OutcomeSink<'_>>,
    ) -> bool {
        let algorithm = opened.under(Some(limit));
        let (counter, algorithm) = (&*opened.counter, algorithm.as_ref());
        let at_once = match algorithm {
            Some(algorithm) => {
                let limit = LimitSource::Limit(algorithm);
                counter.decide_at_once_under(limit, ask, now, sink.as_deref_mut())
            }
            None => counter.decide_at_once(ask, now, sink.as_deref_mut()),
        };
        let allowed = at_once.unwrap_or_else(|| {
            let general = opened.general();
            let asked = (ask, Counted::Apart);
            general.decide_in_the_end(asked, algorithm, now, &self.clock, sink)
        });
        opened.prepare(limit);
        allowed
    }

    /// Prepares the limits of these charges for later requests.
    pub(super) fn prepare_limits(&self, charges: &[Charge]) {
        for charge in charges {
            if let (Some(limit), Some(opened)) = (charge.limit, self.policies.get(charge.policy)) {
                opened.prepare(limit);
            }
        }
    }
}
