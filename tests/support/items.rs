//! Items in a map, for stores in tests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tower_ratelimit::clock::Clock;
use tower_ratelimit::store::{Change, Changed, Items, Reply};
use tower_ratelimit::{ManualClock, StoreError};

/// A map of items with a clock, which forgets no item. Clones share the map.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub(crate) clock: ManualClock,
    items: Arc<Mutex<HashMap<String, Vec<u8>>>>,
}

impl Map {
    pub(crate) fn new(clock: &ManualClock) -> Self {
        Self {
            clock: clock.clone(),
            items: Arc::default(),
        }
    }

    /// Returns another map with the same items, and a clock of its own.
    pub(crate) fn fork(&self) -> Self {
        Self {
            clock: ManualClock::at(self.clock.now()),
            items: Arc::new(Mutex::new(self.items().clone())),
        }
    }

    pub(crate) fn items(&self) -> MutexGuard<'_, HashMap<String, Vec<u8>>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Items for Map {
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
        let mut items = self.items();
        let found: Vec<_> = change.names().iter().map(|name| items.get(name)).collect();
        let changed = change.apply(self.clock.now(), &found);
        for write in changed.writes() {
            let name = change.names()[write.item()].clone();
            items.insert(name, write.value().to_owned());
        }
        Reply::Now(Ok(changed))
    }
}

/// A map that changes one item at a time.
#[derive(Clone, Debug)]
pub(crate) struct OneByOne(pub(crate) Map);

impl Items for OneByOne {
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
        assert_eq!(change.names().len(), 1);
        self.0.update(change)
    }

    fn at_once(&self) -> usize {
        1
    }
}

/// A map in which each change loses against the one before it: it is applied to what the items were, and then to what they are.
#[derive(Clone, Debug)]
pub(crate) struct Contested {
    map: Map,
    before: Arc<Mutex<HashMap<String, Vec<u8>>>>,
}

impl Contested {
    pub(crate) fn new(clock: &ManualClock) -> Self {
        Self {
            map: Map::new(clock),
            before: Arc::default(),
        }
    }
}

impl Items for Contested {
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
        let present = self.map.items().clone();
        let mut before = self.before.lock().unwrap();
        let found: Vec<_> = change.names().iter().map(|name| before.get(name)).collect();
        let _ = change.apply(self.map.clock.now(), &found);
        *before = present;
        self.map.update(change)
    }
}
