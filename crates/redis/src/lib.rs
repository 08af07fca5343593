#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]

// - `glue.rs` joins the Lua steps of all algorithms and a driver, such as `charge.lua`, into one script. Every driver opens a key by
//   `open.lua`: state, marks, and the numbers in force.
// - `first_of.lua` is the driver for requests of which one of several policies pays: it decides on all, and then charges. In Rust,
//   `store/alternatives.rs` of the core has the same choice, for `store/shared` and for what is answered.
// - `divided.lua` is the driver for requests under limits that are divided among tenants, or guaranteed in part to children:
//   `shares.lua`, `holders.lua` and `children.lua` of the core have the rules. `fair_amend.lua` and `guarantee_amend.lua` settle and give back.
// - `backend.rs` calls the script. Simultaneous requests share a call (`batcher.rs`), and so do settlements; `query.rs` and
//   `settlement.rs` make the calls.
// - `server.rs` has the connection to a server. `cluster.rs` has a connection to each primary, and a view of the slots.
// - `lease/` is the rule by which a node takes several units at once: `lease.lua` at the server, and `pair.rs` at the node. It does no
//   I/O. `tests/unit/leases` has a twin of the script in Rust, and a simulation that plays node and server in virtual time.
//   `leases.rs` keeps the pairs of a node, and `lending.rs` asks for units and gives them back. Units of a limit that is divided among
//   tenants are those of a tenant, by `shares.lua` of the core.
// - `background.rs` is the thread of a store.
mod address;
mod backend;
mod background;
mod batcher;
mod builder;
mod calls;
mod cluster;
mod connection;
mod counting;
mod denials;
mod failure;
#[cfg(test)]
#[path = "../tests/unit/functions.rs"]
mod functions;
mod glue;
mod greeting;
mod lease;
mod lease_options;
mod leases;
mod lending;
mod link;
mod login;
mod node;
mod not_leased;
mod numbers;
mod opened;
mod pairs;
mod promise;
mod query;
mod ranges;
mod reconnecting;
mod remote;
mod renewal;
mod reply;
mod script;
mod sentinel;
mod server;
mod settlement;
mod slots;
mod state_key;
mod under_way;
mod view;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use self::batcher::Batcher;
use self::calls::Calls;
use self::counting::Counting;
use self::denials::DenialCache;
use self::lease::{NodeClock, Terms};
use self::leases::Leases;
use self::link::Link;
use self::not_leased::{SmallLimits, terms};
use self::opened::OpenedPolicy;
use self::query::{Deciding, dividing, dividing_slots};
use self::script::Script;
use self::settlement::SettlementEncoder;
use self::state_key::InBraces;
use self::under_way::UnderWay;
use tower_ratelimit_core::__internal::Allotment;
use tower_ratelimit_core::__internal::Lua;
use tower_ratelimit_core::__internal::Sealed;
use tower_ratelimit_core::__internal::check_names;
use tower_ratelimit_core::__internal::{KeyEpochs, SlotsInUse, Standby, Watch};
use tower_ratelimit_core::algorithm::Algorithm;
use tower_ratelimit_core::clock::Clock;
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::error::ConfigError;
use tower_ratelimit_core::key::IntoKey;
use tower_ratelimit_core::policy::Policy;
use tower_ratelimit_core::store::{Availability, NodeCount, Payers, Store};

pub use self::backend::RedisBackend;
pub use self::builder::RedisStoreBuilder;
pub use self::lease_options::Lease;

/// Keeps state in Redis or Valkey, where many nodes share it.
///
/// One script decides a request in one round trip, for all policies or none, at a moment of the server's
/// clock. Over one server that is exact, however many nodes ask. [Many nodes][many_nodes] says
/// what is not exact: keys of a request that are on different servers of a cluster, denials, which are
/// remembered for a second at most, and what a failover loses. It also says how to run a server, and how much
/// memory a key takes there.
///
/// [`new`](Self::new) connects with the first request, and [`connect`](Self::connect) at once; the
/// [`builder`](Self::builder) has the options, clusters, and connections of your own. Clones share a
/// connection.
///
/// ```no_run
/// use tower_ratelimit_core::{Limiter, Policy, TokenBucket};
/// use tower_ratelimit_redis::RedisStore;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::connect("redis://127.0.0.1:6379/").await?;
/// let limiter = Limiter::builder()
///     .policy(Policy::new("mails", TokenBucket::per_second(5).burst(10)))
///     .store(store)
///     .build()?;
/// let decision = limiter.check("ann@example.org", 1).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Runtimes
///
/// The first request starts a thread of the store, which ends with the last clone and limiter. It connects, calls, settles,
/// renews and probes, so that requests may come from any runtimes, which may end, sleep or be busy. A request waits by a timer
/// of its own runtime. If the clock of that runtime is [paused](https://docs.rs/tokio/latest/tokio/time/fn.pause.html), the
/// timer fires at once and the request is decided without the store: tests [move a `ManualClock`][testing]
/// instead.
///
/// [many_nodes]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/many_nodes/index.html
/// [testing]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/testing/index.html
#[derive(Clone)]
pub struct RedisStore {
    link: Arc<Link>,
    watch: Arc<Watch>,
    prefix: Arc<str>,
    nodes: Option<NodeCount>,
    /// Counts the nodes, if that was asked for.
    counting: Option<Arc<Counting>>,
    remember_denials_for: Duration,
    slot_ttl: Duration,
    /// The longest life of a leased unit, or `None` if no unit is leased.
    lease: Option<Micros>,
    opened: Arc<Mutex<Vec<Weak<Calls>>>>,
    epochs: Arc<KeyEpochs>,
    changes: Arc<KeyEpochs>,
    clock: Option<Arc<dyn Clock>>,
}

