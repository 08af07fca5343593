//! The gate as an adapter of the future that holds a request and then calls the inner service.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{Gate, Ruling};
use crate::limiter::Question;
use crate::line::{Answering, Holding};
use crate::middleware::ResponseBody;
use crate::middleware::guard::ResponseGuard;
use crate::middleware::nesting::Within;
use crate::middleware::shadow_decision::ShadowDecision;
use crate::response::Fields;

/// The data that an admitted request keeps until its response.
pub(in crate::middleware) struct Admitted {
    /// The headers of its response.
    pub(in crate::middleware) fields: Option<Fields>,
    pub(in crate::middleware) guard: ResponseGuard,
    /// The gate's number, to detect a layer that is applied to a route twice.
    pub(in crate::middleware) gate: usize,
}

impl Admitted {
    /// Admits a request whose response gets no headers.
    #[inline]
    pub(in crate::middleware) fn bare(guard: ResponseGuard, gate: usize) -> Self {
        Self {
            fields: None,
            guard,
            gate,
        }
    }
}

impl Holding for Arc<Gate> {
    type Awaited = Question;
    type Kept = Admitted;
    type Refusal = Response<Bytes>;

    fn waits_its_turn(question: &Question) -> bool {
        question.waits_its_turn()
    }

    #[inline]
    fn within<T>(admitted: &Admitted, call: impl FnOnce() -> T) -> T {
        let _within = Within::enter(admitted.gate);
        call()
    }
}

impl<S, B, R> Answering<S, Request<B>> for Arc<Gate>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
    R::Data: From<Bytes>,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    fn resume(
        &self,
        question: &mut Question,
        request: &mut Request<B>,
        cx: &mut Context<'_>,
    ) -> Poll<Ruling> {
        let tried = ShadowDecision::carried_by(request);
        let mut resumed = Gate::resume(self, question, request, cx);
        match &mut resumed {
            Poll::Ready(ruling) => tried.compare(ruling, request),
            Poll::Pending => tried.wait_with(request),
        }
        resumed
    }

    #[inline]
    fn answered(admitted: &mut Admitted, answer: Result<Response<R>, S::Error>) -> Self::Output {
        let guard = mem::take(&mut admitted.guard);
        let mut response = guard.answered(answer?);
        // A separate arm avoids copying an empty `Fields`.
        if admitted.fields.is_some()
            && let Some(fields) = admitted.fields.take()
        {
            fields.add_to(&mut response);
        }
        Ok(response)
    }

    fn failed(_: Admitted, error: S::Error) -> Self::Output {
        Err(error)
    }

    fn refused(response: Response<Bytes>) -> Self::Output {
        Ok(response.map(ResponseBody::refusal))
    }
}
