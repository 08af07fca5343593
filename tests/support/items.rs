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
