//! The layer for HTTP services.
//!
//! It has no type parameters: store, keys and algorithms are behind its enforcer, so that its name stays short in
//! user code.

use std::sync::Arc;
use std::time::SystemTime;

use http::Request;
use tower_layer::Layer;

use tower_ratelimit_core::__internal::ClientCharges;

use super::current_enforcer::CurrentEnforcer;
use super::current_enforcer::Newest;
use super::enforcer::Enforcer;
use super::enforcer::Trial;
use super::explanation::Explanation;
use super::shadow::Shadow;
use super::{RateLimit, RateLimitLayerBuilder};
use crate::algorithm::Algorithm;
use crate::key::Extract;
use crate::key::Head;
use crate::key::Key;
use crate::limiter::{Limiter, LocalLimiter};
use crate::observe::ConfigStats;
use crate::observe::Monitor;
use crate::policy::{Modes, Policy};
use crate::response::{AnswerOptions, Answers};

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
    current: CurrentEnforcer,
}

impl RateLimitLayer {
    /// Creates a layer with one policy, named `default`, and its state in this process.
    ///
    /// `key` identifies the client: one of the functions of [`key`](crate::key), or a closure over the
    /// [`Head`](crate::key::Head) of the request. If several layers are stacked, use the
    /// [`builder`](Self::builder) and give each policy its own name.
    pub fn new(key: impl Extract, algorithm: impl Into<Algorithm>) -> Self {
        let (policy, reader) = Policy::new("default", algorithm).key(key).split();
        let policies = [policy];
        let answers = Answers::new(AnswerOptions::default(), &policies);
        let limiter = LocalLimiter::of_plain(&policies);
        let readers = vec![reader];
        Self::of(Enforcer::new(&policies, readers, limiter.erased(), answers))
    }

    /// Starts a layer with policies and a store of your choice.
    ///
    /// # Defaults
    ///
    /// - policies: none; at least one is required
    /// - store: a new [`MemoryStore`](crate::MemoryStore)
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
    /// A key has to be the one that a policy's extractor makes, which is often not the value that the client
    /// sends. The extractor's `key_of` converts the value: see [keys for an
    /// operator](crate::key#keys-for-an-operator). A verb on a key concerns all policies of the layer,
    /// including those that count something else and have never seen it.
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
    pub fn limiter(&self) -> Limiter {
        self.current.with(|enforcer| enforcer.limiter().clone())
    }

    /// Returns a monitor of this layer, which reads its counters. See [`observe`](crate::observe).
    pub fn monitor(&self) -> Monitor {
        Monitor::new(self.current.clone())
    }

    /// Returns what the limiter in force charges a request with this head at this cost.
    // For `tower-ratelimit-ops`.
    #[doc(hidden)]
    pub fn client_charges(&self, head: &Head<'_>, cost: u32) -> ClientCharges {
        self.current
            .with(|enforcer| enforcer.client_charges(head, cost))
    }

    /// Returns the switches of the policies' modes: enforced, in shadow, or off.
    pub fn modes(&self) -> Modes {
        self.current.with(|enforcer| enforcer.limiter().modes())
    }

    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn explain(&self, head: &Head<'_>, plan: Option<&str>, key: Option<Key>) -> Explanation {
        self.current
            .with(|enforcer| enforcer.explain(head, plan, key))
    }

    #[cfg(feature = "usage")]
    pub(super) fn current(&self) -> &CurrentEnforcer {
        &self.current
    }

    pub(super) fn of(enforcer: Enforcer) -> Self {
        Self {
            current: CurrentEnforcer::One(Arc::new(enforcer)),
        }
    }

    /// Decides without an effect on the request.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn try_out<B>(&self, request: &mut Request<B>) -> Trial {
        self.current.with(|enforcer| enforcer.try_out(request))
    }

    /// Lets the shadow decide as this layer does. Returns a layer that decides as the shadow did before.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn put_into(&self, shadow: &Shadow) -> Option<Self> {
        let before = self.current.with(|enforcer| shadow.put(enforcer))?;
        Some(Self {
            current: CurrentEnforcer::One(before),
        })
    }

    /// Returns the layer with a handle that replaces its limits while it is in use.
    ///
    /// ```
    /// use axum::{Router, body::Body, http::Request, routing::get};
    /// use tower::ServiceExt;
    /// use tower_ratelimit::{ConfigError, FixedWindow, MemoryStore, Policy, RateLimitLayer, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // Layers over one store share the state of policies with the same name.
    /// let store = MemoryStore::new();
    /// let limit = |most| {
    ///     let policy = Policy::new("all", FixedWindow::per_day(most)).key(key::global());
    ///     RateLimitLayer::builder().policy(policy).store(store.clone()).build()
    /// };
    /// let (layer, swap) = limit(1)?.replaceable();
    /// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
    /// let status = || async { app.clone().oneshot(Request::new(Body::empty())).await.unwrap().status() };
    ///
    /// assert_eq!(status().await, 200);
    /// assert_eq!(status().await, 429);
    /// swap.put(&limit(2)?);
    /// assert_eq!(status().await, 200);
    /// # Ok(())
    /// # }
    /// ```
    pub fn replaceable(self) -> (Self, Swap) {
        let newest = self.newest(self.current.shadow());
        let layer = Self {
            current: CurrentEnforcer::Newest(Arc::clone(&newest)),
        };
        (layer, Swap { newest })
    }

    /// Returns the layer with this shadow beside it.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn beside(self, shadow: Arc<Shadow>) -> Self {
        Self {
            current: CurrentEnforcer::Newest(self.newest(Some(shadow))),
        }
    }

    fn newest(&self, shadow: Option<Arc<Shadow>>) -> Arc<Newest> {
        let newest = self.current.with(|enforcer| Newest::new(enforcer, shadow));
        Arc::new(newest)
    }
}

/// Replaces the limits of a layer, for all services that it wraps: see [`RateLimitLayer::replaceable`].
#[derive(Debug)]
pub struct Swap {
    newest: Arc<Newest>,
}

impl Swap {
    /// Lets requests that come from now on be decided as this layer decides. Requests in flight end as they began.
    ///
    /// Counters go on. What was used stays used if both layers are over the same store. A file in shadow beside the layer comes along.
    /// Returns a layer with the previous limits.
    pub fn put(&self, layer: &RateLimitLayer) -> RateLimitLayer {
        let shadow = layer.current.shadow();
        let before = layer.current.with(|enforcer| {
            enforcer.suppress_rebuild_warning();
            self.newest.put(enforcer, shadow)
        });
        RateLimitLayer {
            current: CurrentEnforcer::One(before),
        }
    }

    /// Sets the configuration that snapshots show.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn show(&self, version: u64, sha256: String, since: SystemTime, error: Option<String>) {
        self.newest
            .set_config_stats(ConfigStats::new(version, sha256, since, error));
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, self.current.clone())
    }
}
