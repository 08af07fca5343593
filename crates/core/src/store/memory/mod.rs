//! State in this process.

mod backend;
mod blocks;
mod cell;
mod driver;
mod expiry;
mod fair;
mod guarantee;
mod holding;
mod in_words;
mod known;
mod limited;
mod offenders;
mod one_word;
mod opened;
mod opening;
mod ordering;
mod outlook;
mod page;
mod page_snapshot;
mod pages;
mod prepared;
mod seed;
mod seqlock;
mod sink;
mod slots;
mod snapshot;
mod table;
mod tables;
mod tiers;
mod timed;
mod usage;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use self::backend::MemoryBackend;
pub use self::snapshot::{RestoreStatus, Restored};
pub use self::usage::Usage;

use self::fair::{Division, SlotDivision};
use self::guarantee::Guarantee;
use self::opened::Opened;
use self::seed::Seed;
use self::snapshot::{Kept, Past};
use self::tables::Tables;
use super::{Payers, Store};
use crate::clock::{AnyClock, Clock, SystemClock};
use crate::error::{ConfigError, RestoreError};
use crate::policy::{Policy, check_names, guaranteed_below};
use crate::store::sealed::Sealed;

/// Keeps state in this process, exactly and without a server.
///
/// Clones share their state: two limiters over one store that have a policy of the same name, algorithm, period and
/// number of slots count together, each under its own limit. So a layer that is built again with another limit
/// finds what was used. State lives as long as a limiter that uses it, and longer in a
/// [`snapshot`](Self::snapshot).
///
/// # Memory
///
/// Each policy keeps at most [`max_keys`](Self::max_keys) keys. Its table starts with 56 kB for the first key
/// and doubles as keys come: 0.35 MB for 10,000 keys, and 2.6 MB for the default bound of 100,000, which is
/// 26 bytes for each key. It takes up to an eighth more after days in which all keys changed again and again.
/// The table never shrinks. Where a state does not fit one word of 64 bits (see
/// [choosing][choosing]), a key takes 48 bytes. Under sliding slots a key takes 70 bytes and 8
/// for each slot, and under a sliding log 70 and 16 for each entry. There **each entry counts as a key**, so
/// raise the bound of a log with a large limit. [`usage`](Self::usage) returns the memory in use.
///
/// Below the bound no key that has used any of its limit is forgotten. At the bound a newcomer takes the
/// place of a key that is as good as new. If there is none, it takes the place of a key that would still pass
/// a request of cost 1: among the fifty or so on the newcomer's own page, the one that has used the least. A
/// key that would not pass is never forgotten, so no client frees itself by a flood of other keys. When no
/// key can go, newcomers share one entry, which [`Outcome::is_overflow`](crate::Outcome::is_overflow)
/// reports. While the store is that full, every verb uses that entry: a peek, a refund or a settlement of one
/// newcomer is one of all newcomers, and a reset of one resets all. To keep every request fast, a newcomer
/// searches 2,500 pages at most, which are all pages of 100,000 keys, and 16 pages under a log or slots;
/// later newcomers search other pages.
///
/// No background thread removes keys. Keys that are as good as new are removed when a newcomer needs their
/// place, and before the table grows.
///
/// A key is identified by a fingerprint of 64 bits, a hash with random numbers that stay inside the process,
/// so a client cannot compute keys that collide. Among 100,000 keys, two share a fingerprint, and so a state,
/// with a probability of 3 in ten billion; among a million, of 3 in a hundred million.
///
/// # Blocked keys
///
/// A key is [blocked](crate::Limiter::block) under a policy's name, whatever its algorithm: all limiters
/// over one store that have a policy of the same name deny it, also after a change of the limit. Blocks stand
/// beside the tables: they do not count against the bound, and nothing evicts them. A block takes some 100
/// bytes until it has ended and the policy decides any request. A program that blocks clients has to bound
/// their number. A request whose key shares the last 10 bits of its fingerprint with a blocked key takes a
/// read lock.
///
/// # Several limits
///
/// A state does not depend on the limit. When a policy first meets a second limit (in another limiter, or in
/// an [override](crate::Limiter::override_limit)), its states of one word move to a table of three words,
/// page by page: the page of the key, and two more with each request that finds its page moved. A key then
/// takes 48 bytes, and the memory of the first table is kept until the last limiter is gone. At the bound, a
/// key is as good as new only if it is so under each limit that the policy has met, and a key that any of
/// these limits refuses is not forgotten.
///
/// Up to 10,000 keys of one policy can have an override. An override takes some 100 bytes beside the state,
/// until it has ended and the policy decides any request. A key with an override is never evicted, and has a
/// place even if the store is full.
///
/// # Defaults
///
/// - clock: [`SystemClock`]
/// - keys: at most 100,000 under each policy
///
/// [choosing]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/choosing/index.html
#[derive(Clone)]
pub struct MemoryStore {
    max_keys: usize,
    /// `None` stands for the system clock. It is started when a backend first needs it, since it spawns a
    /// thread.
    clock: Option<AnyClock>,
    seed: Seed,
    tables: Arc<Mutex<Tables>>,
}

