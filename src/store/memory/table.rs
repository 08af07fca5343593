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
    pub(super) fn state(&self) -> State {
        self.shard.get(&self.key).copied().unwrap_or(State::NEW)
    }

    /// Keeps this state. A table that would have to grow for it first forgets what is as good
    /// as new, so that it is never larger than twice what it needs.
    pub(super) fn write(&mut self, state: State, is_as_new: impl Fn(State) -> bool) {
        if let Some(kept) = self.shard.get_mut(&self.key) {
            *kept = state;
            return;
        }
        if state == State::NEW {
            return;
        }
        let full = self.shard.len() == self.shard.capacity();
        if full && self.shard.len() >= WORTH_A_LOOK {
            self.shard.retain(|_, state| !is_as_new(*state));
        }
        self.shard.insert(self.key, state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::IntoKey;

    const LIVE: State = State::from_words([1, 0, 0]);
    const IDLE: State = State::from_words([2, 0, 0]);

    fn fill(table: &Table, state: State, count: u32) {
        for key in 0..count {
            let key = (state.words()[0], key).into_key();
            table.lock(&key).write(state, |state| state == IDLE);
        }
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
            let key = (LIVE.words()[0], key).into_key();
            assert_eq!(table.lock(&key).state(), LIVE);
        }
    }

    #[test]
    fn a_key_that_stays_new_takes_no_room() {
        let table = Table::new(0);
        fill(&table, State::NEW, 1_000);
        assert_eq!(table.len(), 0);
    }
}
