use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;
use tower_service::Service;

use super::{Limit, Refused};
use crate::key::{IntoKey, Key};
use crate::limiter::Limiter;
use crate::store::Ledger;

/// Limits the rate of requests to any service, and refuses requests over the limit with a closure.
///
/// `Q` is the request, `T` the response and `E` the error of the service, so the type has a name:
/// `LimitLayer<Mail, Receipt, BoxError>`. Clones, and all services that they wrap, share one state.
/// See the [module](crate::service) for examples.
///
/// # Defaults
///
/// - cost: 1
pub struct LimitLayer<Q, T, E> {
    rules: Rules<Q, T, E>,
}

/// A closure that reads a value from a request.
type Reader<Q, T> = Arc<dyn Fn(&Q) -> T + Send + Sync>;

pub(super) struct Rules<Q, T, E> {
    pub(super) limiter: Limiter<dyn Ledger>,
    key: Reader<Q, Key>,
    cost: Option<Reader<Q, u32>>,
    refuse: Arc<dyn Fn(Refused) -> Result<T, E> + Send + Sync>,
}

impl<Q, T, E> LimitLayer<Q, T, E> {
    /// Makes a layer that asks this limiter about each request.
    ///
    /// `key` makes the key of a request, and all policies of the limiter count it. To count
    /// requests without a key together, return [`Key::NOBODY`] for them. `refuse` makes the result
    /// for a refused request: `Ok` with a response, or `Err` with an error.
    pub fn new<K: IntoKey>(
        limiter: impl Into<Limiter<dyn Ledger>>,
        key: impl Fn(&Q) -> K + Send + Sync + 'static,
        refuse: impl Fn(Refused) -> Result<T, E> + Send + Sync + 'static,
    ) -> Self {
        Self {
            rules: Rules {
                limiter: limiter.into(),
                key: Arc::new(move |request| key(request).into_key()),
                cost: None,
                refuse: Arc::new(refuse),
            },
        }
    }

    /// Sets how many units a request takes; the default is 1.
    ///
    /// A request of cost 0 is counted by no policy, and refused only if its key is blocked.
    pub fn cost(mut self, cost: impl Fn(&Q) -> u32 + Send + Sync + 'static) -> Self {
        self.rules.cost = Some(Arc::new(cost));
        self
    }
}

impl<Q, T, E> Rules<Q, T, E> {
    pub(super) fn key(&self, request: &Q) -> Key {
        (self.key)(request)
    }

    pub(super) fn cost(&self, request: &Q) -> u32 {
        self.cost.as_ref().map_or(1, |cost| cost(request))
    }

    pub(super) fn refuse(&self, refused: Refused) -> Result<T, E> {
        (self.refuse)(refused)
    }
}

impl<S: Service<Q>, Q> Layer<S> for LimitLayer<Q, S::Response, S::Error> {
    type Service = Limit<S, Q>;

    fn layer(&self, inner: S) -> Limit<S, Q> {
        Limit::new(inner, Arc::new(self.rules.clone()))
    }
}

impl<Q, T, E> Clone for Rules<Q, T, E> {
    fn clone(&self) -> Self {
        Self {
            limiter: self.limiter.clone(),
            key: Arc::clone(&self.key),
            cost: self.cost.clone(),
            refuse: Arc::clone(&self.refuse),
        }
    }
}

impl<Q, T, E> Clone for LimitLayer<Q, T, E> {
    fn clone(&self) -> Self {
        Self {
            rules: self.rules.clone(),
        }
    }
}

impl<Q, T, E> fmt::Debug for LimitLayer<Q, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitLayer")
            .field("limiter", &self.rules.limiter)
            .finish_non_exhaustive()
    }
}
