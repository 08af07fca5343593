use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower_service::Service;

use super::LimitFuture;
use super::layer::Rules;
use crate::line::PendingCall;

/// The service that a [`LimitLayer`](super::LimitLayer) makes of an inner service.
pub struct Limit<S, Q>
where
    S: Service<Q>,
{
    inner: S,
    rules: Arc<Rules<Q, S::Response, S::Error>>,
}

impl<S: Service<Q>, Q> Limit<S, Q> {
    pub(super) fn new(inner: S, rules: Arc<Rules<Q, S::Response, S::Error>>) -> Self {
        Self { inner, rules }
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

impl<S, Q> Service<Q> for Limit<S, Q>
where
    S: Service<Q> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = LimitFuture<S, Q>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Q) -> Self::Future {
        let Self { inner, rules } = self;
        if let Some(newest) = rules.newest() {
            *rules = newest;
        }
        let verdict = rules.ask(&request);
        LimitFuture::new(PendingCall::of(verdict, inner, request))
    }
}

impl<S: Service<Q> + Clone, Q> Clone for Limit<S, Q> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            rules: Arc::clone(&self.rules),
        }
    }
}

impl<S: Service<Q> + fmt::Debug, Q> fmt::Debug for Limit<S, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit")
            .field("inner", &self.inner)
            .field("limiter", &self.rules.limiter)
            .finish_non_exhaustive()
    }
}
