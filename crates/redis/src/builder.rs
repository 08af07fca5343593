//! The builder of a store in Redis.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{ConnectionInfo, IntoConnectionInfo};

use super::RedisStore;
use super::address::place;
use super::address::server;
use super::cluster::Seeds;
use super::counting::Counting;
use super::failure::failure;
use super::greeting::greet;
use super::lease_options::Lease;
use super::link::Link;
use super::login::Login;
use super::remote::{RedisRemote, try_out};
use super::sentinel::Sentinels;
use tower_ratelimit_core::__internal::KeyEpochs;
use tower_ratelimit_core::__internal::Watch;
use tower_ratelimit_core::clock::Clock;
use tower_ratelimit_core::error::{ConfigError, StoreError, StoreErrorKind};
use tower_ratelimit_core::store::NodeCount;

/// Builds a [`RedisStore`]; see [`RedisStore::builder`].
///
/// The last step says where the state is: [`open`](Self::open) or [`connect`](Self::connect) a server,
/// [`open_cluster`](Self::open_cluster) or [`connect_cluster`](Self::connect_cluster) a cluster,
/// [`open_sentinel`](Self::open_sentinel) or [`connect_sentinel`](Self::connect_sentinel) a master behind Sentinel, or
/// [`over`](Self::over) a connection of your own.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct RedisStoreBuilder {
    prefix: String,
    deadline: Duration,
    remember_denials_for: Duration,
    slot_ttl: Duration,
    lease: Option<Lease>,
    /// `None` unless it was set.
    nodes: Option<NodeCount>,
    nodes_at_least: Option<u32>,
    are_counted: bool,
}

/// The name in the log of a server to which the program itself has connected.
const GIVEN: &str = "a connection of the program's own";

const PREFIX: &str = "ratelimit";
const LONGEST_PREFIX: usize = 64;
const DEADLINE: Duration = Duration::from_millis(100);
const REMEMBERED: Duration = Duration::from_secs(1);
const SLOT_LIFE: Duration = Duration::from_secs(15);
const LONGEST_REMEMBERED: Duration = Duration::from_secs(3_600);

impl RedisStore {
    /// Creates a store on the server at this address, to which the first request connects:
    /// `redis://127.0.0.1:6379/`.
    ///
    /// `redis://user:password@host:port/database` has an ACL user and a database, `redis+unix:///path` is a
    /// Unix socket, and with feature `redis-tls` `rediss://` is TLS.
    ///
    /// # Errors
    ///
    /// When the address is invalid.
    pub fn new(url: impl AsRef<str>) -> Result<Self, ConfigError> {
        Self::builder().open(url)
    }

    /// Creates a store on the server at this address, and returns once the server has answered.
    ///
    /// # Errors
    ///
    /// When the address is invalid, or the server does not answer, refuses, does not accept scripts that
    /// write (as a replica), or is older than Redis 6.2.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, StoreError> {
        Self::builder().connect(url).await
    }

    /// Starts to build a store.
    ///
    /// # Defaults
    ///
    /// - prefix: `ratelimit`
    /// - deadline: 100 ms for a call
    /// - denials are remembered for up to one second
    /// - a slot of a [`Concurrency`](tower_ratelimit_core::Concurrency) lasts 15 seconds, unless it is renewed
    /// - no [leases](RedisStoreBuilder::lease): each request asks the server
    /// - nodes: unknown, and each admits a whole limit while the server is away
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_ratelimit_redis::RedisStore;
    ///
    /// let store = RedisStore::builder()
    ///     .prefix("shop")
    ///     .deadline(Duration::from_millis(50))
    ///     .remember_denials_for(Duration::ZERO)
    ///     .open("redis://limiter:password@10.0.0.7:6379/2");
    /// assert!(store.is_ok());
    /// ```
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder {
            prefix: PREFIX.to_owned(),
            deadline: DEADLINE,
            remember_denials_for: REMEMBERED,
            slot_ttl: SLOT_LIFE,
            lease: None,
            nodes: None,
            nodes_at_least: None,
            are_counted: false,
        }
    }
}

