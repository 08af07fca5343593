//! The layer of an adaptive concurrency for HTTP services.
//!
//! It is a layer of its own, so that a service without it pays nothing for it, and so that it can be on the
//! other side of a rate limit.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use crate::guarded::{Admit, Guarded};
use crate::sampled::{ClassifyHead, Sampled};
use crate::{AdaptiveConcurrency, Permit, Sample, Saturated};
use tower_ratelimit::__internal::saturated;
use tower_ratelimit::key::Head;
use tower_ratelimit::middleware::GuardedBody;
use tower_ratelimit::response::Refusal;

/// Bounds how many requests of the inner service are in flight at once, by an [adaptive
/// limit](AdaptiveConcurrency).
///
/// - A slot is taken when the service is called, and is free when the body of the response has ended or is
///   dropped. A service that is not ready, and an idle connection, take none.
/// - A request without a slot is refused at once: 503 with the problem `temporary-reduced-capacity`, and
///   `UNAVAILABLE` for a gRPC call. It is unknown when a slot will be free, so there is no `Retry-After`.
/// - The limit learns from the time to the head of the response.
///   - Statuses below 400 are samples.
///   - 503, 504, the gRPC codes 4, 8 and 14, and an error of the inner service are signs of an overload.
///   - Other failures, refusals of a rate limit, and requests whose client has gone away are not used.
///
/// Add it outside a rate limit (in an axum router, after it): then a request that finds no slot is charged
/// nothing. Where requests [wait for their turn](tower_ratelimit::Policy::wait_up_to), add it inside, because they
/// would hold a slot while they wait.
///
/// ```
/// use axum::{Router, body::Body, http::Request, routing::get};
/// use tower::ServiceExt;
/// use tower_ratelimit_adapt::AdaptiveConcurrency;
/// use tower_ratelimit_adapt::middleware::AdaptiveConcurrencyLayer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let concurrency = AdaptiveConcurrency::builder().start(1).build()?;
/// let layer = AdaptiveConcurrencyLayer::new(&concurrency).except(|head| head.path() == "/health");
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .route("/health", get(|| async {}))
///     .layer(layer);
/// let ask = |path| app.clone().oneshot(Request::get(path).body(Body::empty()).unwrap());
///
/// // The response is there, and its body is not read yet.
/// let first = ask("/").await?;
/// let second = ask("/").await?;
/// assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 503));
/// assert_eq!(second.headers()["ratelimit"], r#""concurrency";r=0"#);
/// assert_eq!(ask("/health").await?.status(), 200);
///
/// drop(first);
/// assert_eq!(ask("/").await?.status(), 200);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AdaptiveConcurrencyLayer {
    options: Arc<Options>,
}

impl AdaptiveConcurrencyLayer {
    /// Creates a layer over this limit, which several layers can share.
    pub fn new(concurrency: &AdaptiveConcurrency) -> Self {
        let options = Options {
            concurrency: concurrency.clone(),
            status: StatusCode::SERVICE_UNAVAILABLE,
            except: None,
            partition: None,
            classify: None,
        };
        Self {
            options: Arc::new(options),
        }
    }

    /// Returns the limit.
    pub fn concurrency(&self) -> &AdaptiveConcurrency {
        &self.options.concurrency
    }

    /// Excludes the requests that match the condition, such as the probes of a load balancer. They take no
    /// slot and give no samples: they are fast, and say nothing about other requests.
    pub fn except(self, except: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.with(|options| options.except = Some(Arc::new(except)))
    }

    /// Sets the [partition](crate::AdaptiveConcurrencyBuilder::partition) of a request. `None`, and an
    /// unknown name, count as the rest.
    pub fn partition_of<P: Into<Cow<'static, str>>>(
        self,
        partition_of: impl Fn(&Head<'_>) -> Option<P> + Send + Sync + 'static,
    ) -> Self {
        let partition = move |head: &Head<'_>| partition_of(head).map(Into::into);
        self.with(|options| options.partition = Some(Arc::new(partition)))
    }

