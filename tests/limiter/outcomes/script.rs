//! An inner service whose requests end in any way, and a client that goes away in any way.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::future::pending;
use std::io;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::Notify;
use tokio::time::sleep;
use tower::{Layer, Service, ServiceExt};
use tower_ratelimit::key::Head;
use tower_ratelimit::policy::{Cost, Spend};
use tower_ratelimit::{RateLimit, RateLimitLayer};

/// The ending of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Its body is read to its end.
    Read,
    /// Its body has no frame, and is read to its end.
    Empty,
    /// Its body declares a length, and is not polled again when that is reached.
    LengthReached,
    /// Its body ends with trailers.
    Trailers,
    /// Its body is dropped unread.
    Unread,
    /// The client goes away after a part of the body.
    BrokenOff,
    /// The body fails after a part.
    BodyFails,
    /// Polling the body panics after a part.
    BodyPanics,
    NoContent,
    NotModified,
    Head,
    /// The response is 101, after which the connection goes on without a body.
    Upgrade,
    /// The client goes away while the inner service works.
    Gone,
    /// The client goes away as soon as its request has arrived.
    GoneAtOnce,
    /// The future is dropped before it is polled.
    NeverPolled,
    /// The inner service fails.
    Fails,
    /// The inner service panics when it is called.
    CallPanics,
    /// Its future panics.
    FuturePanics,
}

pub(crate) const WAYS: [Way; 18] = [
    Way::Read,
    Way::Empty,
    Way::LengthReached,
    Way::Trailers,
    Way::Unread,
    Way::BrokenOff,
    Way::BodyFails,
    Way::BodyPanics,
    Way::NoContent,
    Way::NotModified,
    Way::Head,
    Way::Upgrade,
    Way::Gone,
    Way::GoneAtOnce,
    Way::NeverPolled,
    Way::Fails,
    Way::CallPanics,
    Way::FuturePanics,
];

impl Way {
    /// Returns whether the client sees the head of a response.
    pub(crate) fn has_an_answer(self) -> bool {
        !matches!(
            self,
            Self::Gone
                | Self::GoneAtOnce
                | Self::NeverPolled
                | Self::Fails
                | Self::CallPanics
                | Self::FuturePanics
        )
    }

    /// Returns whether the whole response goes out.
    pub(crate) fn is_complete(self) -> bool {
        self.has_an_answer()
            && !matches!(
                self,
                Self::Unread | Self::BrokenOff | Self::BodyFails | Self::BodyPanics
            )
    }
}

/// The instructions for the inner service, in the extensions of a request.
#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) way: Way,
    /// The actual cost of the request.
    pub(crate) cost: u32,
    /// The team, whose requests are limited together.
    team: String,
    /// The milliseconds for which the service works, and for which the client rests before it reads the body.
    rests: u32,
    /// The signal that the service works on the request.
    works: Arc<Notify>,
    enter: Option<Arc<Enter>>,
}

/// The hook that runs when a request comes to the service. Its result is dropped when the service is done
/// with the request: at the end of the body, or when the future or the body is dropped.
pub(crate) type Enter = dyn Fn() -> Inside + Send + Sync;
pub(crate) type Inside = Box<dyn Any + Send>;

impl Script {
    pub(crate) fn new(way: Way, cost: u32) -> Self {
        Self {
            way,
            cost,
            team: "all".to_owned(),
            rests: 0,
            works: Arc::default(),
            enter: None,
        }
    }

