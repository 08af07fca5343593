use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::layer::Rules;
use crate::line::PendingCall;

pin_project! {
    /// The response of a [`Limit`](super::Limit) service.
    ///
    /// Dropping it drops the request, or the call to the inner service. Its charges stay, except for a place
    /// in a [`LeakyQueue`](crate::LeakyQueue) before its turn: the next request takes that place, and the
    /// last place is given back. A request that waits under another algorithm is charged nothing yet, and
    /// leaves its line at once.
    pub struct LimitFuture<S, Q>
    where
        S: Service<Q>,
    {
        #[pin]
        call: Call<S, Q>,
    }
}

type Call<S, Q> =
    PendingCall<S, Q, Rules<Q, <S as Service<Q>>::Response, <S as Service<Q>>::Error>>;

impl<S: Service<Q>, Q> LimitFuture<S, Q> {
    pub(super) fn new(call: Call<S, Q>) -> Self {
        Self { call }
    }
}

impl<S, Q> Future for LimitFuture<S, Q>
where
    S: Service<Q> + Clone,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().call.poll(cx)
    }
}

impl<S: Service<Q>, Q> fmt::Debug for LimitFuture<S, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitFuture").finish_non_exhaustive()
    }
}
