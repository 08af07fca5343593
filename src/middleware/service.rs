use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::beside::Beside;
use super::gate::Ruling;
use super::gates::Gates;
use super::{ResponseBody, ResponseFuture};

/// The service that a [`RateLimitLayer`](super::RateLimitLayer) makes of an inner service.
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    gates: Gates,
}

impl<S> RateLimit<S> {
    pub(super) fn new(inner: S, gates: Gates) -> Self {
        Self { inner, gates }
    }

    /// Returns the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the inner service, mutably.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service, without the limit.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

/// Drops the instance that was polled ready. It may hold a permit or a place in a queue, which
/// other requests can then have.
fn let_others_have<S: Clone>(inner: &mut S) {
    *inner = inner.clone();
}

/// Has the name of the inner service, so that it can replace it in a tonic server.
#[cfg(feature = "tonic")]
impl<S: tonic::server::NamedService> tonic::server::NamedService for RateLimit<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B, R> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: Body,
    R::Data: From<Bytes>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, Request<B>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let Self { inner, gates } = self;
        gates.with_shadow(|gate, shadow| {
            let mut beside = Beside::of(shadow, &mut request);
            let mut ruling = gate.ask(&mut request);
            beside.compare(&mut ruling, &mut request);
            match ruling {
                // A separate arm avoids copying an empty `Fields`.
                Ruling::Pass(None, kept) => {
                    ResponseFuture::calling(inner, request, None, kept, gate.id())
                }
                Ruling::Pass(fields, kept) => {
                    ResponseFuture::calling(inner, request, fields, kept, gate.id())
                }
                Ruling::Refuse(response) => {
                    let_others_have(inner);
                    ResponseFuture::refused(response)
                }
                Ruling::Hold(turn, fields, kept) => {
                    let_others_have(inner);
                    let gate = Arc::clone(gate);
                    ResponseFuture::held(turn, (fields, kept), gate, inner.clone(), request)
                }
                Ruling::Wait(question) if question.waits_its_turn() => {
                    let_others_have(inner);
                    let gate = Arc::clone(gate);
                    ResponseFuture::waiting((question, beside), gate, inner.clone(), false, request)
                }
                Ruling::Wait(question) => {
                    // The instance that was polled ready has to be the one that is called. Its clone is
                    // not ready, and stays behind to be polled again.
                    let not_ready_inner = inner.clone();
                    let ready_inner = mem::replace(inner, not_ready_inner);
                    let gate = Arc::clone(gate);
                    ResponseFuture::waiting((question, beside), gate, ready_inner, true, request)
                }
            }
        })
    }
}
