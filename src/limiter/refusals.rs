//! The refusals of keys that count towards the penalties of policies, for operators.

use smallvec::SmallVec;

use super::Limiter;
use crate::policy::Policy;
use crate::store::{Charge, Ledger};

/// How many refusals block a key, for each policy; `None` for a policy without a penalty.
pub(super) struct Penalties(Box<[Option<u32>]>);

/// How many refusals of a key count under a policy, and how many block the key.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefusalCount {
    pub(super) policy: usize,
    pub(super) refusals: u32,
    pub(super) of: u32,
}

pub(super) type RefusalCounts = SmallVec<[RefusalCount; 1]>;

impl Penalties {
    pub(super) fn of(policies: &[Policy]) -> Self {
        let penalties = policies.iter().map(Policy::named_penalty);
        let refusals = penalties.map(|named| Some(named?.penalty.refusals()));
        Self(refusals.collect())
    }

    fn of_policy(&self, policy: usize) -> Option<u32> {
        self.0.get(policy).copied().flatten()
    }
}

impl<L: Ledger + ?Sized> Limiter<L> {
    /// Returns how many refusals of the keys of these charges count. It is empty if the store cannot tell.
    pub(super) fn refusals(
        &self,
        charges: &[Charge],
    ) -> impl Future<Output = RefusalCounts> + Send + 'static + use<L> {
        let penalties = &self.policies.penalties;
        let replies = charges.iter().filter_map(|charge| {
            let of = penalties.of_policy(charge.policy)?;
            Some((charge.policy, of, self.ledger.refusals(charge)))
        });
        let replies: Vec<_> = replies.collect();
        async move {
            let mut all = RefusalCounts::new();
            for (policy, of, reply) in replies {
                if let Ok(refusals) = reply.wait().await {
                    all.push(RefusalCount {
                        policy,
                        refusals,
                        of,
                    });
                }
            }
            all
        }
    }
}