impl RedisStoreBuilder {
    /// Sets the prefix of all keys in Redis, so that several services can share a server: 1 to 64 characters
    /// of ASCII, without spaces and braces.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self {
            prefix: prefix.into(),
            ..self
        }
    }

    /// Sets how long a call may take, including connecting, from 1 ms to a minute.
    ///
    /// After the deadline it is unknown whether the request was counted. The call is not repeated.
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Sets how long a denial is remembered in this process at most, up to an hour. Zero asks the server each
    /// time.
    ///
    /// A denial is forgotten when its wait is over, or when requests of other processes could make the wait longer. So it
    /// refuses no request that could pass, with one exception: a refund, a reset or a changed limit by another process may
    /// take effect this much later. At most 10,000 denials are remembered. [Many nodes][many_nodes] says which
    /// denials are remembered.
    ///
    /// [many_nodes]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/many_nodes/index.html
    pub fn remember_denials_for(self, longest: Duration) -> Self {
        Self {
            remember_denials_for: longest,
            ..self
        }
    }

    /// Sets how long a slot of a [`Concurrency`](tower_ratelimit_core::Concurrency) lasts without a renewal, from a second
    /// to an hour.
    ///
    /// A node renews the slots of its requests at a third of this time. The slots of a node that dies are
    /// free after it. When the server is away for longer, slots end while their requests go on: they are
    /// taken again when it is back, even above the limit, and the log says so
    /// ([`TRL027`](tower_ratelimit_core::diagnostics)). All nodes have to set the same time.
    pub fn slot_ttl(self, life: Duration) -> Self {
        Self {
            slot_ttl: life,
            ..self
        }
    }

    /// Lets a node take several units of a key at once and spend them itself, without a call: see [many
    /// nodes](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/many_nodes/index.html#leases). Off by default.
    ///
    /// Leases are exact: no span of time admits more than without leases. They help where a node asks for the
    /// same keys again and again. All nodes have to be of a version that knows leases before the first of
    /// them leases.
    ///
    /// These ask the server as without leases:
    ///
    /// - a policy with [`without_lease`](tower_ratelimit_core::Policy::without_lease);
    /// - a queue, `Concurrency`, a limit by calendar or by hours, and a policy with a penalty, a reserve,
    ///   waiting requests, or a limit of less than 8 units at once: the log names these once
    ///   ([`TRL035`](tower_ratelimit_core::diagnostics));
    /// - a request that is also charged to a policy that is not leased, or is soft, or is charged to several
    ///   keys of a cluster.
    ///
    /// A limiter or a layer of which one of several policies pays (`first_of`) cannot be built over a store that leases.
    ///
    /// Before a process ends, call [`RedisStore::give_leases_back`].
    pub fn lease(self, lease: Lease) -> Self {
        Self {
            lease: Some(lease),
            ..self
        }
    }

    /// Sets how many nodes share the store. While the store is away, each node enforces its share of every
    /// limit, rounded up, for policies that are [kept locally](tower_ratelimit_core::OnStoreFailure::Local). Clients see
    /// that share.
    ///
    /// If there are fewer nodes than that, clients get less meanwhile, and if there are more, more. Without
    /// this number, each node admits as much as all nodes together otherwise do, and the log warns of it
    /// once. A [`NodeCount`] is a handle by which the number changes, and [`nodes_live`](Self::nodes_live) has the
    /// nodes counted.
    pub fn nodes(self, nodes: impl Into<NodeCount>) -> Self {
        Self {
            nodes: Some(nodes.into()),
            are_counted: false,
            ..self
        }
    }

    /// Has the nodes counted that share the store, where their number changes, as under an autoscaler. All nodes
    /// have to do so.
    ///
    /// From the first limiter on, the thread of the store notes once a second that this process runs: a call of its own,
    /// to one server. A process that has not noted it for three seconds is gone. While the store is away, the last count
    /// holds. A process that starts meanwhile takes [`nodes_at_least`](Self::nodes_at_least).
    /// [`StoreStats::nodes`](tower_ratelimit_core::observe::StoreStats::nodes) shows the count.
    pub fn nodes_live(self) -> Self {
        Self {
            nodes: None,
            are_counted: true,
            ..self
        }
    }

    /// Sets what the count of [`nodes_live`](Self::nodes_live) is at least: from 1, the default. Until a process that
    /// starts has been answered, it takes this number.
    pub fn nodes_at_least(self, nodes: u32) -> Self {
        Self {
            nodes_at_least: Some(nodes),
            ..self
        }
    }

    /// Creates a store on this server, to which the first request connects.
    ///
    /// # Errors
    ///
    /// When the address is invalid, or an option is out of its range.
    pub fn open(self, url: impl AsRef<str>) -> Result<RedisStore, ConfigError> {
        let at = parse(url.as_ref())?;
        let deadline = self.deadline;
        self.over_link(server(&at), || {
            Link::to_server(Login::new(at, []), deadline)
        })
    }

    /// Connects to this server, and returns once the server has answered.
    ///
    /// # Errors
    ///
    /// See [`RedisStore::connect`].
    pub async fn connect(self, url: impl AsRef<str>) -> Result<RedisStore, StoreError> {
        let store = self.open(url).map_err(misconfigured)?;
        store.meet().await?;
        Ok(store)
    }

    /// Creates a store on the cluster of these nodes. One of them is enough if it answers, and it names the
    /// others. The first request connects.
    ///
    /// # Errors
    ///
    /// When an address is invalid, there is no address, or an option is out of its range.
    pub fn open_cluster<U: AsRef<str>>(
        self,
        urls: impl IntoIterator<Item = U>,
    ) -> Result<RedisStore, ConfigError> {
        let urls: Vec<U> = urls.into_iter().collect();
        let urls: Vec<&str> = urls.iter().map(AsRef::as_ref).collect();
        let nodes: Result<Vec<_>, _> = urls.iter().map(|url| parse(url)).collect();
        let nodes = nodes?;
        let named: Vec<_> = nodes.iter().map(|node| place(node.addr())).collect();
        let seeds = Seeds::new(nodes);
        let seeds = seeds.map_err(|(place, why)| {
            let url = urls.get(place).copied();
            bad_url(url.unwrap_or_default(), why)
        })?;
        let deadline = self.deadline;
        self.over_link(named.join(", "), || Link::to_cluster(seeds, deadline))
    }

    /// Connects to this cluster, and returns once the cluster has answered.
    ///
    /// # Errors
    ///
    /// See [`RedisStore::connect`].
    pub async fn connect_cluster<U: AsRef<str>>(
        self,
        urls: impl IntoIterator<Item = U>,
    ) -> Result<RedisStore, StoreError> {
        let store = self.open_cluster(urls).map_err(misconfigured)?;
        store.meet().await?;
        Ok(store)
    }

    /// Creates a store on the master that these sentinels know by this name. The first request asks them, and
    /// so does each request that finds the connection lost or the server a replica. One sentinel that answers
    /// is enough.
    ///
    /// Where the master has a user, a password, a database or TLS, write its name as the host of a URL:
    /// `redis://user:password@mymaster/2`, and `rediss://mymaster` with feature `redis-tls`. The sentinels'
    /// own credentials are in their own URLs, in which the default port is 26379.
    ///
    /// ```
    /// use tower_ratelimit_redis::RedisStore;
    ///
    /// let sentinels = ["redis://10.0.0.1/", "redis://10.0.0.2/", "redis://10.0.0.3:26380/"];
    /// let store = RedisStore::builder().open_sentinel("mymaster", sentinels)?;
    /// # Ok::<(), tower_ratelimit_core::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the name or an address is invalid, there is no address, or an option is out of its range.
    pub fn open_sentinel<U: AsRef<str>>(
        self,
        master: impl AsRef<str>,
        sentinels: impl IntoIterator<Item = U>,
    ) -> Result<RedisStore, ConfigError> {
        let sentinels = Sentinels::new(master.as_ref(), sentinels)?;
        let deadline = self.deadline;
        self.over_link(sentinels.named(), || Link::to_master(sentinels, deadline))
    }

    /// Connects to this master through its sentinels, and returns once the master has answered.
    ///
    /// # Errors
    ///
    /// See [`RedisStore::connect`]; also when no sentinel answers, or none knows a master of this name.
    pub async fn connect_sentinel<U: AsRef<str>>(
        self,
        master: impl AsRef<str>,
        sentinels: impl IntoIterator<Item = U>,
    ) -> Result<RedisStore, StoreError> {
        let store = self.open_sentinel(master, sentinels);
        let store = store.map_err(misconfigured)?;
        store.meet().await?;
        Ok(store)
    }

    /// Creates a store over a connection of your own to one server: a `ConnectionManager`, a connection of a
    /// pool, one with settings that have no option here. The connection must not resend a command whose
    /// answer it has not seen.
    ///
    /// The store's thread sends by it, and what drives it stays in the runtime in which it was made: that has to run for as long
    /// as the store is used.
    ///
    /// # Errors
    ///
    /// When an option is out of its range.
    pub fn over<C>(self, connection: C) -> Result<RedisStore, ConfigError>
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        let deadline = self.deadline;
        self.over_link(GIVEN.into(), || Link::over(connection, false, deadline))
    }

    /// Creates a store over a connection of your own to a cluster, such as a `ClusterConnection` of the crate
    /// `redis` with its feature `cluster-async`. [`open_cluster`](Self::open_cluster) is better where a
    /// primary may be away without a replica: a `ClusterConnection` then fails calls to the other primaries
    /// too.
    ///
    /// # Errors
    ///
    /// When an option is out of its range.
    pub fn over_cluster<C>(self, connection: C) -> Result<RedisStore, ConfigError>
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        let deadline = self.deadline;
        self.over_link(GIVEN.into(), || Link::over(connection, true, deadline))
    }

    /// `servers` is their name in the log.
    fn over_link(
        self,
        servers: String,
        link: impl FnOnce() -> Link,
    ) -> Result<RedisStore, ConfigError> {
        let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}');
        if !(1..=LONGEST_PREFIX).contains(&self.prefix.len()) || !self.prefix.bytes().all(plain) {
            let remedy = "give 1 to 64 characters of ASCII, without spaces and braces";
            return Err(ConfigError::quoting("prefix", &self.prefix, remedy));
        }
        if !(Duration::from_millis(1)..=Duration::from_secs(60)).contains(&self.deadline) {
            let remedy = "give a length from 1 ms to a minute";
            return Err(ConfigError::new(
                "deadline",
                format_args!("{:?}", self.deadline),
                remedy,
            ));
        }
        if self.remember_denials_for > LONGEST_REMEMBERED {
            let remedy = "give an hour at most, or zero to ask the server each time";
            return Err(ConfigError::new(
                "remember_denials_for",
                format_args!("{:?}", self.remember_denials_for),
                remedy,
            ));
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(3_600)).contains(&self.slot_ttl) {
            let remedy = "give a length from a second to an hour";
            return Err(ConfigError::new(
                "slot_ttl",
                format_args!("{:?}", self.slot_ttl),
                remedy,
            ));
        }
        let nodes = match (self.are_counted, self.nodes_at_least) {
            (true, least) => Some(NodeCount::new(least.unwrap_or(1))),
            (false, None) => self.nodes,
            (false, Some(least)) => {
                let remedy = "have the nodes counted, `nodes_live`, or leave it out";
                return Err(ConfigError::new("nodes_at_least", least, remedy));
            }
        };
        let option = if self.are_counted {
            "nodes_at_least"
        } else {
            "nodes"
        };
        nodes.as_ref().map_or(Ok(()), |nodes| nodes.check(option))?;
        let lease = self.lease.map(Lease::life).transpose()?;
        let link = Arc::new(link());
        let prefix: Arc<str> = self.prefix.into();
        let reach = RedisRemote::new(Arc::clone(&link), Arc::clone(&prefix));
        Ok(RedisStore {
            counting: nodes
                .clone()
                .filter(|_| self.are_counted)
                .map(|nodes| Arc::new(Counting::new(nodes))),
            watch: Arc::new(Watch::new(Arc::new(reach), servers, nodes.clone())),
            nodes,
            link,
            prefix,
            remember_denials_for: self.remember_denials_for,
            slot_ttl: self.slot_ttl,
            lease,
            opened: Arc::default(),
            epochs: Arc::new(KeyEpochs::default()),
            changes: Arc::new(KeyEpochs::default()),
            clock: None,
        })
    }
}

