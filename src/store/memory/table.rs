use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;

use crate::algorithm::State;
use crate::key::Key;

/// The states of all keys under one policy, in parts that are locked apart.
///
/// Keys are hashed once for a decision, by std's keyed hash with a seed of the process's own, so that
/// nobody can choose keys that collide.
pub(super) struct Table {
    number: usize,
    seed: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

type Shard = HashTable<Entry>;

struct Entry {
    key: Key,
    state: State,
}

const SHARDS: usize = 64;

/// A shard looks for keys to forget when it would have to grow past this many.
const WORTH_A_LOOK: usize = 16;

impl Table {
    pub(super) fn new(number: usize) -> Self {
        Self {
            number,
            seed: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Its place in the order in which tables are locked.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    pub(super) fn lock<'a>(&'a self, key: &'a Key) -> Locked<'a> {
        let hash = self.seed.hash_one(key);
        // The shard itself uses the highest and the lowest bits.
        let shard = (hash >> 32) as usize % SHARDS;
        // A panic (only a user's clock can) leaves states as they were: they are written last.
        let shard = self.shards[shard]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Locked {
            place: shard.find_bucket_index(hash, |entry| entry.key == *key),
            table: self,
            shard,
            key,
            hash,
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        let len = |shard: &Mutex<Shard>| shard.lock().unwrap().len();
        self.shards.iter().map(len).sum()
    }
}

/// One key's state, to be read and written by nobody else meanwhile.
pub(super) struct Locked<'a> {
    table: &'a Table,
    shard: MutexGuard<'a, Shard>,
    key: &'a Key,
    hash: u64,
    /// Where the key stands in its shard, if it is there.
    place: Option<usize>,
}

impl Locked<'_> {
    pub(super) fn state(&self) -> &State {
        const NEW: &State = &State::NEW;
        self.place
            .and_then(|place| self.shard.get_bucket(place))
            .map_or(NEW, |entry| &entry.state)
    }

    /// Changes the state. A table that would have to grow for it first forgets what is as good
    /// as new.
    pub(super) fn change(
        &mut self,
        is_as_new: impl Fn(&State) -> bool,
        change: impl FnOnce(&mut State),
    ) {
        let place = self
            .place
            .and_then(|place| self.shard.get_bucket_mut(place));
        if let Some(entry) = place {
            return change(&mut entry.state);
        }
        let mut state = State::NEW;
        change(&mut state);
        self.make_room(is_as_new);
        let entry = Entry {
            key: *self.key,
            state,
        };
        let seed = &self.table.seed;
        let entry = self
            .shard
            .insert_unique(self.hash, entry, |entry| seed.hash_one(entry.key));
        self.place = Some(entry.bucket_index());
    }

    fn make_room(&mut self, is_as_new: impl Fn(&State) -> bool) {
        let capacity = self.shard.capacity();
        if self.shard.len() < capacity || capacity < WORTH_A_LOOK {
            return;
        }
        self.shard.retain(|entry| !is_as_new(&entry.state));
        // With little room won the next look would come too soon: on average, a request pays for
        // a few entries only.
        if self.shard.len() > capacity / 2 {
            let seed = &self.table.seed;
            self.shard
                .reserve(capacity, |entry| seed.hash_one(entry.key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::IntoKey;

    fn fill(table: &Table, word: u64, count: u32) {
        for key in 0..count {
            let key = (word, key).into_key();
            let state = State::from_words(&[word]);
            table
                .lock(&key)
                .change(|state| state.words() == [IDLE], |kept| *kept = state);
        }
    }

    const LIVE: u64 = 1;
    const IDLE: u64 = 2;

    #[test]
    fn a_key_takes_as_much_memory_as_the_documentation_says() {
        assert_eq!(size_of::<Key>(), 48);
        assert_eq!(size_of::<State>(), 32);
        assert_eq!(size_of::<Entry>(), 80);
    }

    #[test]
    fn keys_that_are_as_good_as_new_are_forgotten_as_the_table_grows() {
        let table = Table::new(0);
        fill(&table, IDLE, 1_000_000);
        assert!(table.len() < 10_000, "{} idle keys are kept", table.len());
    }

    #[test]
    fn keys_with_state_are_never_forgotten() {
        let table = Table::new(0);
        fill(&table, LIVE, 10_000);
        fill(&table, IDLE, 100_000);
        for key in 0..10_000_u32 {
            let key = (LIVE, key).into_key();
            assert_eq!(table.lock(&key).state().words(), [LIVE]);
        }
    }
}
