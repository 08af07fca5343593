use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use http::Request;

#[cfg(feature = "usage")]
use super::enforcer::Ahead;
use super::enforcer::{Enforcer, EnforcerVerdict};
use super::shadow::Shadow;
#[cfg(feature = "usage")]
use crate::key::AheadOfBody;
use crate::observe::ConfigStats;
use crate::observe::{Monitored, Snapshot};

/// The enforcer of a layer: a constant one, or that of the newest configuration.
#[derive(Clone, Debug)]
pub(super) enum CurrentEnforcer {
    One(Arc<Enforcer>),
    Newest(Arc<Newest>),
}

/// The enforcer of the newest configuration.
#[derive(Debug)]
pub(super) struct Newest {
    in_force: ArcSwap<InForce>,
    configuration: Mutex<Option<ConfigStats>>,
}

/// The enforcer in force, and the shadow beside it.
#[derive(Debug)]
struct InForce {
    enforcer: Arc<Enforcer>,
    shadow: Option<Arc<Shadow>>,
}

impl Newest {
    pub(super) fn new(enforcer: &Arc<Enforcer>, shadow: Option<Arc<Shadow>>) -> Self {
        let enforcer = Arc::clone(enforcer);
        Self {
            in_force: ArcSwap::from_pointee(InForce { enforcer, shadow }),
            configuration: Mutex::default(),
        }
    }

    /// Puts this enforcer in force for requests that come from now on; its counters continue. Returns the
    /// previous enforcer.
    pub(super) fn put(
        &self,
        enforcer: &Arc<Enforcer>,
        shadow: Option<Arc<Shadow>>,
    ) -> Arc<Enforcer> {
        let before = Arc::clone(&self.in_force.load().enforcer);
        enforcer.policies().go_on_from(before.policies());
        let enforcer = Arc::clone(enforcer);
        self.in_force.store(Arc::new(InForce { enforcer, shadow }));
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

impl CurrentEnforcer {
    /// Rules on a request by the enforcer in force. A request that waits keeps it until its end, whatever configuration comes
    /// meanwhile.
    #[inline]
    pub(super) fn ask<B>(&self, request: &mut Request<B>) -> EnforcerVerdict {
        match self {
            Self::One(enforcer) => enforcer.ask(request),
            Self::Newest(newest) => {
                let in_force = newest.in_force.load();
                match &in_force.shadow {
                    None => in_force.enforcer.ask(request),
                    Some(shadow) => shadow.ask_beside(&in_force.enforcer, request),
                }
            }
        }
    }

    /// Looks at a request before its body is read. An enforcer in shadow does not see it.
    #[cfg(feature = "usage")]
    pub(super) fn look_ahead<B>(&self, request: &mut Request<B>, body: &AheadOfBody) -> Ahead {
        self.with(|enforcer| enforcer.look_ahead(request, body))
    }

    /// Returns the shadow beside the enforcer in force.
    pub(super) fn shadow(&self) -> Option<Arc<Shadow>> {
        match self {
            Self::One(_) => None,
            Self::Newest(newest) => newest.in_force.load().shadow.clone(),
        }
    }

    /// Calls `act` with the enforcer in force.
    pub(super) fn with<R>(&self, act: impl FnOnce(&Arc<Enforcer>) -> R) -> R {
        match self {
            Self::One(enforcer) => act(enforcer),
            Self::Newest(newest) => act(&newest.in_force.load().enforcer),
        }
    }
}

impl Monitored for CurrentEnforcer {
    fn snapshot(&self) -> Snapshot {
        let snapshot = self.with(|enforcer| enforcer.limiter().snapshot());
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
