use std::sync::Arc;

use tower_layer::Layer;

use super::gate::Gate;
use super::{RateLimit, RateLimitLayerBuilder};
use crate::algorithm::Algorithm;
use crate::key::Extract;
use crate::limiter::Limiter;
use crate::policy::Policy;
use crate::response::{AnswerOptions, Answers};
use crate::store::{Guarded, Ledger, MemoryStore};

/// Limits the rate of requests to an HTTP service, and answers requests over the limit with
/// `429 Too Many Requests`.
///
/// Clones, and all services that they wrap, share one state. See the [module](crate::middleware)
/// for examples.
///
/// The service has to be `Clone`, because a request that waits for its store keeps the instance
/// that was ready for it. Its response body may have any type whose data converts from `Bytes`.
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    gate: Arc<Gate>,
}

impl RateLimitLayer {
    /// Makes a layer with one policy, named `default`, and its state in this process.
    ///
    /// `key` says who is counted: one of the functions of [`key`](crate::key), or a closure over
    /// the [`Head`](crate::key::Head) of the request. If several layers are stacked, use the
    /// [`builder`](Self::builder) and give each policy its own name.
    pub fn new(key: impl Extract, algorithm: impl Into<Algorithm>) -> Self {
        let (policy, reader) = Policy::new("default", algorithm).key(key).split();
        let ledger = MemoryStore::new().ledger(std::slice::from_ref(&policy));
        let policies = [policy];
        let answers = Answers::new(AnswerOptions::default(), &policies);
        Self::of(Gate::new(
            &policies,
            vec![reader],
            Guarded::in_process(ledger),
            answers,
        ))
    }

    /// Starts a layer with policies and a store of your choice.
    ///
    /// # Defaults
    ///
    /// - policies: none; at least one has to be given
    /// - store: a new [`MemoryStore`]
    /// - not split: this node admits all of each limit
    /// - dialects: [`Dialect::Draft11`](crate::response::Dialect::Draft11), the headers `RateLimit`
    ///   and `RateLimit-Policy`
    /// - refusals: status 429, a problem of RFC 9457, and a `Retry-After` without jitter
    /// - no request waits, unless a [policy lets it](Policy::wait_up_to); then at most 10,000 at a
    ///   time
    /// - gRPC calls are detected by their content type, and refused as such (feature `tonic`)
    /// - no exempt paths, and empty allow and deny lists
    /// - decisions are not put into the extensions of requests
    pub fn builder() -> RateLimitLayerBuilder {
        RateLimitLayerBuilder::new()
    }

    /// Returns the limiter of this layer, to block, reset or [inspect](Limiter::inspect) a key. It
    /// shares its state with the layer.
    ///
    /// A key has to be the one that a policy's extractor makes, which is often not the value that the
    /// client sends. The extractor's `key_of` makes it of the value: see
    /// [keys for an operator](crate::key#keys-for-an-operator). What is asked of a key concerns all
    /// policies of the layer, those too that count something else and have never seen it.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use axum::{Router, body::Body, http::Request, routing::get};
    /// use tower::ServiceExt;
    /// use tower_ratelimit::{RateLimitLayer, TokenBucket, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let api_key = key::api_key();
    /// let layer = RateLimitLayer::new(api_key.clone(), TokenBucket::per_second(5));
    /// let limiter = layer.limiter();
    /// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
    ///
    /// limiter.block(api_key.key_of("k3y")?, Duration::from_secs(60)).await?;
    /// let request = Request::get("/").header("x-api-key", "k3y").body(Body::empty())?;
    /// let response = app.oneshot(request).await?;
    /// assert_eq!(response.status(), 429);
    /// assert_eq!(response.headers()["retry-after"], "60");
    /// # Ok(())
    /// # }
    /// ```
    pub fn limiter(&self) -> Limiter<dyn Ledger> {
        self.gate.limiter().clone()
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
