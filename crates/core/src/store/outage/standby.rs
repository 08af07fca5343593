//! The policies in this process, which decide while their store is away.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, PoisonError, RwLock};

use super::node_count::NodeCount;
use crate::clock::{Clock, Micros};
use crate::decision::Outcomes;
use crate::error::{StoreError, StoreErrorKind};
use crate::policy::{OnStoreFailure, Policy};
use crate::store::in_use::SlotsInUse;
use crate::store::{Amendment, Charge, Charges, MemoryBackend, MemoryStore, Outlook};

/// A copy of the policies in this process, which decides while their store is away.
pub struct Standby {
    /// Under the limits of all nodes together.
    policies: Box<[Policy]>,
    nodes: NodeCount,
    clock: Option<Arc<dyn Clock>>,
    /// Created when they are first needed, which is seldom, and again when the number of nodes has changed.
    shares: RwLock<Option<Arc<Share>>>,
    /// The slots that requests have taken here.
    in_use: SlotsInUse,
}

/// The policies under this node's share of every limit.
struct Share {
    /// The number of nodes that share the limits.
    nodes: NonZeroU32,
    policies: Box<[Policy]>,
    /// Whether each policy has a lower limit here than all nodes together.
    are_lower: Box<[bool]>,
    /// Has the states, which stay as the shares change.
    store: MemoryStore,
    backend: MemoryBackend,
}

/// A decision in place of the store, which has failed with this error; without one, it was not asked, since it is known to be
/// away.
pub type Instead<T> = fn(&Standby, &[Charge], Option<StoreError>) -> Result<T, StoreError>;

/// Returns whether an error concerns the call alone: the store does not support it, or has no room. A decision here does not
/// change that.
pub(super) fn is_of_the_call(error: &StoreError) -> bool {
    matches!(
        error.kind(),
        StoreErrorKind::Unsupported | StoreErrorKind::Full
    )
}

impl Standby {
    /// Returns the error of a store that is known to be away, and was not asked.
    pub fn away() -> StoreError {
        StoreError::new(StoreErrorKind::Unavailable)
            .because("away")
            .caused_by("it has failed several times in a row, and is asked again as soon as it answers a probe")
    }

    /// Creates a standby of a node that has its share of every limit, or the whole one if nothing tells how many nodes there are.
    pub fn new(
        policies: &[Policy],
        nodes: Option<NodeCount>,
        clock: Option<Arc<dyn Clock>>,
    ) -> Self {
        // A refusal without the store does not count for a penalty.
        let policies = policies
            .iter()
            .map(|policy| policy.clone().without_penalty());
        Self {
            policies: policies.collect(),
            nodes: nodes.unwrap_or_else(|| NodeCount::new(1)),
            clock,
            shares: RwLock::default(),
            in_use: SlotsInUse::default(),
        }
    }

    /// Returns the policies under the share of this node, as many nodes as there are now.
    fn shares(&self) -> Arc<Share> {
        let nodes = self.nodes.divisor();
        if let Some(shares) = self.opened().filter(|shares| shares.nodes == nodes) {
            return shares;
        }
        let mut shares = self.shares.write().unwrap_or_else(PoisonError::into_inner);
        let store = match (&*shares, &self.clock) {
            (Some(shares), _) if shares.nodes == nodes => return Arc::clone(shares),
            (Some(before), _) => before.store.clone(),
            (None, Some(clock)) => MemoryStore::new().clock(Arc::clone(clock)),
            (None, None) => MemoryStore::new(),
        };
        Arc::clone(shares.insert(Arc::new(Share::new(&self.policies, nodes, store))))
    }

