//! The backend of a store over items: a change for each verb.

use std::fmt;
use std::iter;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use super::Items;
use super::change::{Change, Changed, Verb};
use super::guarantee::Guarantee;
use super::others::Others;
use super::part::{Part, Tags};
use super::slots::{self, Holding, SlotDivision};
use super::tenants::{self, Division};
use crate::algorithm::{Algorithm, Limit};
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Key;
use crate::observe::StoreStats;
use crate::policy::{NamedPenalty, Policy};
use crate::store::allotment::Allotment;
use crate::store::charged::{cannot_have, mark};
use crate::store::fair::{Scale, SlotScale};
use crate::store::in_use::SlotsInUse;
use crate::store::renewal::keep;
use crate::store::sealed::Sealed;
use crate::store::{
    Amendment, Backend, Charge, Charged, Charges, Outlook, Reply, Slot, TenantShare, Wanted,
};

/// A [`SharedStore`](super::SharedStore) opened for a list of policies.
pub struct SharedBackend<I>(Arc<Changes<I>>);

/// Makes the changes to the items of a list of policies.
pub(super) struct Changes<I> {
    pub(super) items: Arc<I>,
    pub(super) policies: Box<[Opened]>,
    /// How long a slot lasts without a renewal.
    pub(super) slot_life: Micros,
    /// The slots that requests of this node hold in the items.
    pub(super) in_use: SlotsInUse,
    pub(super) failed_renewals: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Opened {
    algorithm: Algorithm,
    tags: Tags,
    penalty: Option<NamedPenalty>,
    /// The policy to whose keys it guarantees something, and the units of a period.
    guaranteed: Option<(usize, u32)>,
    /// How its limit is divided among tenants, if it is.
    divided: Option<Scale>,
    /// The same if it is on concurrency.
    divided_slots: Option<SlotScale>,
}

impl<I: Items> SharedBackend<I> {
    pub(super) fn new(items: Arc<I>, policies: &[Policy], slot_life: Micros) -> Self {
        let guaranteed = Allotment::guarantees(policies);
        let policies = policies.iter().zip(guaranteed);
        let policies = policies.map(|(policy, guaranteed)| Opened {
            algorithm: *policy.algorithm(),
            tags: Tags::of(policy),
            penalty: policy.named_penalty(),
            guaranteed,
            divided: division_of(policy),
            divided_slots: division_of_slots(policy),
        });
        Self(Arc::new(Changes {
            items,
            policies: policies.collect(),
            slot_life,
            in_use: SlotsInUse::default(),
            failed_renewals: AtomicU64::new(0),
        }))
    }
}

impl<I: Items> Changes<I> {
    /// Decides all charges in one change, or reports that the store cannot.
    fn decide(&self, charges: &[Charge], verb: Verb) -> Reply<Result<Changed, StoreError>> {
        let change = match self.change(charges, verb) {
            Ok(change) => change,
            Err(error) => return Reply::Now(Err(error)),
        };
        if change.names.len() > self.items.at_once().max(1) {
            let cause = "the policies of this request count different keys, and the store cannot \
                         change so many items at once: count one key, or take another store";
            let error = StoreError::new(StoreErrorKind::Unsupported).caused_by(cause);
            return Reply::Now(Err(error));
        }
        update(&*self.items, change)
    }

