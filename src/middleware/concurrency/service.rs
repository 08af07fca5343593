use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::body::ConcurrencyBody;
use super::future::ConcurrencyFuture;
use super::options::Options;
use crate::adapt::{Permit, Saturated};
use crate::key::Head;
use crate::response::saturated;

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
    type Response = Response<ConcurrencyBody<R>>;
    type Error = S::Error;
    type Future = ConcurrencyFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        match self.options.enter(&request) {
            Ok(permit) => {
                let classify = self.options.classify.clone();
                ConcurrencyFuture::calling(self.inner.call(request), permit, classify)
            }
            Err(full) => {
                // The instance that was polled ready may hold a permit or a place in a queue.
                self.inner = self.inner.clone();
                let options = &self.options;
                let name = options.concurrency.name();
                let response = saturated(name, options.status, full.limit(), &mut request);
                ConcurrencyFuture::refused(response)
            }
        }
    }
}
