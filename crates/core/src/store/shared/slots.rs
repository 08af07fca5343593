//! The slots of a key: a record of its item has those that requests hold, and another one the tenants among whom they are divided.
//!
//! The words of the first are four for each request: its number, its slots, when they end, and the tag of its tenant's key, or 0. Those of
//! the second are [`Holders::words`], in which the name of a tenant is that tag. Both end with the last slot, or, if slots are divided,
//! when nothing would change if all tenants were forgotten. Words of another layout would have other tags.

use super::item::Item;
use crate::clock::Micros;
use crate::decision::Outcome;
use crate::store::fair::{Ending, Holders, SlotScale, SlotShare};
use crate::store::{Amendment, TenantShare};

/// The most slots of a key: each request writes all of them.
pub(super) const MOST: u32 = 1_024;

/// How the slots of a policy are held, and the request that asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holding {
    /// The tag of the record.
    pub(super) tag: u64,
    /// How long a slot lasts unless it is renewed.
    pub(super) life: Micros,
    /// The number by which the request holds slots, or 0 if it only asks.
    pub(super) number: u64,
    pub(super) division: Option<SlotDivision>,
}

/// How slots are divided among tenants.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotDivision {
    /// The tag of the record.
    pub(super) tag: u64,
    pub(super) scale: SlotScale,
    /// The name of the tenant that asks, and its weight.
    pub(super) tenant: (u64, u32),
}

/// The slots of a request that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) number: u64,
    pub(super) slots: u32,
    until: Micros,
    tenant: u64,
}

/// The slots that a request still holds: its number, how many they are, and the name of its tenant.
pub(super) type Renewed = (u64, u32, u64);

/// The slots of a key, and the tenants that hold them.
struct Slots {
    each: Vec<Held>,
    holders: Option<Holders>,
}

/// The slots of a key as a request finds them.
pub(super) struct Asked {
    holding: Holding,
    slots: Slots,
    now: Micros,
    /// What the tenant may take, if slots are divided, and its place; `None` if it has only looked.
    share: Option<(SlotShare, Option<usize>)>,
    free: u32,
}

impl SlotDivision {
    /// Returns the part of the tenant beside those that are active.
    fn share(&self, item: &Item, now: Micros) -> TenantShare {
        let (tenant, weight) = self.tenant;
        let holders = self.holders(item);
        TenantShare::beside_each(weight, holders.active_beside(tenant, now, &self.scale))
    }

    fn holders(&self, item: &Item) -> Holders {
        Holders::read(item.words(self.tag)).unwrap_or_default()
    }
}

impl Holding {
    /// Returns whether the records are those that a store of this version writes.
    pub(super) fn are_legible(&self, item: &Item) -> bool {
        let are_read = |division: SlotDivision| Holders::read(item.words(division.tag)).is_some();
        read(item.words(self.tag)).is_some() && self.division.is_none_or(are_read)
    }

    /// Returns how many slots are taken.
    pub(super) fn taken(&self, item: &Item, now: Micros) -> u32 {
        count(self.held(item, now).filter(|held| held.until > now))
    }

    /// Returns the part of the tenant that asks beside those that are active, if slots are divided.
    pub(super) fn share(&self, item: &Item, now: Micros) -> Option<TenantShare> {
        self.division.map(|division| division.share(item, now))
    }

    /// Asks for the request, whose tenant is active from now on, or only looks.
    pub(super) fn ask(&self, item: &Item, now: Micros, free: u32, only_looks: bool) -> Asked {
        let each = self.held(item, now).collect();
        let mut slots = self.slots(item, each, now);
        let holders = slots.holders.as_mut().zip(self.division);
        let share = holders.map(|(holders, SlotDivision { scale, tenant, .. })| {
            if only_looks || self.number == 0 {
                return (holders.look(tenant.0, now, &scale), None);
            }
            let (place, share) = holders.ask(tenant, now, &scale);
            (share, Some(place))
        });
        Asked {
            holding: *self,
            slots,
            now,
            share,
            free,
        }
    }

