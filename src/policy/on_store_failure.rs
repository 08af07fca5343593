use super::Policy;

/// What becomes of requests under a policy while its store does not decide.
///
/// It is said [per policy](Policy::on_store_failure): a login may refuse while reads go on. A request to
/// which several apply is refused if one of them refuses.
/// What is taken for a failure, and how long one lasts, stands in the page on reliability.
///
/// ```
/// use tower_ratelimit::{FixedWindow, OnStoreFailure, Policy, TokenBucket};
///
/// let reads = Policy::new("reads", TokenBucket::per_second(50));
/// assert_eq!(reads.when_store_fails(), OnStoreFailure::Local);
///
/// let logins = Policy::new("logins", FixedWindow::per_hour(20)).on_store_failure(OnStoreFailure::Refuse);
/// assert_eq!(logins.when_store_fails(), OnStoreFailure::Refuse);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnStoreFailure {
    /// The same policy is kept in this process until the store is back: each node counts by itself, from
    /// nothing, up to the limit, or to its share if the store knows how many nodes there are. The default, since it
    /// neither lets a flood in nor turns everybody away.
    #[default]
    Local,
    /// Everything goes on, uncounted and without fields, but for keys that this node knows to be
    /// [blocked](crate::Limiter::block). For limits that save money and not lives.
    Allow,
    /// Everything is refused with `503 Service Unavailable` (of gRPC, `UNAVAILABLE`), and never with 429: the
    /// client has done nothing wrong. A [`Limiter`](crate::Limiter) returns the
    /// [`StoreError`](crate::StoreError).
    Refuse,
}

impl<R> Policy<R> {
    /// What becomes of its requests while the store does not decide; [`OnStoreFailure::Local`] unless
    /// said.
    ///
    /// The store in Redis goes by it; a [`MemoryStore`](crate::MemoryStore) never fails, and of a store of
    /// your own every failure is refused.
    pub fn on_store_failure(mut self, what: OnStoreFailure) -> Self {
        self.on_store_failure = what;
        self
    }

    /// What was said by [`on_store_failure`](Self::on_store_failure).
    pub fn when_store_fails(&self) -> OnStoreFailure {
        self.on_store_failure
    }
}
