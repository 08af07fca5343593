//! Decisions in this process where a policy has a factor. Under one policy alone they make no list of charges.

use std::slice;
use std::sync::Arc;

use super::LocalLimiter;
use super::prices::Prices;
use crate::clock::Micros;
use crate::decision::{Decision, Names, Outcomes};
use crate::factor::Class;
use crate::key::Key;
use crate::store::Charge;

impl LocalLimiter {
    /// Decides, and returns the verdict alone.
    // A function of its own, since the path without prices is smaller without it.
    #[inline(never)]
    pub(super) fn admit_priced(&self, key: &Key, cost: u32) -> bool {
        if let Some(policy) = self.policies.sole_plain()
            && !self.policies.mistakes.may_cost_too_much(cost)
            && let Some(cell) = self.policies.prices.ungrowing(policy)
        {
            let is_admitted = match Prices::whole_cost(cell, cost) {
                Some(parts) => self.ledger.inner().admit_one(policy, key, parts),
                None => self.admit_reduced(policy, key, cost),
            };
            if !is_admitted {
                cell.note_reached();
            }
            self.policies
                .count_judged_by_one(policy, (key, cost), is_admitted);
            return is_admitted;
        }
        // A limit that was reached may grow, and that needs the numbers.
        self.check_now(*key, cost).is_allowed()
    }

    #[inline(never)]
    fn admit_reduced(&self, policy: usize, key: &Key, cost: u32) -> bool {
        let charge = self.priced(policy, *key, cost);
        let ledger = self.ledger.inner();
        match charge.limit {
            None => ledger.admit_one(policy, key, charge.cost),
            Some(limit) => ledger.admit_one_under(policy, key, charge.cost, limit),
        }
    }

    pub(super) fn decide_priced(&self, names: Arc<Names>, key: Key, cost: u32) -> Decision {
        let prices = &self.policies.prices;
        if let Some(policy) = self.policies.sole_plain() {
            let charge = self.priced(policy, key, cost);
            let ledger = self.ledger.inner();
            let mut decision = Decision::new(names, Outcomes::new(Micros::ZERO));
            decision.change(|outcomes| {
                let (key, parts) = (&key, charge.cost);
                let is_allowed = match charge.limit {
                    None => ledger.charge_one(policy, key, parts, outcomes),
                    Some(limit) => ledger.charge_one_under(policy, key, parts, limit, outcomes),
                };
                prices.convert_to_units(slice::from_ref(&charge), outcomes);
                let asked = (policy, key, cost);
                self.policies.count_one(asked, is_allowed, outcomes);
            });
            return decision;
        }
        let charges = self.alike(key, cost);
        let mut decision = Decision::new(names, self.ledger.inner().charge_now(&charges));
        decision.change(|outcomes| prices.convert_to_units(&charges, outcomes));
        self.policies.count_decided(&charges, decision.outcomes());
        decision
    }

    #[inline]
    fn priced(&self, policy: usize, key: Key, cost: u32) -> Charge {
        self.policies.mistakes.note_asked_alike();
        let mut charge = Charge::new(policy, key, cost);
        self.policies.prices.price(&mut charge, Class::default());
        charge
    }
}
