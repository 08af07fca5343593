//! A change of items: the pure function that a user's store applies.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use smallvec::SmallVec;

use super::item::{Damaged, Item};
use super::part::{KeyState, Part};
use super::slots::Renewed;
use crate::clock::Micros;
use crate::decision::DenialEffect;
use crate::decision::Outcomes;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::alternatives::{Choice, Places, keep_one_of_each};
use crate::store::{Amendment, DAMAGED, KeyOutlook, TenantShare};

/// A change to some items, in one step; see [`Items::update`](super::Items::update).
///
/// It reads no clock and changes nothing itself, so it can be [applied](Self::apply) again whenever another
/// writer was faster.
pub struct Change {
    pub(super) names: Vec<String>,
    pub(super) parts: SmallVec<[Part; 8]>,
    pub(super) verb: Verb,
    /// The slots to renew, each with the index of its part.
    pub(super) renewed: Vec<(usize, Renewed)>,
    /// Whether its last application has anything to write. The store has the change then, so this is shared.
    pub(super) has_writes: Arc<AtomicBool>,
    pub(super) meanwhile: Option<Meanwhile>,
}

/// Called whenever the items have been read, with a flag for each item that says whether it exists.
pub type Meanwhile = Arc<dyn Fn(&[bool]) + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Charge,
    /// Charges as many units as all policies grant.
    Take,
    Peek,
    /// Peeks, and returns the states too.
    Outlook,
    /// Returns the number of refusals that count, in place of units.
    Refusals,
    /// Returns the part of the tenant of a limit that is divided.
    Share,
    Amend(Amendment),
    /// Lets slots last for another life, and returns how many were lost, in place of units.
    Renew,
}

/// The result of a [`Change`] to the items as they were found.
#[derive(Debug)]
#[must_use = "what it writes has to be written"]
pub struct Changed {
    writes: Vec<Write>,
    pub(super) answer: Result<Outcomes, StoreError>,
    /// The state of each key, for an outlook.
    pub(super) keys: SmallVec<[KeyOutlook; 4]>,
    /// The number of units taken, if the change takes units.
    pub(super) units: u32,
    /// The part of the tenant, if the change asks for it.
    pub(super) share: Option<TenantShare>,
    /// The answer to an amendment; see [`Backend::amend`](crate::store::Backend::amend).
    pub(super) amended: bool,
}

/// An item to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    item: usize,
    value: Vec<u8>,
    ttl: Duration,
}

/// A clock that is behind the last write by up to this time stands still until it has caught up. If it is
/// further behind, it has stepped back. Where nodes take turns, each step back would drain a bucket again and
/// again.
const SKEW: Micros = Micros::from_secs(1);

impl Change {
    pub(super) fn new(names: Vec<String>, parts: SmallVec<[Part; 8]>, verb: Verb) -> Self {
        Self {
            names,
            parts,
            verb,
            renewed: Vec::new(),
            has_writes: Arc::default(),
            meanwhile: None,
        }
    }

