//! The verbs for an operator, about the charges of a request like one of a client: each policy may have a key of its own.

use super::{Charges, Inspection, Limiter, Purpose};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::key::Key;
use crate::store::{Amendment, Charge, Reply};

/// What a limiter charges a request like one of a client, at a cost that is chosen. Nothing of it is counted as a request.
#[derive(Debug)]
pub struct ClientCharges {
    limiter: Limiter,
    charges: Charges,
    /// Those by which the request is decided, if one of several policies pays.
    decided: Option<Charges>,
}

impl ClientCharges {
    /// Makes it of the charges of a request that is like those.
    pub fn new(limiter: &Limiter, charges: Charges) -> Self {
        Self {
            limiter: limiter.clone(),
            charges,
            decided: None,
        }
    }

    /// Sets the charges by which the request is decided: those of the policies of which one pays, in their modes, without those that
    /// are passed over.
    pub fn decided_by(mut self, charges: Charges) -> Self {
        self.decided = Some(charges);
        self
    }

    /// Returns what a request with one key under all policies is charged.
    pub fn of_key(limiter: &Limiter, key: Key, cost: u32) -> Self {
        let charges = |purpose| limiter.with_charges_now(key, cost, purpose, Charges::from_slice);
        let its = Self::new(limiter, charges(Purpose::Look));
        if limiter.policies.groups.is_none() {
            return its;
        }
        its.decided_by(charges(Purpose::Decide))
    }

    /// Returns the limiter that charges it.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Returns the decision that the request would have.
    pub fn peek(&self) -> Reply<Result<Decision, StoreError>> {
        let charges = self.decided.as_ref().unwrap_or(&self.charges);
        self.limiter.peek_about(charges)
    }

    /// Describes the state of its keys, in sentences: those of all policies, whichever pays.
    pub fn inspect(&self) -> Reply<Result<Inspection, StoreError>> {
        let mut charges = self.charges.clone();
        charges.iter_mut().for_each(|it| it.alternative = None);
        let peeked = self.limiter.peek_about(&charges);
        self.limiter.inspect_beside(peeked, &charges)
    }

    /// Changes the state of its key under one policy, or of [its own keys](Self::is_its_own) under all, and returns what
    /// [`Backend::amend`](crate::store::Backend::amend) answers.
    pub fn amend(
        &self,
        amendment: Amendment,
        policy: Option<&str>,
    ) -> Reply<Result<bool, StoreError>> {
        let is_meant = |name: &str| match policy {
            Some(policy) => name == policy,
            None => self.is_its_own(name),
        };
        let names = &self.limiter.policies.names;
        let meant = |charge: &&Charge| names.name(charge.policy).is_some_and(is_meant);
        let charges: Charges = self.charges.iter().filter(meant).copied().collect();
        self.limiter.amended(&charges, amendment)
    }

    /// Returns whether its key under the policy of this name is its own: not that of a level of a tree above another level of which it
    /// has a key, which other clients share.
    pub fn is_its_own(&self, policy: &str) -> bool {
        let names = &self.limiter.policies.names;
        let Some(key) = self.key(policy) else {
            return false;
        };
        let is_below = |charge: &Charge| {
            let mut above = names.above(charge.policy);
            charge.key != key && above.any(|it| names.name(it) == Some(policy))
        };
        !self.charges.iter().any(is_below)
    }

    /// Returns its key under the policy of this name.
    pub fn key(&self, policy: &str) -> Option<Key> {
        let names = &self.limiter.policies.names;
        let mut charges = self.charges.iter();
        let charge = charges.find(|charge| names.name(charge.policy) == Some(policy))?;
        Some(charge.key)
    }
}
