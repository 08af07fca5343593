use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use tower_ratelimit_core::__internal::PendingCall;

use super::current_enforcer::CurrentEnforcer;
use super::{ResponseBody, ResponseFuture};

/// The service that a [`RateLimitLayer`](super::RateLimitLayer) makes of an inner service.
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    current: CurrentEnforcer,
}

impl<S> RateLimit<S> {
    pub(super) fn new(inner: S, current: CurrentEnforcer) -> Self {
        Self { inner, current }
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

/// Forwards the name of the inner service, so that it can replace it in a tonic server.
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
        let Self { inner, current } = self;
        let call = PendingCall::of(current.ask(&mut request), inner, request);
        ResponseFuture { call }
    }
}
