use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{ErrorKind, RedisResult, ServerErrorKind};
use tokio::time::{Instant, timeout};

use super::address::moved;
use super::connection::Connection;
use super::login::Login;
use super::promise::{Promise, timed_out};
use super::ranges::{Address, Range, ranges};
use super::reconnecting::CONNECTING;
use super::server::Server;

/// A node of a cluster, with a connection of its own: failures of another node do not affect it.
pub(super) struct Node {
    /// A number that no other node of the process has, whatever its address.
    pub(super) number: u64,
    pub(super) server: Server,
    host: String,
}

/// How long a node has to report which nodes have which slots.
pub(super) const TELLING: Duration = CONNECTING.checked_div(4).unwrap();

impl Node {
    /// Creates the node at this address, with the user, password, database and TLS of the seeds.
    pub(super) fn new(seeds: &Login, (host, port): &Address, deadline: Duration) -> Self {
        // 0 stands for an unknown node.
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let (seeds, address) = (seeds.clone(), (host.clone(), *port));
        let connect = move || -> Promise<Connection> {
            let info = moved(&seeds.first(), &address.0, address.1);
            Box::pin(async move { Connection::open(&info).await })
        };
        Self {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            server: Server::new(deadline, connect),
            host: host.clone(),
        }
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Connects, if the node is there. If not, the next call finds out.
    pub(super) async fn connect(self: Arc<Self>) {
        let _ = self.server.connect().await;
    }

    /// Asks which nodes have which slots, as far as this node knows.
    pub(super) async fn ranges(&self, deadline: Duration) -> RedisResult<Vec<Range>> {
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        // Given up sooner than the connection: other calls may be patient with a server that is busy.
        let until = Instant::now() + deadline.max(TELLING);
        let reply = timeout(TELLING, self.server.send(&command, false, until));
        let reply = reply.await.unwrap_or_else(|_| Err(timed_out()))?;
        let ranges = ranges(&reply, &self.host);
        if ranges.is_empty() {
            let kind = ErrorKind::Server(ServerErrorKind::ClusterDown);
            return Err((kind, "the node knows of no slot that is served").into());
        }
        Ok(ranges)
    }

    #[cfg(test)]
    pub(super) fn nowhere(address: &Address) -> Self {
        use redis::IntoConnectionInfo;

        let seed = "redis://127.0.0.1:1/".into_connection_info().unwrap();
        Self::new(&Login::new(seed, []), address, CONNECTING)
    }
}
