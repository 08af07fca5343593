use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::options::{Classify, Options};
use crate::sampled::Sampling;
use crate::{Permit, Sample, SampledFuture, Saturated};
use tower_ratelimit::__internal::saturated;
use tower_ratelimit::key::Head;
use tower_ratelimit::middleware::GuardedBody;

/// The service that an [`AdaptiveConcurrencyLayer`](super::AdaptiveConcurrencyLayer) makes of an inner
/// service.
#[derive(Clone, Debug)]
pub struct WithConcurrency<S> {
    inner: S,
    options: Arc<Options>,
}

impl<S> WithConcurrency<S> {
    pub(super) fn new(inner: S, options: &Arc<Options>) -> Self {
        let options = Arc::clone(options);
        Self { inner, options }
    }
}

/// The slot of a request that has one, and what classifies its answer.
#[expect(missing_debug_implementations, reason = "users do not see it")]
pub struct Slot {
    permit: Option<Permit>,
    classify: Option<Arc<Classify>>,
}

/// Learns from an answer, and holds the slot to the end of its body.
impl<R: Body, E> Sampling<Result<Response<R>, E>> for Slot {
    type Output = Result<Response<GuardedBody<R, Option<Permit>>>, E>;

    #[inline]
    fn answered(self, answer: Result<Response<R>, E>) -> Self::Output {
        let Self {
            mut permit,
            classify,
        } = self;
        let response = match answer {
            Ok(response) => response,
            Err(error) => {
                if let Some(permit) = &mut permit {
                    Sample::Overloaded.record(permit);
                }
                return Err(error);
            }
        };
        let (head, body) = response.into_parts();
        if let Some(permit) = &mut permit {
            let sample = match classify {
                Some(classify) => classify(&head),
                None => Sample::of(&head),
            };
            sample.record(permit);
        }
        // Nothing may read an empty body.
        let permit = permit.filter(|_| !body.is_end_stream());
        Ok(Response::from_parts(head, GuardedBody::new(body, permit)))
    }
}

impl Options {
    /// Takes a slot. Returns `None` for a request that needs none.
    fn enter<B>(&self, request: &Request<B>) -> Result<Option<Permit>, Saturated> {
        if self.except.is_none() && self.partition.is_none() {
            return self.concurrency.try_enter().map(Some);
        }
        let head = Head::of(request);
        if self.except.as_ref().is_some_and(|except| except(&head)) {
            return Ok(None);
        }
        match self.partition.as_ref().and_then(|of| of(&head)) {
            Some(partition) => self.concurrency.try_enter_in(&partition).map(Some),
            None => self.concurrency.try_enter().map(Some),
        }
    }
}

/// Forwards the name of the inner service, so that it can replace it in a tonic server.
#[cfg(feature = "tonic")]
impl<S: tonic::server::NamedService> tonic::server::NamedService for WithConcurrency<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B, R> Service<Request<B>> for WithConcurrency<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: Body,
    R::Data: From<Bytes>,
{
    type Response = Response<GuardedBody<R, Option<Permit>>>;
    type Error = S::Error;
    type Future = SampledFuture<S::Future, Slot, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        match self.options.enter(&request) {
            Ok(permit) => {
                let classify = self.options.classify.clone();
                let slot = Slot { permit, classify };
                SampledFuture::calling(self.inner.call(request), slot)
            }
            Err(full) => {
                // The instance that was polled ready may hold a permit or a place in a queue.
                self.inner = self.inner.clone();
                let options = &self.options;
                let name = options.concurrency.name();
                let response = saturated(name, options.status, full.limit(), &mut request);
                SampledFuture::refused(Ok(response.map(GuardedBody::refusal)))
            }
        }
    }
}
