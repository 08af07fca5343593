use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use tower_ratelimit_core::__internal::PendingCall;

use super::ResponseBody;
use super::enforcer::Enforcer;

pin_project! {
    /// The response of a [`RateLimit`](super::RateLimit) service.
    ///
    /// Dropping it drops the request, or the call to the inner service. Its charges stay, except for a place
    /// in a [`LeakyQueue`](crate::LeakyQueue) before its turn: the next request takes that place, and the
    /// last place is given back. A request that waits under another algorithm is charged nothing yet, and
    /// leaves its line at once.
    pub struct ResponseFuture<S, Req>
    where
        S: Service<Req>,
    {
        #[pin]
        pub(super) call: PendingCall<S, Req, Enforcer>,
    }
}

impl<S, B, R> Future for ResponseFuture<S, Request<B>>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: Body,
    R::Data: From<Bytes>,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().call.poll(cx)
    }
}

impl<S: Service<Req>, Req> fmt::Debug for ResponseFuture<S, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
