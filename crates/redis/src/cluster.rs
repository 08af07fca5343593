//! A connection to each primary of a cluster, and the view of its slots.
//!
//! The client of the crate `redis` fails calls to all primaries while one is away, so this file has its own.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahash::RandomState;
use redis::{
    Arg, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult, ServerErrorKind,
    Value,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::failure::{failure, is_of_a_key};
use super::login::Login;
use super::node::{Node, TELLING};
use super::promise::{Promise, in_time};
use super::ranges::{Address, Range, elsewhere};
use super::reconnecting::Reconnecting;
use super::slots::slot_of_key;
use super::view::View;
use tower_ratelimit_core::error::StoreErrorKind;

/// A cluster: a connection to each primary, and a view of which slots each one has. A primary that is away
/// fails the calls that are sent to it, and no others.
pub(super) struct Cluster {
    view: Reconnecting<Arc<View>>,
    nodes: Arc<Nodes>,
}

/// The nodes that this process knows.
struct Nodes {
    seeds: Box<[Address]>,
    /// Has the user, the password, the database and TLS, which all nodes share.
    login: Login,
    deadline: Duration,
    known: Mutex<HashMap<Address, Arc<Node>>>,
    /// The primaries of the last view.
    primaries: Mutex<Box<[Arc<Node>]>>,
}

/// How often a call follows its slot to another node.
const MOVES: usize = 4;

/// The number of nodes that are queried for the slots at once.
const QUERIED: usize = 8;

/// A younger view is not renewed because of a call: one failure of a node comes with many others.
const YOUNG: Duration = Duration::from_millis(50);

impl Cluster {
    /// Creates the cluster of these nodes. One of them has to answer, and names the others.
    pub(super) fn new(seeds: Seeds, deadline: Duration) -> Self {
        let nodes = Arc::new(Nodes {
            seeds: seeds.addresses,
            login: seeds.login,
            deadline,
            known: Mutex::default(),
            primaries: Mutex::default(),
        });
        let look = {
            let nodes = Arc::clone(&nodes);
            move || -> Promise<Arc<View>> {
                let nodes = Arc::clone(&nodes);
                Box::pin(async move { nodes.look().await })
            }
        };
        Self {
            view: Reconnecting::new(deadline, look),
            nodes,
        }
    }

    /// Learns again which node has which slots. Calls go by the last view meanwhile.
    pub(super) async fn renew(&self) -> RedisResult<()> {
        self.view.renew().await
    }

    /// Returns the number of the node that has this slot, if it is known.
    pub(super) fn node_of(&self, slot: u16) -> Option<u64> {
        let (view, _) = self.view.current()?;
        view.node(slot).map(|node| node.number)
    }

    /// Sends this script to the node that has the slot of its keys. A node that redirects the call has
    /// executed nothing, so the call goes to the other node.
    pub(super) async fn send(&self, command: &Cmd, until: Instant) -> RedisResult<Value> {
        let view = match self.view.current() {
            Some((view, _)) => view,
            None => in_time(timeout_at(until, self.view.connection()).await)?.0,
        };
        let Some(mut node) = view.node_for(command) else {
            self.look_again(&view);
            return Err(unserved());
        };
        let mut answer = node.server.send(command, false, until).await;
        for _ in 0..MOVES {
            let Some((address, is_asking)) = redirected(&answer, &node) else {
                break;
            };
            if !is_asking {
                self.look_again(&view);
            }
            node = self.nodes.at(&address);
            answer = node.server.send(command, is_asking, until).await;
        }
        if answer.as_ref().is_err_and(says_something_of_the_view) {
            self.look_again(&view);
        }
        answer
    }

    /// Renews this view in the background, unless that was done just now.
    fn look_again(&self, view: &View) {
        if view.made.elapsed() >= YOUNG {
            self.view.begin_to_renew();
        }
    }
}

impl View {
    fn node_for(&self, command: &Cmd) -> Option<Arc<Node>> {
        let node = if let Some(slot) = slot(command) {
            self.node(slot)
        } else {
            // Any of them may do this, and at least one has told which nodes have the slots.
            let mut nodes = self.nodes.iter();
            let connected = nodes.find(|node| node.server.is_connected());
            connected.or(self.nodes.first())
        };
        node.cloned()
    }
}

/// Returns the slot of a script's keys. The first key comes after its name, its text and the number of keys.
fn slot(command: &Cmd) -> Option<u16> {
    let mut words = command.args_iter().skip(2);
    let (keys, first) = (words.next()?, words.next()?);
    match (keys, first) {
        (Arg::Simple(b"0"), _) | (_, Arg::Cursor) => None,
        (_, Arg::Simple(key)) => Some(slot_of_key(key)),
        _ => None,
    }
}

/// Returns where this node has redirected a call, and whether the call needs `ASKING`.
fn redirected(answer: &RedisResult<Value>, node: &Node) -> Option<(Address, bool)> {
    let error = answer.as_ref().err()?;
    let is_asking = match error.kind() {
        ErrorKind::Server(ServerErrorKind::Moved) => false,
        ErrorKind::Server(ServerErrorKind::Ask) => true,
        _ => return None,
    };
    let (address, _) = error.redirect_node()?;
    Some((elsewhere(address, node.host())?, is_asking))
}

/// Returns whether another node may have the slot now: this one is away, is no longer a primary, or does not
/// know.
fn says_something_of_the_view(error: &RedisError) -> bool {
    let error = failure(error.clone());
    error.kind() == StoreErrorKind::Unavailable && !is_of_a_key(&error)
}

fn unserved() -> RedisError {
    let kind = ErrorKind::Server(ServerErrorKind::ClusterDown);
    (kind, "no node has the slot").into()
}

impl Nodes {
    /// Returns the node at this address.
    fn at(&self, address: &Address) -> Arc<Node> {
        let mut known = lock(&self.known);
        if let Some(node) = known.get(address) {
            return Arc::clone(node);
        }
        let node = Arc::new(Node::new(&self.login, address, self.deadline));
        known.insert(address.clone(), Arc::clone(&node));
        node
    }

    /// Asks which nodes have which slots: the primaries of the last view, or the seeds if none of those
    /// answers.
    async fn look(&self) -> RedisResult<Arc<View>> {
        let primaries = self.some_primaries();
        let ranges = if let Some(Ok(ranges)) = self.ask(primaries).await {
            ranges
        } else {
            let seeds = self.seeds.iter().map(|seed| self.at(seed)).collect();
            self.ask(seeds).await.unwrap_or_else(|| Err(unserved()))?
        };
        let view = View::new(&ranges, |address| self.at(address));
        let before = mem::replace(&mut *lock(&self.primaries), view.nodes.clone());
        let nodes = view.nodes.iter().cloned();
        let mut connecting: JoinSet<()> = nodes.map(Node::connect).collect();
        if before.is_empty() {
            // The first calls then find their connections made, and go out in the order in which they came.
            let all = async { while connecting.join_next().await.is_some() {} };
            let _ = timeout(TELLING, all).await;
        }
        connecting.detach_all();
        // The other nodes are dropped, with their connections.
        let is_seen = |node: &Arc<Node>| view.nodes.iter().any(|seen| Arc::ptr_eq(seen, node));
        lock(&self.known).retain(|_, node| is_seen(node));
        Ok(Arc::new(view))
    }

    /// Returns as many primaries as are queried at once, drawn at random.
    fn some_primaries(&self) -> Vec<Arc<Node>> {
        let primaries = lock(&self.primaries);
        let random = RandomState::new().hash_one(0);
        #[expect(clippy::cast_possible_truncation, reason = "any number will do")]
        let first = random as usize % primaries.len().max(1);
        let nodes = primaries.iter().cycle().skip(first);
        nodes.take(primaries.len().min(QUERIED)).cloned().collect()
    }

    /// Asks all of these at once, and takes the answer that most of them give: a node that has been away for
    /// a while knows less than the others. Returns `None` if there are no nodes.
    async fn ask(&self, nodes: Vec<Arc<Node>>) -> Option<RedisResult<Vec<Range>>> {
        let count = nodes.len();
        let mut answers = JoinSet::new();
        for node in nodes {
            let deadline = self.deadline;
            answers.spawn(async move { node.ranges(deadline).await });
        }
        let mut reports: Vec<(Vec<Range>, usize)> = Vec::new();
        let mut failed: Option<RedisError> = None;
        while let Some(answer) = answers.join_next().await {
            match answer {
                Ok(Ok(ranges)) => {
                    let place = reports.iter().position(|(known, _)| *known == ranges);
                    let place = place.unwrap_or_else(|| {
                        reports.push((ranges, 0));
                        reports.len() - 1
                    });
                    reports[place].1 += 1;
                    if reports[place].1 > count / 2 {
                        // The others go on: a call that is given up makes its connection look silent.
                        answers.detach_all();
                        return Some(Ok(reports.swap_remove(place).0));
                    }
                }
                Ok(Err(error)) => {
                    if failed.is_none() || is_lasting(&error) {
                        failed = Some(error);
                    }
                }
                // The runtime ends.
                Err(_) => {}
            }
        }
        let most = reports.iter().map(|(_, nodes)| *nodes).max();
        let reports = reports.into_iter().find(|(_, nodes)| Some(*nodes) == most);
        reports.map(|(ranges, _)| Ok(ranges)).or(failed.map(Err))
    }
}

fn is_lasting(error: &RedisError) -> bool {
    failure(error.clone()).kind() == StoreErrorKind::Misconfigured
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The addresses that the user has given.
pub(super) struct Seeds {
    addresses: Box<[Address]>,
    login: Login,
}

impl Seeds {
    /// Checks the addresses. The error has the index of an address in the list, and what is wrong with it.
    pub(super) fn new(seeds: Vec<ConnectionInfo>) -> Result<Self, (usize, &'static str)> {
        let mut addresses = Vec::new();
        for (place, seed) in seeds.iter().enumerate() {
            let (ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }) =
                seed.addr()
            else {
                return Err((place, "a cluster is not reached through a Unix socket"));
            };
            is_like(seed, &seeds[0]).map_err(|why| (place, why))?;
            let address = (host.clone(), *port);
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        let mut seeds = seeds.into_iter();
        let first = seeds.next().ok_or((0, "give one at least"))?;
        Ok(Self {
            addresses: addresses.into(),
            login: Login::new(first, seeds),
        })
    }

    pub(super) fn login(&self) -> Login {
        self.login.clone()
    }
}

/// Checks that a node is connected to in the same way as another one.
fn is_like(seed: &ConnectionInfo, first: &ConnectionInfo) -> Result<(), &'static str> {
    let (redis, other) = (seed.redis_settings(), first.redis_settings());
    if (redis.username(), redis.password()) != (other.username(), other.password()) {
        return Err("all nodes of a cluster have the same user and password");
    }
    if redis.db() != other.db() || redis.protocol() != other.protocol() {
        return Err("all nodes of a cluster have the same database and protocol");
    }
    if is_tls(seed) != is_tls(first) {
        return Err("all nodes of a cluster are reached with TLS or none is");
    }
    Ok(())
}

fn is_tls(seed: &ConnectionInfo) -> bool {
    matches!(seed.addr(), ConnectionAddr::TcpTls { .. })
}