/// The version of the layout of keys and states. Nodes with different versions do not see each other's
/// states.
const LAYOUT: u32 = 1;

impl RedisStore {
    /// Returns the key under which Redis has the state of this key under this policy, for operators.
    ///
    /// It is the prefix, the version of the layout, the client in braces, so that all its states are in one
    /// slot of a cluster, the policy's name, its algorithm and its period.
    ///
    /// ```
    /// use tower_ratelimit_core::{Policy, TokenBucket};
    /// use tower_ratelimit_redis::RedisStore;
    ///
    /// let store = RedisStore::new("redis://127.0.0.1:6379/")?;
    /// let policy: Policy = Policy::new("default", TokenBucket::per_second(5));
    /// assert_eq!(
    ///     store.store_key(&policy, "ann"),
    ///     "ratelimit:1:{t:ann}:default:token-bucket/second",
    /// );
    /// # Ok::<(), tower_ratelimit_core::ConfigError>(())
    /// ```
    pub fn store_key(&self, policy: &impl AsRef<Policy>, key: impl IntoKey) -> String {
        InBraces::of(&key.into_key()).state_key(&self.prefix, &suffix(policy.as_ref()))
    }

    /// Logs in as another store does, with its user and its password, since they have changed: in each attempt to connect that
    /// begins from now on. It is a store for the same servers, which needs no connection.
    ///
    /// A connection that is open stays as it is: Redis asks for the password as one is opened. So change it in two steps: let
    /// the server accept both, call this in each process, and then have it forget the old one.
    ///
    /// ```
    /// use tower_ratelimit_redis::RedisStore;
    ///
    /// let store = RedisStore::new("redis://limiter:first@10.0.0.7/")?;
    /// store.renew_login(&RedisStore::new("redis://limiter:second@10.0.0.7/")?)?;
    /// # Ok::<(), tower_ratelimit_core::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the other store is for other servers, another database or another way to them, and when one of the two is over a
    /// connection of your own. Then nothing has changed.
    pub fn renew_login(&self, newer: &Self) -> Result<(), ConfigError> {
        if self.link.renew_login(&newer.link) {
            return Ok(());
        }
        let remedy = "give a store that is opened as this one was, by addresses that differ in user and password alone";
        Err(ConfigError::quoting("login", &newer.link.servers(), remedy))
    }

    /// Returns how many calls to the server took how long, as `Times` counts them.
    // For `tower-ratelimit-adapt`.
    #[doc(hidden)]
    pub fn times_of_calls(&self) -> Vec<u64> {
        self.watch.calls().all_times()
    }
}

impl RedisStore {
    /// Gives back what this process holds: the units that it has leased and not spent (see [`RedisStoreBuilder::lease`]), and
    /// the slots of requests that have ended.
    /// Call it before the process ends, after the last request: units that are not given back lapse at the
    /// end of their life. It waits
    ///
    /// 1. for what ended requests have begun: slots that are freed, and costs that are settled or refunded,
    /// 2. for the answers that bring more units,
    /// 3. for the server to hear of all units,
    ///
    /// for no longer than the [deadline](RedisStoreBuilder::deadline) each.
    ///
    /// Limiters and layers over the store continue, and lease again.
    pub async fn give_leases_back(&self) {
        let opened: Vec<Arc<Calls>> = self.opened().iter().filter_map(Weak::upgrade).collect();
        for calls in opened {
            if calls.leases.is_some() || !calls.amendments.is_none() {
                let link = Arc::clone(&calls.link);
                let given = async move { lending::give_back(&calls).await };
                let _ = link.wait(3, link.background.run(given)).await;
            }
        }
    }

    fn opened(&self) -> MutexGuard<'_, Vec<Weak<Calls>>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sealed for RedisStore {}

impl Store for RedisStore {
    type Backend = RedisBackend;

    fn is_shared(&self) -> bool {
        true
    }

