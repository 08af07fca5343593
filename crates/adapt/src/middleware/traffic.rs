//! A layer that counts requests for the signals of the load: see [`Traffic`].
//!
//! It is a layer of its own, inside the limit, so that it sees the work of the service and no refusals, and
//! so that a request without such signals pays nothing for them.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use crate::sampled::Sampling;
use crate::{Passage, SampledFuture, Traffic};
use tower_ratelimit::key::Head;
use tower_ratelimit::middleware::GuardedBody;

/// Counts the requests of the inner service: how long they take, how many are under way, and how many fail.
///
/// - A request is under way from its call until the end of the response's body, or until either is dropped.
/// - It takes as long as the head of the response does.
/// - It has failed if the inner service fails, or answers with a status of 500 or more.
///
/// Add it inside the limit: in an axum router, before it.
///
/// ```
/// use std::time::Duration;
///
/// use axum::{Router, routing::get};
/// use tower_ratelimit_adapt::{Adapt, Aimd, Load, Traffic};
/// use tower_ratelimit_adapt::middleware::TrafficLayer;
/// use tower_ratelimit::{Policy, RateLimitLayer, TokenBucket, key};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_ratelimit::ConfigError> {
/// let traffic = Traffic::new();
/// let adapt = Adapt::builder(Aimd::on("latency", Load::FULL))
///     .signal(traffic.latency(Duration::from_millis(200)))
///     .build()?;
/// tokio::spawn(adapt.run());
///
/// let policy = Policy::new("api", TokenBucket::per_second(50)).factor(adapt.factor());
/// let limit = RateLimitLayer::builder().policy(policy.key(key::client_ip())).build()?;
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(TrafficLayer::new(&traffic).except(|head| head.path() == "/health"))
///     .layer(limit);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TrafficLayer {
    traffic: Traffic,
    except: Option<Arc<Except>>,
}

type Except = dyn Fn(&Head<'_>) -> bool + Send + Sync;

impl TrafficLayer {
    /// Creates a layer that counts into `traffic`.
    pub fn new(traffic: &Traffic) -> Self {
        Self {
            traffic: traffic.clone(),
            except: None,
        }
    }

    /// Excludes the requests that match the condition, such as the probes of a load balancer: they are fast,
    /// and say nothing about other requests.
    pub fn except(self, except: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        let except: Option<Arc<Except>> = Some(Arc::new(except));
        Self { except, ..self }
    }
}

impl<S> Layer<S> for TrafficLayer {
    type Service = WithTraffic<S>;

    fn layer(&self, inner: S) -> WithTraffic<S> {
        let layer = self.clone();
        WithTraffic { inner, layer }
    }
}

impl fmt::Debug for TrafficLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrafficLayer")
            .field("traffic", &self.traffic)
            .finish_non_exhaustive()
    }
}

/// The service that a [`TrafficLayer`] makes of an inner service.
#[derive(Clone, Debug)]
pub struct WithTraffic<S> {
    inner: S,
    layer: TrafficLayer,
}

impl<S, B, R> Service<Request<B>> for WithTraffic<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
{
    type Response = Response<GuardedBody<R, Option<Passage>>>;
    type Error = S::Error;
    type Future = SampledFuture<S::Future, InFlight, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let is_counted = match &self.layer.except {
            None => true,
            Some(except) => !except(&Head::of(&request)),
        };
        let passage = is_counted.then(|| self.layer.traffic.begin());
        SampledFuture::calling(self.inner.call(request), InFlight(passage))
    }
}

/// A request in flight, if it is counted.
#[derive(Debug)]
pub struct InFlight(Option<Passage>);

impl<R: Body, E> Sampling<Result<Response<R>, E>> for InFlight {
    type Output = Result<Response<GuardedBody<R, Option<Passage>>>, E>;

    #[inline]
    fn answered(self, answer: Result<Response<R>, E>) -> Self::Output {
        let Self(passage) = self;
        if let Some(passage) = &passage {
            match &answer {
                Ok(response) if !response.status().is_server_error() => passage.answered(),
                _ => passage.failed(),
            }
        }
        Ok(answer?.map(|body| GuardedBody::new(body, passage)))
    }
}
