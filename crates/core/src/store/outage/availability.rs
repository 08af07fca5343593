//! The options and the shared state of a store that may be away.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::guard::Guard;
use super::node_count::NodeCount;
use super::remote_backend::RemoteBackend;
use super::standby::Standby;
use super::watch::{Remote, Watch};
use crate::error::ConfigError;
use crate::policy::Policy;
use crate::store::Backend;
use crate::store::denials::{Remembering, SharedDenials};

/// Whether a remote store is there, and what a node needs to go on without it.
///
/// Clones share their state, so all limiters over a store find out together that it is away, and the log says
/// so once. [`Store::availability`](crate::store::Store::availability) says what happens then.
///
/// # Defaults
///
/// - name: none
/// - deadline: one second for a call
/// - nodes: unknown, and each admits a whole limit while the store is away
/// - denials are not remembered
#[derive(Clone, Default)]
#[must_use = "a store returns it"]
pub struct Availability {
    name: String,
    deadline: Option<Duration>,
    /// `None` unless it was set.
    nodes: Option<NodeCount>,
    remember_denials_for: Duration,
    /// Created with the first backend.
    watched: Arc<OnceLock<Watched>>,
}

struct Watched {
    watch: Arc<Watch>,
    elsewhere: Arc<RemoteBackend>,
    denials: Arc<SharedDenials>,
}

/// A store may have to try again when another process was faster, so this is longer than a round trip.
const DEADLINE: Duration = Duration::from_secs(1);
const LONGEST_REMEMBERED: Duration = Duration::from_secs(3_600);

impl Availability {
    /// Creates one with the [defaults](Self#defaults).
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name of the store in the log, such as its address. Leave out credentials.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets how long a call may take, from 1 ms to a minute.
    ///
    /// After the deadline it is unknown whether the request was counted. The call is not repeated, and the
    /// request is decided as if the store was away.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets how many nodes share the store. While the store is away, each node enforces its share of every
    /// limit, rounded up, for policies that are [kept locally](crate::OnStoreFailure::Local). Clients see
    /// that share.
    ///
    /// Without this number, each node admits as much as all nodes together otherwise do, and the log warns of
    /// it once.
    pub fn nodes(mut self, nodes: impl Into<NodeCount>) -> Self {
        self.nodes = Some(nodes.into());
        self
    }

    /// Sets for how long a denial is remembered at most, up to an hour, so that the same request is denied
    /// again without a call. Zero, the default, turns it off.
    ///
    /// A denial is remembered until its wait is over, by this process's clock, if every policy of the request
    /// denies one unit. The store is asked in all other cases: another cost, hours, a calendar window, a
    /// penalty, a block or an override of the key. A change by another node, such as a refund or an unblock,
    /// takes effect after this time at the latest, and a change by this node at once. A node remembers at
    /// most 10,000 denials.
    pub fn remember_denials_for(mut self, longest: Duration) -> Self {
        self.remember_denials_for = longest;
        self
    }

    /// Checks the options.
    fn check(&self) -> Result<Duration, ConfigError> {
        let deadline = self.deadline.unwrap_or(DEADLINE);
        if !(Duration::from_millis(1)..=Duration::from_secs(60)).contains(&deadline) {
            let remedy = "give a length from 1 ms to a minute";
            let given = format!("{deadline:?}");
            return Err(ConfigError::new("deadline", given, remedy));
        }
        if self.remember_denials_for > LONGEST_REMEMBERED {
            let remedy = "give an hour at most, or zero to ask the store each time";
            let given = format!("{:?}", self.remember_denials_for);
            return Err(ConfigError::new("remember_denials_for", given, remedy));
        }
        let check = |nodes: &NodeCount| nodes.check("nodes");
        self.nodes.as_ref().map_or(Ok(()), check)?;
        Ok(deadline)
    }

    /// Guards a backend that was opened for these policies.
    pub(super) fn guard<L: Backend>(
        &self,
        policies: &[Policy],
        backend: &Arc<L>,
    ) -> Result<Arc<dyn Backend>, ConfigError> {
        let deadline = self.check()?;
        let Watched {
            watch,
            elsewhere,
            denials,
        } = self.watched.get_or_init(|| {
            let elsewhere = Arc::new(RemoteBackend::new(deadline));
            let remote: Arc<dyn Remote> = Arc::clone(&elsewhere) as _;
            Watched {
                watch: Arc::new(Watch::new(remote, self.name.clone(), self.nodes.clone())),
                elsewhere,
                denials: Arc::new(SharedDenials::new()),
            }
        });
        elsewhere.add(backend, policies);
        let clock = backend.clock();
        let standby = Arc::new(Standby::new(policies, self.nodes.clone(), clock));
        let store = match (&*self.name, policies.first()) {
            ("", Some(first)) => format!("the shared store of the policy {:?}", first.shown_name()),
            (name, _) => format!("the store {name:?}"),
        };
        watch.stands_in(&standby, &store);
        let backend: Arc<dyn Backend> = Arc::clone(backend) as _;
        let guard = Guard::new(Arc::clone(watch), standby, deadline, backend);
        let longest = self.remember_denials_for;
        if longest.is_zero() {
            return Ok(Arc::new(guard));
        }
        let guard: Arc<dyn Backend> = Arc::new(guard);
        Ok(Arc::new(Remembering::new(
            guard, policies, longest, denials,
        )))
    }
}

impl fmt::Debug for Availability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Availability")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
