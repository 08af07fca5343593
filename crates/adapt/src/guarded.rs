//! The service of all four layers: a layer admits a request with a guard, or answers it.
//!
//! The guard is a slot or a count, which learns from the answer (`sampled.rs`). For HTTP, the body of all layers
//! (`middleware/body.rs` of `tower-ratelimit`) holds it to its end; for other services, it is held to the answer.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

/// How a layer admits requests of an inner service.
pub trait Admit<S: Service<Q>, Q> {
    /// The response of the layer.
    type Response;

    /// What an admitted request holds, and learns with.
    type Guard: Sampling<S::Response, S::Error, Response = Self::Response>;

    /// Admits a request, or answers it in place of the inner service.
    fn admit(
        &self,
        inner: &mut S,
        request: &mut Q,
    ) -> Result<Self::Guard, Result<Self::Response, S::Error>>;
}

/// What a request holds until its answer, or until the end of its body, and learns from.
pub trait Sampling<T, E> {
    /// The response of the layer.
    type Response;

    /// Learns from the answer of the inner service.
    fn answered(self, answer: Result<T, E>) -> Result<Self::Response, E>;
}

/// The service that a layer of this crate makes of an inner service.
#[derive(Clone, Debug)]
pub struct Guarded<S, L> {
    inner: S,
    layer: L,
}

impl<S, L> Guarded<S, L> {
    pub(crate) fn new(inner: S, layer: &L) -> Self
    where
        L: Clone,
    {
        let layer = layer.clone();
        Self { inner, layer }
    }
}

/// Forwards the name of the inner service, so that it can replace it in a tonic server.
#[cfg(feature = "tonic")]
impl<S: tonic::server::NamedService, L> tonic::server::NamedService for Guarded<S, L> {
    const NAME: &'static str = S::NAME;
}

impl<S: Service<Q>, L: Admit<S, Q>, Q> Service<Q> for Guarded<S, L> {
    type Response = L::Response;
    type Error = S::Error;
    type Future = GuardedFuture<S::Future, L::Guard, Result<L::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, mut request: Q) -> Self::Future {
        let stage = match self.layer.admit(&mut self.inner, &mut request) {
            Ok(guard) => Stage::Calling {
                future: self.inner.call(request),
                guard: Some(guard),
            },
            Err(answer) => Stage::Refused {
                answer: Some(Box::new(answer)),
            },
        };
        GuardedFuture { stage }
    }
}

pin_project! {
    /// The response of a [`Guarded`] service. Dropping it drops the call, which then gives no sample, and what the call
    /// holds.
    pub struct GuardedFuture<F, G, O> {
        #[pin]
        stage: Stage<F, G, O>,
    }
}

pin_project! {
    #[project = StageProj]
    enum Stage<F, G, O> {
        Calling {
            #[pin]
            future: F,
            // Declared after the future, so that the call is dropped before it.
            guard: Option<G>,
        },
        Refused {
            // Boxed, since most calls are not refused, and each future would have the size of this.
            answer: Option<Box<O>>,
        },
    }
}

impl<F, G, T, E> Future for GuardedFuture<F, G, Result<G::Response, E>>
where
    F: Future<Output = Result<T, E>>,
    G: Sampling<T, E>,
{
    type Output = Result<G::Response, E>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().stage.project() {
            StageProj::Calling { future, guard } => {
                let answer = ready!(future.poll(cx));
                match guard.take() {
                    Some(guard) => Poll::Ready(guard.answered(answer)),
                    // A future that is ready is not polled again.
                    None => Poll::Pending,
                }
            }
            StageProj::Refused { answer } => match answer.take() {
                Some(answer) => Poll::Ready(*answer),
                None => Poll::Pending,
            },
        }
    }
}

impl<F, G, O> fmt::Debug for GuardedFuture<F, G, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedFuture").finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "tonic"))]
mod tests {
    use tonic::server::NamedService;
    use tower_layer::Layer;

    use crate::middleware::{AdaptiveConcurrencyLayer, TrafficLayer};
    use crate::{AdaptiveConcurrency, Traffic};

    struct Echo;

    impl NamedService for Echo {
        const NAME: &'static str = "test.Echo";
    }

    fn name_of<S: NamedService>(_: &S) -> &'static str {
        S::NAME
    }

    #[test]
    fn a_layer_keeps_the_name_by_which_a_tonic_server_finds_a_service() {
        let traffic = TrafficLayer::new(&Traffic::new()).layer(Echo);
        let concurrency = AdaptiveConcurrency::builder().build().unwrap();
        let both = AdaptiveConcurrencyLayer::new(&concurrency).layer(traffic);
        assert_eq!(name_of(&both), "test.Echo");
    }
}
