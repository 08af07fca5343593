use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower_service::Service;

use super::LimitFuture;
use super::future::{Asked, Ruling, ask};
use super::layer::Rules;
use crate::plan::Look;

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

impl<S: Service<Q> + Clone, Q> Limit<S, Q> {
    /// Drops the instance that was polled ready. It may hold a permit or a place in a queue, which
    /// other requests can then have.
    fn let_others_have_it(&mut self) {
        self.inner = self.inner.clone();
    }

    /// Takes the instance that was polled ready, which has to be the one that is called. Its clone is not ready, and
    /// stays behind to be polled again.
    fn take_ready(&mut self) -> S {
        let not_ready = self.inner.clone();
        mem::replace(&mut self.inner, not_ready)
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
        let asked = match self.rules.look(&request) {
            None => ask(&self.rules, &request, None),
            Some(Look::Known(finding)) => ask(&self.rules, &request, Some(&finding)),
            Some(Look::Coming(coming)) => {
                let ready_inner = self.take_ready();
                let rules = Arc::clone(&self.rules);
                return LimitFuture::finding(coming, rules, ready_inner, request);
            }
        };
        let ruling = match asked {
            Asked::Ruled(ruling) => ruling,
            Asked::Later(answer, charges) => {
                let ready_inner = self.take_ready();
                let rules = Arc::clone(&self.rules);
                return LimitFuture::asking(answer, charges, rules, ready_inner, request);
            }
        };
        match ruling {
            Ruling::Pass(kept) => LimitFuture::calling(&mut self.inner, request, kept),
            Ruling::Hold(turn, kept) => {
                self.let_others_have_it();
                LimitFuture::held(turn, kept, self.inner.clone(), request)
            }
            Ruling::Refuse(answer) => {
                self.let_others_have_it();
                LimitFuture::refused(answer)
            }
        }
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
