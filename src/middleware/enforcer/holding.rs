//! The enforcer as an adapter of the future that holds a request and then calls the inner service.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Extensions, Method, Request, Response, Uri};
use http_body::Body;
use tower_service::Service;

use tower_ratelimit_core::__internal::{Answering, Holding, PendingDecision, Verdict};

use super::{Enforcer, EnforcerVerdict};
use crate::advice::Within;
use crate::middleware::ResponseBody;
use crate::middleware::guard::ResponseGuard;
use crate::response::Fields;

/// The data that an admitted request keeps until its response.
pub(in crate::middleware) struct Admitted {
    /// The headers of its response.
    pub(in crate::middleware) fields: Option<Fields>,
    pub(in crate::middleware) guard: ResponseGuard,
    /// The enforcer's number, to detect a layer that is applied to a route twice.
    pub(in crate::middleware) enforcer: usize,
}

/// A request that waits for a verdict.
pub(in crate::middleware) struct Waiting {
    pending: Box<PendingDecision>,
    enforcer: Arc<Enforcer>,
    observer: Option<Box<dyn ObserveVerdict>>,
}

/// Sees the verdict on a request, and does not change it.
pub(in crate::middleware) trait ObserveVerdict: Send + Sync {
    /// Sees the verdict on a request with this method and target, or stays with the request until there is one. Returns what
    /// the extensions of the request get.
    fn observe(
        self: Box<Self>,
        verdict: &mut EnforcerVerdict,
        method: &Method,
        uri: &Uri,
    ) -> Extensions;
}

impl Waiting {
    /// Lets this see the verdict when it is there.
    pub(in crate::middleware) fn observe_by(&mut self, observer: Box<dyn ObserveVerdict>) {
        self.observer = Some(observer);
    }
}

/// Shows the verdict on this request.
pub(in crate::middleware) fn observed<B>(
    observer: Box<dyn ObserveVerdict>,
    mut verdict: EnforcerVerdict,
    request: &mut Request<B>,
) -> EnforcerVerdict {
    let extensions = observer.observe(&mut verdict, request.method(), request.uri());
    request.extensions_mut().extend(extensions);
    verdict
}

impl Enforcer {
    pub(super) fn wait(self: &Arc<Self>, pending: Box<PendingDecision>) -> EnforcerVerdict {
        Verdict::Pending(Waiting {
            pending,
            enforcer: Arc::clone(self),
            observer: None,
        })
    }
}

impl Holding for Enforcer {
    type Pending = Waiting;
    type Admission = Admitted;
    type Refusal = Response<Bytes>;

    fn waits_its_turn(waiting: &Waiting) -> bool {
        waiting.pending.waits_its_turn()
    }

    type Within = Within;

    #[inline]
    fn enter(admitted: &Admitted) -> Within {
        Within::enter(admitted.enforcer)
    }
}

impl<S, B, R> Answering<S, Request<B>> for Enforcer
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
    ) -> Poll<EnforcerVerdict> {
        let verdict = ready!(waiting.enforcer.resume(&mut waiting.pending, request, cx));
        if let Some(observer) = waiting.observer.take() {
            return Poll::Ready(observed(observer, verdict, request));
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