    /// Returns what has been needed before, if anything has.
    fn opened(&self) -> Option<Arc<Share>> {
        let shares = self.shares.read();
        shares.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn store_failure(&self, charge: &Charge) -> OnStoreFailure {
        let policy = self.policies.get(charge.policy);
        policy.map_or(OnStoreFailure::Refuse, Policy::store_failure)
    }

    /// Returns what each policy does while its store is away, with its name.
    pub(in crate::store) fn when_away(&self) -> impl Iterator<Item = (&str, OnStoreFailure)> {
        let policies = self.policies.iter().filter(|policy| policy.is_limited());
        policies.map(|policy| (policy.shown_name(), policy.store_failure()))
    }

    /// Returns whether any policy is decided here.
    pub(in crate::store) fn keeps_any(&self) -> bool {
        let mut policies = self.policies.iter().filter(|policy| policy.is_limited());
        policies.any(|policy| policy.store_failure() == OnStoreFailure::Local)
    }

    /// Returns whether all of these are decided here.
    pub fn is_local(&self, charges: &[Charge]) -> bool {
        let here = |charge| self.store_failure(charge) == OnStoreFailure::Local;
        charges.iter().all(here)
    }

    /// Returns the answer of the store, or decides here if the store has failed.
    ///
    /// # Errors
    ///
    /// When a policy refuses without its store.
    pub fn unless_answered<T>(
        &self,
        charges: &[Charge],
        answer: Result<T, StoreError>,
        decide: Instead<T>,
    ) -> Result<T, StoreError> {
        answer.or_else(|error| {
            if is_of_the_call(&error) {
                return Err(error);
            }
            decide(self, charges, Some(error))
        })
    }

    /// Charges as a store does. If a policy refuses while the store is away, the request is refused.
    ///
    /// # Errors
    ///
    /// When a policy refuses without its store.
    pub fn charge(
        &self,
        charges: &[Charge],
        failure: Option<StoreError>,
    ) -> Result<Outcomes, StoreError> {
        let shares = self.shares();
        let charges = self.charges_here(&shares, charges, failure)?;
        let outcomes = shares.backend.charge_now(&charges);
        if charges.iter().any(|charge| charge.slot.is_some()) {
            self.in_use.put(&charges, &outcomes);
        }
        Ok(self.marked(&shares, outcomes))
    }

    /// Takes as many units as there are.
    ///
    /// # Errors
    ///
    /// When a policy refuses without its store.
    pub fn acquire_up_to(
        &self,
        charges: &[Charge],
        failure: Option<StoreError>,
    ) -> Result<(u32, Outcomes), StoreError> {
        let shares = self.shares();
        let here = self.charges_here(&shares, charges, failure)?;
        let (mut units, outcomes) = shares.backend.acquire_up_to_now(&here);
        // A policy that allows everything limits nothing.
        let is_unlimited = here.iter().all(|charge| charge.cost == 0);
        if is_unlimited && outcomes.is_allowed() {
            units = charges.iter().map(Charge::cost).max().unwrap_or(0);
        }
        Ok((units, self.marked(&shares, outcomes)))
    }

    /// Returns the outcomes that [`charge`](Self::charge) would have.
    ///
    /// # Errors
    ///
    /// When a policy refuses without its store.
    pub fn peek(
        &self,
        charges: &[Charge],
        failure: Option<StoreError>,
    ) -> Result<Outcomes, StoreError> {
        let shares = self.shares();
        let charges = self.charges_here(&shares, charges, failure)?;
        Ok(self.marked(&shares, shares.backend.peek_now(&charges)))
    }

    /// Returns the same without the states of the keys.
    ///
    /// # Errors
    ///
    /// When a policy refuses without its store.
    pub fn outlook(
        &self,
        charges: &[Charge],
        failure: Option<StoreError>,
    ) -> Result<Outlook, StoreError> {
        self.peek(charges, failure).map(Outlook::from)
    }

    fn charges_here(
        &self,
        shares: &Share,
        charges: &[Charge],
        failure: Option<StoreError>,
    ) -> Result<Charges, StoreError> {
        let mut here = Charges::new();
        // Of several policies of which one pays, one that refuses is passed over if another does not.
        let is_passed_over = |charge: &Charge| {
            charge.alternative.is_some_and(|mine| {
                let of_group = |other: &&Charge| {
                    let its = other.alternative;
                    its.is_some_and(|its| its.group() == mine.group())
                };
                let mut group = charges.iter().filter(of_group);
                mine.is_optional()
                    || group.any(|other| self.store_failure(other) != OnStoreFailure::Refuse)
            })
        };
        for charge in charges {
            here.push(match self.store_failure(charge) {
                OnStoreFailure::Refuse if is_passed_over(charge) => continue,
                // A charge in shadow refuses no request.
                OnStoreFailure::Refuse if charge.is_shadow => charge.at_no_cost(),
                OnStoreFailure::Local => shares.charge(*charge),
                OnStoreFailure::Allow => charge.at_no_cost().soft(),
                OnStoreFailure::Refuse => {
                    return Err(failure.unwrap_or_else(Self::away).already_logged());
                }
            });
        }
        Ok(here)
    }

    /// Marks outcomes with this node's share of the limit, and removes those of policies that allow
    /// everything.
    fn marked(&self, shares: &Share, mut outcomes: Outcomes) -> Outcomes {
        outcomes.retain(|policy, outcome| {
            let Some(opened) = self.policies.get(policy) else {
                return true;
            };
            if shares.are_lower.get(policy) == Some(&true) && !outcome.is_overridden() {
                *outcome = outcome.overridden(opened.algorithm().period());
            }
            let lets_go_on = opened.store_failure() == OnStoreFailure::Allow;
            !lets_go_on || outcome.is_blocked()
        });
        outcomes.degrade();
        outcomes
    }

    /// Follows changes to keys in the store, whether the store made them or not. A change of usage counts as
    /// made if it is made here.
    ///
    /// # Errors
    ///
    /// When a policy refuses without its store.
    pub fn change(
        &self,
        charges: &[Charge],
        amendment: Amendment,
        changed: Result<bool, StoreError>,
    ) -> Result<bool, StoreError> {
        if changed.as_ref().is_err_and(is_of_the_call) {
            return changed;
        }
        let changed = changed.map_err(StoreError::already_logged);
        match amendment {
            Amendment::Block(_) => drop(self.shares().backend.amend_now(charges, amendment)?),
            Amendment::Refund | Amendment::Settle if changed.is_err() => {
                return self.change_usage(charges, amendment, changed);
            }
            Amendment::Reset | Amendment::Unblock => {
                // Where nothing was ever kept there is nothing to change.
                if let Some(shares) = self.opened() {
                    let here = charges.iter().map(|charge| shares.charge(*charge));
                    shares
                        .backend
                        .amend_now(&here.collect::<Charges>(), amendment)?;
                }
            }
            // Nothing that the store has charged was charged here, and overrides hold in the store alone.
            _ => {}
        }
        changed
    }

    /// Gives back what a request has taken here, or adds to it. Returns `false` if turns of a queue could not be
    /// given back.
    ///
    /// # Errors
    ///
    /// When a policy refuses without its store.
    pub fn settle(&self, charges: &[Charge], amendment: Amendment) -> Result<bool, StoreError> {
        let Some(shares) = self.opened() else {
            return Ok(true);
        };
        let here = self.kept_here(&shares, charges);
        shares.backend.amend_now(&here, amendment)
    }

    /// Frees those slots of these charges that were taken here.
    pub fn release(&self, charges: &[Charge]) {
        if let Some(shares) = self.opened() {
            let here = self.in_use.forget(charges);
            let _ = shares.backend.amend_now(&here, Amendment::Release);
        }
    }

    /// Returns the charges that are decided here, each under this node's share of its limit.
    fn kept_here(&self, shares: &Share, charges: &[Charge]) -> Charges {
        let here = charges.iter().filter(|charge| self.is_local(&[**charge]));
        here.map(|charge| shares.charge(*charge)).collect()
    }

    fn change_usage(
        &self,
        charges: &[Charge],
        amendment: Amendment,
        failed: Result<bool, StoreError>,
    ) -> Result<bool, StoreError> {
        let shares = self.shares();
        let here = self.kept_here(&shares, charges);
        let changed = shares.backend.amend_now(&here, amendment)?;
        let refuses = |charge| self.store_failure(charge) == OnStoreFailure::Refuse;
        if charges.iter().any(refuses) {
            return failed;
        }
        Ok(changed)
    }

    /// Records how much longer the charge's key is blocked, according to the store; zero means not at all.
    pub fn learn(&self, charge: &Charge, blocked: Micros) {
        // Neither needs room.
        let _ = if blocked > Micros::ZERO {
            let shares = self.shares();
            shares
                .backend
                .amend_now(&[*charge], Amendment::Block(blocked))
        } else if let Some(shares) = self.opened() {
            shares.backend.amend_now(&[*charge], Amendment::Unblock)
        } else {
            Ok(true)
        };
    }
}

impl Share {
    fn new(policies: &[Policy], nodes: NonZeroU32, store: MemoryStore) -> Self {
        let shares = policies.iter().map(|policy| {
            let whole = policy.algorithm();
            let share = whole.shared_by(nodes);
            let policy = policy.limited_by(share).with_guarantee_shared_by(nodes);
            (policy, share != *whole)
        });
        let (policies, are_lower): (Vec<_>, Vec<_>) = shares.unzip();
        Self {
            nodes,
            backend: store.backend(&policies),
            policies: policies.into(),
            are_lower: are_lower.into(),
            store,
        }
    }

