//! The service around a client.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::lines::{Bounds, Entry, Lines};
use super::{LearnedLimitError, LearnedLimitFuture};
use crate::diagnostics::diagnose;
use crate::key::{Extract, Head, Missing};

/// The service of a [`LearnedLimitLayer`](super::LearnedLimitLayer).
#[derive(Clone)]
pub struct LearnedLimit<S> {
    inner: S,
    key: Arc<dyn Extract>,
    bounds: Bounds,
    lines: Arc<Lines>,
}

impl<S> LearnedLimit<S> {
    pub(super) fn new(inner: S, key: Arc<dyn Extract>, bounds: Bounds, lines: Arc<Lines>) -> Self {
        Self {
            inner,
            key,
            bounds,
            lines,
        }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service, mutable.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service, without limits.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Clone> LearnedLimit<S> {
    /// Gives back a permit or a place in a queue, which the instance that was polled ready may hold.
    fn let_others_have_it(&mut self) {
        self.inner = self.inner.clone();
    }
}

impl<S, B, R> Service<Request<B>> for LearnedLimit<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<R>;
    type Error = LearnedLimitError<S::Error>;
    type Future = LearnedLimitFuture<S, Request<B>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(LearnedLimitError::Inner)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let key = match self.key.extract(&Head::of(&request)) {
            Ok(key) => key,
            Err(missing) => {
                if let Missing::ByServer(diagnostic) = missing {
                    diagnose(&diagnostic);
                }
                return LearnedLimitFuture::calling(self.inner.call(request), None);
            }
        };
        match self.lines.enter(key, self.bounds) {
            Entry::Go(call) => LearnedLimitFuture::calling(self.inner.call(request), call),
            Entry::Wait(place, timer) => {
                self.let_others_have_it();
                LearnedLimitFuture::waiting(place, timer, self.inner.clone(), request)
            }
            Entry::Refuse(held) => {
                self.let_others_have_it();
                LearnedLimitFuture::refused(held)
            }
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for LearnedLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LearnedLimit")
            .field("inner", &self.inner)
            .field("bounds", &self.bounds)
            .field("lines", &self.lines)
            .finish_non_exhaustive()
    }
}