    /// Sets what an answer says about the load, in place of the rule above.
    pub fn classify(self, classify: impl Fn(&Parts) -> Sample + Send + Sync + 'static) -> Self {
        self.with(|options| options.classify = Some(Arc::new(classify)))
    }

    /// Refuses with 429 in place of 503. Some load balancers remove a node that answers 503, and its load
    /// goes to the others.
    pub fn too_many_requests(self) -> Self {
        self.with(|options| options.status = StatusCode::TOO_MANY_REQUESTS)
    }

    fn with(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(Arc::make_mut(&mut self.options));
        self
    }
}

impl<S> Layer<S> for AdaptiveConcurrencyLayer {
    type Service = Guarded<S, Self>;

    fn layer(&self, inner: S) -> Guarded<S, Self> {
        Guarded::new(inner, self)
    }
}

impl<S, B, R> Admit<S, Request<B>> for AdaptiveConcurrencyLayer
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: Body,
    R::Data: From<Bytes>,
{
    type Response = Response<GuardedBody<R, Option<Permit>>>;
    type Guard = Sampled<Permit, ClassifyHead>;

    #[inline]
    fn admit(
        &self,
        inner: &mut S,
        request: &mut Request<B>,
    ) -> Result<Self::Guard, Result<Self::Response, S::Error>> {
        let options = &*self.options;
        match options.enter(request) {
            Ok(guard) => {
                let classify = options.classify.clone();
                Ok(Sampled { guard, classify })
            }
            Err(full) => {
                // The instance that was polled ready may hold a permit or a place in a queue.
                *inner = inner.clone();
                let name = options.concurrency.name();
                let response = saturated(name, options.status, full.limit(), request);
                Err(Ok(response.map(GuardedBody::refusal)))
            }
        }
    }
}

/// The options of a layer.
#[derive(Clone)]
struct Options {
    concurrency: AdaptiveConcurrency,
    /// The status of a refusal.
    status: StatusCode,
    except: Option<Arc<super::Except>>,
    partition: Option<Arc<PartitionOf>>,
    classify: Option<Arc<ClassifyHead>>,
}

type PartitionOf = dyn Fn(&Head<'_>) -> Option<Cow<'static, str>> + Send + Sync;

impl Options {
    /// Takes a slot. Returns `None` for a request that needs none.
    fn enter<B>(&self, request: &Request<B>) -> Result<Option<Permit>, Saturated> {
        if self.except.is_none() && self.partition.is_none() {
            return self.concurrency.try_enter().map(Some);
        }
        let head = Head::of(request);
        if self.except.as_ref().is_some_and(|except| except(&head)) {
            return Ok(None);
        }
        let partition = self.partition.as_ref().and_then(|of| of(&head));
        self.concurrency.enter(partition.as_deref()).map(Some)
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("concurrency", &self.concurrency)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

/// The gRPC codes of an overloaded server: deadline exceeded, resource exhausted, unavailable.
const OVERLOADED_CALLS: [&[u8]; 3] = [b"4", b"8", b"14"];

impl Sample {
    /// Classifies the answer of an HTTP service by default. A
    /// [closure](crate::middleware::AdaptiveConcurrencyLayer::classify) can fall back on this.
    pub fn of(head: &Parts) -> Self {
        if head.extensions.get::<Refusal>().is_some() {
            return Self::Nothing;
        }
        match head.headers.get("grpc-status").map(HeaderValue::as_bytes) {
            None | Some(b"0") => {}
            Some(code) if OVERLOADED_CALLS.contains(&code) => return Self::Overloaded,
            Some(_) => return Self::Nothing,
        }
        match head.status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => Self::Overloaded,
            status if status.is_client_error() || status.is_server_error() => Self::Nothing,
            _ => Self::Served,
        }
    }
}
