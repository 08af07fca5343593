//! The limits without their store, by which a question is decided that the store does not answer in time.
//!
//! A store has a deadline of its own, and decides by itself after it. A call of Envoy may have less time than that, and a request may
//! take several calls to the store.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tower_ratelimit::__internal::Sealed;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::error::{ConfigError, StoreError, StoreErrorKind};
use tower_ratelimit::store::{
    Amendment, Availability, Backend, Charge, Charged, NodeCount, Payers, Reply, Store, Wanted,
};

use crate::limits::Limits;
use crate::question::{self, Decider};

/// The kind of a store that is in this process, and always answers.
const IN_PROCESS: &str = "memory";

/// The time between two looks at the number of nodes.
const AGAIN: Duration = Duration::from_secs(1);

/// Decides as each policy says for the time without a store, under the share of this node.
pub(crate) struct Late {
    limits: Limits,
    /// How many share the store.
    nodes: NodeCount,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// With the version of the limits.
    decider: Option<(u64, Decider)>,
    /// When the nodes were last counted.
    counted: Option<Instant>,
}

impl Late {
    /// Returns `None` if the store of these limits always answers.
    pub(crate) fn of(limits: &Limits) -> Option<Arc<Self>> {
        let store = limits.layer().limiter().snapshot().store;
        (store.kind != IN_PROCESS).then(|| {
            Arc::new(Self {
                limits: limits.clone(),
                nodes: NodeCount::new(1),
                known: Mutex::default(),
            })
        })
    }

    /// Returns what decides by the limits in force. What it has counted lasts until they change.
    pub(crate) fn decider(&self) -> Result<Decider, ConfigError> {
        let version = self.limits.version();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known
            .counted
            .is_none_or(|counted| counted.elapsed() >= AGAIN)
        {
            let store = self.limits.layer().limiter().snapshot().store;
            // It refuses 0.
            let _ = self.nodes.set(store.nodes.unwrap_or(1));
            known.counted = Some(Instant::now());
        }
        if let Some((of, decider)) = &known.decider
            && *of == version
        {
            return Ok(decider.clone());
        }
        let absent = Absent {
            nodes: self.nodes.clone(),
        };
        // The file in shadow has seen the question.
        let decider = question::decider(&self.limits.config().live_layer_over(absent)?);
        known.decider = Some((version, decider.clone()));
        Ok(decider)
    }
}

/// A store that is away.
#[derive(Clone, Debug)]
struct Absent {
    nodes: NodeCount,
}

impl Sealed for Absent {}

/// It takes every policy, since another store has taken it.
impl Store for Absent {
    type Backend = Self;

    fn open(&self, _: &[tower_ratelimit::policy::Rule]) -> Result<Self, ConfigError> {
        Ok(self.clone())
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn counts_refusals(&self) -> bool {
        true
    }

    fn divides_limits(&self) -> bool {
        true
    }

    fn keeps_guarantees(&self) -> bool {
        true
    }

    fn chooses_payers(&self) -> Payers {
        Payers::OfAnyKeys
    }

    fn availability(&self) -> Option<Availability> {
        let name = "that answers in the time of a call";
        Some(Availability::new().named(name).nodes(self.nodes.clone()))
    }
}

impl Backend for Absent {
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
