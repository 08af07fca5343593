//! What a verb asks about: one key under all policies, or a key under each policy that is named.

use super::charging::Named;
use super::findings::{Findings, Looks};
use super::{Limiter, LocalLimiter, Purpose};
use crate::decision::Outcomes;
use crate::key::{IntoKey, Key};
use crate::store::{Backend, Charge};

/// The subject of a decision.
pub(super) trait Subject: Send + 'static {
    /// Starts to look up the keys.
    fn look<L: ?Sized>(&self, limiter: &Limiter<L>) -> Looks;

    /// Passes on the charges of the policies.
    fn with_charges<L: Backend + ?Sized, T>(
        &self,
        limiter: &Limiter<L>,
        findings: &Findings,
        purpose: Purpose,
        then: impl FnOnce(&[Charge]) -> T,
    ) -> T;

    /// Decides in this process.
    fn decide_now(&self, limiter: &LocalLimiter, outcomes: &mut Outcomes) {
        let findings = self.look(limiter).now();
        self.with_charges(limiter, &findings, Purpose::Decide, |charges| {
            // The store in this process always answers, about each charge.
            let _ = limiter.decide_all(charges, outcomes);
        });
    }
}

/// All policies decide on this key, at this cost.
#[derive(Clone, Copy)]
pub(super) struct Alike {
    pub(super) key: Key,
    pub(super) cost: u32,
}

impl Alike {
    #[inline]
    pub(super) fn of(key: impl IntoKey, cost: u32) -> Self {
        let key = key.into_key();
        Self { key, cost }
    }
}

impl Subject for Alike {
    #[inline]
    fn look<L: ?Sized>(&self, limiter: &Limiter<L>) -> Looks {
        if !limiter.has_a_resolver() {
            return Looks::none();
        }
        Looks::of([Some(&self.key)], limiter)
    }

    // A list has room for several charges, all of which would be moved.
    #[inline]
    fn with_charges<L: Backend + ?Sized, T>(
        &self,
        limiter: &Limiter<L>,
        findings: &Findings,
        purpose: Purpose,
        then: impl FnOnce(&[Charge]) -> T,
    ) -> T {
        let (demand, finding) = ((self.key, self.cost), findings.of(0));
        match limiter.policies.shape().sole() {
            Some(policy) => limiter.with_charge_of_one(policy, demand, purpose, finding, then),
            None => limiter.with_charges_alike(demand, purpose, finding, then),
        }
    }

    #[inline]
    fn decide_now(&self, limiter: &LocalLimiter, outcomes: &mut Outcomes) {
        limiter.decide_at_once(self.key, self.cost, outcomes);
    }
}

impl Subject for Named {
    fn look<L: ?Sized>(&self, limiter: &Limiter<L>) -> Looks {
        if !limiter.has_a_resolver() {
            return Looks::none();
        }
        let each = self.demands.iter().enumerate();
        let keys = each.map(|(place, (_, demand))| {
            let lowest = self.lowest_of_its_tree(place, &limiter.policies);
            (lowest == place).then_some(&demand.key)
        });
        Looks::of(keys, limiter)
    }

    fn with_charges<L: Backend + ?Sized, T>(
        &self,
        limiter: &Limiter<L>,
        findings: &Findings,
        purpose: Purpose,
        then: impl FnOnce(&[Charge]) -> T,
    ) -> T {
        limiter.with_charges_named(self, findings, purpose, then)
    }
}
