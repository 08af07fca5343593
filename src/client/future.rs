//! The future of an outgoing call.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::lines::{Call, WaitingCall};
use super::standing::Back;
use super::told::Told;
use super::{HeedError, Held};
use crate::line::{Answering, HeldCall, Holding, Ruling};

pin_project! {
    /// The response of a [`Heed`](super::Heed) service.
    ///
    /// Dropping it drops the request or the call to the inner service, and lets another call go.
    pub struct HeedFuture<S, Req>
    where
        S: Service<Req>,
    {
        #[pin]
        call: HeldCall<S, Req, Outgoing>,
    }
}

/// Calls that wait and go as their lines let them.
#[derive(Clone, Copy)]
pub(super) struct Outgoing;

impl<S: Service<Req>, Req> HeedFuture<S, Req> {
    pub(super) fn new(call: HeldCall<S, Req, Outgoing>) -> Self {
        Self { call }
    }
}

impl Holding for Outgoing {
    type Question = WaitingCall;
    /// `None` if there is no room to learn from the response.
    type Kept = Option<Call>;
    type Refusal = Held;

    fn waits_its_turn(_: &WaitingCall) -> bool {
        true
    }
}

impl<S, B, R> Answering<S, Request<B>> for Outgoing
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Output = Result<Response<R>, HeedError<S::Error>>;

    fn resume(
        &self,
        waiting: &mut WaitingCall,
        _: &mut Request<B>,
        cx: &mut Context<'_>,
    ) -> Poll<Ruling<Self>> {
        Poll::Ready(match ready!(waiting.poll(cx)) {
            Ok(call) => Ruling::Pass(Some(call)),
            Err(held) => Ruling::Refuse(held),
        })
    }

    fn answered(call: &mut Option<Call>, answer: Result<Response<R>, S::Error>) -> Self::Output {
        if let Some(call) = call.take() {
            let with = match &answer {
                Ok(response) => Back::Answered(Told::by(response, call.wall())),
                Err(_) => Back::Failed,
            };
            call.back(with);
        }
        answer.map_err(HeedError::Inner)
    }

    fn failed(call: Option<Call>, error: S::Error) -> Self::Output {
        if let Some(call) = call {
            call.back(Back::Failed);
        }
        Err(HeedError::Inner(error))
    }

    fn refused(held: Held) -> Self::Output {
        Err(HeedError::Held(held))
    }
}

impl<S, B, R> Future for HeedFuture<S, Request<B>>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Output = Result<Response<R>, HeedError<S::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().call.poll(cx)
    }
}

impl<S: Service<Req>, Req> fmt::Debug for HeedFuture<S, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeedFuture").finish_non_exhaustive()
    }
}
