//! Stores for tests: one that answers when it is released, one that always fails, one that always gives the same
//! outcomes.

use std::fmt;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tower_ratelimit::__internal::Sealed;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::policy::Rule;
use tower_ratelimit::store::{Backend, Charge, Charged, MemoryBackend, Reply, Store, Wanted};
use tower_ratelimit::{ConfigError, ManualClock, MemoryStore, StoreError};

/// Decides at once, in memory, and holds each answer back until it is released.
#[derive(Clone)]
pub(crate) struct SlowStore {
    memory: MemoryStore,
    released: Arc<Semaphore>,
}

impl SlowStore {
    pub(crate) fn new() -> Self {
        Self {
            memory: MemoryStore::new().clock(ManualClock::new()),
            released: Arc::new(Semaphore::new(0)),
        }
    }

    /// Releases this many answers, of the earliest requests.
    pub(crate) fn release(&self, answers: usize) {
        self.released.add_permits(answers);
    }
}

pub(crate) struct SlowBackend {
    memory: MemoryBackend,
    released: Arc<Semaphore>,
}

impl Sealed for SlowStore {}

impl Store for SlowStore {
    type Backend = SlowBackend;

    fn open(&self, policies: &[Rule]) -> Result<SlowBackend, ConfigError> {
        Ok(SlowBackend {
            memory: self.memory.open(policies)?,
            released: Arc::clone(&self.released),
        })
    }
}

impl Sealed for SlowBackend {}

impl Backend for SlowBackend {
    fn charge(&self, charges: &[Charge], _: Wanted, _: &mut Outcomes) -> Charged {
        let outcomes = self.memory.charge_now(charges);
        let released = Arc::clone(&self.released);
        Charged::later(async move {
            released.acquire().await.unwrap().forget();
            Ok(outcomes)
        })
    }

    fn peek(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        let outcomes = self.memory.peek_now(charges);
        let released = Arc::clone(&self.released);
        Reply::later(async move {
            released.acquire().await.unwrap().forget();
            Ok(outcomes)
        })
    }
}

impl fmt::Debug for SlowBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SlowBackend")
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    Now,
    Later,
}

/// Fails each time, in the same way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BrokenStore {
    pub(crate) when: When,
    pub(crate) kind: StoreErrorKind,
}

impl Sealed for BrokenStore {}

impl Store for BrokenStore {
    type Backend = Self;

    fn open(&self, _: &[Rule]) -> Result<Self, ConfigError> {
        Ok(*self)
    }
}

impl Backend for BrokenStore {
    fn charge(&self, _: &[Charge], _: Wanted, _: &mut Outcomes) -> Charged {
        let failed = Err(StoreError::new(self.kind).caused_by("redis://10.0.0.1: no route"));
        match self.when {
            When::Now => Charged::Now(failed.map(|_: Outcomes| false)),
            When::Later => Charged::later(async { failed }),
        }
    }
}

/// Answers with these outcomes each time. If it answers at once, its verdict is always a denial.
#[derive(Clone, Debug)]
pub(crate) struct Reciting {
    pub(crate) when: When,
    pub(crate) outcomes: Outcomes,
}

impl Sealed for Reciting {}

impl Store for Reciting {
    type Backend = Self;

    fn open(&self, _: &[Rule]) -> Result<Self, ConfigError> {
        Ok(self.clone())
    }
}

impl Backend for Reciting {
    fn charge(&self, _: &[Charge], _: Wanted, outcomes: &mut Outcomes) -> Charged {
        let told = self.outcomes.clone();
        match self.when {
            When::Now => {
                *outcomes = told;
                Charged::Now(Ok(false))
            }
            When::Later => Charged::later(async { Ok(told) }),
        }
    }
}
