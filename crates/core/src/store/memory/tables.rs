//! The tables of a memory store: one for each policy in use, by its name and its frame.
//!
//! The store holds a table weakly: the backends of a limiter own it, so a policy that no limiter uses frees its memory.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::blocks::Blocks;
use super::fair::{SlotTenants, Tenants};
use super::guarantee::Families;
use super::opened::Opened;
use super::opening::counter;
use super::ordering::ascending;
use super::prepared::Prepared;
use super::slots::Slots;
use super::snapshot::Past;
use super::tiers::Counter;
use crate::algorithm::Algorithm;
use crate::clock::Micros;

/// A policy's name, and its [frame](Algorithm::frame): a state means nothing to another algorithm, and means
/// the same to one algorithm under any limit.
pub(super) type TableName = (String, (&'static str, Option<Duration>, Option<u32>));

/// The states of a policy, kept as long as a backend uses them.
pub(super) struct OpenTable {
    /// The place of the table in the order in which tables were made.
    pub(super) number: usize,
    /// The algorithm for which the table was made.
    pub(super) first: Algorithm,
    /// The algorithm for which the table was opened last, which may have another limit.
    pub(super) latest: Algorithm,
    pub(super) counter: Weak<dyn Counter>,
    /// The tenants among whom its limits are divided.
    pub(super) tenants: Weak<Tenants>,
    /// The children to whom its keys guarantee a part.
    pub(super) families: Weak<Families>,
}

#[derive(Default)]
pub(super) struct Tables {
    by_name: HashMap<TableName, OpenTable>,
    /// The data that policies of one name share, whatever their algorithms.
    shared: HashMap<String, SharedByName>,
    made: usize,
    /// The snapshot from which the store was restored, if it was.
    pub(super) past: Option<Past>,
}

/// The data that policies of one name share, as long as a backend uses it.
#[derive(Default)]
struct SharedByName {
    /// The keys that are blocked.
    blocks: Weak<Blocks>,
    /// The slots that requests hold.
    slots: Weak<Slots>,
    /// The tenants that hold them, where they are divided.
    holders: Weak<SlotTenants>,
}

impl SharedByName {
    fn is_in_use(&self) -> bool {
        self.blocks.strong_count() > 0 || self.slots.strong_count() > 0
    }
}

impl Tables {
    pub(super) fn with(past: Option<Past>) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            past,
            ..Self::default()
        }))
    }

    pub(super) fn open(
        &mut self,
        policy: &str,
        algorithm: Algorithm,
        max_keys: usize,
        now: impl Fn() -> Micros,
    ) -> Opened {
        let blocks = self.blocks(policy, &now);
        let slots = algorithm.limits_concurrency().then(|| self.slots(policy));
        let name = (policy.to_owned(), algorithm.frame());
        if let Some(table) = self.by_name.get_mut(&name)
            && let Some(counter) = table.counter.upgrade()
        {
            table.latest = algorithm;
            let limit = (algorithm != table.first).then_some(algorithm);
            if let Some(limit) = &limit {
                counter.general().note_limit(limit);
            }
            return Opened {
                prepared: Prepared::default(),
                number: table.number,
                algorithm,
                limit,
                first: table.first,
                counter,
                blocks,
                penalty: None,
                division: None,
                guarantee: None,
                slots,
                slot_division: None,
            };
        }
        make_room(&mut self.by_name, |table| table.counter.strong_count() > 0);
        let number = self.made;
        self.made += 1;
        let past = self.past.as_mut();
        let revived =
            past.and_then(|past| past.restore_table((policy, &algorithm), max_keys, now()));
        let counter = revived.unwrap_or_else(|| counter(&algorithm, max_keys));
        let table = OpenTable {
            number,
            first: algorithm,
            latest: algorithm,
            counter: Arc::downgrade(&counter),
            tenants: Weak::new(),
            families: Weak::new(),
        };
        self.by_name.insert(name, table);
        Opened {
            prepared: Prepared::default(),
            number,
            algorithm,
            limit: None,
            first: algorithm,
            counter,
            blocks,
            penalty: None,
            division: None,
            guarantee: None,
            slots,
            slot_division: None,
        }
    }

    /// Returns the tables in the order in which they were made.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (&TableName, &OpenTable)> {
        let all: Vec<_> = self.by_name.iter().collect();
        let order = ascending(all.iter().map(|(_, table)| table.number as u64));
        order.into_iter().map(move |place| all[place])
    }

    /// Returns the blocked keys by the names of policies.
    pub(super) fn each_blocks(&self) -> impl Iterator<Item = (&String, Arc<Blocks>)> {
        let shared = self.shared.iter();
        shared.filter_map(|(policy, its)| Some((policy, its.blocks.upgrade()?)))
    }

    /// Returns the tenants among whom the limits of an open policy are divided. They belong to its table, and are locked
    /// in the order of the tables.
    pub(super) fn tenants(
        &mut self,
        policy: &str,
        algorithm: &Algorithm,
        max_keys: usize,
    ) -> Arc<Tenants> {
        let name = (policy.to_owned(), algorithm.frame());
        let table = self.by_name.get_mut(&name);
        let tenants = table.as_ref().and_then(|table| table.tenants.upgrade());
        tenants.unwrap_or_else(|| {
            let made = Arc::new(Tenants::new(max_keys));
            if let Some(past) = &mut self.past {
                past.restore_tenants((policy, algorithm), &made);
            }
            if let Some(table) = table {
                table.tenants = Arc::downgrade(&made);
            }
            made
        })
    }

    /// Returns the children to whom the keys of an open policy guarantee a part. They belong to its table, as tenants do.
    pub(super) fn families(
        &mut self,
        policy: &str,
        algorithm: &Algorithm,
        max_keys: usize,
    ) -> Arc<Families> {
        let name = (policy.to_owned(), algorithm.frame());
        let table = self.by_name.get_mut(&name);
        let families = table.as_ref().and_then(|table| table.families.upgrade());
        families.unwrap_or_else(|| {
            let made = Arc::new(Families::new(max_keys));
            if let Some(past) = &mut self.past {
                past.restore_children((policy, algorithm), &made);
            }
            if let Some(table) = table {
                table.families = Arc::downgrade(&made);
            }
            made
        })
    }

    /// Returns the tenants that hold the slots of an open policy.
    pub(super) fn slot_tenants(&mut self, policy: &str, max_keys: usize) -> Arc<SlotTenants> {
        let shared = self.shared_by(policy);
        shared.holders.upgrade().unwrap_or_else(|| {
            let made = Arc::new(SlotTenants::new(max_keys));
            shared.holders = Arc::downgrade(&made);
            made
        })
    }

    fn slots(&mut self, policy: &str) -> Arc<Slots> {
        let shared = self.shared_by(policy);
        shared.slots.upgrade().unwrap_or_else(|| {
            let slots = Arc::default();
            shared.slots = Arc::downgrade(&slots);
            slots
        })
    }

    fn blocks(&mut self, policy: &str, now: impl Fn() -> Micros) -> Arc<Blocks> {
        let shared = self.shared_by(policy);
        if let Some(blocks) = shared.blocks.upgrade() {
            return blocks;
        }
        let blocks = Arc::new(Blocks::new());
        shared.blocks = Arc::downgrade(&blocks);
        if let Some(past) = &mut self.past {
            past.block(policy, &blocks, now());
        }
        blocks
    }

    fn shared_by(&mut self, policy: &str) -> &mut SharedByName {
        if !self.shared.contains_key(policy) {
            make_room(&mut self.shared, SharedByName::is_in_use);
        }
        self.shared.entry(policy.to_owned()).or_default()
    }
}

