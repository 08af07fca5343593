use std::borrow::Cow;
use std::sync::Arc;

use http::StatusCode;
use http::response::Parts;
use tower_layer::Layer;

use super::options::Options;
use super::service::WithConcurrency;
use crate::{AdaptiveConcurrency, Sample};
use tower_ratelimit::key::Head;

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
    type Service = WithConcurrency<S>;

    fn layer(&self, inner: S) -> WithConcurrency<S> {
        WithConcurrency::new(inner, &self.options)
    }
}
