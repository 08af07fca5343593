use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, Response, StatusCode};

use super::body::RefusalBody;
use super::dialect::{self, Dialect};
use super::fields::{Fields, Writers};
use super::jitter;
use super::refusal::Refusals;
use crate::decision::{Decision, Outcomes};
use crate::error::ConfigError;
use crate::key::Secret;
use crate::policy::{Policy, check_status};
use crate::store::Charge;

/// How clients are to be answered.
#[derive(Clone, Debug)]
pub(crate) struct AnswerOptions {
    pub(crate) dialects: Vec<Dialect>,
    pub(crate) fields_unless_public: bool,
    pub(crate) refusal_status: StatusCode,
    pub(crate) refusal_body: RefusalBody,
    pub(crate) retry_jitter: Duration,
    pub(crate) partition_secret: Option<Secret>,
}

impl Default for AnswerOptions {
    fn default() -> Self {
        Self {
            dialects: vec![Dialect::Draft11],
            fields_unless_public: false,
            refusal_status: StatusCode::TOO_MANY_REQUESTS,
            refusal_body: RefusalBody::default(),
            retry_jitter: Duration::ZERO,
            partition_secret: None,
        }
    }
}

impl AnswerOptions {
    /// Refuses what no client could read.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        dialect::check(&self.dialects)?;
        jitter::check(self.retry_jitter)?;
        check_status("refusal_status", self.refusal_status)
    }
}

/// Writes what clients are told.
#[derive(Debug)]
pub(crate) struct Answers {
    writers: Writers,
    refusals: Refusals,
}

impl Answers {
    /// These policies, whose names are known to be good, and options that were checked.
    pub(crate) fn new(options: AnswerOptions, policies: &[Policy]) -> Self {
        Self {
            writers: Writers::new(&options, policies),
            refusals: Refusals::new(options, policies),
        }
    }

    /// Whether the numbers of a request that goes on are told.
    pub(crate) fn tell_numbers(&self) -> bool {
        !matches!(self.writers, Writers::None)
    }

    /// The fields for the response to a request that goes on.
    pub(crate) fn allowed(&self, charges: &[Charge], outcomes: &Outcomes) -> Option<Fields> {
        self.writers.allowed(charges, outcomes)
    }

    /// The response to a request that a policy denied; `request` are its extensions, which are
    /// done with.
    pub(crate) fn denied(
        &self,
        charges: &[Charge],
        outcomes: &Outcomes,
        decision: impl Fn() -> Decision,
        request: &mut Extensions,
    ) -> Response<Bytes> {
        let fields = |most| self.writers.denied(charges, outcomes, most);
        self.refusals.denied(fields, outcomes, decision, request)
    }
}
