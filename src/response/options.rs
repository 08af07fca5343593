//! The options of a layer for its answers, checked in one place.

use std::time::Duration;

use http::StatusCode;

use super::body::RefusalBody;
use super::dialect::{self, Dialect};
#[cfg(feature = "tonic")]
use super::grpc::Grpc;
use super::jitter;
use crate::error::ConfigError;
use crate::key::Secret;
use crate::policy::check_status;

/// The options for answers.
#[derive(Clone, Debug)]
pub(crate) struct AnswerOptions {
    pub(crate) dialects: Vec<Dialect>,
    pub(crate) fields_unless_public: bool,
    pub(crate) refusal_status: StatusCode,
    pub(crate) too_large_status: Option<StatusCode>,
    pub(crate) refusal_body: RefusalBody,
    pub(crate) retry_jitter: Duration,
    pub(crate) partition_secret: Option<Secret>,
    #[cfg(feature = "tonic")]
    pub(crate) grpc: Grpc,
}

impl Default for AnswerOptions {
    fn default() -> Self {
        Self {
            dialects: vec![Dialect::Draft11],
            fields_unless_public: false,
            refusal_status: StatusCode::TOO_MANY_REQUESTS,
            too_large_status: None,
            refusal_body: RefusalBody::default(),
            retry_jitter: Duration::ZERO,
            partition_secret: None,
            #[cfg(feature = "tonic")]
            grpc: Grpc::default(),
        }
    }
}

impl AnswerOptions {
    /// Rejects options whose answers a client could not read.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        dialect::check(&self.dialects)?;
        jitter::check(self.retry_jitter)?;
        #[cfg(feature = "tonic")]
        self.grpc.check()?;
        if let Some(status) = self.too_large_status {
            check_status("too_large_status", status)?;
        }
        check_status("refusal_status", self.refusal_status)
    }
}