    pub(super) fn change(&self, charges: &[Charge], verb: Verb) -> Result<Change, StoreError> {
        let mut opened = SmallVec::<[_; 8]>::new();
        for charge in charges {
            let policy = self.policies.get(charge.policy).ok_or_else(|| {
                let cause = "a charge names a policy that was not opened";
                StoreError::new(StoreErrorKind::Misconfigured).caused_by(cause)
            })?;
            opened.push((charge, policy, policy.items(&charge.key, verb)));
        }
        let names = opened
            .iter()
            .flat_map(|(.., (item, home))| iter::once(item).chain(home));
        let mut names: Vec<String> = names.cloned().collect();
        names.sort_unstable();
        names.dedup();
        let mut parts = SmallVec::new();
        for (charge, opened, (item, home)) in &opened {
            let place = |item| names.partition_point(|name| name < item);
            let item = place(item);
            let home = home.as_ref().map_or(item, place);
            let limit = charge.limit.map(|limit| opened.within_an_item(limit));
            let limit = limit.and_then(|limit| opened.algorithm.under(limit));
            let guarantee = opened.guaranteed.map(|(below, units)| {
                let child = charges.iter().find(|other| other.policy == below);
                Others::Children(Guarantee {
                    tag: opened.tags.children,
                    units,
                    child: child.map(|child| tag(child.key.name().as_ref())),
                })
            });
            let division = opened.divided.map(|scale| {
                Others::Tenants(Division {
                    tag: opened.tags.tenants,
                    scale,
                    tenant: tenant(charge),
                })
            });
            let holding = opened.algorithm.limits_concurrency().then(|| {
                let slot = charge.slot.filter(|_| charge.cost > 0);
                let division = opened.divided_slots.map(|scale| SlotDivision {
                    tag: opened.tags.tenants,
                    scale,
                    tenant: tenant(charge),
                });
                Others::Holders(Holding {
                    tag: opened.tags.state,
                    life: self.slot_life,
                    number: slot.map_or(0, Slot::number),
                    division,
                })
            });
            parts.push(Part {
                item,
                home,
                policy: charge.policy,
                algorithm: opened.algorithm,
                limit: limit.unwrap_or(opened.algorithm),
                tags: opened.tags,
                penalty: opened.penalty.as_ref().map(|named| named.penalty),
                cost: charge.cost,
                is_soft: charge.is_soft,
                is_shadow: charge.is_shadow,
                alternative: charge.alternative,
                others: guarantee.or(division).or(holding),
            });
        }
        Ok(Change::new(names, parts, verb))
    }

    /// Returns whether requests hold slots under the policy of this charge.
    fn is_of_slots(&self, charge: &Charge) -> bool {
        let policy = self.policies.get(charge.policy);
        policy.is_some_and(|policy| policy.algorithm.limits_concurrency())
    }
}

/// Returns how the limit of a policy is divided among as many tenants as an item has room for.
fn division_of(policy: &Policy) -> Option<Scale> {
    let scale = Scale::of(policy.algorithm(), policy.fairness()?)?;
    Some(Scale {
        tenants: scale.tenants.min(tenants::MOST),
        ..scale
    })
}

/// Returns how the slots of a policy are divided among as many tenants as an item has room for.
fn division_of_slots(policy: &Policy) -> Option<SlotScale> {
    let fair = policy.fairness()?;
    let algorithm = policy.algorithm();
    let scale = SlotScale::of(algorithm, fair).filter(|_| algorithm.limits_concurrency())?;
    Some(SlotScale {
        tenants: scale.tenants.min(tenants::MOST),
        ..scale
    })
}

/// Returns the name of the tenant of a charge, and its weight.
pub(super) fn tenant(charge: &Charge) -> (u64, u32) {
    let name = tag(charge.key.name().as_ref());
    (name, charge.weight.max(1).into())
}

impl Opened {
    /// Returns a limit of a charge, of which no item has more slots than it has room for.
    fn within_an_item(&self, limit: Limit) -> Limit {
        if self.algorithm.limits_concurrency() {
            let most = |units: u32| units.min(slots::MOST);
            return Limit::new(most(limit.quota()), most(limit.size()));
        }
        limit
    }

    fn is_divided(&self) -> bool {
        self.divided.is_some() || self.divided_slots.is_some()
    }

