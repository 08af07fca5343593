//! A backend, and the guard that decides while its store is away.
//!
//! A store that needs no guard is asked directly, so a backend in memory pays one branch for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::clock::Clock;
use crate::decision::Outcomes;
use crate::error::{ConfigError, StoreError};
use crate::observe::{KeyStats, StoreStats};
use crate::policy::Policy;
use crate::store::sealed::Sealed;
use crate::store::{
    Amendment, Backend, Charge, Charged, Outlook, Reply, Store, TenantShare, Wanted,
};

/// A backend, and what this node does while its store is away.
///
/// A backend in this process is never away, and has no guard. The guard is behind a vtable, so that a program
/// without such a store does not contain it.
pub(crate) struct Guarded<L: ?Sized> {
    guard: Option<Arc<dyn Backend>>,
    backend: Arc<L>,
}

impl<L: Backend> Guarded<L> {
    /// Opens a backend of this store for these policies.
    pub(crate) fn open(
        store: &impl Store<Backend = L>,
        policies: &[Policy],
    ) -> Result<Self, ConfigError> {
        let has_penalty = |policy: &&Policy| policy.named_penalty().is_some();
        if let Some(policy) = policies.iter().find(has_penalty)
            && !store.counts_refusals()
        {
            let remedy = "leave it out, or take a store that counts refusals: MemoryStore, RedisStore or SharedStore";
            return Err(ConfigError::quoting("penalty", policy.name(), remedy));
        }
        let backend = Arc::new(store.open(policies)?);
        let guard = match store.availability() {
            Some(availability) => Some(availability.guard(policies, &backend)?),
            None => None,
        };
        Ok(Self { guard, backend })
    }

    /// Wraps a backend that is never away.
    pub(crate) fn in_process(backend: L) -> Self {
        Self {
            guard: None,
            backend: Arc::new(backend),
        }
    }

    /// Returns the same with its type erased.
    pub(crate) fn erased(self) -> Guarded<dyn Backend> {
        Guarded {
            guard: self.guard,
            backend: self.backend,
        }
    }
}

impl<L: ?Sized> Guarded<L> {
    /// Returns the backend itself.
    #[inline]
    pub(crate) fn inner(&self) -> &L {
        &self.backend
    }
}

impl<L: Backend + ?Sized> Sealed for Guarded<L> where Self: Send + Sync + 'static {}

impl<L: Backend + ?Sized> Backend for Guarded<L>
where
    Self: Send + Sync + 'static,
{
    #[inline]
    fn charge(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> Charged {
        let Some(guard) = &self.guard else {
            return self.backend.charge(charges, wanted, outcomes);
        };
        guard.charge(charges, wanted, outcomes)
    }

    fn acquire_up_to(&self, charges: &[Charge]) -> Reply<Result<(u32, Outcomes), StoreError>> {
        match &self.guard {
            None => self.backend.acquire_up_to(charges),
            Some(guard) => guard.acquire_up_to(charges),
        }
    }

    fn peek(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        match &self.guard {
            None => self.backend.peek(charges),
            Some(guard) => guard.peek(charges),
        }
    }

    fn outlook(&self, charges: &[Charge]) -> Reply<Result<Outlook, StoreError>> {
        match &self.guard {
            None => self.backend.outlook(charges),
            Some(guard) => guard.outlook(charges),
        }
    }

    fn refusals(&self, charge: &Charge) -> Reply<Result<u32, StoreError>> {
        match &self.guard {
            None => self.backend.refusals(charge),
            Some(guard) => guard.refusals(charge),
        }
    }

    fn leased(&self, charge: &Charge) -> Reply<Result<u32, StoreError>> {
        match &self.guard {
            None => self.backend.leased(charge),
            Some(guard) => guard.leased(charge),
        }
    }

    fn tenant_share(&self, charge: &Charge) -> Reply<Result<Option<TenantShare>, StoreError>> {
        match &self.guard {
            None => self.backend.tenant_share(charge),
            Some(guard) => guard.tenant_share(charge),
        }
    }

    fn amend(&self, charges: &[Charge], amendment: Amendment) -> Reply<Result<bool, StoreError>> {
        match &self.guard {
            None => self.backend.amend(charges, amendment),
            Some(guard) => guard.amend(charges, amendment),
        }
    }

    fn stats(&self) -> StoreStats {
        match &self.guard {
            None => self.backend.stats(),
            Some(guard) => guard.stats(),
        }
    }

    fn keys(&self, policy: usize) -> Option<KeyStats> {
        self.backend.keys(policy)
    }

    fn holds_for(&self, policy: usize) -> Duration {
        self.backend.holds_for(policy)
    }

    fn runtime(&self) -> Option<Handle> {
        self.backend.runtime()
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.backend.clock()
    }
}

impl<L: ?Sized> Clone for Guarded<L> {
    fn clone(&self) -> Self {
        Self {
            guard: self.guard.clone(),
            backend: Arc::clone(&self.backend),
        }
    }
}

impl<L: fmt::Debug + ?Sized> fmt::Debug for Guarded<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.backend, f)
    }
}