/// Less than three megabytes for each policy.
const MAX_KEYS: usize = 100_000;

/// A larger bound, which is gigabytes, is a mistake.
const MOST_KEYS: usize = 100_000_000;

impl MemoryStore {
    /// Creates a store that shares nothing with any other.
    pub fn new() -> Self {
        Self {
            max_keys: MAX_KEYS,
            clock: None,
            seed: Seed::of_the_process(),
            tables: Arc::default(),
        }
    }

    /// Returns a new store that reads the time from this clock, such as a [`ManualClock`](crate::ManualClock)
    /// in tests.
    ///
    /// The new store shares no state with this one: a state means nothing under another clock.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self {
            clock: Some(AnyClock::of(clock)),
            tables: self.without_tables(),
            ..self
        }
    }

    /// Returns a new store that keeps at most this many keys under each policy, from 1 to 100 million. It
    /// shares no state with this one.
    ///
    /// A number out of this range is an error when the store is [opened](Store::open).
    pub fn max_keys(self, max_keys: usize) -> Self {
        Self {
            max_keys,
            tables: self.without_tables(),
            ..self
        }
    }

    /// Returns what each policy uses, in the order in which the policies were first opened.
    pub fn usage(&self) -> Vec<Usage> {
        let tables = self.tables();
        let usage = tables.in_order().filter_map(|((policy, _), table)| {
            let fill = table.counter.upgrade()?.general().fill();
            Some(Usage::new(policy, table.latest, fill))
        });
        usage.collect()
    }

    /// Returns the contents of this store and its clones as bytes, to be kept over a restart: for every open
    /// policy, each key that is not as good as new, is blocked, or has an override, what the keys below have left of what it
    /// [guarantees](crate::Policy::guaranteed) to them, and the [shares](crate::Policy::fair) of tenants.
    ///
    /// A policy is open as long as there is a limiter or a layer with it. Keep a clone of the limiter or
    /// layer until the last snapshot is taken, or the snapshot is empty: a server drops the layers of its
    /// router when it ends.
    ///
    /// A snapshot can be taken at any time, while requests go on. Each state in it is one that the key had
    /// during the call; later charges are not in it. A key takes 36 bytes as a rule, and under logs and slots
    /// what it takes in memory. The call takes time: run it off the request path (on tokio, in
    /// `spawn_blocking`), now and then, and once after the last request is answered. Write it to a new file
    /// and rename that, so that a crash does not leave half of one.
    ///
    /// The [restored](Self::restore) part of a policy that has not been opened since is in the snapshot
    /// again, without states that have ended.
    ///
    /// # Who may read it
    ///
    /// A snapshot holds no key, but it holds the secret of the fingerprints. A reader of it can test whether
    /// a guessed key is in it, and compute keys that share a state. A writer of it decides which clients are
    /// refused. Keep it as private as a password.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::{AnchoredWindow, ConfigError, Limiter, LocalLimiter, MemoryStore, Policy};
    ///
    /// fn limiter(store: &MemoryStore) -> Result<LocalLimiter, ConfigError> {
    ///     Limiter::builder()
    ///         .policy(Policy::new("daily", AnchoredWindow::per_day(1)))
    ///         .store(store.clone())
    ///         .build_local()
    /// }
    ///
    /// let store = MemoryStore::new();
    /// let before = limiter(&store)?;
    /// assert!(before.check("ann", 1).now().is_allowed());
    /// let bytes = store.snapshot();
    ///
    /// // After the restart.
    /// let store = MemoryStore::new();
    /// let store = store.restore(&bytes).unwrap_or_else(|error| {
    ///     eprintln!("{error}");
    ///     store
    /// });
    /// let after = limiter(&store)?;
    /// assert!(!after.check("ann", 1).now().is_allowed());
    /// # Ok::<(), ConfigError>(())
    /// ```
    pub fn snapshot(&self) -> Vec<u8> {
        let now = self.its_clock().now();
        let tables = self.tables();
        let past = tables.past.clone();
        let open = tables.in_order().filter_map(|((policy, _), table)| {
            let counter = table.counter.upgrade()?;
            Some(Kept {
                policy: policy.clone(),
                algorithm: table.latest,
                counter,
                families: table.families.upgrade(),
                tenants: table.tenants.upgrade(),
            })
        });
        let open: Vec<_> = open.collect();
        let blocks = tables
            .each_blocks()
            .map(|(policy, blocks)| (policy.clone(), blocks.each()));
        let blocks: Vec<_> = blocks.collect();
        drop(tables);
        snapshot::write(&self.seed, &open, past.as_ref(), &blocks, now)
    }

    /// Returns a new store, with the clock and the bound of this one and the contents of a
    /// [snapshot](Self::snapshot). It shares no state with this one.
    ///
    /// When a policy is opened whose name and algorithm are in the snapshot, its keys are there again, and
    /// decisions are those that would have been made without the restart. Its limit (a bucket's capacity, a
    /// queue's places) may have changed: what was used stays used. If the algorithm, its period or its number
    /// of slots has changed, the policy starts empty, and the log warns of it. [`restored`](Self::restored)
    /// reports each policy.
    ///
    /// - Times are those of the wall clock, so the time between the two processes counts: keys that have
    ///   become as good as new are forgotten.
    /// - If there are more keys than this store keeps, the keys that have used the most stay.
    /// - Newcomers that were counted together for lack of room stay together.
    /// - Under a changed limit, keys may take 48 bytes in place of 26 until the next restart.
    /// - Keys that are hashed with a [`Secret`](crate::key::Secret) are the same after a restart only if the
    ///   secret is: configure one for extractors that hash, since the secret of the process ends with it.
    ///
    /// # Errors
    ///
    /// When the bytes are not a snapshot, are damaged, have another version of the format, or come from a
    /// program that was built otherwise and makes other fingerprints. This store is unchanged and can be
    /// used.
    pub fn restore(&self, snapshot: &[u8]) -> Result<Self, RestoreError> {
        let (seed, past) = snapshot::read(snapshot)?;
        Ok(Self {
            seed,
            tables: Tables::with(Some(past)),
            ..self.clone()
        })
    }

    /// Returns what happened to each policy of the snapshot that this store was [restored](Self::restore)
    /// from.
    pub fn restored(&self) -> Vec<Restored> {
        let tables = self.tables();
        let past = tables.past.as_ref();
        past.map_or_else(Vec::new, |past| past.policies().to_vec())
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns new tables with the restored state that no policy has been opened for.
    fn without_tables(&self) -> Arc<Mutex<Tables>> {
        Tables::with(self.tables().past.as_ref().map(Past::waiting))
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

impl Sealed for MemoryStore {}

impl Store for MemoryStore {
    type Backend = MemoryBackend;

    fn counts_refusals(&self) -> bool {
        true
    }

    fn chooses_payers(&self) -> Payers {
        Payers::OfAnyKeys
    }

    fn divides_limits(&self) -> bool {
        true
    }

    fn keeps_guarantees(&self) -> bool {
        true
    }

    fn open(&self, policies: &[Policy]) -> Result<MemoryBackend, ConfigError> {
        // A table that is locked twice would deadlock.
        check_names(policies.iter().map(Policy::name))?;
        if !(1..=MOST_KEYS).contains(&self.max_keys) {
            let remedy = "give a number from 1 to 100,000,000";
            return Err(ConfigError::new("max_keys", self.max_keys, remedy));
        }
        Ok(self.backend(policies))
    }
}

impl MemoryStore {
    /// Opens the policies as [`Store::open`] does, for names that are known to be valid.
    pub(crate) fn backend(&self, policies: &[Policy]) -> MemoryBackend {
        let mut tables = self.tables();
        let clock = self.its_clock();
        let below = guaranteed_below(policies);
        let opened = policies.iter().map(|policy| {
            let algorithm = *policy.algorithm();
            let opened = tables.open(policy.name(), algorithm, self.max_keys, || clock.now());
            let fair = policy.fairness();
            let of_slots = fair.filter(|_| algorithm.limits_concurrency());
            let slot_division = of_slots.and_then(|fair| {
                let tenants = tables.slot_tenants(policy.name(), self.max_keys);
                SlotDivision::of(&algorithm, fair, tenants)
            });
            let of_rate = fair.filter(|_| !algorithm.limits_concurrency());
            let division = of_rate.and_then(|fair| {
                let tenants = tables.tenants(policy.name(), &algorithm, self.max_keys);
                Division::of(&algorithm, fair, tenants)
            });
            let guarantee = below.get(policy.shown_name());
            let guarantee = guarantee.map(|&(_, child, units)| {
                let families = tables.families(policy.name(), &algorithm, self.max_keys);
                Guarantee::new(child, units, families)
            });
            Opened {
                penalty: policy.named_penalty(),
                division,
                guarantee,
                slot_division,
                ..opened
            }
        });
        let opened = opened.collect();
        MemoryBackend::new(clock, self.seed.clone(), opened)
    }
}
