//! State in this process.

mod table;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use smallvec::SmallVec;

use self::table::{Locked, Table};
use super::{Charge, Ledger, Reply, Store};
use crate::algorithm::{Algorithm, State};
use crate::clock::{Clock, Micros, SystemClock};
use crate::decision::{Outcome, Outcomes};
use crate::error::{ConfigError, StoreError};
use crate::policy::Policy;

/// Keeps state in this process, exactly and without a server.
///
/// Clones share their state: two limiters over one store that have a policy of the same name
/// and the same algorithm count together.
///
/// Keys whose state is as good as new are forgotten as the store grows, at most a few per
/// request on average; nothing runs in the background. The number of keys with live state has
/// no bound of its own yet.
///
/// # Defaults
///
/// - clock: [`SystemClock`]
#[derive(Clone)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    tables: Arc<Mutex<HashMap<TableName, Arc<Table>>>>,
}

/// A policy's state is of no use to another algorithm.
type TableName = (String, Algorithm);

impl MemoryStore {
    /// A new store, which shares nothing with any other.
    pub fn new() -> Self {
        Self {
            clock: Arc::new(SystemClock::new()),
            tables: Arc::default(),
        }
    }

    /// Reads the time from this clock, such as a [`ManualClock`](crate::ManualClock) in tests.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
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
        Ok(self.ledger(policies))
    }
}

impl MemoryStore {
    /// The same as [`Store::open`]: any policy can be held in memory.
    pub(crate) fn ledger(&self, policies: &[Policy]) -> MemoryLedger {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let policies = policies
            .iter()
            .map(|policy| {
                let algorithm = *policy.algorithm();
                // Locks are taken in the order of these numbers.
                let number = tables.len();
                let table = tables
                    .entry((policy.name().to_owned(), algorithm))
                    .or_insert_with(|| Arc::new(Table::new(number)));
                (algorithm, Arc::clone(table))
            })
            .collect();
        MemoryLedger {
            clock: Arc::clone(&self.clock),
            policies,
        }
    }
}

/// A [`MemoryStore`] opened for a list of policies.
#[derive(Clone)]
pub struct MemoryLedger {
    clock: Arc<dyn Clock>,
    policies: Arc<[(Algorithm, Arc<Table>)]>,
}

impl MemoryLedger {
    /// Decides on one request; see [`Ledger::charge`].
    pub fn charge_now(&self, charges: &[Charge]) -> Outcomes {
        let mut asked = self.asked(charges);
        // Every decision locks tables in the same order, or two could wait for each other.
        asked.sort_unstable_by_key(|(_, _, table)| table.number());
        let mut locked: SmallVec<[(&Charge, &Algorithm, Locked<'_>); 8]> = asked
            .into_iter()
            .map(|(charge, algorithm, table)| (charge, algorithm, table.lock(&charge.key)))
            .collect();
        locked.sort_unstable_by_key(|(charge, _, _)| charge.policy);
        // Under the locks, so that no state is newer than the time that it is held against.
        let now = self.clock.now();

        let mut attempts: SmallVec<[Attempt<'_>; 8]> = locked
            .into_iter()
            .map(|(charge, algorithm, entry)| Attempt::new(charge, algorithm, entry, now))
            .collect();
        let stand = attempts.iter().all(|attempt| attempt.allowed);
        let mut outcomes = Outcomes::new(now);
        for attempt in &mut attempts {
            if stand {
                attempt.charge(now);
            }
            outcomes.push(attempt.charge.policy, attempt.outcome(now));
        }
        outcomes
    }

    fn asked<'a>(
        &'a self,
        charges: &'a [Charge],
    ) -> SmallVec<[(&'a Charge, &'a Algorithm, &'a Table); 8]> {
        let asked = charges.iter().filter_map(|charge| {
            let (algorithm, table) = self.policies.get(charge.policy)?;
            Some((charge, algorithm, &**table))
        });
        asked.collect()
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
    fn new(
        charge: &'a Charge,
        algorithm: &'a Algorithm,
        mut entry: Locked<'a>,
        now: Micros,
    ) -> Self {
        let mut seen = algorithm.moved_back(entry.state(), now);
        if charge.cost > 0
            && let Some(possible) = seen.take()
        {
            entry.change(|_| false, |state| *state = possible);
        }
        let allowed = algorithm.allows(seen.as_ref().unwrap_or(entry.state()), now, charge.cost);
        Self {
            charge,
            algorithm,
            entry,
            seen,
            allowed,
        }
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
        let state = self.seen.as_ref().unwrap_or(self.entry.state());
        self.algorithm
            .outcome(state, now, self.charge.cost, self.allowed)
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