    /// Gives back what the request holds, or removes what cannot be read. No other amendment changes slots.
    pub(super) fn amend(&self, item: &mut Item, now: Micros, amendment: Amendment) {
        match amendment {
            Amendment::Release => {
                let each = self.held(item, now).collect();
                let mut slots = self.slots(item, each, now);
                let mut each = slots.each.iter();
                let Some(place) = each.position(|held| held.number == self.number) else {
                    return;
                };
                let Held {
                    tenant,
                    slots: units,
                    ..
                } = slots.each.remove(place);
                if let (Some(holders), Some(division)) = (&mut slots.holders, self.division) {
                    holders.give_back(tenant, units, now, &division.scale);
                }
                self.keep(item, &slots, now);
            }
            Amendment::Reset if !self.are_legible(item) => {
                item.put(self.tag, &[], Micros::ZERO);
                if let Some(division) = self.division {
                    item.put(division.tag, &[], Micros::ZERO);
                }
            }
            _ => {}
        }
    }

    /// Lets slots last for another life, and takes those again that are lost. Returns how many were lost.
    pub(super) fn renew(
        &self,
        item: &mut Item,
        now: Micros,
        renewed: impl Iterator<Item = Renewed>,
    ) -> u32 {
        let until = now.saturating_add(self.life);
        let mut each: Vec<Held> = self.held(item, now).collect();
        let mut lost = 0;
        for (number, slots, tenant) in renewed {
            // One that has ended and is still there was not lost: whatever takes a slot removes those that have ended.
            if let Some(held) = each.iter_mut().find(|held| held.number == number) {
                held.until = until;
                continue;
            }
            lost += slots;
            each.push(Held {
                number,
                slots,
                until,
                tenant: self.division.map_or(0, |_| tenant),
            });
        }
        let slots = self.slots(item, each, now);
        self.keep(item, &slots, now);
        lost
    }

    /// Returns the slots of the record. One that lasts for longer than one life is from before the clock has stepped back.
    fn held(&self, item: &Item, now: Micros) -> impl Iterator<Item = Held> {
        let latest = now.saturating_add(self.life);
        let held = read(item.words(self.tag)).unwrap_or_default();
        held.into_iter().map(move |held| Held {
            until: held.until.min(latest),
            ..held
        })
    }

    /// Returns these slots without those that have ended, each of which its tenant has given back at its end. Slots that were taken
    /// while they were not divided, or that are taken again, are counted now.
    fn slots(&self, item: &Item, each: Vec<Held>, now: Micros) -> Slots {
        let (each, mut ended): (Vec<_>, Vec<_>) = each.into_iter().partition(|it| it.until > now);
        let holders = self.division.map(|division| {
            let mut holders = division.holders(item);
            ended.sort_unstable_by_key(|held| (held.until, held.number));
            for held in &ended {
                holders.end(held.tenant, held.slots, held.until, &division.scale);
            }
            let held = each.iter().map(|held| (held.tenant, held.slots));
            holders.count_anew(held, now, &division.scale);
            holders
        });
        Slots { each, holders }
    }

    /// Writes the records.
    fn keep(&self, item: &mut Item, slots: &Slots, now: Micros) {
        let ends = slots.each.iter().map(|held| held.until);
        let mut until = ends.max().unwrap_or(now);
        if let (Some(holders), Some(division)) = (&slots.holders, self.division) {
            until = holders.lapse_at(until, &division.scale);
            item.put(division.tag, &holders.words(), until);
        }
        let words = slots.each.iter().flat_map(|held| {
            let [number, tenant] = [held.number, held.tenant];
            [number, held.slots.into(), held.until.get(), tenant]
        });
        item.put(self.tag, &words.collect::<Vec<_>>(), until);
    }
}

impl Asked {
    /// Returns the slots that have to be free, so that a request of this cost passes.
    pub(super) fn needs(&self, cost: u32) -> u32 {
        match self.share {
            Some((share, _)) if cost > 0 && !share.passes(self.free, cost) => u32::MAX,
            _ => cost,
        }
    }

    /// Returns how many slots the request may take, if so many are free.
    pub(super) fn of(&self, free: u32) -> u32 {
        self.share.map_or(free, |(share, _)| share.of(free, 0))
    }

    /// Writes into an outcome what is left for the tenant. `taken` is what this request has taken.
    pub(super) fn tell(&self, outcome: &mut Outcome, taken: u32) {
        if let Some((share, _)) = self.share {
            share.tell(outcome, taken);
        }
    }

