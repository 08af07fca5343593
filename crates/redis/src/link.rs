//! The connection to a server, to a master behind sentinels, to a cluster, or of the user's own.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::time::{Instant, timeout_at};

use super::background::Background;
use super::cluster::{Cluster, Seeds};
use super::connection::Connection;
use super::failure::{failure, of_a_cluster};
use super::login::Login;
use super::promise::{Promise, in_time, timed_out};
use super::sentinel::Sentinels;
use super::server::Server;
use tower_ratelimit_core::__internal::Timers;
use tower_ratelimit_core::__internal::Watch;
use tower_ratelimit_core::key::Key;

/// The connection to a server, or to each server of a cluster. Calls are pipelined: a call does not wait for
/// the answers of those before it.
pub(super) struct Link {
    wire: Wire,
    /// `None` of a connection of the user's own.
    login: Option<Login>,
    /// Where connections are made and driven, and where all calls are made.
    pub(super) background: Background,
    deadline: Duration,
}

enum Wire {
    Server(Server),
    Cluster(Cluster),
    Given {
        send: Box<dyn Fn(Cmd) -> Promise<Value> + Send + Sync>,
        is_divided: bool,
    },
}

/// Behind a connection of the user's own, this many slots are assumed to be on one server.
const SLOTS_TOGETHER: u16 = 64;

/// How much longer than its deadline a request waits for its call to end. After that, the next request
/// already knows that the connection is useless.
const GRACE: Duration = Duration::from_millis(1);

impl Link {
    pub(super) fn to_server(login: Login, deadline: Duration) -> Self {
        let connect = {
            let login = login.clone();
            move || -> Promise<Connection> {
                let server = login.first();
                Box::pin(async move { Connection::open(&server).await })
            }
        };
        Self::of(
            Wire::Server(Server::new(deadline, connect)),
            Some(login),
            deadline,
        )
    }

    /// Connects to the server that the sentinels name, whenever a connection is made.
    pub(super) fn to_master(sentinels: Sentinels, deadline: Duration) -> Self {
        let login = sentinels.login();
        let connect = move || -> Promise<Connection> { Box::pin(sentinels.clone().connect()) };
        Self::of(
            Wire::Server(Server::new(deadline, connect)),
            Some(login),
            deadline,
        )
    }

    pub(super) fn to_cluster(seeds: Seeds, deadline: Duration) -> Self {
        let login = seeds.login();
        Self::of(
            Wire::Cluster(Cluster::new(seeds, deadline)),
            Some(login),
            deadline,
        )
    }