    /// Returns the name of the item that has the state of a key, and that of the one that has its block if it is another: tenants share a
    /// limit, and each is blocked by itself. An amendment is about one of them.
    pub(super) fn items(&self, key: &Key, verb: Verb) -> (String, Option<String>) {
        let name = |key: &Key| format!("trl1:{}", key.name());
        match verb {
            _ if !self.is_divided() => (name(key), None),
            Verb::Renew | Verb::Share => (name(&key.root()), None),
            Verb::Amend(amendment) if !amendment.is_of_blocks() => (name(&key.root()), None),
            Verb::Amend(_) | Verb::Refusals => (name(key), None),
            Verb::Charge | Verb::Take | Verb::Peek | Verb::Outlook => {
                (name(&key.root()), Some(name(key)))
            }
        }
    }
}

/// Makes a change. An error after the items were read is marked as that of a write, if there was anything to write.
pub(super) fn update(items: &impl Items, change: Change) -> Reply<Result<Changed, StoreError>> {
    let has_writes = Arc::clone(&change.has_writes);
    items.update(change).map(move |changed| {
        changed.map_err(|error| {
            if has_writes.load(Ordering::Relaxed) {
                error.of_a_write()
            } else {
                error
            }
        })
    })
}

impl Change {
    /// Splits it into a change for each item.
    fn one_by_one(self) -> impl Iterator<Item = Self> {
        let Self {
            names, parts, verb, ..
        } = self;
        names.into_iter().enumerate().map(move |(item, name)| {
            let parts = parts.iter().filter(|part| part.item == item);
            let parts = parts.map(|part| Part {
                item: 0,
                home: 0,
                ..part.clone()
            });
            Self::new(vec![name], parts.collect(), verb)
        })
    }
}

impl Tags {
    /// Nodes of different versions share a store, so these tags must not change.
    fn of(policy: &Policy) -> Self {
        let name = policy.name();
        let (algorithm, period, slots) = policy.algorithm().frame();
        let period = period.map_or(Micros::ZERO, Micros::from).get();
        let slots = slots.unwrap_or(0);
        Self {
            state: tag(&format!("state {algorithm} {period} {slots} {name}")),
            block: tag(&format!("block {name}")),
            offences: tag(&format!("offences {name}")),
            own: tag(&format!("own {algorithm} {period} {slots} {name}")),
            children: tag(&format!("children {algorithm} {period} {slots} {name}")),
            tenants: tag(&format!("tenants {algorithm} {period} {slots} {name}")),
        }
    }
}

fn tag(text: &str) -> u64 {
    let digest: [u8; 32] = Sha256::digest(text).into();
    let [tag, ..] = digest.as_chunks().0 else {
        return 0;
    };
    u64::from_be_bytes(*tag)
}

impl<I: Items> Sealed for SharedBackend<I> {}

impl<I: Items> Backend for SharedBackend<I> {
    fn stats(&self) -> StoreStats {
        let mut stats = StoreStats::new("shared");
        stats.failed_renewals = self.0.failed_renewals.load(Ordering::Relaxed);
        stats
    }

    fn charge(&self, charges: &[Charge], _: Wanted, outcomes: &mut Outcomes) -> Charged {
        let holds = charges.iter().any(|charge| charge.slot.is_some());
        match self.0.decide(charges, Verb::Charge) {
            Reply::Now(changed) => {
                let answer = changed.and_then(|changed| changed.answer);
                let told = Charged::now(charges, answer, outcomes);
                if holds && matches!(told, Charged::Now(Ok(true))) {
                    keep(&self.0, charges, outcomes);
                }
                told
            }
            Reply::Later(changed) if holds => {
                let (of, charges) = (Arc::clone(&self.0), Charges::from_slice(charges));
                Charged::later(async move {
                    let mut outcomes = changed.await?.answer?;
                    mark(&charges, &mut outcomes);
                    keep(&of, &charges, &outcomes);
                    Ok(outcomes)
                })
            }
            Reply::Later(changed) => Charged::later(async move { changed.await?.answer }),
        }
    }

    fn acquire_up_to(&self, charges: &[Charge]) -> Reply<Result<(u32, Outcomes), StoreError>> {
        // Slots are taken one by one, and held.
        let rates = charges.iter().filter(|charge| !self.0.is_of_slots(charge));
        let rates: Charges = rates.copied().collect();
        if rates.is_empty() {
            return Reply::Now(Ok((0, Outcomes::new(Micros::ZERO))));
        }
        let changed = self.0.decide(&rates, Verb::Take);
        changed.map(|changed| {
            let changed = changed?;
            Ok((changed.units, changed.answer?))
        })
    }

    fn peek(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        let changed = self.0.decide(charges, Verb::Peek);
        changed.map(|changed| changed?.answer)
    }

    fn outlook(&self, charges: &[Charge]) -> Reply<Result<Outlook, StoreError>> {
        let changed = self.0.decide(charges, Verb::Outlook);
        changed.map(|changed| {
            let Changed { answer, keys, .. } = changed?;
            Ok(Outlook {
                outcomes: answer?,
                keys,
            })
        })
    }

