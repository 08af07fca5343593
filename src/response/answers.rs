//! Answers: all responses and headers of a layer, for allowed and denied requests.
//!
//! The options are checked once and become [`Answers`], whose parts have their fixed text ready
//! before the first request. HTTP and gRPC differ only in refusals.

use bytes::Bytes;
use http::{Extensions, Request, Response, StatusCode};

use super::fields::{Fields, Writers};
#[cfg(feature = "tonic")]
use super::grpc::GrpcRefusals;
use super::options::AnswerOptions;
use super::refusal::{LONGEST_RETRY, Refusal};
use super::refusals::{Refusals, with_reason};
use crate::decision::{Decision, Outcomes};
use crate::diagnostics::Diagnostic;
use crate::error::StoreErrorKind;
use crate::key::{Head, Missing};
use crate::policy::Rule;
use crate::store::Charge;

/// Writes the answers to clients.
#[derive(Debug)]
pub(crate) struct Answers {
    writers: Writers,
    refusals: Refusals,
    #[cfg(feature = "tonic")]
    grpc: GrpcRefusals,
}

impl Answers {
    /// Creates answers from options and policy names that are already checked.
    pub(crate) fn new(options: AnswerOptions, policies: &[Rule]) -> Self {
        let rules: Vec<_> = policies.iter().map(Rule::rule).collect();
        Self {
            writers: options.writers(&rules),
            #[cfg(feature = "tonic")]
            grpc: GrpcRefusals::new(&options, &rules),
            refusals: Refusals::new(options, &rules),
        }
    }

    /// Returns whether the numbers of an allowed request are sent.
    pub(crate) fn writes_numbers(&self) -> bool {
        !matches!(self.writers, Writers::None)
    }

    /// Returns the headers for the response to an allowed request.
    #[inline]
    pub(crate) fn allowed(&self, charges: &[Charge], outcomes: &Outcomes) -> Option<Fields> {
        self.writers.allowed(charges, outcomes)
    }

    /// Returns the response to a request that a policy denied.
    ///
    /// The request ends here: its extensions move to the response or are dropped.
    pub(crate) fn denied<B>(
        &self,
        charges: &[Charge],
        outcomes: &Outcomes,
        decision: Decision,
        request: &mut Request<B>,
    ) -> Response<Bytes> {
        let fields = self.writers.denied(charges, outcomes, LONGEST_RETRY);
        let head = Head::of(request);
        #[cfg(feature = "tonic")]
        if let Some(content_type) = self.grpc.content_type(request) {
            let grpc = &self.grpc;
            return grpc.denied(content_type, fields, outcomes, decision, &head);
        }
        let response = self.refusals.denied(fields, &decision, Some(head));
        with_reason(
            response,
            Refusal::Denied(decision),
            request.extensions_mut(),
        )
    }

    pub(crate) fn missing_key<B>(
        &self,
        status: StatusCode,
        missing: Missing,
        request: &mut Request<B>,
    ) -> Response<Bytes> {
        self.in_its_protocol(request, |request| {
            Refusals::missing_key(status, missing, request)
        })
    }

    pub(crate) fn forbidden<B>(&self, request: &mut Request<B>) -> Response<Bytes> {
        self.in_its_protocol(request, Refusals::forbidden)
    }

    pub(crate) fn cannot_hold<B>(
        &self,
        diagnostic: Diagnostic,
        request: &mut Request<B>,
    ) -> Response<Bytes> {
        self.in_its_protocol(request, |request| {
            Refusals::cannot_hold(diagnostic, request)
        })
    }

    pub(crate) fn store_failed<B>(
        &self,
        kind: StoreErrorKind,
        request: &mut Request<B>,
    ) -> Response<Bytes> {
        self.in_its_protocol(request, |request| Refusals::store_failed(kind, request))
    }

    /// Returns the refusal in the protocol of the request. The refusal takes the extensions of the request.
    #[cfg_attr(
        not(feature = "tonic"),
        expect(clippy::unused_self, reason = "without gRPC there is one protocol")
    )]
    fn in_its_protocol<B>(
        &self,
        request: &mut Request<B>,
        refuse: impl FnOnce(&mut Extensions) -> Response<Bytes>,
    ) -> Response<Bytes> {
        #[cfg(feature = "tonic")]
        if let Some(content_type) = self.grpc.content_type(request) {
            let response = refuse(request.extensions_mut());
            return GrpcRefusals::translated(content_type, response);
        }
        refuse(request.extensions_mut())
    }
}
