//! The response to a request that is not allowed.
//!
//! A refusal is on the path of an attack, so it is made from prepared header maps and reuses the
//! extensions of the request.

use std::mem;
use std::sync::LazyLock;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use tower_ratelimit_core::__internal::Rule;

use super::body::{Bodies, Denied};
use super::fields::Fields;
use super::form::Form;
use super::jitter::Jitter;
use super::lists::Lists;
use super::names::{RATELIMIT, RATELIMIT_POLICY};
use super::options::AnswerOptions;
use super::problem;
use super::refusal::{LONGEST_RETRY, Refusal};
use crate::clock::Micros;
use crate::decision::Decision;
use crate::diagnostics::Diagnostic;
use crate::error::StoreErrorKind;
#[cfg(feature = "usage")]
use crate::key::Unread;
use crate::key::{Head, Missing};

/// The wait for a client when the store has failed.
const RETRY_OF_STORE: HeaderValue = HeaderValue::from_static("5");

/// Writes the responses to refused requests.
#[derive(Debug)]
pub(super) struct Refusals {
    status: StatusCode,
    bodies: Bodies,
    /// The refusal of a request that costs more than a policy ever admits.
    too_large: Option<(StatusCode, Bodies)>,
    jitter: Option<Jitter>,
}

impl Refusals {
    pub(super) fn new(options: AnswerOptions, rules: &[Rule]) -> Self {
        let status = options.refusal_status;
        let most = options.retry_jitter.as_secs();
        let too_large = options.too_large_status.map(|status| {
            let bodies = Bodies::new(options.refusal_body.clone(), status, rules);
            (status, bodies)
        });
        Self {
            status,
            too_large,
            bodies: Bodies::new(options.refusal_body, status, rules),
            jitter: (most > 0).then(|| Jitter::up_to(most)),
        }
    }

    /// Returns the response to a request that policies denied, without its reason. `fields` have no time
    /// above [`LONGEST_RETRY`].
    pub(super) fn denied(
        &self,
        fields: Option<Fields>,
        decision: &Decision,
        head: Option<Head<'_>>,
    ) -> Response<Bytes> {
        let (_, outcomes) = decision.rules_and_outcomes();
        let seconds = outcomes.retry_after().map(|wait| self.seconds(wait));
        let mut digits = itoa::Buffer::new();
        let wait = seconds.map(|seconds| (seconds, digits.format(seconds)));
        let text = wait.map(|(_, text)| text);
        let denied = Denied::new(decision, seconds, head);
        let (status, bodies) = match &self.too_large {
            Some((status, bodies)) if outcomes.are_too_large() => (*status, bodies),
            _ => (self.status, &self.bodies),
        };
        let body = bodies.write(outcomes, text, &denied);
        let wait = wait.and_then(|(seconds, text)| retry_after(seconds, text));
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let (lists, others) = match fields {
            Some(Fields::Draft11(fields)) => (fields.lists(), None),
            Some(Fields::Several(several)) => (None, Some(several)),
            None | Some(Fields::Exposed(_)) => (None, None),
        };
        *headers = match (wait, lists) {
            (Some(wait), Some(Lists { policies, limits })) => {
                COUNTED_TO_RETRY.filled([wait, policies, limits])
            }
            (None, Some(Lists { policies, limits })) => COUNTED.filled([policies, limits]),
            (Some(wait), None) => TO_RETRY.filled([wait]),
            (None, None) => PLAIN.filled([]),
        };
        if let Some(several) = others {
            several.add_to_refusal(headers);
        }
        if let Some(content_type) = bodies.content_type() {
            headers.insert(CONTENT_TYPE, content_type);
        }
        response
    }

    /// Returns the seconds of `Retry-After`: never less than the wait.
    fn seconds(&self, wait: Micros) -> u64 {
        let seconds = wait.min(LONGEST_RETRY).ceil_secs().max(1);
        match &self.jitter {
            None => seconds,
            Some(jitter) => {
                let later = seconds.saturating_add(jitter.number());
                later.min(LONGEST_RETRY.ceil_secs())
            }
        }
    }

    pub(super) fn missing_key(
        status: StatusCode,
        missing: Missing,
        request: &mut Extensions,
    ) -> Response<Bytes> {
        let reason = Refusal::MissingKey(missing);
        let body = problem::without_detail(status);
        refuse(status, PLAIN.filled([]), body, reason, request)
    }