    /// Returns the names of the items that it reads, in ascending order, without duplicates.
    ///
    /// A name has at most 128 characters: letters and digits of ASCII and `.`, `_`, `:`, `/`, `@`, `-`, `%`,
    /// `,`. Names are case-sensitive. A name shows the key that it is made of: see
    /// [`KeyName`](crate::key::KeyName).
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Decides what to write and what to answer, given the value of each item in the order of the
    /// [names](Self::names): `None` for an item that does not exist.
    ///
    /// `now` is the time of the whole store if it has one, so that all nodes agree; otherwise that of this
    /// process.
    pub fn apply<V: AsRef<[u8]>>(&self, now: Micros, found: &[Option<V>]) -> Changed {
        self.do_meanwhile(found);
        let mut before: SmallVec<[Option<Item>; 2]> = SmallVec::new();
        for (place, name) in self.names.iter().enumerate() {
            let value = found.get(place).and_then(Option::as_ref);
            let resets = self.verb == Verb::Amend(Amendment::Reset);
            let mut parts = self.parts.iter().filter(|part| part.item == place);
            match Item::read(value.map_or(&[], AsRef::as_ref)) {
                Ok(item) if resets || parts.all(|part| part.is_legible(&item)) => {
                    before.push(Some(item));
                }
                Err(Damaged) if resets => before.push(None),
                Ok(_) | Err(Damaged) => return Changed::damaged(name),
            }
        }
        let latest = before.iter().flatten().map(|item| item.latest);
        let latest = latest.filter(|latest| latest.saturating_sub(SKEW) <= now);
        let now = latest.max().map_or(now, |latest| latest.max(now));

        let items = before.iter().cloned().map(Option::unwrap_or_default);
        let mut items: SmallVec<[Item; 2]> = items.collect();
        let mut outcomes = Outcomes::new(now);
        let (mut units, mut share, mut amended) = (0, None, false);
        let mut keys = SmallVec::new();
        match self.verb {
            Verb::Charge | Verb::Peek | Verb::Outlook => {
                if self.verb == Verb::Outlook {
                    let seen = |part: &Part| KeyState::of(part, &items, now, true);
                    let outlook = |part| seen(part).outlook(part, now);
                    let rates = self.parts.iter().filter(|part| part.holding().is_none());
                    keys = rates.map(outlook).collect();
                }
                let charges = self.verb == Verb::Charge;
                decide(&self.parts, &mut items, charges, &mut outcomes);
            }
            Verb::Take => {
                let parts;
                (units, parts) = self.shared_out(&items, now);
                decide(&parts, &mut items, true, &mut outcomes);
            }
            Verb::Refusals => {
                let counting = self.parts.iter();
                let counting = counting.map(|part| part.refusals(&items[part.home], now));
                units = counting.sum();
            }
            Verb::Share => {
                let mut each = self.parts.iter();
                share = each.find_map(|part| part.share(&items[part.item], now));
            }
            Verb::Renew => {
                for (place, part) in self.parts.iter().enumerate() {
                    let of_part = self.renewed.iter().filter(|(of, _)| *of == place);
                    let of_part = of_part.map(|(_, renewed)| *renewed);
                    if let Some(holding) = part.holding() {
                        units += holding.renew(&mut items[part.item], now, of_part);
                    }
                }
            }
            Verb::Amend(amendment) => {
                amended = amendment.answer_about_none();
                for part in &self.parts {
                    let of_part = part.amend(&mut items[part.item], now, amendment);
                    amended = amendment.and(amended, of_part);
                }
            }
        }
        let changed = before.iter().zip(items).enumerate();
        let changed = changed.filter(|(_, (before, after))| before.as_ref() != Some(after));
        let writes: Vec<_> = changed
            .map(|(item, (_, after))| Write::of(item, after, now))
            .collect();
        self.has_writes.store(!writes.is_empty(), Ordering::Relaxed);
        Changed {
            writes,
            answer: Ok(outcomes),
            keys,
            units,
            share,
            amended,
        }
    }

    /// Returns how many units every policy that can deny grants, and the parts at that cost. If there are
    /// none, the parts cost one unit, which is denied.
    fn shared_out(&self, items: &[Item], now: Micros) -> (u32, SmallVec<[Part; 8]>) {
        let most = self.parts.iter().map(|part| part.cost).max();
        let mut units = most.unwrap_or(0);
        let seen = self.parts.iter().map(|part| {
            let asks = Part {
                cost: 0,
                ..part.clone()
            };
            KeyState::of(&asks, items, now, false)
        });
        let seen: SmallVec<[KeyState; 8]> = seen.collect();
        let gives = |part: &Part, seen: &KeyState| {
            !seen.is_blocked() && (part.cost == 0 || seen.remaining() > 0)
        };
        for (part, state) in self.parts.iter().zip(&seen) {
            let seen_of_each = self.parts.iter().zip(&seen);
            if part.choice(seen_of_each, gives) == Some(Choice::IsPassedOver) {
                continue;
            }
            if state.is_blocked() && !part.is_shadow {
                units = 0;
            } else if part.cost > 0 && !part.is_soft {
                units = units.min(state.remaining());
            }
        }
        let parts = self.parts.iter().map(|part| Part {
            cost: part.cost.min(units.max(1)),
            // Taking nothing is not a refusal.
            penalty: None,
            ..part.clone()
        });
        (units, parts.collect())
    }

    fn do_meanwhile<V>(&self, found: &[Option<V>]) {
        if let Some(meanwhile) = &self.meanwhile {
            let are_there: Vec<_> = found.iter().map(Option::is_some).collect();
            meanwhile(&are_there);
        }
    }

