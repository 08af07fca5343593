//! How to connect to the servers of a store: their user and their password may change.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::ConnectionInfo;

use super::address::server;

/// The servers that the user has named, in order, and how to log in to each. Clones share it.
#[derive(Clone)]
pub(super) struct Login(Arc<Mutex<Box<[ConnectionInfo]>>>);

impl Login {
    /// Of one server at least.
    pub(super) fn new(
        first: ConnectionInfo,
        others: impl IntoIterator<Item = ConnectionInfo>,
    ) -> Self {
        let servers = std::iter::once(first).chain(others);
        Self(Arc::new(Mutex::new(servers.collect())))
    }

    /// Returns how to connect to the first server.
    pub(super) fn first(&self) -> ConnectionInfo {
        self.lock()[0].clone()
    }

    /// Returns how to connect to the servers behind the first.
    pub(super) fn others(&self) -> Vec<ConnectionInfo> {
        self.lock()[1..].to_vec()
    }

    /// Takes the users and the passwords of another one, for each connection from now on. Returns whether it names the same
    /// servers; if not, nothing has changed.
    pub(super) fn renew(&self, newer: &Self) -> bool {
        let newer = newer.lock().clone();
        let mut servers = self.lock();
        let is_same = servers.len() == newer.len()
            && servers
                .iter()
                .zip(&newer)
                .all(|(known, newer)| is_of_one_server(known, newer));
        if is_same {
            *servers = newer;
        }
        is_same
    }

    /// Returns the servers, without users and passwords.
    pub(super) fn servers(&self) -> String {
        let servers: Vec<_> = self.lock().iter().map(server).collect();
        servers.join(", ")
    }

    fn lock(&self) -> MutexGuard<'_, Box<[ConnectionInfo]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_of_one_server(known: &ConnectionInfo, newer: &ConnectionInfo) -> bool {
    let (redis, other) = (known.redis_settings(), newer.redis_settings());
    known.addr() == newer.addr() && redis.db() == other.db() && redis.protocol() == other.protocol()
}
