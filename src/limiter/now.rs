//! Decisions of a limiter over the store in this process, which answers at once.

use std::sync::Arc;

use super::policies::Policies;
use super::{Limiter, LimiterBuilder, LocalLimiter};
use crate::clock::Micros;
use crate::decision::{Decision, Names, Outcomes};
use crate::key::{IntoKey, Key};
use crate::store::{Amendment, Charge, Charged, Ledger, Wanted, check};

impl Limiter {
    /// Starts a limiter, with its state in this process unless it gets a [store](LimiterBuilder::store).
    ///
    /// # Defaults
    ///
    /// - policies: none; at least one is required
    /// - store: a new [`MemoryStore`](crate::MemoryStore)
    /// - not split: this node admits all of each limit
    /// - places for requests that wait in a layer: 10,000
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::new()
    }
}

impl LocalLimiter {
    /// Decides one request of this key at this cost, and charges every policy if all allow it.
    pub fn check_now(&self, key: impl IntoKey, cost: u32) -> Decision {
        let key = key.into_key();
        if self.policies.mistakes.may_cost_too_much(cost) {
            return self.check_large(key, cost);
        }
        self.decide_now(key, cost)
    }

    /// Returns the decision where it is made, because moving it costs as much as the decision.
    #[inline]
    pub(super) fn decide_now(&self, key: Key, cost: u32) -> Decision {
        let names = Arc::clone(&self.policies.names);
        if self.policies.prices.are_any() {
            return self.decide_priced(names, key, cost);
        }
        match self.policies.sole_plain() {
            Some(policy) => {
                let mut decision = Decision::new(names, Outcomes::new(Micros::ZERO));
                decision.change(|outcomes| {
                    let ledger = self.ledger.inner();
                    let is_allowed = ledger.charge_one(policy, &key, cost, outcomes);
                    let asked = (policy, &key, cost);
                    self.policies.count_one(asked, is_allowed, outcomes);
                });
                decision
            }
            None => match self.policies.sole_limited() {
                Some(policy) if self.policies.is_one_plain => {
                    self.decide_limited(names, policy, key, cost)
                }
                Some(policy) => {
                    let charge = self.charge_of_one_found(policy, key, cost);
                    self.decide_all(names, charge.as_slice())
                }
                None => self.decide_all(names, &self.alike(key, cost)),
            },
        }
    }

    #[inline]
    pub(super) fn decide_all(&self, names: Arc<Names>, charges: &[Charge]) -> Decision {
        let decision = Decision::new(names, self.charge_all(charges));
        self.policies.count_decided(charges, decision.outcomes());
        decision
    }

    /// Decides a request that may cost more than a limit, and reports it if it does.
    #[cold]
    #[inline(never)]
    pub(super) fn check_large(&self, key: Key, cost: u32) -> Decision {
        let decision = self.decide_now(key, cost);
        self.look_at_costs(&self.charges(key, cost), decision.outcomes());
        decision
    }

    /// Decides and charges as [`check_now`](Self::check_now) does, and returns only the verdict.
    ///
    /// Without the numbers, a decision takes a fraction of the time.
    #[inline]
    pub fn admit_now(&self, key: impl IntoKey, cost: u32) -> bool {
        let key = key.into_key();
        if self.policies.prices.are_any() {
            return self.admit_priced(&key, cost);
        }
        if !self.policies.modes.are_plain() {
            return self.check_now(key, cost).is_allowed();
        }
        let is_admitted = match self.policies.only {
            Some(policy) => {
                let is_admitted = self.ledger.inner().admit_one(policy, &key, cost);
                self.policies
                    .count_judged_by_one(policy, (&key, cost), is_admitted);
                is_admitted
            }
            None => self.admit_alike(&key, cost),
        };
        if !is_admitted && self.policies.mistakes.may_cost_too_much(cost) {
            let charges = self.charges(key, cost);
            self.look_at_costs(&charges, &self.ledger.inner().peek_now(&charges));
        }
        is_admitted
    }

    /// Charges these policies in this process, and completes their outcomes.
    pub(super) fn charge_all(&self, charges: &[Charge]) -> Outcomes {
        let mut outcomes = Outcomes::new(Micros::ZERO);
        let wanted = Wanted::Everything;
        let _ = self.ledger.inner().charge(charges, wanted, &mut outcomes);
        // The store in this process has an outcome for each charge.
        let _ = check(charges, &mut outcomes);
        outcomes
    }

    pub(super) fn admit_alike(&self, key: &Key, cost: u32) -> bool {
        let Policies {
            mistakes,
            limited,
            limits,
            ..
        } = &*self.policies;
        if let Some(policy) = self.policies.sole_limited() {
            if self.policies.is_one_plain {
                return self.admit_limited(policy, *key, cost);
            }
            return self.admit_charges(self.charge_of_one_found(policy, *key, cost).as_slice());
        }
        if limits.is_some() || self.policies.demands.are_any() {
            return self.admit_charges(&self.alike(*key, cost));
        }
        mistakes.note_asked_alike();
        match self.ledger.inner().admit_alike(limited, key, cost) {
            Some(verdict) => {
                let asked = limited.iter().map(|(policy, _)| (*policy, cost));
                self.policies.count_judged(asked, key, verdict);
                verdict.is_ok()
            }
            None => self.admit_charges(&self.charges(*key, cost)),
        }
    }

    /// Returns the charge of the only policy, by the finding of a resolver that is known now.
    #[inline]
    fn charge_of_one_found(&self, policy: usize, key: Key, cost: u32) -> Option<Charge> {
        let finding = self.found_now(&key);
        self.charge_of_one(policy, key, cost, finding.as_ref())
    }

    pub(super) fn admit_charges(&self, charges: &[Charge]) -> bool {
        let mut outcomes = Outcomes::new(Micros::ZERO);
        let ledger = self.ledger.inner();
        let answer = ledger.charge(charges, Wanted::Refusals, &mut outcomes);
        let is_admitted = matches!(answer, Charged::Now(Ok(true)));
        if is_admitted {
            self.policies.count_allowed(charges);
        } else {
            // The store in this process has an outcome for each charge.
            let _ = check(charges, &mut outcomes);
            self.policies.count_decided(charges, &outcomes);
        }
        is_admitted
    }

    /// Changes the state of a key in this process, and returns what [`Ledger::amend`] answers.
    pub(super) fn amend_now(&self, charges: &[Charge], amendment: Amendment) -> bool {
        self.policies.count_amended(charges, amendment);
        let amended = self.ledger.inner().amend_now(charges, amendment);
        // Only an override can fail, for lack of room.
        amended.unwrap_or(false)
    }
}
