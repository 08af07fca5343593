//! The refusals of keys that count towards the penalties of policies, for operators.

use smallvec::SmallVec;

use super::{Charges, Limiter, LocalLimiter};
use crate::key::Key;
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

    /// Returns a charge of this key for each policy with a penalty.
    fn about(&self, key: Key) -> Charges {
        let policies = (0..self.0.len()).filter(|policy| self.of_policy(*policy).is_some());
        policies.map(|policy| Charge::new(policy, key, 0)).collect()
    }
}

impl LocalLimiter {
    /// Returns how many refusals of this key count.
    pub(super) fn refusals_now(&self, key: Key) -> RefusalCounts {
        let penalties = &self.policies.penalties;
        let asked = penalties.about(key);
        let counting = asked.iter().filter_map(|charge| {
            let Reply::Now(Ok(refusals)) = self.ledger.refusals(charge) else {
                return None;
            };
            let (policy, of) = (charge.policy, penalties.of_policy(charge.policy)?);
            Some(RefusalCount {
                policy,
                refusals,
                of,
            })
        });
        counting.collect()
    }
}

impl<L: Ledger + ?Sized> Limiter<L> {
    /// Returns how many refusals of this key count.
    pub(super) fn refusals(
        &self,
        key: Key,
    ) -> impl Future<Output = RefusalCounts> + Send + 'static + use<L> {
        self.refusals_about(self.policies.penalties.about(key))
    }

    /// Returns how many refusals of the keys of these charges count. It is empty if the store cannot tell.
    pub(super) fn refusals_about(
        &self,
        charges: Charges,
    ) -> impl Future<Output = RefusalCounts> + Send + 'static + use<L> {
        let penalties = &self.policies.penalties;
        let asked = charges.into_iter().filter_map(|charge| {
            let of = penalties.of_policy(charge.policy)?;
            Some((charge.policy, of, self.ledger.refusals(&charge)))
        });
        let asked: Vec<_> = asked.collect();
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