impl RedisStore {
    /// Connects, and checks what the server is and accepts.
    async fn meet(&self) -> Result<(), StoreError> {
        let (link, prefix) = (Arc::clone(&self.link), Arc::clone(&self.prefix));
        let background = link.background.clone();
        let met = background.run(async move {
            greet(&link).await?;
            try_out(&link, &prefix, "probe").await
        });
        met.await.unwrap_or_else(|error| Err(failure(error.into())))
    }
}

impl RedisStore {
    /// Sets the clock that the store uses in place of the server's, for tests of algorithms: keys expire no
    /// sooner than after ten minutes, and denials are not remembered.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self {
            clock: Some(Arc::new(clock)),
            ..self
        }
    }
}

fn misconfigured(error: ConfigError) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured).caused_by(error)
}

fn parse(url: &str) -> Result<ConnectionInfo, ConfigError> {
    url.into_connection_info()
        .map_err(|error| bad_url(url, error))
}

/// The address is not shown, since it may contain a password.
fn bad_url(url: &str, why: impl Display) -> ConfigError {
    let remedy = format!(
        "write redis://[user:password@]host[:port][/database], redis+unix:///path, or with feature `redis-tls` \
         rediss:// in place of redis:// ({why})",
    );
    ConfigError::new("url", format_args!("a text of {} bytes", url.len()), remedy)
}