    #[cfg(feature = "usage")]
    pub(super) fn unread(why: Unread, request: &mut Extensions) -> Response<Bytes> {
        let (status, detail) = match why {
            Unread::TooLong => (StatusCode::PAYLOAD_TOO_LARGE, "The body is too long."),
            Unread::NotJson => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "The body has to be JSON, without a content coding.",
            ),
            Unread::Unclear => (
                StatusCode::BAD_REQUEST,
                "A field of the body stands twice, or is too long.",
            ),
            Unread::HeaderMismatch => {
                // As the Model Context Protocol says it. The `id` would have to be that of the body.
                let status = StatusCode::BAD_REQUEST;
                let mut headers = PLAIN.filled([]);
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                let reason = Refusal::Unread(why);
                return refuse(status, headers, problem::HEADER_MISMATCH, reason, request);
            }
            Unread::Malformed | Unread::Unwanted => (
                StatusCode::BAD_REQUEST,
                "The body has to be one JSON object.",
            ),
        };
        let body = problem::with_detail(status, detail);
        refuse(
            status,
            PLAIN.filled([]),
            body,
            Refusal::Unread(why),
            request,
        )
    }

    pub(super) fn forbidden(request: &mut Extensions) -> Response<Bytes> {
        let status = StatusCode::FORBIDDEN;
        let body = problem::without_detail(status);
        refuse(status, PLAIN.filled([]), body, Refusal::Forbidden, request)
    }

    pub(super) fn cannot_hold(diagnostic: Diagnostic, request: &mut Extensions) -> Response<Bytes> {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        let body = problem::without_detail(status);
        let reason = Refusal::CannotHold(diagnostic);
        refuse(status, PLAIN.filled([]), body, reason, request)
    }

    /// Returns the response to a request that finds all slots of the adaptive limit `name` taken.
    pub(super) fn saturated(
        name: &str,
        status: StatusCode,
        limit: u32,
        request: &mut Extensions,
    ) -> Response<Bytes> {
        let body = problem::saturated(name, status);
        let reason = Refusal::Saturated { limit };
        refuse(status, PLAIN.filled([]), body, reason, request)
    }

    pub(super) fn store_failed(kind: StoreErrorKind, request: &mut Extensions) -> Response<Bytes> {
        refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            TO_RETRY.filled([RETRY_OF_STORE]),
            problem::STORE_FAILED,
            Refusal::StoreFailed(kind),
            request,
        )
    }
}

static PLAIN: LazyLock<Form<2, 0>> = LazyLock::new(|| form([]));

static TO_RETRY: LazyLock<Form<2, 1>> = LazyLock::new(|| form([RETRY_AFTER]));

static COUNTED: LazyLock<Form<2, 2>> =
    LazyLock::new(|| form([RATELIMIT_POLICY.clone(), RATELIMIT.clone()]));

static COUNTED_TO_RETRY: LazyLock<Form<2, 3>> =
    LazyLock::new(|| form([RETRY_AFTER, RATELIMIT_POLICY.clone(), RATELIMIT.clone()]));

/// Returns the headers of every refusal, and these.
fn form<const OPEN: usize>(open: [HeaderName; OPEN]) -> Form<2, OPEN> {
    let fixed = [
        (CONTENT_TYPE, "application/problem+json"),
        (CACHE_CONTROL, "no-store"),
    ];
    let fixed = fixed.map(|(name, value)| (name, HeaderValue::from_static(value)));
    Form::new(fixed, open)
}

/// Returns the value of `Retry-After`, whose number is `text`. Numbers below 100 allocate nothing.
fn retry_after(seconds: u64, text: &str) -> Option<HeaderValue> {
    const TWO_DIGITS: &str = "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748495051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";
    let short = usize::try_from(seconds).ok().filter(|wait| *wait < 100);
    let known = short.and_then(|wait| {
        let start = 2 * wait + usize::from(wait < 10);
        TWO_DIGITS.get(start..2 * wait + 2)
    });
    match known {
        Some(text) => Some(HeaderValue::from_static(text)),
        None => HeaderValue::from_str(text).ok(),
    }
}

fn refuse(
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    reason: Refusal,
    request: &mut Extensions,
) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    with_reason(response, reason, request)
}

/// Adds the reason to the response. Its map of extensions is that of the request, which is no longer needed:
/// that saves two allocations.
pub(super) fn with_reason(
    mut response: Response<Bytes>,
    reason: Refusal,
    request: &mut Extensions,
) -> Response<Bytes> {
    let mut extensions = mem::take(request);
    extensions.clear();
    extensions.insert(reason);
    *response.extensions_mut() = extensions;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_as_it_is_whether_it_is_short_or_long() {
        for wait in (0..=101).chain([999, 3_600, 2_147_483_647]) {
            let text = wait.to_string();
            assert_eq!(retry_after(wait, &text).unwrap(), text);
        }
    }
}
