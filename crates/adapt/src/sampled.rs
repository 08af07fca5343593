//! What a request holds while it is in flight, and what it teaches at its answer.

use std::sync::Arc;

use http::Response;
use http::response::Parts;
use http_body::Body;
use tower_ratelimit::middleware::GuardedBody;

use crate::guarded::Sampling;
use crate::{InFlightGuard, Permit, Sample};

/// Classifies the answer of any service.
pub(crate) type Classify<T, E> = dyn Fn(Result<&T, &E>) -> Sample + Send + Sync;

/// Classifies the answer of an HTTP service.
pub(crate) type ClassifyHead = dyn Fn(&Parts) -> Sample + Send + Sync;

/// What a request holds, if it gives a sample, and what classifies its answer.
#[expect(missing_debug_implementations, reason = "users do not see it")]
pub struct Sampled<G, C: ?Sized> {
    pub(crate) guard: Option<G>,
    pub(crate) classify: Option<Arc<C>>,
}

/// What learns from a sample.
pub trait Learn {
    /// Records what the answer says about the load.
    fn learn(&mut self, sample: Sample);
}

impl Learn for Permit {
    fn learn(&mut self, sample: Sample) {
        match sample {
            Sample::Served => self.answered(),
            Sample::Overloaded => self.overloaded(),
            Sample::Nothing => {}
        }
    }
}

impl Learn for InFlightGuard {
    fn learn(&mut self, sample: Sample) {
        match sample {
            Sample::Served => self.answered(),
            Sample::Overloaded => self.failed(),
            Sample::Nothing => {}
        }
    }
}

/// Of any service: held to the answer. An error is a sign of an overload, unless a closure says otherwise.
impl<G: Learn, T, E> Sampling<T, E> for Sampled<G, Classify<T, E>> {
    type Response = T;

    fn answered(self, answer: Result<T, E>) -> Result<T, E> {
        if let Some(mut guard) = self.guard {
            guard.learn(match (self.classify, &answer) {
                (Some(classify), answer) => classify(answer.as_ref()),
                (None, Ok(_)) => Sample::Served,
                (None, Err(_)) => Sample::Overloaded,
            });
        }
        answer
    }
}

/// Of an HTTP service: held to the end of the body.
impl<R: Body, E> Sampling<Response<R>, E> for Sampled<Permit, ClassifyHead> {
    type Response = Response<GuardedBody<R, Option<Permit>>>;

    #[inline]
    fn answered(self, answer: Result<Response<R>, E>) -> Result<Self::Response, E> {
        let Self {
            mut guard,
            classify,
        } = self;
        let response = match answer {
            Ok(response) => response,
            Err(error) => {
                if let Some(permit) = &mut guard {
                    permit.overloaded();
                }
                return Err(error);
            }
        };
        let (head, body) = response.into_parts();
        if let Some(permit) = &mut guard {
            permit.learn(match classify {
                Some(classify) => classify(&head),
                None => Sample::of(&head),
            });
        }
        // Nothing may read an empty body.
        let guard = guard.filter(|_| !body.is_end_stream());
        Ok(Response::from_parts(head, GuardedBody::new(body, guard)))
    }
}

/// The same, where no closure classifies answers.
impl<R: Body, E> Sampling<Response<R>, E> for Option<InFlightGuard> {
    type Response = Response<GuardedBody<R, Self>>;

    #[inline]
    fn answered(self, answer: Result<Response<R>, E>) -> Result<Self::Response, E> {
        if let Some(passage) = &self {
            match &answer {
                Ok(response) if !response.status().is_server_error() => passage.answered(),
                _ => passage.failed(),
            }
        }
        Ok(answer?.map(|body| GuardedBody::new(body, self)))
    }
}
