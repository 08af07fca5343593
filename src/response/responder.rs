use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, Response, StatusCode};

use super::body::RefusalBody;
use super::dialect::Dialect;
use super::fields::{Fields, Writers};
use super::options::AnswerOptions;
use super::refusal::{LONGEST_RETRY, Refusal};
use super::refusals::{Refusals, with_reason};
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::key::{Head, Missing};

/// Answers clients where a handler asks a [`Limiter`](crate::Limiter) itself, with the responses that a
/// [`RateLimitLayer`](crate::RateLimitLayer) sends.
///
/// One with the [defaults](Self::builder) is behind `Refusal::into_http` and, with feature `axum`, behind
/// `IntoResponse`. Build one to choose fields, status, body or jitter. See
/// [In a handler](crate::response#in-a-handler) for examples.
///
/// A responder speaks HTTP: it does not refuse a call of gRPC as gRPC does. It tells no partition keys,
/// since a decision does not hold the key.
#[derive(Clone, Debug, Default)]
pub struct Responder {
    options: AnswerOptions,
}

impl Responder {
    /// Starts a responder.
    ///
    /// # Defaults
    ///
    /// - dialects: [`Dialect::Draft11`]
    /// - status of a refusal: 429
    /// - body of a refusal: [`RefusalBody::Problem`]
    /// - `Retry-After` without jitter
    pub fn builder() -> ResponderBuilder {
        ResponderBuilder {
            options: AnswerOptions::default(),
        }
    }

    /// The response to a request that is refused, with any body that can be made of bytes:
    /// `axum::body::Body`, `http_body_util::Full<Bytes>`, `Bytes`.
    ///
    /// The [`Refusal`] is in its extensions: a layer around the handler leaves the response as it is.
    /// A [custom body](RefusalBody::custom) sees no head; [`refuse_for`](Self::refuse_for) shows it.
    pub fn refuse<B: From<Bytes>>(&self, refusal: impl Into<Refusal>) -> Response<B> {
        self.respond(refusal.into(), None).map(B::from)
    }

    /// The response to a refused request with this head, which a [custom body](RefusalBody::custom) sees.
    pub fn refuse_for<B: From<Bytes>>(
        &self,
        head: &Head<'_>,
        refusal: impl Into<Refusal>,
    ) -> Response<B> {
        self.respond(refusal.into(), Some(*head)).map(B::from)
    }

    /// Adds the fields that tell the limits of this decision to a response.
    ///
    /// As under a layer, a redirect and an informational response get none, and neither does a refusal.
    pub fn add_headers<B>(&self, decision: &Decision, response: &mut Response<B>) {
        if let Some(fields) = self.fields(decision) {
            fields.add_to(response);
        }
    }

    pub(super) fn fields(&self, decision: &Decision) -> Option<Fields> {
        let (rules, outcomes) = decision.told();
        let writers = Writers::new(&self.options, rules);
        if decision.is_allowed() {
            writers.allowed(&[], outcomes)
        } else {
            writers.denied(&[], outcomes, LONGEST_RETRY)
        }
    }

    fn respond(&self, refusal: Refusal, head: Option<Head<'_>>) -> Response<Bytes> {
        let extensions = &mut Extensions::new();
        match refusal {
            Refusal::Denied(decision) => {
                let (rules, _) = decision.told();
                let refusals = Refusals::new(self.options.clone(), rules);
                let response = refusals.denied(self.fields(&decision), &decision, head);
                with_reason(response, Refusal::Denied(decision), extensions)
            }
            Refusal::NoKey(missing) => {
                let status = if matches!(missing, Missing::ByServer(_)) {
                    StatusCode::INTERNAL_SERVER_ERROR
                } else {
                    StatusCode::BAD_REQUEST
                };
                Refusals::no_key(status, missing, extensions)
            }
            Refusal::Forbidden => Refusals::forbidden(extensions),
            Refusal::CannotHold(diagnostic) => Refusals::cannot_hold(diagnostic, extensions),
            Refusal::Saturated { limit } => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Refusals::saturated("concurrency", status, limit, extensions)
            }
            Refusal::StoreFailed(kind) => Refusals::store_failed(kind, extensions),
        }
    }
}

/// Puts a [`Responder`] together; see [`Responder::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct ResponderBuilder {
    options: AnswerOptions,
}

impl ResponderBuilder {
    /// Tells limits in these dialects, as
    /// [`RateLimitLayerBuilder::dialects`](crate::middleware::RateLimitLayerBuilder::dialects) does. None
    /// at all leaves the fields out.
    pub fn dialects(mut self, dialects: impl IntoIterator<Item = Dialect>) -> Self {
        self.options.dialects = dialects.into_iter().collect();
        self
    }

    /// The status of a refusal by a policy, 400 to 599; 429 unless said.
    pub fn refusal_status(mut self, status: StatusCode) -> Self {
        self.options.refusal_status = status;
        self
    }

    /// The status of a refusal of a request that costs more than a policy ever admits; that of other refusals unless
    /// said.
    pub fn too_large_status(mut self, status: StatusCode) -> Self {
        self.options.too_large_status = Some(status);
        self
    }

    /// The body of a refusal by a policy; [`RefusalBody::Problem`] unless said.
    pub fn refusal_body(mut self, body: RefusalBody) -> Self {
        self.options.refusal_body = body;
        self
    }

    /// Adds a random number of whole seconds, 0 to `most`, to the `Retry-After` of each refusal by a
    /// policy; none unless said.
    pub fn retry_jitter(mut self, most: Duration) -> Self {
        self.options.retry_jitter = most;
        self
    }

    /// Builds the responder.
    ///
    /// # Errors
    ///
    /// When two dialects share a field, when the status is not that of an error, and when the jitter is
    /// not whole seconds.
    pub fn build(self) -> Result<Responder, ConfigError> {
        self.options.check()?;
        Ok(Responder {
            options: self.options,
        })
    }
}
