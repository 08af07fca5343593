//! How the future of a request asks a gate, and answers.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::ResponseBody;
use super::beside::Beside;
use super::gate::{Admitted, Gate, Ruling};
use super::nesting::Within;
use crate::limiter::Question;
use crate::line::{Answering, Holding};

impl Holding for Arc<Gate> {
    type Question = Question;
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
        let beside = Beside::carried_by(request);
        let mut resumed = Gate::resume(self, question, request, cx);
        match &mut resumed {
            Poll::Ready(ruling) => beside.compare(ruling, request),
            Poll::Pending => beside.wait_with(request),
        }
        resumed
    }

    #[inline]
    fn answered(admitted: &mut Admitted, answer: Result<Response<R>, S::Error>) -> Self::Output {
        let kept = admitted.kept.take();
        let response = answer?;
        let mut response = if kept.is_nothing() {
            response.map(ResponseBody::inner)
        } else {
            kept.answered(response)
        };
        // Taking none would copy as much as taking some.
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
