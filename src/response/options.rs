//! The options of a layer for its answers, checked in one place.

use std::time::Duration;

use http::StatusCode;

use tower_ratelimit_core::__internal::Rule;

use super::body::RefusalBody;
use super::dialect::{self, Dialect};
use super::draft11::Draft11;
use super::fields::Writers;
#[cfg(feature = "tonic")]
use super::grpc::Grpc;
use super::jitter;
use super::several::{self, HeaderOptions};
use crate::error::ConfigError;
use crate::key::Secret;
use crate::policy::check_status;

/// The options for answers.
#[derive(Clone, Debug)]
pub(crate) struct AnswerOptions {
    headers: HeaderOptions,
    /// Makes the writers of the headers. A pointer, so that a program contains the writers of other dialects only if it
    /// calls a method that may choose one.
    writers: fn(&HeaderOptions, &[Rule]) -> Writers,
    pub(crate) refusal_status: StatusCode,
    pub(crate) too_large_status: Option<StatusCode>,
    pub(crate) refusal_body: RefusalBody,
    pub(crate) retry_jitter: Duration,
    #[cfg(feature = "tonic")]
    pub(crate) grpc: Grpc,
}

impl Default for AnswerOptions {
    fn default() -> Self {
        Self {
            headers: HeaderOptions {
                dialects: vec![Dialect::Draft11],
                unless_public: false,
                partition_secret: None,
            },
            writers: |_, rules| Writers::Draft11(Draft11::new(rules)),
            refusal_status: StatusCode::TOO_MANY_REQUESTS,
            too_large_status: None,
            refusal_body: RefusalBody::default(),
            retry_jitter: Duration::ZERO,
            #[cfg(feature = "tonic")]
            grpc: Grpc::default(),
        }
    }
}

impl AnswerOptions {
    pub(crate) fn set_dialects(&mut self, dialects: impl IntoIterator<Item = Dialect>) {
        self.headers.dialects = dialects.into_iter().collect();
        self.writers = several::writers;
    }

    /// Writes no headers to responses that shared caches may keep.
    pub(crate) fn write_unless_public(&mut self) {
        self.headers.unless_public = true;
        self.writers = several::writers;
    }

    /// Makes partition keys with this secret.
    pub(crate) fn partition_by(&mut self, secret: &Secret) {
        self.headers.partition_secret = Some(secret.clone());
        self.writers = several::writers;
    }

    /// Returns whether responses have headers that tell limits.
    #[cfg(feature = "tonic")]
    pub(super) fn writes_limits(&self) -> bool {
        !self.headers.dialects.is_empty()
    }

    /// Returns whether all responses have the headers of draft 11, and no others.
    pub(super) fn writes_draft11_alone(&self) -> bool {
        self.headers.is_draft11_alone()
    }

    /// Returns the writers of the headers, for policies that are already checked.
    pub(super) fn writers(&self, rules: &[Rule]) -> Writers {
        (self.writers)(&self.headers, rules)
    }

    /// Rejects options whose answers a client could not read.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        dialect::check(&self.headers.dialects)?;
        jitter::check(self.retry_jitter)?;
        #[cfg(feature = "tonic")]
        self.grpc.check()?;
        if let Some(status) = self.too_large_status {
            check_status("too_large_status", status)?;
        }
        check_status("refusal_status", self.refusal_status)
    }
}
