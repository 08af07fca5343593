use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::elsewhere::Elsewhere;
use super::guard::Guard;
use super::standby::Standby;
use super::watch::{Remote, Watch};
use crate::error::ConfigError;
use crate::policy::Policy;
use crate::store::Ledger;

/// Whether a store in another place is there, and what a node needs to know to go on without it.
///
/// Clones share what is known, so that all limiters over a store find out together that it is away, and the log
/// says it once. [`Store::availability`](crate::store::Store::availability) says what happens then.
///
/// # Defaults
///
/// - name: none
/// - deadline: one second for a call
/// - nodes: not told, and each would admit a whole limit while the store is away
#[derive(Clone, Default)]
#[must_use = "a store returns it"]
pub struct Availability {
    name: String,
    deadline: Option<Duration>,
    /// `None` unless it was said.
    nodes: Option<u32>,
    /// Made with the first ledger.
    watched: Arc<OnceLock<Watched>>,
}

struct Watched {
    watch: Arc<Watch>,
    elsewhere: Arc<Elsewhere>,
}

/// A place may have to try again when another process was quicker, so this is longer than a round trip.
const DEADLINE: Duration = Duration::from_secs(1);

impl Availability {
    /// Starts with the [defaults](Self#defaults).
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what the log calls the store, such as its address. Leave out what is needed to log in.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets how long a call may take, from 1 ms to a minute.
    ///
    /// At its end it is unknown whether the request was counted. The store is not asked again, and the request is
    /// decided as while the store is away.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets how many nodes share the store. While the store is away, each keeps to its share of every limit,
    /// rounded up, if policies are [kept locally](crate::OnStoreFailure::Local). Clients are told that share.
    ///
    /// Without it, each node admits as much as all nodes do together otherwise, and the log says so once.
    pub fn nodes(mut self, nodes: u32) -> Self {
        self.nodes = Some(nodes);
        self
    }

    /// Checks the options.
    fn check(&self) -> Result<(Duration, Option<NonZeroU32>), ConfigError> {
        let deadline = self.deadline.unwrap_or(DEADLINE);
        if !(Duration::from_millis(1)..=Duration::from_secs(60)).contains(&deadline) {
            let remedy = "give a length from 1 ms to a minute";
            let given = format!("{deadline:?}");
            return Err(ConfigError::new("deadline", given, remedy));
        }
        let nodes = self.nodes.map(|nodes| {
            let remedy = "give the number of nodes that share the store, 1 or more";
            NonZeroU32::new(nodes).ok_or_else(|| ConfigError::new("nodes", nodes, remedy))
        });
        Ok((deadline, nodes.transpose()?))
    }

    /// Guards a ledger that was opened for these policies.
    pub(super) fn guard<L: Ledger>(
        &self,
        policies: &[Policy],
        ledger: &Arc<L>,
    ) -> Result<Arc<dyn Ledger>, ConfigError> {
        let (deadline, nodes) = self.check()?;
        let Watched { watch, elsewhere } = self.watched.get_or_init(|| {
            let elsewhere = Arc::new(Elsewhere::new(deadline));
            let remote: Arc<dyn Remote> = Arc::clone(&elsewhere) as _;
            Watched {
                watch: Arc::new(Watch::new(remote, self.name.clone())),
                elsewhere,
            }
        });
        elsewhere.add(ledger, policies);
        let clock = ledger.clock();
        let nodes_or_one = nodes.unwrap_or(NonZeroU32::MIN);
        let standby = Arc::new(Standby::new(policies, nodes_or_one, clock));
        watch.stands_in(&standby, nodes, &self.name);
        let ledger: Arc<dyn Ledger> = Arc::clone(ledger) as _;
        Ok(Arc::new(Guard::new(
            Arc::clone(watch),
            standby,
            deadline,
            ledger,
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
