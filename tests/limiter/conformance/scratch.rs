use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tower_ratelimit::StoreError;
use tower_ratelimit::clock::{Clock, SystemClock};
use tower_ratelimit::store::{Change, Changed, Items, Reply, Write};

/// Each value, and until when it is kept.
type ExpiringItems = HashMap<String, (Instant, Vec<u8>)>;

/// Items that expire in real time, with optional faults.
#[derive(Clone, Debug)]
pub(crate) struct Scratch {
    pub(crate) items: Arc<Mutex<ExpiringItems>>,
    /// The name under which it stores an item.
    pub(crate) name: fn(&str) -> String,
    /// The time for which it keeps an item with this time to live.
    pub(crate) keep: fn(Duration) -> Duration,
    /// The writes of a list that it makes.
    pub(crate) writes: fn(&[Write]) -> &[Write],
    /// How often it applies a change that has been written.
    pub(crate) applications: usize,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self {
            items: Arc::default(),
            name: str::to_owned,
            keep: |ttl| ttl,
            writes: |writes| writes,
            applications: 1,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ExpiringItems> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn read(&self, change: &Change) -> Vec<Option<Vec<u8>>> {
        let mut items = self.lock();
        items.retain(|_, (until, _)| *until > Instant::now());
        let names = change.names().iter().map(|name| (self.name)(name));
        let found = names.map(|name| items.get(&name).map(|(_, value)| value.clone()));
        found.collect()
    }

    pub(crate) fn write(&self, change: &Change, changed: &Changed) {
        let mut items = self.lock();
        for write in (self.writes)(changed.writes()) {
            let name = (self.name)(&change.names()[write.item()]);
            // An instant has no room for 285 years on every platform.
            let ttl = (self.keep)(write.ttl()).min(Duration::from_secs(86_400 * 366));
            items.insert(name, (Instant::now() + ttl, write.value().to_owned()));
        }
    }

    pub(crate) fn apply(change: &Change, found: &[Option<Vec<u8>>]) -> Changed {
        change.apply(SystemClock::new().now(), found)
    }
}

/// Compares and swaps.
impl Items for Scratch {
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
        let mut applications = 0;
        loop {
            let found = self.read(&change);
            let changed = Self::apply(&change, &found);
            // Nothing is compared and swapped otherwise than here.
            let _swap = ONE.lock().unwrap_or_else(PoisonError::into_inner);
            if self.read(&change) == found {
                self.write(&change, &changed);
                applications += 1;
                if applications == self.applications {
                    return Reply::Now(Ok(changed));
                }
            }
        }
    }
}

static ONE: Mutex<()> = Mutex::new(());
