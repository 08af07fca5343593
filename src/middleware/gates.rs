use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use http::Request;

#[cfg(feature = "usage")]
use super::gate::Ahead;
use super::gate::{Gate, GateVerdict};
use super::shadow::Shadow;
#[cfg(feature = "usage")]
use crate::key::AheadOfBody;
use crate::observe::ConfigStats;
use crate::observe::{Monitored, Snapshot};

/// The gate of a layer: a constant one, or that of the newest configuration.
#[derive(Clone, Debug)]
pub(super) enum Gates {
    One(Arc<Gate>),
    Newest(Arc<Newest>),
}

/// The gate of the newest configuration.
#[derive(Debug)]
pub(super) struct Newest {
    in_force: ArcSwap<InForce>,
    configuration: Mutex<Option<ConfigStats>>,
}

/// The gate in force, and the shadow beside it.
#[derive(Debug)]
struct InForce {
    gate: Arc<Gate>,
    shadow: Option<Arc<Shadow>>,
}

impl Newest {
    pub(super) fn new(gate: &Arc<Gate>, shadow: Option<Arc<Shadow>>) -> Self {
        let gate = Arc::clone(gate);
        Self {
            in_force: ArcSwap::from_pointee(InForce { gate, shadow }),
            configuration: Mutex::default(),
        }
    }

    /// Puts this gate in force for requests that come from now on; its counters continue. Returns the
    /// previous gate.
    pub(super) fn put(&self, gate: &Arc<Gate>, shadow: Option<Arc<Shadow>>) -> Arc<Gate> {
        let before = Arc::clone(&self.in_force.load().gate);
        gate.limiter().go_on_from(before.limiter());
        let gate = Arc::clone(gate);
        self.in_force.store(Arc::new(InForce { gate, shadow }));
        before
    }

    /// Sets the configuration that snapshots show.
    pub(super) fn set_config_stats(&self, configuration: ConfigStats) {
        *self.configuration() = Some(configuration);
    }

    fn configuration(&self) -> MutexGuard<'_, Option<ConfigStats>> {
        let configuration = self.configuration.lock();
        configuration.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gates {
    /// Rules on a request by the gate in force. A request that waits keeps it until its end, whatever configuration comes
    /// meanwhile.
    #[inline]
    pub(super) fn ask<B>(&self, request: &mut Request<B>) -> GateVerdict {
        match self {
            Self::One(gate) => gate.ask(request),
            Self::Newest(newest) => {
                let in_force = newest.in_force.load();
                match &in_force.shadow {
                    None => in_force.gate.ask(request),
                    Some(shadow) => shadow.ask_beside(&in_force.gate, request),
                }
            }
        }
    }

    /// Looks at a request before its body is read. A gate in shadow does not see it.
    #[cfg(feature = "usage")]
    pub(super) fn look_ahead<B>(&self, request: &mut Request<B>, body: &AheadOfBody) -> Ahead {
        self.with(|gate| gate.look_ahead(request, body))
    }

    /// Calls `act` with the gate in force.
    pub(super) fn with<R>(&self, act: impl FnOnce(&Arc<Gate>) -> R) -> R {
        match self {
            Self::One(gate) => act(gate),
            Self::Newest(newest) => act(&newest.in_force.load().gate),
        }
    }
}

impl Monitored for Gates {
    fn snapshot(&self) -> Snapshot {
        let snapshot = self.with(|gate| gate.limiter().snapshot());
        match self {
            Self::One(_) => snapshot,
            Self::Newest(newest) => {
                let in_force = newest.in_force.load();
                let shadow = in_force.shadow.as_ref().map(|shadow| shadow.stats());
                let mut snapshot = snapshot;
                snapshot.configuration.clone_from(&newest.configuration());
                snapshot.shadow = shadow;
                snapshot
            }
        }
    }
}
