//! The units of keys that nodes hold, for operators.

use smallvec::SmallVec;

use super::Limiter;
use crate::store::{Charge, Ledger};

/// How many units of a key nodes hold, with the index of the policy. Policies without such units are left
/// out.
pub(super) type AllLeased = SmallVec<[(usize, u32); 1]>;

impl<L: Ledger + ?Sized> Limiter<L> {
    /// Returns the units of the keys of these charges that nodes hold. It is empty if the store cannot tell.
    pub(super) fn leased(
        &self,
        charges: &[Charge],
    ) -> impl Future<Output = AllLeased> + Send + 'static + use<L> {
        let replies = charges
            .iter()
            .map(|charge| (charge.policy, self.ledger.leased(charge)));
        let replies: Vec<_> = replies.collect();
        async move {
            let mut all = AllLeased::new();
            for (policy, reply) in replies {
                if let Ok(units @ 1..) = reply.wait().await {
                    all.push((policy, units));
                }
            }
            all
        }
    }
}
