//! Arrivals of requests at an inner service, by a clock that tokio has paused.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Full;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::clock::Clock;
use tower_ratelimit::policy::Http;
use tower_ratelimit::{MemoryStore, Micros, Policy, RateLimitLayer};

use crate::exchange::{Behind, Hello, Received, answer, get_with};
use crate::support::tokio_clock::TokioClock;

pub(crate) fn store() -> MemoryStore {
    MemoryStore::new().clock(TokioClock::new())
}

/// A clock that stands still, so that tokio's timers wake requests, if there are any.
pub(crate) struct StillClock;

impl Clock for StillClock {
    fn now(&self) -> Micros {
        Micros::new(1_704_067_200_000_000)
    }
}

/// Returns a service behind a policy whose requests wait by tokio's timers.
pub(crate) fn hello_by_tokio(policy: Policy<Http>) -> Hello {
    let store = MemoryStore::new().clock(StillClock);
    let layer = RateLimitLayer::builder().policy(policy).store(store);
    Hello::behind(&layer.build().unwrap())
}

/// After a sleep of this much more, everything that was due has happened.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// The requests that have arrived at the inner service, with their times.
#[derive(Clone)]
pub(crate) struct Arrivals {
    start: Instant,
    log: Arc<Mutex<Vec<(u32, Duration)>>>,
}

impl Arrivals {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            log: Arc::default(),
        }
    }

    pub(crate) fn service(
        &self,
    ) -> impl Service<
        Request<()>,
        Response = Response<Full<bytes::Bytes>>,
        Error = Infallible,
        Future: Send,
    > + Clone
    + Send
    + Sync
    + 'static {
        let arrivals = self.clone();
        service_fn(move |request: Request<()>| {
            let number = request.headers()["x-number"].to_str().unwrap();
            arrivals.note(number.parse().unwrap());
            std::future::ready(Ok(Response::new(Full::default())))
        })
    }

    pub(crate) fn note(&self, number: u32) {
        self.log
            .lock()
            .unwrap()
            .push((number, self.start.elapsed()));
    }

    pub(crate) fn log(&self) -> Vec<(u32, Duration)> {
        self.log.lock().unwrap().clone()
    }
}

type Limited = BoxCloneSyncService<Request<()>, Response<Full<bytes::Bytes>>, Infallible>;

pub(crate) fn behind(
    layer: &RateLimitLayer,
    arrivals: &Arrivals,
) -> impl Service<
    Request<()>,
    Response = Response<tower_ratelimit::middleware::ResponseBody<Full<bytes::Bytes>>>,
    Error = Infallible,
    Future: Send,
>
+ Clone
+ Send
+ 'static
+ use<> {
    layer.layer(Limited::new(arrivals.service()))
}

pub(crate) fn request(user: u32, number: u32) -> Request<()> {
    get_with([("x-user", user), ("x-number", number)])
}

/// Sends a request, and lets it reach its place.
pub(crate) async fn send<S, B>(service: &S, request: Request<()>) -> JoinHandle<Received>
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
    B: http_body::Body<Error: std::fmt::Debug> + Send + 'static,
{
    let service = service.clone();
    let sent = tokio::spawn(async move { answer(service.oneshot(request).await.unwrap()) });
    tokio::task::yield_now().await;
    sent
}
