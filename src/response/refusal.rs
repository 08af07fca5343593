use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use super::Draft11;
use super::problem::{self, Problems};
use crate::clock::Micros;
use crate::decision::{Decision, Outcomes};
use crate::error::{Diagnostic, StoreErrorKind};
use crate::policy::Policy;

/// Why a request was refused; found in the extensions of the response.
///
/// ```
/// use axum::{Router, body::Body, http::Request, routing::get};
/// use tower::ServiceExt;
/// use tower_ratelimit::key::Head;
/// use tower_ratelimit::response::Refusal;
/// use tower_ratelimit::{FixedWindow, RateLimitLayer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let nothing = RateLimitLayer::new(|_: &Head<'_>| "everybody", FixedWindow::per_day(0));
/// let app: Router = Router::new().route("/", get(|| async {})).layer(nothing);
///
/// let response = app.oneshot(Request::new(Body::empty())).await.unwrap();
/// match response.extensions().get::<Refusal>() {
///     Some(Refusal::Denied(decision)) => assert_eq!(decision.binding().unwrap().0, "default"),
///     other => panic!("{other:?}"),
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the common one, and extensions box it"
)]
pub enum Refusal {
    /// A policy denied it: 429.
    Denied(Decision),
    /// The server does not provide what a key is made of: 500.
    NoKey(Diagnostic),
    /// The store could not decide: 503.
    StoreFailed(StoreErrorKind),
}

/// A delta of seconds above this means "for ever" to some who read it (RFC 9110, section 5.6.7,
/// and the 31 bits that implementations give it).
const LONGEST_RETRY: Micros = Micros::from_secs(2_147_483_647);

/// What a client is told to wait when our own store has failed.
const RETRY_OF_STORE: HeaderValue = HeaderValue::from_static("5");

/// Writes the responses of refused requests.
#[derive(Debug)]
pub(crate) struct Refusals {
    problems: Problems,
}

impl Refusals {
    pub(crate) fn new(policies: &[Policy]) -> Self {
        Self {
            problems: Problems::new(policies),
        }
    }

    pub(crate) fn denied(
        &self,
        fields: &Draft11,
        outcomes: Outcomes,
        decision: impl FnOnce(Outcomes) -> Decision,
    ) -> Response<Bytes> {
        let wait = outcomes
            .retry_after()
            .map(|wait| wait.min(LONGEST_RETRY).ceil_secs().max(1));
        let body = self.problems.quota_exceeded(&outcomes, wait);
        let fields = fields.denied(&outcomes, LONGEST_RETRY);
        let reason = Refusal::Denied(decision(outcomes));
        let mut response = refuse(StatusCode::TOO_MANY_REQUESTS, reason, body);
        if let Some(wait) = wait {
            response.headers_mut().insert(RETRY_AFTER, wait.into());
        }
        if let Some(fields) = fields {
            fields.add_to(response.status(), response.headers_mut());
        }
        response
    }

    pub(crate) fn no_key(diagnostic: Diagnostic) -> Response<Bytes> {
        refuse(
            StatusCode::INTERNAL_SERVER_ERROR,
            Refusal::NoKey(diagnostic),
            problem::MISCONFIGURED,
        )
    }

    pub(crate) fn store_failed(kind: StoreErrorKind) -> Response<Bytes> {
        let mut response = refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            Refusal::StoreFailed(kind),
            problem::STORE_FAILED,
        );
        response.headers_mut().insert(RETRY_AFTER, RETRY_OF_STORE);
        response
    }
}

fn refuse(status: StatusCode, reason: Refusal, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.reserve(5);
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.extensions_mut().insert(reason);
    response
}
