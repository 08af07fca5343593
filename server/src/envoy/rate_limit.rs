use http::HeaderMap;
use tonic::{Request, Response, Status};

use super::authorization::deadline;
use super::messages::envoy::service::ratelimit::v3::rate_limit_service_server;
use super::messages::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::ratelimit::{NoAnswer, RateLimits, limited};
use crate::refusals::Refusals;
use crate::spans::{Span, Spans};
use crate::trace;

/// The rate limit service: the files of descriptors decide.
pub(super) struct RateLimitService {
    limits: RateLimits,
    refusals: Refusals,
    spans: Option<Spans>,
}

impl RateLimitService {
    pub(super) fn new(limits: RateLimits, refusals: Refusals, spans: Option<Spans>) -> Self {
        Self {
            limits,
            refusals,
            spans,
        }
    }

    fn span(&self, metadata: &HeaderMap) -> Option<Span> {
        const METHOD: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
        self.spans
            .as_ref()
            .map(|spans| spans.call(metadata, METHOD))
    }
}

#[tonic::async_trait]
impl rate_limit_service_server::RateLimitService for RateLimitService {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let span = self.span(request.metadata().as_ref());
        let deadline = deadline(request.metadata().as_ref());
        let parent = trace::parent(request.metadata().as_ref());
        let answer = self.limits.ask(request.into_inner(), deadline).await;
        if let Ok(answer) = &answer {
            let own = || span.as_ref().and_then(Span::traceparent);
            self.refusals.note_answer(answer, || own().or(parent));
        }
        if let Some(mut span) = span {
            if let Ok(answer) = &answer {
                let (is_limited, name) = limited(answer);
                span.limited(is_limited, name);
            }
            span.called(match &answer {
                Ok(_) => tonic::Code::Ok,
                Err(NoAnswer::Invalid(_)) => tonic::Code::InvalidArgument,
                Err(NoAnswer::Unavailable(_)) => tonic::Code::Unavailable,
            });
        }
        match answer {
            Ok(answer) => Ok(Response::new(answer)),
            // A response with the code UNKNOWN would let the request pass, whatever Envoy does upon an error.
            Err(NoAnswer::Invalid(why)) => Err(Status::invalid_argument(why)),
            Err(NoAnswer::Unavailable(why)) => Err(Status::unavailable(why)),
        }
    }
}
