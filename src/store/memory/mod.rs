//! State in this process.

mod blocks;
mod cell;
mod counter;
mod driver;
mod expiry;
mod holding;
mod known;
mod ledger;
mod limited;
mod offenders;
mod one_word;
mod opened;
mod opening;
mod ordering;
mod page;
mod page_snapshot;
mod pages;
mod prepared;
mod seed;
mod seqlock;
mod slots;
mod snapshot;
mod table;
mod tables;
mod tiers;
mod timed;
mod usage;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use self::ledger::MemoryLedger;
pub use self::snapshot::{Fate, Restored};
pub use self::usage::Usage;

use self::opened::Opened;
use self::seed::Seed;
use self::snapshot::Snapshot;
use self::tables::Tables;
use super::Store;
use crate::clock::{AnyClock, Clock, SystemClock};
use crate::error::{ConfigError, RestoreError};
use crate::policy::{Policy, check_names};

/// Keeps state in this process, exactly and without a server.
///
/// Clones share their state: two limiters over one store that have a policy of the same name, algorithm, period and
/// number of slots count together, each under its own limit. So a layer that is built again with another limit
/// finds what was used. State lives as long as a limiter that uses it, and longer in a
/// [`snapshot`](Self::snapshot).
///
/// # Memory
///
/// Each policy keeps at most [`max_keys`](Self::max_keys) keys. Its table doubles as they come: 56 kB
/// with the first, 0.35 MB for 10,000, 2.6 MB for the 100,000 that it keeps by default, which
/// is 26 bytes for each; up to an eighth more after days in which all keys changed again and again. Memory
/// that was needed once is kept. Where a state does not fit one word of 64 bits (see
/// [choosing](crate::guide::choosing)), a key takes 48 bytes. Under sliding slots it takes 70 and 8 for each
/// slot, under a sliding log 70 and 16 for each entry; there **each entry counts as a key**, so give
/// a log whose limit is large more room. [`usage`](Self::usage) tells what is taken.
///
/// Below the bound no key that has used any of its limit is forgotten. At the bound a newcomer
/// takes the place of a key that is as good as new. If none is found, a key goes that could still
/// pass a request of cost 1: of those on the newcomer's own page, some fifty, the one that has used the
/// least. A key that could not is never forgotten, so no client frees itself by a flood of other
/// keys. When no key can go, newcomers share one entry, which
/// [`Outcome::is_overflow`](crate::Outcome::is_overflow) tells. While the store is so full, every verb finds that
/// entry: a peek, a refund or a settlement of one newcomer is one of all newcomers, and a reset of one resets
/// all. So that no request is slow, a newcomer
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
/// them. Each takes some 100 bytes, until it has ended and the policy is asked about any key. A program that
/// blocks clients has to bound how many. A request whose key shares the last 10 bits of its
/// fingerprint with a blocked one looks under a lock that many may read.
///
/// # Several limits
///
/// A state depends on no limit. When a policy first meets a second limit (in another limiter, or in an
/// [override](crate::Limiter::override_limit_now)), its states of one word move to a table of three words, a page
/// at a time: the page of the key, and two more with each request that finds its page moved. A key then takes 48
/// bytes, and the memory of the first table is kept until the last limiter is gone. At the bound, a key is as good
/// as new only if it is so under each limit that the policy has met, and none is forgotten that refuses under any.
///
/// Up to 10,000 keys under one policy can have an override. Each takes some 100 bytes beside its state, until it has
/// ended and the policy is asked about any key. Nothing evicts a key with an override, and it has a place even if the
/// store is full.
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
    clock: Option<AnyClock>,
    seed: Seed,
    tables: Arc<Mutex<Tables>>,
}

/// Less than three megabytes for each policy.
const MAX_KEYS: usize = 100_000;

/// More than this, which is gigabytes, is a mistake.
const MOST_KEYS: usize = 100_000_000;

impl MemoryStore {
    /// A new store, which shares nothing with any other.
    pub fn new() -> Self {
        Self {
            max_keys: MAX_KEYS,
            clock: None,
            seed: Seed::of_the_process(),
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
            clock: Some(AnyClock::of(clock)),
            tables: self.without_tables(),
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
            tables: self.without_tables(),
            ..self
        }
    }

    /// What each policy takes, in the order in which they were first opened.
    pub fn usage(&self) -> Vec<Usage> {
        let tables = self.tables();
        let usage = tables.in_order().filter_map(|((policy, _), kept)| {
            let fill = kept.counter.upgrade()?.general().fill();
            Some(Usage::new(policy, kept.latest, fill))
        });
        usage.collect()
    }

