//! What the log says while a server is away.

#[cfg(any(feature = "tracing", test))]
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo};

use crate::error::StoreError;
#[cfg(any(feature = "tracing", test))]
use crate::policy::OnStoreFailure;
use crate::store::standby::Standby;

/// Tells the people who run the service that a server is away, and what happens meanwhile.
pub(super) struct Outages {
    /// Where the servers are, without what is needed to log in.
    servers: String,
    ledgers: Mutex<Ledgers>,
}

/// The policies of each ledger over the store.
struct Ledgers {
    standbys: Vec<Weak<Standby>>,
    /// With this many, those that are gone are looked for.
    enough: usize,
}

/// More names than this are counted.
#[cfg(any(feature = "tracing", test))]
const NAMED: usize = 20;

/// With fewer ledgers than this, none is looked for.
const FEW: usize = 64;

impl Outages {
    pub(super) fn new(servers: String) -> Self {
        let ledgers = Ledgers {
            standbys: Vec::new(),
            enough: FEW,
        };
        Self {
            servers,
            ledgers: Mutex::new(ledgers),
        }
    }

    /// These policies are decided on without the store while it is away, each as it says.
    pub(super) fn concern(&self, standby: Weak<Standby>) {
        let mut ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        if ledgers.standbys.len() >= ledgers.enough {
            ledgers.standbys.retain(|kept| kept.strong_count() > 0);
            ledgers.enough = FEW.max(2 * ledgers.standbys.len());
        }
        ledgers.standbys.push(standby);
    }

    /// The names of all policies that do this meanwhile; `None` if there is none.
    #[cfg(any(feature = "tracing", test))]
    fn names(&self, what: OnStoreFailure) -> Option<String> {
        let mut names = BTreeSet::new();
        {
            let ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
            for standby in ledgers.standbys.iter().filter_map(Weak::upgrade) {
                let policies = standby.when_away().filter(|(_, does)| *does == what);
                names.extend(policies.map(|(name, _)| name.to_owned()));
            }
        }
        let mut told: Vec<&str> = names.iter().map(String::as_str).take(NAMED).collect();
        let more = names.len().saturating_sub(NAMED);
        let more = (more > 0).then(|| format!("{more} more"));
        told.extend(more.as_deref());
        (!told.is_empty()).then(|| told.join(", "))
    }
}

#[cfg(feature = "tracing")]
impl Outages {
    pub(super) fn log_absence(&self, error: &StoreError) {
        let names = |what| self.names(what);
        tracing::warn!(
            server = self.servers,
            error = error as &dyn std::error::Error,
            reason = error.reason(),
            local = names(OnStoreFailure::Local),
            allow = names(OnStoreFailure::Allow),
            refuse = names(OnStoreFailure::Refuse),
            "the rate limiter's store does not answer; until it does, this node keeps to the policies named in \
             `local` by itself, lets everything go on under those in `allow`, and refuses everything under \
             those in `refuse`"
        );
    }

    pub(super) fn log_return(&self, away: Duration, decided: u64) {
        tracing::info!(
            server = self.servers,
            ?away,
            decided,
            "the rate limiter's store answers again"
        );
    }

    pub(super) fn log_some(&self, error: &StoreError) {
        tracing::warn!(
            server = self.servers,
            error = error as &dyn std::error::Error,
            reason = error.reason(),
            "the rate limiter's store cannot decide on some requests; they are decided without it"
        );
    }
}

#[cfg(not(feature = "tracing"))]
#[expect(clippy::unused_self, reason = "nothing is logged")]
impl Outages {
    pub(super) fn log_absence(&self, _: &StoreError) {}

    pub(super) fn log_return(&self, _: Duration, _: u64) {}

    pub(super) fn log_some(&self, _: &StoreError) {}
}

/// A server and its database, or its socket: `127.0.0.1:6379/0`, `/run/redis.sock`. There is neither a user nor a
/// password in it.
pub(super) fn server(info: &ConnectionInfo) -> String {
    let database = info.redis_settings().db();
    match info.addr() {
        ConnectionAddr::Unix(path) => path.display().to_string(),
        address => format!("{}/{database}", place(address)),
    }
}

/// Where a server is, of a cluster or of a master: `127.0.0.1:6379`.
pub(super) fn place(address: &ConnectionAddr) -> String {
    match address {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            // Of IPv6, as it stands in a URL.
            if host.contains(':') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            }
        }
        other => other.to_string(),
    }
}

impl fmt::Debug for Outages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outages")
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;

    use redis::IntoConnectionInfo;

    use super::*;
    use crate::algorithm::FixedWindow;
    use crate::policy::Policy;

    #[test]
    fn a_server_is_named_without_what_is_needed_to_log_in() {
        for (url, named) in [
            ("redis://10.0.0.7", "10.0.0.7:6379/0"),
            (
                "redis://limiter:passw0rd@redis.internal:6380/2",
                "redis.internal:6380/2",
            ),
            ("redis://:passw0rd@[::1]:7000/", "[::1]:7000/0"),
            (
                "redis+unix:///run/redis.sock?db=3&user=limiter&pass=passw0rd",
                "/run/redis.sock",
            ),
        ] {
            assert_eq!(server(&url.into_connection_info().unwrap()), named);
        }
    }

    fn standby(names: impl IntoIterator<Item = String>) -> Arc<Standby> {
        let policies = names.into_iter().map(|name| {
            Policy::new(name, FixedWindow::per_day(1)).on_store_failure(OnStoreFailure::Allow)
        });
        let policies: Vec<_> = policies.collect();
        Arc::new(Standby::new(&policies, NonZeroU32::MIN, None))
    }

    #[test]
    fn policies_are_named_once_however_many_ledgers_have_them_and_as_long_as_one_has() {
        let outages = Outages::new(String::new());
        let kept = standby(["b".into(), "a".into()]);
        outages.concern(Arc::downgrade(&kept));
        for number in 0..10_000 {
            let gone = standby(["a".into(), format!("gone {number}")]);
            outages.concern(Arc::downgrade(&gone));
        }
        assert_eq!(outages.names(OnStoreFailure::Allow).unwrap(), "a, b");
        assert_eq!(outages.names(OnStoreFailure::Local), None);
        assert!(outages.ledgers.lock().unwrap().standbys.len() <= FEW);
    }

    #[test]
    fn of_many_policies_some_are_named_and_the_others_counted() {
        let outages = Outages::new(String::new());
        let many = standby((10..40).map(|number| number.to_string()));
        outages.concern(Arc::downgrade(&many));
        let names = outages.names(OnStoreFailure::Allow).unwrap();
        assert!(
            names.starts_with("10, 11, ") && names.ends_with("28, 29, 10 more"),
            "{names}"
        );
    }
}