    // For `tower-ratelimit-testing`.
    #[doc(hidden)]
    pub fn meanwhile(mut self, meanwhile: Meanwhile) -> Self {
        self.meanwhile = Some(meanwhile);
        self
    }
}

/// Decides at the moment of the outcomes, and writes the charges if `charges` is set.
fn decide(parts: &[Part], items: &mut [Item], charges: bool, outcomes: &mut Outcomes) {
    let now = outcomes.at();
    let seen = parts
        .iter()
        .map(|part| KeyState::of(part, items, now, !charges));
    let seen: SmallVec<[KeyState; 8]> = seen.collect();
    let each = || parts.iter().zip(&seen);
    let choices = each().map(|(part, _)| part.choice(each(), |part, seen| seen.passes(part)));
    let choices: SmallVec<[Option<Choice>; 8]> = choices.collect();
    let mut all = each().zip(&choices);
    let allowed = all.all(|((part, seen), choice)| match choice {
        None => seen.passes(part),
        Some(choice) => *choice != Choice::Denies,
    });
    let denying = each().filter(|(part, seen)| !seen.passes(part)).count();
    let giving = each().filter(|(part, seen)| !seen.passes(part) && seen.gives_turn(part));
    let giving = giving.count();
    let waits_for_several = parts.len() > 1 || seen.iter().any(KeyState::is_blocked);
    for ((part, seen), choice) in parts.iter().zip(seen).zip(choices) {
        let is_asked = choice != Some(Choice::IsPassedOver);
        let beside = if seen.gives_turn(part) {
            giving
        } else {
            usize::from(!seen.passes(part))
        };
        let denied_elsewhere = denying > beside;
        let items = charges.then_some(&mut *items);
        // A state that is not charged may have to be moved back.
        let outcome = part.charge(seen, items, now, (allowed && is_asked, denied_elsewhere));
        if is_asked {
            outcomes.push(part.policy, outcome);
        }
    }
    let places = parts.iter();
    let places = places.filter_map(|part| Some((part.policy, part.alternative?, part.cost)));
    let places: Places = places.collect();
    if !places.is_empty() && !allowed {
        keep_one_of_each(&places, outcomes);
    }
    if !allowed && waits_for_several && parts.iter().any(Part::has_hours) {
        let effect = |policy| {
            let part = parts.iter().find(|part| part.policy == policy);
            part.map_or(DenialEffect::Full, Part::effect)
        };
        outcomes.set_effects(effect);
        outcomes.wait_for_all(|wait| {
            let then = now.saturating_add(wait);
            let mut later = Outcomes::new(then);
            for part in parts {
                let seen = KeyState::of(part, items, then, true);
                later.push(part.policy, part.charge(seen, None, then, (false, true)));
            }
            later.set_effects(effect);
            later
        });
    }
}

impl Changed {
    /// Returns the items to write, all of them or none. If there are none, there is nothing to do.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    fn damaged(name: &str) -> Self {
        let kind = name.split(':').nth(1).unwrap_or_default();
        let cause = format!(
            "an item of a key (of kind {kind:?}) holds what no store of this version writes: \
             reset the key, or delete the item"
        );
        Self {
            writes: Vec::new(),
            answer: Err(StoreError::new(StoreErrorKind::Misconfigured)
                .because(DAMAGED)
                .caused_by(cause)),
            keys: SmallVec::new(),
            units: 0,
            share: None,
            amended: false,
        }
    }
}

impl Write {
    fn of(item: usize, mut after: Item, now: Micros) -> Self {
        after.latest = now;
        after.forget(now);
        let left = after.until().saturating_sub(now).get();
        Self {
            item,
            value: after.write(),
            ttl: Duration::from_millis(left.div_ceil(1_000).max(1)),
        }
    }

    /// Returns the index of the item's [name](Change::names).
    pub fn item(&self) -> usize {
        self.item
    }

    /// Returns the item's value.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// Returns how long the item has to be kept, in whole milliseconds, at least 1, and up to 285 years. The
    /// store may forget it after that, and no sooner.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }
}

impl fmt::Debug for Change {
    /// Names may be secret, so they are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change")
            .field("items", &self.names.len())
            .field("verb", &self.verb)
            .finish_non_exhaustive()
    }
}