    /// What this store and its clones know, as bytes to be kept until after a restart: every key
    /// that is not as good as new, is blocked or has a limit of its own, under every policy that is
    /// open.
    ///
    /// A policy is open as long as there is a limiter or a layer with it: at the end, keep a clone of
    /// it until the last snapshot is taken, or nothing is left to be in it. (A server that is given a
    /// router drops its layers when it ends.)
    ///
    /// It can be taken at any time, and requests go on meanwhile. Each key's state is one that it
    /// had during the call; what is charged later is not in it. A key takes 36 bytes as a rule, and
    /// under logs and slots what it takes in memory. All that is work: take it off the
    /// request path (on tokio, in `spawn_blocking`), now and then and once the last request is
    /// answered. Write it to a new file that is then renamed, so that a crash does not leave half of one.
    ///
    /// What was [restored](Self::restore) of a policy that has not been opened since is in it again, but
    /// for what has ended.
    ///
    /// # Who may read it
    ///
    /// It holds no key, but the secret of the fingerprints. A reader of it can test whether a guessed key is in it,
    /// and compute keys that share a state. A writer of it decides which clients are refused. Keep it as private as
    /// a password.
    ///
    /// ```
    /// use tower_ratelimit::{AnchoredWindow, ConfigError, Limiter, MemoryStore, Policy};
    ///
    /// fn limiter(store: &MemoryStore) -> Result<Limiter, ConfigError> {
    ///     Limiter::builder()
    ///         .policy(Policy::new("daily", AnchoredWindow::per_day(1)))
    ///         .store(store.clone())
    ///         .build()
    /// }
    ///
    /// let store = MemoryStore::new();
    /// let before = limiter(&store)?;
    /// assert!(before.check_now("ann", 1).is_allowed());
    /// let bytes = store.snapshot();
    ///
    /// // After the restart.
    /// let store = MemoryStore::new();
    /// let store = store.restore(&bytes).unwrap_or_else(|error| {
    ///     eprintln!("{error}");
    ///     store
    /// });
    /// let after = limiter(&store)?;
    /// assert!(!after.check_now("ann", 1).is_allowed());
    /// # Ok::<(), ConfigError>(())
    /// ```
    pub fn snapshot(&self) -> Vec<u8> {
        let now = self.its_clock().now();
        let tables = self.tables();
        let restored = tables.restored.clone();
        let open = tables.in_order().filter_map(|((policy, _), kept)| {
            let counter = kept.counter.upgrade()?;
            Some((policy.clone(), kept.latest, counter))
        });
        let open: Vec<_> = open.collect();
        let live = tables
            .blocks
            .iter()
            .filter_map(|(policy, blocks)| Some((policy.clone(), blocks.upgrade()?.each())));
        let blocks: Vec<_> = live.chain(tables.restored_blocks.clone()).collect();
        drop(tables);
        snapshot::write(&self.seed, &open, &restored, &blocks, now)
    }

    /// A new store, with the clock and the bound of this one, that knows what is in a
    /// [snapshot](Self::snapshot); it shares nothing with this one.
    ///
    /// When a policy is opened whose name and algorithm are in the snapshot, its keys are there
    /// again, and decisions are those that would have been made without the restart. Its limit (a
    /// bucket's capacity, a queue's places) may be another now: what was used stays used. If the
    /// algorithm, its period or its number of slots is another, the policy starts empty, and the
    /// log warns of it. [`restored`](Self::restored) tells what has become of each policy.
    ///
    /// - Times are those of the wall clock, so the time that passed in between counts: what has
    ///   become as good as new is forgotten.
    /// - If there are more keys than this store keeps, those that have used the most stay.
    /// - Newcomers that were counted together, since there was no room, still are.
    /// - Where the limit is another than before, keys may take 48 bytes in place of 26 until the next
    ///   restart.
    /// - Keys that are hashed with a [`Secret`](crate::key::Secret) are the same after a restart only
    ///   if the secret is: give one from configuration to extractors that hash, since that of the
    ///   process dies with it.
    ///
    /// # Errors
    ///
    /// When the bytes are no snapshot, of another version of the format, damaged, or of a program
    /// that was built otherwise and makes other fingerprints. This store is left as it was, to go on
    /// with.
    pub fn restore(&self, snapshot: &[u8]) -> Result<Self, RestoreError> {
        let Snapshot {
            seed,
            restored,
            blocks,
        } = snapshot::read(snapshot)?;
        Ok(Self {
            seed,
            tables: Tables::with(restored, blocks),
            ..self.clone()
        })
    }

    /// What has become of each policy of the snapshot that this store was [restored](Self::restore)
    /// from.
    pub fn restored(&self) -> Vec<Restored> {
        self.tables().restored.clone()
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was restored and is not opened yet.
    fn without_tables(&self) -> Arc<Mutex<Tables>> {
        let tables = self.tables();
        let waiting = tables.restored.iter().filter(|one| one.is_waiting());
        let waiting = waiting.cloned().collect();
        Tables::with(waiting, tables.restored_blocks.clone())
    }

    fn its_clock(&self) -> AnyClock {
        let clock = self.clock.clone();
        clock.unwrap_or_else(|| AnyClock::of(SystemClock::new()))
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

    fn counts_refusals(&self) -> bool {
        true
    }

    fn holds_slots(&self) -> bool {
        true
    }

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
    /// Opens the policies as [`Store::open`] does, where the names are known to be good.
    pub(crate) fn ledger(&self, policies: &[Policy]) -> MemoryLedger {
        let mut tables = self.tables();
        let clock = self.its_clock();
        let opened = policies.iter().map(|policy| {
            let algorithm = *policy.algorithm();
            let opened = tables.open(policy.name(), algorithm, self.max_keys, || clock.now());
            Opened {
                penalty: policy.named_penalty(),
                ..opened
            }
        });
        let opened = opened.collect();
        MemoryLedger::new(clock, self.seed.clone(), opened)
    }
}