    /// Uses a connection of the caller's, to a server or to a cluster.
    pub(super) fn over<C>(connection: C, is_divided: bool, deadline: Duration) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        let send = move |command: Cmd| -> Promise<Value> {
            let mut connection = connection.clone();
            Box::pin(async move { connection.req_packed_command(&command).await })
        };
        let send = Box::new(send);
        Self::of(Wire::Given { send, is_divided }, None, deadline)
    }

    fn of(wire: Wire, login: Option<Login>, deadline: Duration) -> Self {
        Self {
            wire,
            login,
            background: Background::default(),
            deadline,
        }
    }

    /// Connects from now on as another one does. Returns whether it leads to the same servers; if not, nothing has changed.
    pub(super) fn renew_login(&self, newer: &Self) -> bool {
        let is_alike = mem::discriminant(&self.wire) == mem::discriminant(&newer.wire);
        let logins = self.login.as_ref().zip(newer.login.as_ref());
        is_alike && logins.is_some_and(|(known, newer)| known.renew(newer))
    }

    /// Returns the servers that the user has named, without users and passwords.
    pub(super) fn servers(&self) -> String {
        let given = || "a connection of the program's own".to_owned();
        self.login.as_ref().map_or_else(given, Login::servers)
    }

    /// Returns whether keys may be on several servers.
    pub(super) fn is_divided(&self) -> bool {
        match &self.wire {
            Wire::Server(_) => false,
            Wire::Cluster(_) => true,
            Wire::Given { is_divided, .. } => *is_divided,
        }
    }

    /// Returns a number for the server that has this slot: requests with one number find together that it is
    /// away. 0 stands for the only server, and for an unknown server of a cluster.
    pub(super) fn part(&self, slot: u16) -> u64 {
        match &self.wire {
            Wire::Cluster(cluster) => cluster.node_of(slot).unwrap_or(0),
            Wire::Given {
                is_divided: true, ..
            } => u64::from(slot / SLOTS_TOGETHER),
            _ => 0,
        }
    }

    /// Returns whether the parts are slots that are likely to be on one server, where nothing tells which
    /// server that is.
    pub(super) fn is_guessed(&self) -> bool {
        matches!(
            self.wire,
            Wire::Given {
                is_divided: true,
                ..
            }
        )
    }

    /// Connects, unless the connection is the user's. In a cluster it learns again which node has which keys,
    /// since another node may have those of a node that is away.
    pub(super) async fn connect(&self) -> RedisResult<()> {
        match &self.wire {
            Wire::Server(server) => server.connect().await,
            Wire::Cluster(cluster) => cluster.renew().await,
            Wire::Given { .. } => Ok(()),
        }
    }

    /// Returns how long a call may take.
    pub(super) fn patience(&self) -> Duration {
        self.deadline
    }

    /// Waits for what the store's thread does in this many calls, by a clock of the caller's own: the thread may be stuck,
    /// and does not exist after a fork.
    pub(super) async fn wait<T>(
        &self,
        calls: u32,
        answer: impl Future<Output = T>,
    ) -> RedisResult<T> {
        let patience = self.deadline.saturating_mul(calls) + GRACE;
        let answer = Timers::default().wait(patience, answer).await;
        answer.ok_or_else(timed_out)
    }

    /// Runs an operation of this many calls in the store's thread for a request of this key, and [waits](Self::wait) for it. It
    /// is dropped with the future.
    ///
    /// The operation counts its own failures. A thread that is stuck, or does not exist, sees none, and is one itself.
    pub(super) fn run<'a, T: Send + 'static>(
        &'a self,
        (watch, key): (&'a Arc<Watch>, &'a Key),
        calls: u32,
        operation: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = RedisResult<T>> + 'a {
        let begun = self.background.begun();
        let done = self.background.run(operation);
        async move {
            let (error, is_failure) = match self.wait(calls, done).await {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(error)) => (error.into(), true),
                Err(late) => (late, self.background.begun() == begun),
            };
            if is_failure {
                watch.waiting(key).end(Some(&failure(error.clone())));
            }
            Err(error)
        }
    }

    /// Returns the deadline of a call that begins now, in the store's own runtime.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// Returns the deadline of a call that a request begins now. The store's own runtime keeps it: a test may have paused
    /// the clock of the request's.
    pub(super) fn deadline_of_request(&self) -> Instant {
        Instant::from_std(std::time::Instant::now()) + self.deadline
    }

    /// Sends this script, in the store's own runtime, and waits until `until` for the answer. After an error of the
    /// network, and when the time is over, it is unknown whether the script ran, and it is not sent again, unless no
    /// byte of it was written.
    pub(super) async fn send(&self, command: Cmd, until: Instant) -> RedisResult<Value> {
        match &self.wire {
            Wire::Server(server) => {
                let answer = server.send(&command, false, until).await;
                answer.map_err(of_a_part)
            }
            Wire::Cluster(cluster) => Box::pin(cluster.send(&command, until)).await,
            Wire::Given { send, .. } => {
                let answer = in_time(timeout_at(until, send(command)).await);
                answer.and_then(Value::extract_error)
            }
        }
    }
}

/// A server that has only a part of the keys reports so again and again.
fn of_a_part(error: RedisError) -> RedisError {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => of_a_cluster(),
        _ => error,
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
