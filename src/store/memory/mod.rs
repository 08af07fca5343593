//! State in this process.

mod blocks;
mod cell;
mod counter;
mod ledger;
mod page;
mod pages;
mod seed;
mod soonest;
mod table;
mod usage;
mod version;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

pub use self::ledger::MemoryLedger;
pub use self::usage::Usage;

use self::blocks::Blocks;
use self::counter::{Counter, counter};
use self::ledger::Opened;
use super::Store;
use crate::algorithm::Algorithm;
use crate::clock::{Clock, SystemClock};
use crate::error::ConfigError;
use crate::policy::{Policy, check_names};

/// Keeps state in this process, exactly and without a server.
///
/// Clones share their state: two limiters over one store that have a policy of the same name
/// and the same algorithm count together. State lives as long as a limiter that uses it.
///
/// # Memory
///
/// Each policy keeps at most [`max_keys`](Self::max_keys) keys. Its table doubles as they come: 56 kB
/// with the first, 0.35 MB for 10,000, 2.6 MB for the 100,000 that it keeps by default, which
/// is 26 bytes for each; up to an eighth more after days in which all keys changed again and again. Memory
/// that was needed once is kept. Where a state does not fit one word of 64 bits (see
/// [choosing](crate::choosing)), a key takes 48 bytes. Under sliding slots it takes 70 and 8 for each
/// slot, under a sliding log 70 and 16 for each entry; there **each entry counts as a key**, so give
/// a log whose limit is large more room. [`usage`](Self::usage) tells what is taken.
///
/// Below the bound no key that has used any of its limit is forgotten. At the bound a newcomer
/// takes the place of a key that is as good as new. If none is found, a key goes that could still
/// pass a request of cost 1: of those on the newcomer's own page, some fifty, the one that has used the
/// least. A key that could not is never forgotten, so nobody frees himself by a flood of other
/// keys. When no key can go, newcomers share one entry, which
/// [`Outcome::is_overflow`](crate::Outcome::is_overflow) tells. So that no request is slow, a newcomer
/// looks through 2,500 pages at most, which are all pages of 100,000 keys, and 16 under a log or
/// slots; those that come after it look through others.
///
/// No thread and no sweep does this. Keys that are as good as new go when a newcomer needs the
/// place, or before the table grows.
///
/// Keys are told apart by fingerprints of 64 bits, hashed with random numbers that the process keeps
/// to itself, so that keys that meet cannot be computed beforehand. Among 100,000 keys two share a
/// fingerprint, and so a state, with a probability of 3 in ten billion; among a million, of 3 in a
/// hundred million.
///
/// # Blocked keys
///
/// A key is [blocked](crate::Limiter::block_now) under a policy's name, whatever its algorithm:
/// limiters over one store that have a policy of the same name deny it alike, also when its limit
/// has been changed. Blocks stand beside the tables: they count against no bound, and nothing evicts
/// them. Each takes some 100 bytes, until it has ended and the policy is asked about anybody; whoever
/// blocks clients by a program bounds how many. A request whose key shares the last 10 bits of its
/// fingerprint with a blocked one looks under a lock that many may read.
///
/// # Defaults
///
/// - clock: [`SystemClock`]
/// - keys: at most 100,000 under each policy
#[derive(Clone)]
pub struct MemoryStore {
    max_keys: usize,
    /// The system's unless it is said. That one is set when a ledger first needs it, since it
    /// starts a thread.
    clock: Option<Arc<dyn Clock>>,
    tables: Arc<Mutex<Tables>>,
}

#[derive(Default)]
struct Tables {
    /// A table lives as long as a ledger that uses it. Its number is its place in the order in
    /// which tables were made.
    by_name: HashMap<TableName, (usize, Weak<dyn Counter>)>,
    /// Who is blocked under a policy of this name, whatever its algorithm.
    blocks: HashMap<String, Weak<Blocks>>,
    made: usize,
}

impl Tables {
    fn open(&mut self, name: TableName, max_keys: usize) -> Opened {
        let blocks = self.blocks(&name.0);
        if let Some((number, table)) = self.by_name.get(&name)
            && let Some(counter) = table.upgrade()
        {
            let number = *number;
            return Opened {
                number,
                counter,
                blocks,
            };
        }
        self.by_name
            .retain(|_, (_, table)| table.strong_count() > 0);
        let number = self.made;
        self.made += 1;
        let counter = counter(&name.1, max_keys);
        self.by_name
            .insert(name, (number, Arc::downgrade(&counter)));
        Opened {
            number,
            counter,
            blocks,
        }
    }

    fn blocks(&mut self, policy: &str) -> Arc<Blocks> {
        if let Some(blocks) = self.blocks.get(policy).and_then(Weak::upgrade) {
            return blocks;
        }
        self.blocks.retain(|_, blocks| blocks.strong_count() > 0);
        let blocks = Arc::new(Blocks::new());
        self.blocks
            .insert(policy.to_owned(), Arc::downgrade(&blocks));
        blocks
    }
}

/// Less than three megabytes for each policy.
const MAX_KEYS: usize = 100_000;

/// More than this, which is gigabytes, is a mistake.
const MOST_KEYS: usize = 100_000_000;

/// A policy's state is of no use to another algorithm.
type TableName = (String, Algorithm);

impl MemoryStore {
    /// A new store, which shares nothing with any other.
    pub fn new() -> Self {
        Self {
            max_keys: MAX_KEYS,
            clock: None,
            tables: Arc::default(),
        }
    }

    /// A new store that reads the time from this clock, such as a
    /// [`ManualClock`](crate::ManualClock) in tests.
    ///
    /// It shares nothing with the store that it is made of: state is of no use under another
    /// clock.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self {
            clock: Some(Arc::new(clock)),
            tables: Arc::default(),
            ..self
        }
    }

    /// A new store that keeps at most so many keys under each policy, from 1 to 100 million; it
    /// shares nothing with the store that it is made of.
    ///
    /// A number outside of that is refused when the store is [opened](Store::open).
    pub fn max_keys(self, max_keys: usize) -> Self {
        Self {
            max_keys,
            tables: Arc::default(),
            ..self
        }
    }

    /// What each policy takes, in the order in which they were first opened.
    pub fn usage(&self) -> Vec<Usage> {
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let mut usage: Vec<_> = tables
            .by_name
            .iter()
            .filter_map(|((policy, algorithm), (number, table))| {
                let fill = table.upgrade()?.fill();
                Some((*number, Usage::new(policy, *algorithm, fill)))
            })
            .collect();
        usage.sort_unstable_by_key(|(number, _)| *number);
        usage.into_iter().map(|(_, usage)| usage).collect()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    type Ledger = MemoryLedger;

    fn open(&self, policies: &[Policy]) -> Result<MemoryLedger, ConfigError> {
        // A table that was locked twice would wait for itself.
        check_names(&policies.iter().map(Policy::name))?;
        if !(1..=MOST_KEYS).contains(&self.max_keys) {
            let remedy = "give a number from 1 to 100,000,000";
            return Err(ConfigError::new("max_keys", self.max_keys, remedy));
        }
        Ok(self.ledger(policies))
    }
}

impl MemoryStore {
    /// The same as [`Store::open`], for names that are known to be good.
    pub(crate) fn ledger(&self, policies: &[Policy]) -> MemoryLedger {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = policies.iter().map(|policy| {
            let name = (policy.name().to_owned(), *policy.algorithm());
            tables.open(name, self.max_keys)
        });
        let clock = self.clock.clone();
        MemoryLedger::new(
            clock.unwrap_or_else(|| Arc::new(SystemClock::new())),
            opened.collect(),
        )
    }
}