    /// `None`: its backends handle an outage by themselves.
    fn availability(&self) -> Option<Availability> {
        None
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
        if self.lease.is_some() {
            Payers::None(
                "leave `lease` out, or give the policies of `first_of` a store without it: a node that holds units cannot choose who pays",
            )
        } else if self.link.is_divided() {
            Payers::OfOneRoot
        } else {
            Payers::OfAnyKeys
        }
    }

    fn open(&self, given: &[Policy]) -> Result<RedisBackend, ConfigError> {
        check_names(given.iter().map(Policy::name))?;
        check_hours(given)?;
        let guarantees = Allotment::guarantees(given);
        let counted = given
            .iter()
            .zip(guarantees)
            .map(|(policy, below)| OpenedPolicy::new(policy, suffix(policy)).guaranteeing(below));
        let policies: Arc<[OpenedPolicy]> = counted.collect();
        let rules: Vec<Lua> = policies.iter().filter_map(|policy| policy.lua).collect();
        let in_use = rules_that_hold(&policies);
        let terms = self.lease.map(|life| terms(given, life));
        let deciding = Deciding::new(&policies, terms.clone());
        let leases = terms.map(|terms| self.leases(given, terms));
        let standby = self.standby(given);
        if let Some(counting) = &self.counting {
            counting.begin(&self.link, &self.prefix);
        }
        let calls = Arc::new(Calls {
            standby,
            watch: Arc::clone(&self.watch),
            charge: Batcher::new(deciding, &self.link, &self.watch),
            settle: Batcher::new(SettlementEncoder::new(&policies), &self.link, &self.watch),
            amend: Script::of(&rules, include_str!("amend.lua")),
            amend_shares: Script::of(&rules, &dividing(&policies, include_str!("fair_amend.lua"))),
            amend_guarantees: Script::of(
                &rules,
                &dividing(&policies, include_str!("guarantee_amend.lua")),
            ),
            take: Script::of(&rules, include_str!("take.lua")),
            renew: Script::of(
                &in_use,
                &dividing_slots(&policies, include_str!("renew.lua")),
            ),
            in_use: SlotsInUse::default(),
            slot_life: self.slot_ttl.into(),
            amendments: UnderWay::default(),
            denials: self.denials(),
            epochs: Arc::clone(&self.epochs),
            changes: Arc::clone(&self.changes),
            leases,
            link: Arc::clone(&self.link),
            prefix: Arc::clone(&self.prefix),
            policies,
            clock: self.clock.clone(),
        });
        let mut opened = self.opened();
        opened.retain(|calls| calls.strong_count() > 0);
        opened.push(Arc::downgrade(&calls));
        drop(opened);
        Ok(RedisBackend::new(calls))
    }
}

impl RedisStore {
    /// Creates the leases of a backend for these policies.
    fn leases(&self, policies: &[Policy], terms: Box<[Option<Terms>]>) -> Leases {
        let clock = NodeClock::new(self.clock.clone());
        let terms = (terms, SmallLimits::new(policies));
        Leases::new(clock, terms, Arc::clone(&self.changes))
    }

    /// Creates the copy of these policies that decides while the server is away.
    fn standby(&self, policies: &[Policy]) -> Arc<Standby> {
        let clock = self.clock.clone();
        let standby = Arc::new(Standby::new(policies, self.nodes.clone(), clock));
        let store = format!("the store {:?}", self.prefix);
        self.watch.stands_in(&standby, &store);
        standby
    }

    /// Creates the cache of denials, unless denials are not remembered.
    fn denials(&self) -> Option<DenialCache> {
        let remembers = !self.remember_denials_for.is_zero() && self.clock.is_none();
        remembers.then(|| DenialCache::new(self.remember_denials_for, Arc::clone(&self.epochs)))
    }
}

fn rules_that_hold(policies: &[OpenedPolicy]) -> Vec<Lua> {
    let in_use = policies
        .iter()
        .filter(|policy| matches!(policy.algorithm, Algorithm::Concurrency(_)));
    in_use.filter_map(|policy| policy.lua).collect()
}

/// Returns the policy's name and the frame of its states.
fn suffix(policy: &Policy) -> String {
    format!("{}:{}", policy.name(), policy.algorithm().frame_text())
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("link", &self.link)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// Rejects a bucket whose debt drains through more switches of its hours than each call can send to a server.
fn check_hours(policies: &[Policy]) -> Result<(), ConfigError> {
    let now = Micros::by_this_node();
    let too_many = |policy: &&Policy| match policy.algorithm() {
        Algorithm::ByHours(hours) => hours.has_too_many_switches(now),
        _ => false,
    };
    match policies.iter().find(too_many) {
        None => Ok(()),
        Some(policy) => {
            let remedy = "let the bucket drain through 64 switches at most: give it a shorter period, a smaller burst or \
                          fewer hours; a window can have any";
            Err(ConfigError::quoting("hours", policy.name(), remedy))
        }
    }
}
