//! The response to a refused gRPC call.
//!
//! Clients may accept no more than 8 KiB of it, so each part has a maximum length here.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use tower_ratelimit_core::__internal::Rule;

use super::details::Details;
use super::options::Calls;
use super::{AnswerInHttp, Grpc, code, content_type};
use crate::clock::Micros;
use crate::decision::{Decision, Outcomes};
use crate::key::Head;
use crate::response::fields::Fields;
use crate::response::jitter::Jitter;
use crate::response::options::AnswerOptions;
use crate::response::refusal::{LONGEST_RETRY, Refusal};

/// Writes the answers to refused calls. Everything is in the header section, which serves as the trailers
/// too; there is no body.
pub(in crate::response) struct GrpcRefusals {
    calls: Calls,
    message: String,
    details: Details,
    /// The jitter of the wait, in seconds.
    jitter: Option<Jitter>,
    /// The jitter of the pushback alone, in milliseconds.
    pushback: Option<Jitter>,
}

static PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The share of the rate limit headers in the 8 KiB that clients may accept of a refusal. The
/// details say more.
const LONGEST_FIELDS: usize = 1_024;

/// Clients read a larger number as invalid, which forbids a retry (gRFC A6).
const LONGEST_PUSHBACK: u64 = 2_147_483_647;

/// Returns the content type of the answer to a request whose content type is that of a call.
pub(in crate::response) fn call_of<B>(request: &Request<B>) -> Option<HeaderValue> {
    if is_answered_in_http(request) {
        return None;
    }
    content_type::of_answer_to(request.headers())
}

fn is_answered_in_http<B>(request: &Request<B>) -> bool {
    request.extensions().get::<AnswerInHttp>().is_some()
}

impl GrpcRefusals {
    /// Creates the answers of checked options.
    pub(in crate::response) fn new(options: &AnswerOptions, rules: &[Rule]) -> Self {
        let Grpc {
            calls,
            message,
            names_policies,
            subject,
            pushback,
        } = options.grpc.clone();
        let most = options.retry_jitter.as_secs();
        let tells = options.writes_limits();
        let rules = if names_policies { rules } else { &[] };
        Self {
            calls,
            message,
            details: Details::new(subject, rules, tells),
            jitter: (most > 0).then(|| Jitter::up_to(most)),
            pushback: pushback.map(|most| Jitter::up_to(millis(most))),
        }
    }

    /// Returns the content type of the answer if the request is a call.
    pub(in crate::response) fn content_type<B>(&self, request: &Request<B>) -> Option<HeaderValue> {
        match self.calls {
            Calls::None => None,
            Calls::Detected => call_of(request),
            Calls::All if is_answered_in_http(request) => None,
            Calls::All => Some(call_of(request).unwrap_or(content_type::GRPC)),
        }
    }

    /// Returns the answer to a call that policies denied. `fields` have no time above [`LONGEST_RETRY`].
    pub(in crate::response) fn denied(
        &self,
        content_type: HeaderValue,
        fields: Option<Fields>,
        outcomes: &Outcomes,
        decision: Decision,
        head: &Head<'_>,
    ) -> Response<Bytes> {
        let wait = outcomes.retry_after().map(|wait| self.later(wait));
        let details = self.details.write(wait, outcomes, head);
        let mut metadata = HeaderMap::new();
        if let Some(fields) = fields {
            fields.add_to_refusal(&mut metadata);
            if length(&metadata) > LONGEST_FIELDS {
                metadata.clear();
            }
        }
        self.add_wait(wait, &mut metadata);
        let (code, message) = (Code::ResourceExhausted, self.message.as_str());
        let mut response = answer(content_type, (code, message), details, metadata);
        response.extensions_mut().insert(Refusal::Denied(decision));
        response
    }

    /// Turns an HTTP refusal for another reason into the answer to a call.
    pub(in crate::response) fn translated(
        content_type: HeaderValue,
        response: Response<Bytes>,
    ) -> Response<Bytes> {
        let (mut head, _) = response.into_parts();
        let refusal = head.extensions.remove::<Refusal>();
        let message = match refusal {
            Some(Refusal::Saturated { .. }) => "too many calls are in flight",
            Some(Refusal::StoreFailed(_)) => "the rate limiter is unavailable",
            _ => head.status.canonical_reason().unwrap_or("Refused"),
        };
        let mut details = ErrorDetails::new();
        let wait = head.headers.get(RETRY_AFTER);
        if let Some(Ok(wait)) = wait.and_then(|wait| wait.to_str().ok()).map(str::parse) {
            details.set_retry_info(Some(Duration::from_secs(wait)));
        }
        let code = code::of_status(head.status);
        let mut response = answer(content_type, (code, message), details, head.headers);
        if let Some(refusal) = refusal {
            response.extensions_mut().insert(refusal);
        }
        response
    }

    /// Returns the wait with its jitter.
    fn later(&self, wait: Micros) -> Micros {
        let jitter = self.jitter.as_ref().map_or(0, Jitter::number);
        let longest = LONGEST_RETRY.max(wait);
        wait.saturating_add(Micros::new(jitter.saturating_mul(1_000_000)))
            .min(longest)
    }

    fn add_wait(&self, wait: Option<Micros>, metadata: &mut HeaderMap) {
        if let Some(wait) = wait {
            let seconds = wait.min(LONGEST_RETRY).ceil_secs().max(1);
            metadata.insert(RETRY_AFTER, seconds.into());
        }
        if let Some(jitter) = &self.pushback {
            let pushback = match wait {
                None => HeaderValue::from_static("-1"),
                Some(wait) => {
                    let millis = wait.get().div_ceil(1_000).saturating_add(jitter.number());
                    millis.min(LONGEST_PUSHBACK).into()
                }
            };
            metadata.insert(PUSHBACK.clone(), pushback);
        }
    }
}

fn answer(
    content_type: HeaderValue,
    (code, message): (Code, &str),
    details: ErrorDetails,
    mut metadata: HeaderMap,
) -> Response<Bytes> {
    metadata.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    metadata.remove(CONTENT_TYPE);
    let metadata = MetadataMap::from_headers(metadata);
    let has_details = details.retry_info().is_some() || details.quota_failure().is_some();
    let status = if has_details {
        Status::with_error_details_and_metadata(code, message, details, metadata)
    } else {
        Status::with_metadata(code, message, metadata)
    };
    let mut response = status.into_http();
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Returns the length as HTTP/2 counts a header section (RFC 9113, section 10.5.1).
fn length(headers: &HeaderMap) -> usize {
    let lines = headers.iter();
    let lengths = lines.map(|(name, value)| name.as_str().len() + value.len() + 32);
    lengths.sum()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Debug for GrpcRefusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcRefusals")
            .field("calls", &self.calls)
            .field("message", &self.message)
            .finish_non_exhaustive()
    }
}