    /// Returns the charge under this node's share of its limit.
    fn charge(&self, charge: Charge) -> Charge {
        let (Some(limit), Some(policy)) = (charge.limit, self.policies.get(charge.policy)) else {
            return charge;
        };
        let limit = match charge.beyond {
            0 => Some(limit.shared_by(self.nodes)),
            // The part beyond the limit of a policy with a factor is the price of the request, which is not
            // divided.
            more => {
                let algorithm = policy.algorithm();
                let whole = algorithm.leaving(limit, more);
                whole.and_then(|whole| algorithm.beyond(whole.shared_by(self.nodes), more))
            }
        };
        Charge {
            limit: limit.or(charge.limit),
            ..charge
        }
    }
}

impl fmt::Debug for Standby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standby").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{LeakyQueue, Limit};
    use crate::clock::ManualClock;
    use crate::key::IntoKey;
    use crate::store::Departure;

    /// They were given back under the limit of all nodes, at whose rate they are not the last.
    #[test]
    fn turns_under_the_limit_of_a_plan_are_given_back_at_the_share_at_which_they_were_charged() {
        let queue = LeakyQueue::per_second(10).places(9);
        let policy = Policy::new("queue", queue).on_store_failure(OnStoreFailure::Local);
        let two = Some(NodeCount::new(2));
        let standby = Standby::new(&[policy], two, Some(Arc::new(ManualClock::new())));
        let charge = Charge::new(0, "ann".into_key(), 1).under(Limit::new(100, 100));
        let take = || {
            let answer = standby.charge(&[charge], None);
            let answer = answer.unwrap();
            let (_, outcome) = answer.iter().next().unwrap();
            (
                answer.at().saturating_add(outcome.delay_micros()),
                outcome.delay(),
            )
        };
        let delays = [take().1, take().1].map(|delay| delay.as_millis());
        assert_eq!(delays, [0, 20], "a node has half of the rate");
        let (begins, _) = take();
        let last = Amendment::GiveBack(Departure::at(begins).charged_where(true, false));
        assert!(standby.settle(&[charge], last).unwrap());
        assert!(!standby.settle(&[charge], last).unwrap());
        assert_eq!(take().0, begins);
    }
}