    fn refusals(&self, charge: &Charge) -> Reply<Result<u32, StoreError>> {
        let changed = self.0.decide(slice::from_ref(charge), Verb::Refusals);
        changed.map(|changed| changed.map(|changed| changed.units))
    }

    fn tenant_share(&self, charge: &Charge) -> Reply<Result<Option<TenantShare>, StoreError>> {
        let policy = self.0.policies.get(charge.policy);
        if !policy.is_some_and(Opened::is_divided) {
            return Reply::Now(Ok(None));
        }
        let changed = self.0.decide(slice::from_ref(charge), Verb::Share);
        changed.map(|changed| changed.map(|changed| changed.share))
    }

    /// Changes one item after another, if they cannot be changed together.
    fn amend(&self, charges: &[Charge], amendment: Amendment) -> Reply<Result<bool, StoreError>> {
        if let Amendment::Override(limit, _) = amendment {
            let opened = |charge: &Charge| self.0.policies.get(charge.policy);
            let mut opened = charges.iter().filter_map(opened);
            if opened.any(|opened| opened.algorithm.under(limit).is_none()) {
                return Reply::Now(Err(cannot_have()));
            }
        }
        if amendment == Amendment::Release {
            self.0.in_use.forget(charges);
        }
        let change = match self.0.change(charges, Verb::Amend(amendment)) {
            Ok(change) => change,
            Err(error) => return Reply::Now(Err(error)),
        };
        let items = &self.0.items;
        let answer = |changed: Changed| changed.answer.map(|_| changed.amended);
        if change.names.len() <= items.at_once().max(1) {
            let changed = update(&**items, change);
            return changed.map(move |changed| answer(changed?));
        }
        let items = Arc::clone(items);
        Reply::later(async move {
            let mut all = amendment.answer_about_none();
            for change in change.one_by_one() {
                let one = answer(update(&*items, change).wait().await?)?;
                all = amendment.and(all, one);
            }
            Ok(all)
        })
    }

    fn forget(&self, charges: &[Charge]) -> Vec<Charge> {
        self.0.in_use.forget(charges).into_vec()
    }
}

impl<I: fmt::Debug> fmt::Debug for SharedBackend<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBackend")
            .field("items", &self.0.items)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{FixedWindow, Gcra, SlidingSlots};

    fn tags(name: &str, algorithm: impl Into<Algorithm>) -> (u64, u64) {
        let Tags { state, block, .. } = Tags::of(&Policy::new(name, algorithm));
        (state, block)
    }

    /// Nodes of different versions share a store.
    #[test]
    fn tags_stay_the_same_from_version_to_version() {
        let by_hand = |text: &str| {
            let digest: [u8; 32] = Sha256::digest(text).into();
            digest[..8]
                .iter()
                .fold(0, |tag, byte| tag << 8 | u64::from(*byte))
        };
        let window = FixedWindow::per_minute(5);
        let state = by_hand("state fixed-window 60000000 0 a b");
        assert_eq!(tags("a b", window), (state, by_hand("block a b")));
        let Tags {
            own,
            children,
            tenants,
            ..
        } = Tags::of(&Policy::new("a b", window));
        assert_eq!(own, by_hand("own fixed-window 60000000 0 a b"));
        assert_eq!(children, by_hand("children fixed-window 60000000 0 a b"));
        assert_eq!(tenants, by_hand("tenants fixed-window 60000000 0 a b"));
    }

    #[test]
    fn a_state_is_the_names_and_the_periods_and_a_block_the_names_alone() {
        let window = FixedWindow::per_minute(5);
        let (state, block) = tags("a", window);
        assert_eq!(tags("a", FixedWindow::per_minute(6)), (state, block));
        assert_ne!(state, block);
        for other in [
            Algorithm::from(FixedWindow::per_hour(5)),
            Gcra::per_minute(5).into(),
            SlidingSlots::per_minute(5).into(),
        ] {
            let (others, same) = tags("a", other);
            assert_ne!(others, state);
            assert_eq!(same, block);
        }
        let (others, another) = tags("b", window);
        assert!(others != state && another != block);
    }
}
