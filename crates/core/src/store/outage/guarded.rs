//! A ledger, and the guard that decides while its store is away.
//!
//! A store that needs no guard is asked directly, so a ledger in memory pays one branch for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::clock::Clock;
use crate::decision::Outcomes;
use crate::error::{ConfigError, StoreError};
use crate::observe::{KeyStats, StoreStats};
use crate::policy::Policy;
use crate::store::{Amendment, Charge, Charged, Ledger, Outlook, Reply, Store, Wanted};

/// A ledger, and what this node does while its store is away.
///
/// A ledger in this process is never away, and has no guard. The guard is behind a vtable, so that a program
/// without such a store does not contain it.
pub(crate) struct Guarded<L: ?Sized> {
    guard: Option<Arc<dyn Ledger>>,
    ledger: Arc<L>,
}

impl<L: Ledger> Guarded<L> {
    /// Opens a ledger of this store for these policies.
    pub(crate) fn open(
        store: &impl Store<Ledger = L>,
        policies: &[Policy],
    ) -> Result<Self, ConfigError> {
        let has_penalty = |policy: &&Policy| policy.named_penalty().is_some();
        if let Some(policy) = policies.iter().find(has_penalty)
            && !store.counts_refusals()
        {
            let remedy = "leave it out, or take a store that counts refusals: MemoryStore, RedisStore or SharedStore";
            return Err(ConfigError::quoting("penalty", policy.name(), remedy));
        }
        let limits_concurrency = |policy: &&Policy| policy.algorithm().limits_concurrency();
        if let Some(policy) = policies.iter().find(limits_concurrency)
            && !store.holds_slots()
        {
            let remedy = "take a store that knows slots: MemoryStore or RedisStore";
            return Err(ConfigError::quoting("concurrency", policy.name(), remedy));
        }
        let ledger = Arc::new(store.open(policies)?);
        let guard = match store.availability() {
            Some(availability) => Some(availability.guard(policies, &ledger)?),
            None => None,
        };
        Ok(Self { guard, ledger })
    }

    /// Wraps a ledger that is never away.
    pub(crate) fn in_process(ledger: L) -> Self {
        Self {
            guard: None,
            ledger: Arc::new(ledger),
        }
    }

    /// Returns the same with its type erased.
    pub(crate) fn erased(self) -> Guarded<dyn Ledger> {
        Guarded {
            guard: self.guard,
            ledger: self.ledger,
        }
    }
}

impl<L: ?Sized> Guarded<L> {
    /// Returns the ledger itself.
    #[inline]
    pub(crate) fn inner(&self) -> &L {
        &self.ledger
    }
}

impl<L: Ledger + ?Sized> Ledger for Guarded<L>
where
    Self: Send + Sync + 'static,
{
    #[inline]
    fn charge(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> Charged {
        let Some(guard) = &self.guard else {
            return self.ledger.charge(charges, wanted, outcomes);
        };
        guard.charge(charges, wanted, outcomes)
    }

    fn take_up_to(&self, charges: &[Charge]) -> Reply<Result<(u32, Outcomes), StoreError>> {
        match &self.guard {
            None => self.ledger.take_up_to(charges),
            Some(guard) => guard.take_up_to(charges),
        }
    }

    fn peek(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        match &self.guard {
            None => self.ledger.peek(charges),
            Some(guard) => guard.peek(charges),
        }
    }

    fn outlook(&self, charges: &[Charge]) -> Reply<Result<Outlook, StoreError>> {
        match &self.guard {
            None => self.ledger.outlook(charges),
            Some(guard) => guard.outlook(charges),
        }
    }

    fn refusals(&self, charge: &Charge) -> Reply<Result<u32, StoreError>> {
        match &self.guard {
            None => self.ledger.refusals(charge),
            Some(guard) => guard.refusals(charge),
        }
    }

    fn leased(&self, charge: &Charge) -> Reply<Result<u32, StoreError>> {
        match &self.guard {
            None => self.ledger.leased(charge),
            Some(guard) => guard.leased(charge),
        }
    }

    fn amend(&self, charges: &[Charge], amendment: Amendment) -> Reply<Result<bool, StoreError>> {
        match &self.guard {
            None => self.ledger.amend(charges, amendment),
            Some(guard) => guard.amend(charges, amendment),
        }
    }

    fn stats(&self) -> StoreStats {
        match &self.guard {
            None => self.ledger.stats(),
            Some(guard) => guard.stats(),
        }
    }

    fn keys(&self, policy: usize) -> Option<KeyStats> {
        self.ledger.keys(policy)
    }

    fn holds_for(&self, policy: usize) -> Duration {
        self.ledger.holds_for(policy)
    }

    fn runtime(&self) -> Option<Handle> {
        self.ledger.runtime()
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.ledger.clock()
    }
}

impl<L: ?Sized> Clone for Guarded<L> {
    fn clone(&self) -> Self {
        Self {
            guard: self.guard.clone(),
            ledger: Arc::clone(&self.ledger),
        }
    }
}

impl<L: fmt::Debug + ?Sized> fmt::Debug for Guarded<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.ledger, f)
    }
}
