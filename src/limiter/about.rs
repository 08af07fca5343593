//! The verbs for an operator, about the charges of a request: each policy may have a key of its own.

use super::{Charges, Inspection, Limiter, Purpose};
use crate::error::StoreError;
use crate::key::Key;
use crate::store::{Charge, Ledger, Reply};

impl<L: Ledger + ?Sized> Limiter<L> {
    /// Returns the charges of all policies for one key at this cost.
    pub(crate) fn charges_about(&self, key: Key, cost: u32) -> Charges {
        self.charges_now(key, cost, Purpose::Look)
    }

    /// Describes the state of the keys of these charges, in sentences.
    pub(crate) fn inspect_about(
        &self,
        charges: &[Charge],
    ) -> Reply<Result<Inspection, StoreError>> {
        self.inspect_beside(self.peek_about(charges), charges)
    }

    /// Returns the key that a policy of this name has among these charges.
    pub(crate) fn key_among(&self, charges: &[Charge], policy: &str) -> Option<Key> {
        let mut charges = charges.iter();
        let of_policy = |charge: &&Charge| self.policies.names.name(charge.policy) == Some(policy);
        charges.find(of_policy).map(|charge| charge.key)
    }
}
