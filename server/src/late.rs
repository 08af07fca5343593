//! The limits without their store, by which a question is decided that the store does not answer in time.
//!
//! A store has a deadline of its own, and decides by itself after it. A call of Envoy may have less time than that, and a request may
//! take several calls to the store.

use std::sync::{Arc, Mutex, PoisonError};

use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::error::{ConfigError, StoreError, StoreErrorKind};
use tower_ratelimit::store::{
    Amendment, Availability, Charge, Charged, Ledger, Payers, Reply, Store, Wanted,
};

use crate::gateway;
use crate::limits::Limits;
use crate::question::Decider;

/// The kind of a store that is in this process, and always answers.
const IN_PROCESS: &str = "memory";

/// Decides as each policy says for the time without a store, under the share of this node.
pub(crate) struct Late {
    limits: Limits,
    /// With the version of the limits.
    decider: Mutex<Option<(u64, Decider)>>,
}

impl Late {
    /// Returns `None` if the store of these limits always answers.
    pub(crate) fn of(limits: &Limits) -> Option<Arc<Self>> {
        let store = limits.layer().limiter().snapshot().store;
        (store.kind != IN_PROCESS).then(|| {
            Arc::new(Self {
                limits: limits.clone(),
                decider: Mutex::default(),
            })
        })
    }

    /// Returns what decides by the limits in force. What it has counted lasts until they change.
    pub(crate) fn decider(&self) -> Result<Decider, ConfigError> {
        let version = self.limits.version();
        let mut known = self.decider.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, decider)) = &*known
            && *of == version
        {
            return Ok(decider.clone());
        }
        let store = self.limits.layer().limiter().snapshot().store;
        let absent = Absent {
            nodes: store.nodes.unwrap_or(1).max(1),
        };
        let decider = gateway::decider(&self.limits.config().layer_over(absent)?);
        *known = Some((version, decider.clone()));
        Ok(decider)
    }
}

/// A store that is away.
#[derive(Clone, Copy, Debug)]
struct Absent {
    nodes: u32,
}

/// It takes every policy, since another store has taken it.
impl Store for Absent {
    type Ledger = Self;

    fn open(&self, _: &[tower_ratelimit::policy::Rule]) -> Result<Self, ConfigError> {
        Ok(*self)
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn counts_refusals(&self) -> bool {
        true
    }

    fn holds_slots(&self) -> bool {
        true
    }

    fn divides_limits(&self) -> bool {
        true
    }

    fn chooses_payers(&self) -> Payers {
        Payers::OfAnyKeys
    }

    fn availability(&self) -> Option<Availability> {
        let name = "that answers in the time of a call";
        Some(Availability::new().named(name).nodes(self.nodes))
    }
}

impl Ledger for Absent {
    fn charge(&self, _: &[Charge], _: Wanted, _: &mut Outcomes) -> Charged {
        Charged::Now(Err(late()))
    }

    fn peek(&self, _: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        Reply::Now(Err(late()))
    }

    fn amend(&self, _: &[Charge], _: Amendment) -> Reply<Result<bool, StoreError>> {
        Reply::Now(Err(late()))
    }
}

fn late() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable)
}