/// Drops the entries that no limiter uses, when the map would have to grow.
///
/// At least half of the room is free afterwards, so an insertion takes the same time however many policies there are.
fn make_room<K: Eq + Hash, V>(entries: &mut HashMap<K, V>, is_used: impl Fn(&V) -> bool) {
    if entries.len() == entries.capacity() {
        entries.retain(|_, entry| is_used(entry));
        entries.reserve(entries.len() + 1);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn policies_that_come_and_go_leave_nothing_behind() {
        let mut entries = HashMap::new();
        let kept = Arc::new(());
        entries.insert(0, Arc::downgrade(&kept));
        for name in 1..1_000 {
            make_room(&mut entries, |entry: &Weak<()>| entry.strong_count() > 0);
            entries.insert(name, Weak::new());
        }
        assert!(entries.len() < 20, "{}", entries.len());
        assert!(entries.contains_key(&0));
    }

    #[test]
    fn a_map_that_is_in_use_is_looked_through_seldom() {
        let mut entries = HashMap::new();
        let looks = Cell::new(0);
        for name in 0..1_000 {
            make_room(&mut entries, |_: &u32| {
                looks.set(looks.get() + 1);
                true
            });
            entries.insert(name, 0);
        }
        assert!(looks.get() < 4_000, "{looks:?}");
    }
}
