//! The tables of a memory store: one for each policy in use, by its name and its frame.
//!
//! The store holds a table weakly: the ledgers of a limiter own it, so a policy that no limiter uses frees its memory.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::blocks::{Blocked, Blocks};
use super::counter::Counter;
use super::opened::Opened;
use super::ordering::ascending;
use super::prepared::Prepared;
use super::slots::Slots;
use super::snapshot::{Restored, revived};
use crate::algorithm::Algorithm;
use crate::clock::Micros;

/// A policy's name, and its [frame](Algorithm::frame): a state means nothing to another algorithm, and means
/// the same to one algorithm under any limit.
pub(super) type TableName = (String, (&'static str, Option<Duration>, Option<u32>));

/// The states of a policy, kept as long as a ledger uses them.
pub(super) struct Kept {
    /// The place of the table in the order in which tables were made.
    pub(super) number: usize,
    /// The algorithm for which the table was made.
    pub(super) first: Algorithm,
    /// The algorithm for which the table was opened last, which may have another limit.
    pub(super) latest: Algorithm,
    pub(super) counter: Weak<dyn Counter>,
}

#[derive(Default)]
pub(super) struct Tables {
    by_name: HashMap<TableName, Kept>,
    /// The blocked keys under each policy name, whatever the algorithm.
    pub(super) blocks: HashMap<String, Weak<Blocks>>,
    /// The slots that requests hold under each policy name.
    slots: HashMap<String, Weak<Slots>>,
    made: usize,
    pub(super) restored: Vec<Restored>,
    /// Restored blocks of policies that are not open yet.
    pub(super) restored_blocks: Vec<(String, Blocked)>,
}

impl Tables {
    pub(super) fn with(
        restored: Vec<Restored>,
        restored_blocks: Vec<(String, Blocked)>,
    ) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            restored,
            restored_blocks,
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
        let slots = algorithm.is_held().then(|| self.slots(policy));
        let name = (policy.to_owned(), algorithm.frame());
        if let Some(kept) = self.by_name.get_mut(&name)
            && let Some(counter) = kept.counter.upgrade()
        {
            kept.latest = algorithm;
            return Opened {
                prepared: Prepared::default(),
                number: kept.number,
                algorithm,
                limit: (algorithm != kept.first).then_some(algorithm),
                counter,
                blocks,
                penalty: None,
                slots,
            };
        }
        make_room(&mut self.by_name, |kept| kept.counter.strong_count() > 0);
        let number = self.made;
        self.made += 1;
        let counter = revived(&mut self.restored, (policy, &algorithm), max_keys, now);
        let kept = Kept {
            number,
            first: algorithm,
            latest: algorithm,
            counter: Arc::downgrade(&counter),
        };
        self.by_name.insert(name, kept);
        Opened {
            prepared: Prepared::default(),
            number,
            algorithm,
            limit: None,
            counter,
            blocks,
            penalty: None,
            slots,
        }
    }

    /// Returns the tables in the order in which they were made.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (&TableName, &Kept)> {
        let all: Vec<_> = self.by_name.iter().collect();
        let order = ascending(all.iter().map(|(_, kept)| kept.number as u64));
        order.into_iter().map(move |place| all[place])
    }

    fn slots(&mut self, policy: &str) -> Arc<Slots> {
        if let Some(slots) = self.slots.get(policy).and_then(Weak::upgrade) {
            return slots;
        }
        make_room(&mut self.slots, |slots| slots.strong_count() > 0);
        let slots = Arc::new(Slots::default());
        self.slots.insert(policy.to_owned(), Arc::downgrade(&slots));
        slots
    }

    fn blocks(&mut self, policy: &str, now: impl Fn() -> Micros) -> Arc<Blocks> {
        if let Some(blocks) = self.blocks.get(policy).and_then(Weak::upgrade) {
            return blocks;
        }
        make_room(&mut self.blocks, |blocks| blocks.strong_count() > 0);
        let blocks = Arc::new(Blocks::new());
        self.restored_blocks.retain_mut(|(name, blocked)| {
            if name == policy {
                blocks.restore(mem::take(blocked), now());
            }
            name != policy
        });
        self.blocks
            .insert(policy.to_owned(), Arc::downgrade(&blocks));
        blocks
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
            make_room(&mut entries, |_: &()| {
                looks.set(looks.get() + 1);
                true
            });
            entries.insert(name, ());
        }
        assert!(looks.get() < 4_000, "{looks:?}");
    }
}
