//! State in this process.

mod table;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use smallvec::SmallVec;

use self::table::{Locked, Table};
use super::{Charge, Ledger, Reply, Store};
use crate::algorithm::{Algorithm, State};
use crate::clock::{Clock, Micros, SystemClock};
use crate::decision::{Outcome, Outcomes};
use crate::error::{ConfigError, StoreError};
use crate::policy::{Policy, check_names};

/// Keeps state in this process, exactly and without a server.
///
/// Clones share their state: two limiters over one store that have a policy of the same name
/// and the same algorithm count together. State lives as long as a limiter that uses it.
///
/// No sweep runs in the background. When a table would have to grow, it first forgets the keys
/// whose state is as good as new; that is a few entries per request on average, and all of a
/// part of the table at once, which takes milliseconds when there are millions. Memory that was
/// needed once is kept for later, and the number of keys with live state has no bound yet.
///
/// # Defaults
///
/// - clock: [`SystemClock`]
#[derive(Clone)]
pub struct MemoryStore {
    /// The system's unless it is said. That one is set when a ledger first needs it, since it
    /// starts a thread.
    clock: Option<Arc<dyn Clock>>,
    tables: Arc<Mutex<Tables>>,
}

#[derive(Default)]
struct Tables {
    /// A table lives as long as a ledger that uses it.
    by_name: HashMap<TableName, Weak<Table>>,
    made: usize,
}

impl Tables {
    fn open(&mut self, name: TableName) -> Arc<Table> {
        if let Some(table) = self.by_name.get(&name).and_then(Weak::upgrade) {
            return table;
        }
        self.by_name.retain(|_, table| table.strong_count() > 0);
        let table = Arc::new(Table::new(self.made));
        self.made += 1;
        self.by_name.insert(name, Arc::downgrade(&table));
        table
    }
}

/// A policy's state is of no use to another algorithm.
type TableName = (String, Algorithm);

impl MemoryStore {
    /// A new store, which shares nothing with any other.
    pub fn new() -> Self {
        Self {
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
        }
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
        Ok(self.ledger(policies))
    }
}

impl MemoryStore {
    /// The same as [`Store::open`], for names that are known to be good.
    pub(crate) fn ledger(&self, policies: &[Policy]) -> MemoryLedger {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let policies: Box<[_]> = policies
            .iter()
            .map(|policy| {
                let algorithm = *policy.algorithm();
                let name = (policy.name().to_owned(), algorithm);
                (algorithm, tables.open(name))
            })
            .collect();
        let mut order_of_locking: Box<[usize]> = (0..policies.len()).collect();
        order_of_locking.sort_unstable_by_key(|&policy| policies[policy].1.number());
        let clock = self.clock.clone();
        MemoryLedger {
            clock: clock.unwrap_or_else(|| Arc::new(SystemClock::new())),
            policies,
            order_of_locking,
        }
    }
}

/// A [`MemoryStore`] opened for a list of policies.
pub struct MemoryLedger {
    clock: Arc<dyn Clock>,
    policies: Box<[(Algorithm, Arc<Table>)]>,
    /// Every decision locks tables in the order of their numbers, or two could wait for each
    /// other.
    order_of_locking: Box<[usize]>,
}

impl MemoryLedger {
    /// Decides on one request; see [`Ledger::charge`].
    pub fn charge_now(&self, charges: &[Charge]) -> Outcomes {
        let mut attempts: SmallVec<[Attempt<'_>; 8]> = SmallVec::new();
        for policy in &self.order_of_locking {
            if let Some(charge) = charges.iter().find(|charge| charge.policy == *policy) {
                let (algorithm, table) = &self.policies[*policy];
                attempts.push(Attempt::new(charge, algorithm, table));
            }
        }
        // Under the locks, so that no state is newer than the time that it is held against.
        let now = self.clock.now();

        let mut stand = true;
        for attempt in &mut attempts {
            stand &= attempt.is_allowed(now);
        }
        let mut outcomes = Outcomes::new(now);
        for attempt in &mut attempts {
            if stand {
                attempt.charge(now);
            }
            outcomes.push(attempt.charge.policy, attempt.outcome(now));
        }
        outcomes.put_in_order();
        outcomes
    }
}

impl MemoryLedger {
    /// Decides as [`charge_now`](Self::charge_now) does, and tells whether the request may go on.
    pub fn admit_now(&self, charges: &[Charge]) -> bool {
        self.charge_now(charges).is_allowed()
    }
}

/// One policy's part of a decision that is under way.
struct Attempt<'a> {
    charge: &'a Charge,
    algorithm: &'a Algorithm,
    entry: Locked<'a>,
    /// For a question that must not write: the state, moved back to now.
    seen: Option<State>,
    allowed: bool,
}

impl<'a> Attempt<'a> {
    fn new(charge: &'a Charge, algorithm: &'a Algorithm, table: &'a Table) -> Self {
        Self {
            charge,
            algorithm,
            entry: table.lock(&charge.key),
            seen: None,
            allowed: false,
        }
    }

    fn is_allowed(&mut self, now: Micros) -> bool {
        self.seen = self.algorithm.moved_back(self.entry.state(), now);
        if self.charge.cost > 0
            && let Some(possible) = self.seen.take()
        {
            self.entry.change(|_| false, |state| *state = possible);
        }
        self.allowed = self.algorithm.allows(self.state(), now, self.charge.cost);
        self.allowed
    }

    fn charge(&mut self, now: Micros) {
        let Self {
            charge, algorithm, ..
        } = *self;
        if charge.cost > 0 {
            self.entry.change(
                |state| algorithm.is_as_new(state, now),
                |state| algorithm.charge(state, now, charge.cost),
            );
        }
    }

    fn outcome(&self, now: Micros) -> Outcome {
        self.algorithm
            .outcome(self.state(), now, self.charge.cost, self.allowed)
    }

    fn state(&self) -> &State {
        self.seen.as_ref().unwrap_or(self.entry.state())
    }
}

impl Ledger for MemoryLedger {
    fn charge(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        Reply::Now(Ok(self.charge_now(charges)))
    }
}

impl fmt::Debug for MemoryLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLedger").finish_non_exhaustive()
    }
}
