//! The units of keys that nodes hold, for operators.

use smallvec::SmallVec;

use super::{Charges, Limiter};
use crate::key::Key;
use crate::store::{Charge, Ledger};

/// How many units of a key nodes hold, with the index of the policy. Policies without such units are left
/// out.
pub(super) type AllLeased = SmallVec<[(usize, u32); 1]>;

impl<L: Ledger + ?Sized> Limiter<L> {
    /// Returns the units of this key that nodes hold.
    pub(super) fn leased(
        &self,
        key: Key,
    ) -> impl Future<Output = AllLeased> + Send + 'static + use<L> {
        let names = &self.policies.names;
        let policies = (0..).take_while(|policy| names.name(*policy).is_some());
        self.leased_about(policies.map(|policy| Charge::new(policy, key, 0)).collect())
    }

    /// Returns the units of the keys of these charges that nodes hold. It is empty if the store cannot tell.
    pub(super) fn leased_about(
        &self,
        charges: Charges,
    ) -> impl Future<Output = AllLeased> + Send + 'static + use<L> {
        let asked = charges.into_iter().map(|charge| {
            let reply = self.ledger.leased(&charge);
            (charge.policy, reply)
        });
        let asked: Vec<_> = asked.collect();
        async move {
            let mut all = AllLeased::new();
            for (policy, reply) in asked {
                if let Ok(units @ 1..) = reply.wait().await {
                    all.push((policy, units));
                }
            }
            all
        }
    }
}
