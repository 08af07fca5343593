//! A layer that counts requests for the signals of the load: see [`Traffic`].
//!
//! It is a layer of its own, inside the limit, so that it sees the work of the service and no refusals, and
//! so that a request without such signals pays nothing for them.

use std::fmt;
use std::sync::Arc;

use http::{Request, Response};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::Except;
use crate::guarded::{Admit, Guarded};
use crate::{InFlightGuard, Traffic};
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
    type Service = Guarded<S, Self>;

    fn layer(&self, inner: S) -> Guarded<S, Self> {
        Guarded::new(inner, self)
    }
}

impl<S, B, R> Admit<S, Request<B>> for TrafficLayer
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
{
    type Response = Response<GuardedBody<R, Option<InFlightGuard>>>;
    type Guard = Option<InFlightGuard>;

    #[inline]
    fn admit(
        &self,
        _: &mut S,
        request: &mut Request<B>,
    ) -> Result<Self::Guard, Result<Self::Response, S::Error>> {
        let is_counted = match &self.except {
            None => true,
            Some(except) => !except(&Head::of(request)),
        };
        Ok(is_counted.then(|| self.traffic.begin()))
    }
}

impl fmt::Debug for TrafficLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrafficLayer")
            .field("traffic", &self.traffic)
            .finish_non_exhaustive()
    }
}
