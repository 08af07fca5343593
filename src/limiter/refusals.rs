//! The refusals of keys that count towards the penalties of policies, for operators.

use smallvec::SmallVec;

use super::{Limiter, LocalLimiter};
use crate::error::StoreError;
use crate::policy::Policy;
use crate::store::{Charge, Ledger, Reply};

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
    /// Asks how many refusals of the keys of these charges count, under the policies with a penalty.
    fn ask_refusals(
        &self,
        charges: &[Charge],
    ) -> impl Iterator<Item = (usize, u32, Reply<Result<u32, StoreError>>)> {
        let penalties = &self.policies.penalties;
        charges.iter().filter_map(|charge| {
            let of = penalties.of_policy(charge.policy)?;
            Some((charge.policy, of, self.ledger.refusals(charge)))
        })
    }

    /// Returns how many refusals of the keys of these charges count. It is empty if the store cannot tell.
    pub(super) fn refusals(
        &self,
        charges: &[Charge],
    ) -> impl Future<Output = RefusalCounts> + Send + 'static + use<L> {
        let asked: Vec<_> = self.ask_refusals(charges).collect();
        async move {
            let mut all = RefusalCounts::new();
            for (policy, of, reply) in asked {
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

impl LocalLimiter {
    /// Returns how many refusals of the keys of these charges count.
    pub(super) fn refusals_now(&self, charges: &[Charge]) -> RefusalCounts {
        let asked = self.ask_refusals(charges);
        let counting = asked.filter_map(|(policy, of, reply)| match reply {
            Reply::Now(Ok(refusals)) => Some(RefusalCount {
                policy,
                refusals,
                of,
            }),
            _ => None,
        });
        counting.collect()
    }
}
