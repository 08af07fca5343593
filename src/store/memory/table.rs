use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::algorithm::State;
use crate::key::Key;

/// The states of all keys under one policy, in parts that are locked apart.
pub(super) struct Table {
    number: usize,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

type Shard = HashMap<Key, State>;

const SHARDS: usize = 64;

/// A shard looks for keys to forget when it is about to grow past this many.
const WORTH_A_LOOK: usize = 16;

impl Table {
    pub(super) fn new(number: usize) -> Self {
        Self {
            number,
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Its place in the order in which tables are locked.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    pub(super) fn lock(&self, key: &Key) -> Locked<'_> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "any bits of a hash will do"
        )]
        let shard = self.hasher.hash_one(key) as usize % SHARDS;
        // A panic (only a user's clock can) leaves states as they were: they are written last.
        let shard = self.shards[shard]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Locked { shard, key: *key }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        let len = |shard: &Mutex<Shard>| shard.lock().unwrap().len();
        self.shards.iter().map(len).sum()
    }
}

/// One key's state, to be read and written by nobody else meanwhile.
pub(super) struct Locked<'a> {
    shard: MutexGuard<'a, Shard>,
    key: Key,
}

impl Locked<'_> {
    pub(super) fn state(&self) -> &State {
        const NEW: &State = &State::NEW;
        self.shard.get(&self.key).unwrap_or(NEW)
    }

    /// The state, to be written. A table that would have to grow for it first forgets what is
    /// as good as new.
    pub(super) fn state_mut(&mut self, is_as_new: impl Fn(&State) -> bool) -> &mut State {
        let capacity = self.shard.capacity();
        let full = self.shard.len() == capacity && capacity >= WORTH_A_LOOK;
        if full && !self.shard.contains_key(&self.key) {
            self.shard.retain(|_, state| !is_as_new(state));
            // With little room won the next look would come too soon: on average, a request
            // pays for a few entries only.
            if self.shard.len() > capacity / 2 {
                self.shard.reserve(capacity);
            }
        }
        self.shard.entry(self.key).or_default()
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
            *table.lock(&key).state_mut(|state| state.words() == [IDLE]) = state;
        }
    }

    const LIVE: u64 = 1;
    const IDLE: u64 = 2;

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
