//! The responses of a layer, for handlers that use a limiter themselves.

use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, Response, StatusCode};
use tower_ratelimit_core::__internal::Rule;

use super::body::RefusalBody;
use super::dialect::Dialect;
use super::draft11::Draft11Headers;
use super::fields::Fields;
use super::options::AnswerOptions;
use super::refusal::{LONGEST_RETRY, Refusal};
use super::refusals::{Refusals, with_reason};
use crate::decision::{Decision, Outcomes};
use crate::error::ConfigError;
use crate::key::{Head, Missing};

/// Answers clients where a handler uses a [`Limiter`](crate::Limiter) itself, with the responses of a
/// [`RateLimitLayer`](crate::RateLimitLayer).
///
/// `Refusal::into_http` and, with feature `axum`, `IntoResponse` use one with the [defaults](Self::builder).
/// Build one to choose headers, status, body or jitter. See
/// [In a handler](crate::response#in-a-handler) for examples.
///
/// A responder speaks HTTP: it does not refuse a gRPC call as gRPC does. It sends no partition keys, since a
/// decision does not hold the key.
#[derive(Clone, Debug, Default)]
pub struct Responder {
    options: AnswerOptions,
}

impl Responder {
    /// Starts to build a responder.
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

    /// Returns the response to a refused request, with any body that can be made from bytes:
    /// `axum::body::Body`, `http_body_util::Full<Bytes>`, `Bytes`.
    ///
    /// The [`Refusal`] is in its extensions, so a layer around the handler leaves the response unchanged. A
    /// [custom body](RefusalBody::custom) sees no head; [`refuse_for`](Self::refuse_for) passes it.
    pub fn refuse<B: From<Bytes>>(&self, refusal: impl Into<Refusal>) -> Response<B> {
        self.respond(refusal.into(), None).map(B::from)
    }

    /// Returns the response to a refused request with this head, which a [custom body](RefusalBody::custom)
    /// sees.
    pub fn refuse_for<B: From<Bytes>>(
        &self,
        head: &Head<'_>,
        refusal: impl Into<Refusal>,
    ) -> Response<B> {
        self.respond(refusal.into(), Some(*head)).map(B::from)
    }

    /// Adds the headers with the limits of this decision to a response.
    ///
    /// As under a layer, a redirect and an informational response get none, and neither does a refusal.
    pub fn add_headers<B>(&self, decision: &Decision, response: &mut Response<B>) {
        if let Some(fields) = self.fields(decision) {
            fields.add_to(response);
        }
    }

    pub(super) fn fields(&self, decision: &Decision) -> Option<Fields> {
        let (rules, all) = decision.rules_and_outcomes();
        // The texts of the policies that were charged are made for this response, and a limiter may have thousands of others.
        let (mut named, mut outcomes) = (Vec::new(), Outcomes::new(all.at()));
        // A policy in shadow appears in no response.
        for (policy, outcome) in all.iter().filter(|(_, outcome)| !outcome.is_shadow()) {
            outcomes.push(named.len(), *outcome);
            named.push(rules.get(policy)?);
        }
        let outcomes = &outcomes;
        if self.options.writes_draft11_alone() {
            let headers = Draft11Headers::once(&named, outcomes, decision.is_allowed());
            return headers.map(Fields::Draft11);
        }
        let named: Vec<Rule> = named.into_iter().cloned().collect();
        let writers = self.options.writers(&named);
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
                let (rules, _) = decision.rules_and_outcomes();
                let refusals = Refusals::new(self.options.clone(), rules);
                let response = refusals.denied(self.fields(&decision), &decision, head);
                with_reason(response, Refusal::Denied(decision), extensions)
            }
            Refusal::MissingKey(missing) => {
                let status = if matches!(missing, Missing::ByServer(_)) {
                    StatusCode::INTERNAL_SERVER_ERROR
                } else {
                    StatusCode::BAD_REQUEST
                };
                Refusals::missing_key(status, missing, extensions)
            }
            #[cfg(feature = "usage")]
            Refusal::Unread(why) => Refusals::unread(why, extensions),
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

/// Builds a [`Responder`]; see [`Responder::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct ResponderBuilder {
    options: AnswerOptions,
}

impl ResponderBuilder {
    /// Sets the dialects of the rate limit headers, as
    /// [`RateLimitLayerBuilder::dialects`](crate::middleware::RateLimitLayerBuilder::dialects) does. An empty
    /// list leaves the headers out.
    pub fn dialects(mut self, dialects: impl IntoIterator<Item = Dialect>) -> Self {
        self.options.set_dialects(dialects);
        self
    }

    /// Sets the status of a refusal by a policy, from 400 to 599; the default is 429.
    pub fn refusal_status(mut self, status: StatusCode) -> Self {
        self.options.refusal_status = status;
        self
    }

    /// Sets the status of a refusal of a request that costs more than a policy ever admits; the default is
    /// that of other refusals.
    pub fn too_large_status(mut self, status: StatusCode) -> Self {
        self.options.too_large_status = Some(status);
        self
    }

    /// Sets the body of a refusal by a policy; the default is [`RefusalBody::Problem`].
    pub fn refusal_body(mut self, body: RefusalBody) -> Self {
        self.options.refusal_body = body;
        self
    }

    /// Adds a random number of whole seconds, from 0 to `most`, to the `Retry-After` of each refusal by a
    /// policy; the default is none.
    pub fn retry_jitter(mut self, most: Duration) -> Self {
        self.options.retry_jitter = most;
        self
    }

    /// Builds the responder.
    ///
    /// # Errors
    ///
    /// When two dialects share a header, when the status is not that of an error, and when the jitter is not
    /// in whole seconds.
    pub fn build(self) -> Result<Responder, ConfigError> {
        self.options.check()?;
        Ok(Responder {
            options: self.options,
        })
    }
}