    /// Creates a script for a request of a team, with a hook.
    pub(crate) fn of_team(self, team: String, rests: u32, enter: Arc<Enter>) -> Self {
        Self {
            team,
            rests,
            enter: Some(enter),
            ..self
        }
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script")
            .field("way", &self.way)
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

/// Returns the estimate in the header of a request.
pub(crate) fn estimate(head: &Head<'_>) -> Option<u32> {
    head.header("x-estimate")?.parse().ok()
}

/// The frames of a body, and its ending.
pub(crate) struct Frames {
    parts: VecDeque<Frame<Bytes>>,
    declared: Option<u64>,
    then: Way,
    spend: Option<(Spend, u32)>,
    inside: Option<Inside>,
}

pub(crate) const PART: &[u8] = b"part";

impl Body for Frames {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(frame) = self.parts.pop_front() {
            if let Some((spend, units)) = &self.spend {
                spend.add(*units);
            }
            let is_last =
                frame.is_trailers() || self.parts.is_empty() && self.then == Way::LengthReached;
            if is_last {
                self.inside = None;
            }
            return Poll::Ready(Some(Ok(frame)));
        }
        if self.then == Way::BrokenOff {
            return Poll::Pending;
        }
        self.inside = None;
        match self.then {
            Way::BodyFails => Poll::Ready(Some(Err(io::ErrorKind::BrokenPipe.into()))),
            Way::BodyPanics => quiet_panic(),
            _ => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.declared
            .map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

async fn rest(millis: u32) {
    if millis > 0 {
        sleep(Duration::from_millis(millis.into())).await;
    }
}

async fn respond(
    request: Request<()>,
    inside: Option<Inside>,
) -> Result<Response<Frames>, io::Error> {
    let Script {
        way,
        cost,
        rests,
        works,
        ..
    } = request.extensions().get::<Script>().unwrap().clone();
    let spend = request.extensions().get::<Spend>().cloned();
    rest(rests).await;
    match way {
        Way::Gone | Way::GoneAtOnce => {
            works.notify_one();
            pending::<()>().await;
        }
        Way::Fails => return Err(io::ErrorKind::Other.into()),
        Way::FuturePanics => quiet_panic(),
        _ => {}
    }
    let status = match way {
        Way::NoContent => StatusCode::NO_CONTENT,
        Way::NotModified => StatusCode::NOT_MODIFIED,
        Way::Upgrade => StatusCode::SWITCHING_PROTOCOLS,
        _ => StatusCode::OK,
    };
    let part = || Frame::data(Bytes::from_static(PART));
    let mut frames = VecDeque::new();
    let has_a_body = !matches!(
        way,
        Way::Empty | Way::NoContent | Way::NotModified | Way::Head | Way::Upgrade
    );
    if has_a_body {
        frames.push_back(part());
    }
    // The client of a body that is broken off waits for a second part.
    if has_a_body && way != Way::BrokenOff {
        frames.push_back(part());
    }
    if way == Way::Trailers {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        frames.push_back(Frame::trailers(trailers));
    }
    let mut response = Response::builder()
        .status(status)
        .header("x-cost", cost)
        .extension(Cost(cost));
    if way == Way::LengthReached || way == Way::Head {
        response = response.header("content-length", 2 * PART.len());
    }
    let body = Frames {
        parts: frames,
        declared: None,
        then: way,
        spend: spend.map(|spend| (spend, cost)),
        inside,
    };
    Ok(response.body(body).unwrap())
}

type Respond = Pin<Box<dyn Future<Output = Result<Response<Frames>, io::Error>> + Send>>;

/// The inner service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scripted;

impl Service<Request<()>> for Scripted {
    type Response = Response<Frames>;
    type Error = io::Error;
    type Future = Respond;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Respond {
        let script = request.extensions().get::<Script>().unwrap();
        let inside = script.enter.as_ref().map(|enter| enter());
        if script.way == Way::CallPanics {
            quiet_panic();
        }
        Box::pin(respond(request, inside))
    }
}

pub(crate) fn service(layer: &RateLimitLayer) -> RateLimit<Scripted> {
    layer.layer(Scripted)
}

/// Sends a request, and ends it in its way.
pub(crate) async fn send(
    service: &RateLimit<Scripted>,
    user: &str,
    estimate: u32,
    script: &Script,
) -> Option<StatusCode> {
    let method = match script.way {
        Way::Head => Method::HEAD,
        _ => Method::GET,
    };
    let request = Request::builder()
        .method(method)
        .header("x-user", user)
        .header("x-team", &script.team)
        .header("x-estimate", estimate)
        .extension(script.clone())
        .body(())
        .unwrap();
    let mut service = service.clone();
    let end = async move { end(&mut service, request, script).await };
    // The service has seen the panic.
    AssertUnwindSafe(end).catch_unwind().await.ok().flatten()
}

/// Returns the status of the response, if there is one.
async fn end(
    service: &mut RateLimit<Scripted>,
    request: Request<()>,
    script: &Script,
) -> Option<StatusCode> {
    service.ready().await.unwrap();
    let mut response = Box::pin(service.call(request));
    let response = match script.way {
        Way::NeverPolled => return None,
        Way::GoneAtOnce => match poll(response.as_mut()) {
            Poll::Pending => return None,
            Poll::Ready(response) => response,
        },
        Way::Gone => tokio::select! {
            response = response => response,
            () = script.works.notified() => return None,
        },
        _ => response.await,
    };
    let response = response.ok()?;
    let status = response.status();
    if status == StatusCode::TOO_MANY_REQUESTS {
        return Some(status);
    }
    let mut body = Box::pin(response.into_body());
    rest(script.rests).await;
    match script.way {
        Way::Read | Way::Empty | Way::Trailers => drop(body.collect().await.unwrap()),
        Way::LengthReached => {
            for _ in 0..2 {
                assert!(body.frame().await.unwrap().is_ok());
            }
        }
        Way::BrokenOff => {
            assert!(body.frame().await.unwrap().is_ok());
            // The client goes away while the body makes the next frame.
            let next = pin!(body.frame());
            assert!(poll(next).is_pending());
        }
        Way::BodyFails | Way::BodyPanics => while let Some(Ok(_)) = body.frame().await {},
        _ => drop(body),
    }
    Some(status)
}

pub(crate) fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Panics without a message, since a test panics thousands of times.
fn quiet_panic() -> ! {
    resume_unwind(Box::new("as the script says"))
}
