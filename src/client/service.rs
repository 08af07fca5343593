//! The service around a client.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use tower_ratelimit_core::__internal::{PendingCall, Verdict, diagnose};

use super::lines::{Bounds, Entry, Lines};
use super::{ClientThrottleError, ClientThrottleFuture};
use crate::key::{Extract, Head, Missing};

/// The service of a [`ClientThrottleLayer`](super::ClientThrottleLayer).
#[derive(Clone)]
pub struct ClientThrottle<S> {
    inner: S,
    key: Arc<dyn Extract>,
    bounds: Bounds,
    lines: Arc<Lines>,
}

impl<S> ClientThrottle<S> {
    pub(super) fn new(inner: S, key: Arc<dyn Extract>, bounds: Bounds, lines: Arc<Lines>) -> Self {
        Self {
            inner,
            key,
            bounds,
            lines,
        }
    }

    /// Returns the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the inner service, mutable.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service, without limits.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, B, R> Service<Request<B>> for ClientThrottle<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<R>;
    type Error = ClientThrottleError<S::Error>;
    type Future = ClientThrottleFuture<S, Request<B>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner
            .poll_ready(cx)
            .map_err(ClientThrottleError::Inner)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let verdict = match self.key.extract(&Head::of(&request)) {
            Ok(key) => match self.lines.enter(key, self.bounds) {
                Entry::Go(call) => Verdict::Pass(call),
                Entry::Wait(call) => Verdict::Pending(Box::new(call)),
                Entry::Refuse(throttled) => Verdict::Refuse(throttled),
            },
            Err(missing) => {
                if let Missing::ByServer(diagnostic) = missing {
                    diagnose(&diagnostic);
                }
                Verdict::Pass(None)
            }
        };
        ClientThrottleFuture::new(PendingCall::of(verdict, &mut self.inner, request))
    }
}

impl<S: fmt::Debug> fmt::Debug for ClientThrottle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientThrottle")
            .field("inner", &self.inner)
            .field("bounds", &self.bounds)
            .field("lines", &self.lines)
            .finish_non_exhaustive()
    }
}
