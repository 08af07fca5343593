//! The future of an outgoing call.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use tower_ratelimit_core::__internal::{Answering, Holding, LayerVerdict, PendingCall, Verdict};

use super::advice::Advice;
use super::lines::{Call, WaitingCall};
use super::throttle::CallResult;
use super::{ClientThrottleError, Throttled};

pin_project! {
    /// The response of a [`ClientThrottle`](super::ClientThrottle) service.
    ///
    /// Dropping it drops the request or the call to the inner service, and lets another call go.
    pub struct ClientThrottleFuture<S, Req>
    where
        S: Service<Req>,
    {
        #[pin]
        call: PendingCall<S, Req, Outgoing>,
    }
}

/// Calls that wait and go as their lines allow.
pub(super) enum Outgoing {}

impl<S: Service<Req>, Req> ClientThrottleFuture<S, Req> {
    pub(super) fn new(call: PendingCall<S, Req, Outgoing>) -> Self {
        Self { call }
    }
}

impl Holding for Outgoing {
    type Pending = Box<WaitingCall>;
    /// `None` if there is no room to learn from the response.
    type Admission = Option<Call>;
    type Refusal = Throttled;
    type Within = ();

    fn enter(_: &Option<Call>) {}

    fn waits_its_turn(_: &Box<WaitingCall>) -> bool {
        true
    }
}

impl<S, B, R> Answering<S, Request<B>> for Outgoing
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Output = Result<Response<R>, ClientThrottleError<S::Error>>;

    fn resume(
        waiting: &mut Box<WaitingCall>,
        _: &mut Request<B>,
        cx: &mut Context<'_>,
    ) -> Poll<LayerVerdict<Self>> {
        Poll::Ready(match ready!(waiting.poll(cx)) {
            Ok(call) => Verdict::Pass(Some(call)),
            Err(throttled) => Verdict::Refuse(throttled),
        })
    }

    fn answered(call: &mut Option<Call>, answer: Result<Response<R>, S::Error>) -> Self::Output {
        if let Some(call) = call.take() {
            let with = match &answer {
                Ok(response) => CallResult::Answered(Advice::by(response, call.wall())),
                Err(_) => CallResult::Failed,
            };
            call.back(with);
        }
        answer.map_err(ClientThrottleError::Inner)
    }

    fn failed(call: Option<Call>, error: S::Error) -> Self::Output {
        if let Some(call) = call {
            call.back(CallResult::Failed);
        }
        Err(ClientThrottleError::Inner(error))
    }

    fn refused(throttled: Throttled) -> Self::Output {
        Err(ClientThrottleError::Throttled(throttled))
    }
}

impl<S, B, R> Future for ClientThrottleFuture<S, Request<B>>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Output = Result<Response<R>, ClientThrottleError<S::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().call.poll(cx)
    }
}

impl<S: Service<Req>, Req> fmt::Debug for ClientThrottleFuture<S, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientThrottleFuture")
            .finish_non_exhaustive()
    }
}
