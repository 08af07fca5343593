//! The backend of a store over items: a change for each verb.

use std::fmt;
use std::iter;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use super::Items;
use super::change::{Change, Changed, Verb};
use super::guarantee::Guarantee;
use super::others::Others;
use super::part::{Part, Tags};
use super::tenants::{self, Division};
use crate::algorithm::Algorithm;
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Key;
use crate::observe::StoreStats;
use crate::policy::{NamedPenalty, Policy};
use crate::store::allotment::Allotment;
use crate::store::charged::cannot_have;
use crate::store::fair::Scale;
use crate::store::sealed::Sealed;
use crate::store::{Amendment, Backend, Charge, Charged, Outlook, Reply, Wanted};

/// A [`SharedStore`](super::SharedStore) opened for a list of policies.
pub struct SharedBackend<I> {
    items: Arc<I>,
    policies: Box<[Opened]>,
}

#[derive(Debug)]
struct Opened {
    algorithm: Algorithm,
    tags: Tags,
    penalty: Option<NamedPenalty>,
    /// The policy to whose keys it guarantees something, and the units of a period.
    guaranteed: Option<(usize, u32)>,
    /// How its limit is divided among tenants, if it is.
    divided: Option<Scale>,
}

impl<I: Items> SharedBackend<I> {
    pub(super) fn new(items: Arc<I>, policies: &[Policy]) -> Self {
        let guaranteed = Allotment::guarantees(policies);
        let policies = policies.iter().zip(guaranteed);
        let policies = policies.map(|(policy, guaranteed)| Opened {
            algorithm: *policy.algorithm(),
            tags: Tags::of(policy),
            penalty: policy.named_penalty(),
            guaranteed,
            divided: division_of(policy),
        });
        Self {
            items,
            policies: policies.collect(),
        }
    }

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

    fn change(&self, charges: &[Charge], verb: Verb) -> Result<Change, StoreError> {
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
            let limit = charge.limit.and_then(|limit| opened.algorithm.under(limit));
            let guarantee = opened.guaranteed.map(|(below, units)| {
                let child = charges.iter().find(|other| other.policy == below);
                Others::Children(Guarantee {
                    tag: opened.tags.children,
                    units,
                    child: child.map(|child| tag(child.key.name().as_ref())),
                })
            });
            let division = opened.divided.map(|scale| {
                let name = tag(charge.key.name().as_ref());
                Others::Tenants(Division {
                    tag: opened.tags.tenants,
                    scale,
                    tenant: (name, charge.weight.max(1).into()),
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
                others: guarantee.or(division),
            });
        }
        Ok(Change::new(names, parts, verb))
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

impl Opened {
    /// Returns the name of the item that has the state of a key, and that of the one that has its block if it is another: tenants share a
    /// limit, and each is blocked by itself. An amendment is about one of them.
    fn items(&self, key: &Key, verb: Verb) -> (String, Option<String>) {
        let name = |key: &Key| format!("trl1:{}", key.name());
        match verb {
            _ if self.divided.is_none() => (name(key), None),
            Verb::Amend(amendment) if !amendment.is_of_blocks() => (name(&key.root()), None),
            Verb::Amend(_) | Verb::Refusals => (name(key), None),
            Verb::Charge | Verb::Take | Verb::Peek | Verb::Outlook => {
                (name(&key.root()), Some(name(key)))
            }
        }
    }
}

/// Makes a change. An error after the items were read is marked as that of a write, if there was anything to write.
fn update(items: &impl Items, change: Change) -> Reply<Result<Changed, StoreError>> {
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
        StoreStats::new("shared")
    }

    fn charge(&self, charges: &[Charge], _: Wanted, outcomes: &mut Outcomes) -> Charged {
        match self.decide(charges, Verb::Charge) {
            Reply::Now(changed) => {
                let answer = changed.and_then(|changed| changed.answer);
                Charged::now(charges, answer, outcomes)
            }
            Reply::Later(changed) => Charged::later(async move { changed.await?.answer }),
        }
    }

    fn acquire_up_to(&self, charges: &[Charge]) -> Reply<Result<(u32, Outcomes), StoreError>> {
        let changed = self.decide(charges, Verb::Take);
        changed.map(|changed| {
            let changed = changed?;
            Ok((changed.units, changed.answer?))
        })
    }

    fn peek(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        let changed = self.decide(charges, Verb::Peek);
        changed.map(|changed| changed?.answer)
    }

    fn outlook(&self, charges: &[Charge]) -> Reply<Result<Outlook, StoreError>> {
        let changed = self.decide(charges, Verb::Outlook);
        changed.map(|changed| {
            let Changed { answer, keys, .. } = changed?;
            Ok(Outlook {
                outcomes: answer?,
                keys,
            })
        })
    }

    fn refusals(&self, charge: &Charge) -> Reply<Result<u32, StoreError>> {
        let changed = self.decide(slice::from_ref(charge), Verb::Refusals);
        changed.map(|changed| changed.map(|changed| changed.units))
    }

    /// Changes one item after another, if they cannot be changed together.
    fn amend(&self, charges: &[Charge], amendment: Amendment) -> Reply<Result<bool, StoreError>> {
        if let Amendment::Override(limit, _) = amendment {
            let opened = |charge: &Charge| self.policies.get(charge.policy);
            let mut opened = charges.iter().filter_map(opened);
            if opened.any(|opened| opened.algorithm.under(limit).is_none()) {
                return Reply::Now(Err(cannot_have()));
            }
        }
        let change = match self.change(charges, Verb::Amend(amendment)) {
            Ok(change) => change,
            Err(error) => return Reply::Now(Err(error)),
        };
        let answer = |changed: Changed| changed.answer.map(|_| changed.amended);
        if change.names.len() <= self.items.at_once().max(1) {
            let changed = update(&*self.items, change);
            return changed.map(move |changed| answer(changed?));
        }
        let items = Arc::clone(&self.items);
        Reply::later(async move {
            let mut all = amendment.answer_about_none();
            for change in change.one_by_one() {
                let one = answer(update(&*items, change).wait().await?)?;
                all = amendment.and(all, one);
            }
            Ok(all)
        })
    }
}

impl<I: fmt::Debug> fmt::Debug for SharedBackend<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBackend")
            .field("items", &self.items)
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
