use std::sync::Arc;

use tower_layer::Layer;

use super::gate::Gate;
use super::{RateLimit, RateLimitLayerBuilder};
use crate::algorithm::Algorithm;
use crate::key::Extract;
use crate::policy::Policy;
use crate::response::{AnswerOptions, Answers};
use crate::store::MemoryStore;

/// Limits the rate of requests to a service of HTTP, and answers those over the limit with
/// `429 Too Many Requests`.
///
/// Clones, and all services that they wrap, share one state. See the
/// [module](crate::middleware) for examples.
///
/// The service has to be `Clone`, since a request that waits for its store keeps the instance that
/// was ready for it; its response body may be of any type whose data can be made of `Bytes`.
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    gate: Arc<Gate>,
}

impl RateLimitLayer {
    /// One policy named `default`, with its state in this process.
    ///
    /// `key` says who is counted: one of the functions of [`key`](crate::key), or a closure over
    /// the request's [`Head`](crate::key::Head). Where layers are stacked, take the
    /// [`builder`](Self::builder) and give each policy a name of its own.
    pub fn new(key: impl Extract, algorithm: impl Into<Algorithm>) -> Self {
        let (policy, reader) = Policy::new("default", algorithm).key(key).split();
        let ledger = MemoryStore::new().ledger(std::slice::from_ref(&policy));
        let policies = [policy];
        let answers = Answers::new(AnswerOptions::default(), &policies);
        Self::of(Gate::new(&policies, vec![reader], ledger, answers))
    }

    /// Starts a layer with policies and a store of your choice.
    ///
    /// # Defaults
    ///
    /// - policies: none; at least one has to be given
    /// - store: a new [`MemoryStore`]
    /// - dialects: [`Dialect::Draft11`](crate::response::Dialect::Draft11), the fields `RateLimit` and `RateLimit-Policy`
    /// - refusals: status 429, a problem of RFC 9457, and a `Retry-After` without jitter
    /// - no path is exempt, nobody is on a list
    /// - decisions are not put into requests' extensions
    pub fn builder() -> RateLimitLayerBuilder {
        RateLimitLayerBuilder::new()
    }

    pub(super) fn of(gate: Gate) -> Self {
        Self {
            gate: Arc::new(gate),
        }
    }

    #[cfg(test)]
    pub(super) fn number(&self) -> usize {
        self.gate.id()
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, Arc::clone(&self.gate))
    }
}