    /// Follows the end of the request, and writes the records.
    pub(super) fn keep(&mut self, item: &mut Item, ending: Ending, cost: u32) {
        let Holding {
            number,
            life,
            division,
            ..
        } = self.holding;
        // A refusal changes no slots, unless the clock has stepped back.
        let changes_nothing =
            self.share.is_none() && ending != Ending::Passed && !self.are_moved(item);
        if number == 0 || changes_nothing {
            return;
        }
        if ending == Ending::Passed {
            self.slots.each.push(Held {
                number,
                slots: cost,
                until: self.now.saturating_add(life),
                tenant: division.map_or(0, |division| division.tenant.0),
            });
        }
        let holders = self.slots.holders.as_mut().zip(division);
        if let (Some((holders, division)), Some((share, Some(place)))) = (holders, self.share) {
            let scale = &division.scale;
            match ending {
                Ending::Passed => holders.take(place, cost, scale),
                Ending::Refused(_) => holders.refuse((place, share), cost, scale),
                Ending::Elsewhere => holders.pass_by(place, scale),
            }
        }
        self.holding.keep(item, &self.slots, self.now);
    }

    /// Returns whether some slots of the record last for longer than one life.
    fn are_moved(&self, item: &Item) -> bool {
        let latest = self.now.saturating_add(self.holding.life);
        let held = read(item.words(self.holding.tag)).unwrap_or_default();
        held.iter().any(|held| held.until > latest)
    }
}

/// Reads the slots in these words.
fn read(words: &[u64]) -> Option<Vec<Held>> {
    let (each, rest) = words.as_chunks();
    let held = each.iter().map(|&[number, slots, until, tenant]| {
        Some(Held {
            number,
            slots: slots.try_into().ok()?,
            until: Micros::new(until),
            tenant,
        })
    });
    held.collect::<Option<_>>().filter(|_| rest.is_empty())
}

fn count(held: impl Iterator<Item = Held>) -> u32 {
    held.fold(0, |taken, held| taken.saturating_add(held.slots))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes of different versions share items.
    #[test]
    fn the_words_stay_the_same_from_version_to_version() {
        let words = [5, 2, 1_500_000, 0, 6, 1, 1_600_000, 7];
        let held = |number, slots, until, tenant| Held {
            number,
            slots,
            until: Micros::new(until),
            tenant,
        };
        let each = vec![held(5, 2, 1_500_000, 0), held(6, 1, 1_600_000, 7)];
        assert_eq!(read(&words), Some(each.clone()));
        let holding = Holding {
            tag: 3,
            life: Micros::from_secs(1),
            number: 0,
            division: None,
        };
        let (mut item, now) = (Item::default(), Micros::new(1_000_000));
        let holders = None;
        holding.keep(&mut item, &Slots { each, holders }, now);
        assert_eq!(item.words(3), words);
        assert_eq!(item.until_of(3), Micros::new(1_600_000));
        assert_eq!(holding.taken(&item, now), 3);
    }

    /// A request of tenant 7 has taken three of four slots while they were not divided.
    #[test]
    fn slots_that_nobody_has_counted_are_those_of_their_tenants() {
        let holding = |tenant| Holding {
            tag: 3,
            life: Micros::from_secs(1),
            number: tenant,
            division: Some(SlotDivision {
                tag: 4,
                scale: SlotScale {
                    limit: 4,
                    active_for: Micros::from_secs(1),
                    tenants: 64,
                },
                tenant: (tenant, 1),
            }),
        };
        let (mut item, now) = (Item::default(), Micros::new(1_000_000));
        item.put(3, &[5, 3, 1_500_000, 7], Micros::new(1_500_000));
        let mut asked = holding(8).ask(&item, now, 1, false);
        asked.keep(&mut item, Ending::Refused(Micros::ZERO), 1);
        let needs = |tenant| holding(tenant).ask(&item, now, 1, false).needs(1);
        assert_eq!(
            [needs(7), needs(8)],
            [u32::MAX, 1],
            "tenant 7 has its share"
        );
    }

    /// What an item holds may be anything.
    #[test]
    fn words_that_no_rule_writes_are_not_read() {
        let words = [5, 2, 1_500_000, 0, 6, 1, 1_600_000, 7];
        for len in 0..=words.len() {
            assert_eq!(read(&words[..len]).is_some(), len % 4 == 0, "{len}");
        }
        assert_eq!(read(&[5, 1 << 32, 1_500_000, 0]), None);
    }
}
