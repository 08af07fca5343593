use super::Policy;

/// The treatment of requests under a policy while its store cannot decide.
///
/// Each policy has [its own setting](Policy::on_store_failure): a login may refuse while reads go
/// on. A request to which several policies apply is refused if one of them refuses. The page on
/// reliability defines what a failure is, and how long it lasts.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::{FixedWindow, OnStoreFailure, Policy, TokenBucket};
///
/// let reads = Policy::new("reads", TokenBucket::per_second(50));
/// assert_eq!(reads.store_failure(), OnStoreFailure::Local);
///
/// let logins = Policy::new("logins", FixedWindow::per_hour(20)).on_store_failure(OnStoreFailure::Refuse);
/// assert_eq!(logins.store_failure(), OnStoreFailure::Refuse);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnStoreFailure {
    /// Decides in this process until the store is back. Each node counts by itself, from nothing,
    /// up to the limit, or up to its share if the store knows the number of nodes. This is the
    /// default: it neither admits a flood nor refuses all clients.
    #[default]
    Local,
    /// Allows all requests, uncounted and without headers, except for keys that this node knows to
    /// be [blocked](crate::Limiter::block). For limits that save money, not lives.
    Allow,
    /// Refuses all requests with `503 Service Unavailable` (in gRPC, `UNAVAILABLE`), and never with
    /// 429, because the client has done nothing wrong. A [`Limiter`](crate::Limiter) returns the
    /// [`StoreError`](crate::StoreError).
    Refuse,
}

impl Policy {
    /// Sets what happens to requests while the store cannot decide; the default is
    /// [`OnStoreFailure::Local`].
    pub fn on_store_failure(mut self, what: OnStoreFailure) -> Self {
        self.on_store_failure = what;
        self
    }

    /// Returns what [`on_store_failure`](Self::on_store_failure) has set.
    pub fn store_failure(&self) -> OnStoreFailure {
        self.on_store_failure
    }
}
