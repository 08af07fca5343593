use tonic::{Request, Response, Status};

use super::authorization::deadline;
use super::messages::envoy::service::ratelimit::v3::rate_limit_service_server;
use super::messages::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::ratelimit::{NoAnswer, RateLimits};

/// The rate limit service: the files of descriptors decide.
pub(super) struct RateLimitService {
    limits: RateLimits,
}

impl RateLimitService {
    pub(super) fn new(limits: RateLimits) -> Self {
        Self { limits }
    }
}

#[tonic::async_trait]
impl rate_limit_service_server::RateLimitService for RateLimitService {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let deadline = deadline(request.metadata().as_ref());
        let answer = self.limits.ask(request.into_inner(), deadline).await;
        match answer {
            Ok(answer) => Ok(Response::new(answer)),
            // A response with the code UNKNOWN would let the request pass, whatever Envoy does upon an error.
            Err(NoAnswer::Invalid(why)) => Err(Status::invalid_argument(why)),
            Err(NoAnswer::Unavailable(why)) => Err(Status::unavailable(why)),
        }
    }
}
