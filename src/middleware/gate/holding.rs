//! The gate as an adapter of the future that holds a request and then calls the inner service.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use tower_ratelimit_core::__internal::{Answering, Holding, PendingDecision, Verdict};

use super::{Gate, GateVerdict};
use crate::middleware::ResponseBody;
use crate::middleware::guard::ResponseGuard;
use crate::middleware::nesting::Within;
use crate::middleware::shadow::Tried;
use crate::response::Fields;

/// The data that an admitted request keeps until its response.
pub(in crate::middleware) struct Admitted {
    /// The headers of its response.
    pub(in crate::middleware) fields: Option<Fields>,
    pub(in crate::middleware) guard: ResponseGuard,
    /// The gate's number, to detect a layer that is applied to a route twice.
    pub(in crate::middleware) gate: usize,
}

/// A request that waits for a verdict.
pub(in crate::middleware) struct Waiting {
    pending: Box<PendingDecision>,
    gate: Arc<Gate>,
    /// What the file in shadow has decided.
    pub(in crate::middleware) tried: Option<Box<Tried>>,
}

impl Gate {
    pub(super) fn wait(self: &Arc<Self>, pending: Box<PendingDecision>) -> GateVerdict {
        Verdict::Pending(Waiting {
            pending,
            gate: Arc::clone(self),
            tried: None,
        })
    }
}

impl Holding for Gate {
    type Pending = Waiting;
    type Admission = Admitted;
    type Refusal = Response<Bytes>;

    fn waits_its_turn(waiting: &Waiting) -> bool {
        waiting.pending.waits_its_turn()
    }

    type Within = Within;

    #[inline]
    fn enter(admitted: &Admitted) -> Within {
        Within::enter(admitted.gate)
    }
}

impl<S, B, R> Answering<S, Request<B>> for Gate
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
    R::Data: From<Bytes>,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    fn resume(
        waiting: &mut Waiting,
        request: &mut Request<B>,
        cx: &mut Context<'_>,
    ) -> Poll<GateVerdict> {
        let verdict = ready!(waiting.gate.resume(&mut waiting.pending, request, cx));
        if let Some(tried) = waiting.tried.take() {
            return Poll::Ready(tried.compare(verdict, request));
        }
        Poll::Ready(verdict)
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
