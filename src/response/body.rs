//! The bodies of refusals by a policy.
//!
//! A refusal is on the path of an attack, so the built-in bodies are written from prepared text.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use tower_ratelimit_core::__internal::Rule;

use super::problem::Problems;
use super::sentence::sentence;
use crate::decision::{Decision, Outcomes};
use crate::key::Head;

/// The body of a refusal by a policy.
///
/// Other refusals (no key, no store) always have a problem body of RFC 9457.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum RefusalBody {
    /// A problem of RFC 9457 with the type of draft-ietf-httpapi-ratelimit-headers-11, section 6.1.
    /// It tells the wait and names the policies that denied the request.
    #[default]
    Problem,
    /// A problem without `detail`, the sentence with the wait.
    BareProblem,
    /// `{"error":"rate_limit_exceeded","message":"…","retry_after":50}`. If no wait helps, there is
    /// no `retry_after`.
    Json,
    /// The message alone, as `text/plain`.
    Text,
    /// A body from [`custom`](Self::custom).
    Custom(CustomBody),
}

/// A body that [`RefusalBody::custom`] makes.
#[derive(Clone)]
pub struct CustomBody {
    content_type: HeaderValue,
    write: Arc<Write>,
}

type Write = dyn Fn(&Denied<'_>) -> Bytes + Send + Sync;

impl RefusalBody {
    /// A body that `write` makes, sent as this content type. [`Denied`] holds the decision, the wait
    /// that is sent and the head of the request.
    ///
    /// `write` is called on the request's path and must not block. A client chooses the text of its
    /// request: escape what you copy from there.
    ///
    /// ```
    /// use axum::{Router, body::Body, http::Request, routing::get};
    /// use http::HeaderValue;
    /// use http_body_util::BodyExt;
    /// use tower::ServiceExt;
    /// use tower_ratelimit::response::RefusalBody;
    /// use tower_ratelimit::{FixedWindow, Policy, RateLimitLayer, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let page = RefusalBody::custom(HeaderValue::from_static("text/plain"), |denied| {
    ///     let language = denied.head().and_then(|head| head.header("accept-language"));
    ///     match (language, denied.retry_after()) {
    ///         (Some("de"), Some(wait)) => format!("Bitte {} Sekunden warten.", wait.as_secs()),
    ///         (_, Some(wait)) => format!("Come back in {} seconds.", wait.as_secs()),
    ///         (_, None) => "This can never pass.".to_owned(),
    ///     }
    /// });
    ///
    /// let nothing = Policy::new("closed", FixedWindow::per_day(0)).key(key::global());
    /// let limit = RateLimitLayer::builder().policy(nothing).refusal_body(page).build()?;
    /// let app: Router = Router::new().route("/", get(|| async {})).layer(limit);
    ///
    /// let response = app.oneshot(Request::new(Body::empty())).await?;
    /// assert_eq!(response.status(), 429);
    /// assert_eq!(response.into_body().collect().await?.to_bytes(), "This can never pass.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn custom<B: Into<Bytes>>(
        content_type: HeaderValue,
        write: impl Fn(&Denied<'_>) -> B + Send + Sync + 'static,
    ) -> Self {
        Self::Custom(CustomBody {
            content_type,
            write: Arc::new(move |denied| write(denied).into()),
        })
    }
}

/// A request that policies denied, for a [custom body](RefusalBody::custom).
#[derive(Clone, Copy, Debug)]
pub struct Denied<'a> {
    decision: &'a Decision,
    retry_after: Option<u64>,
    head: Option<Head<'a>>,
}

impl<'a> Denied<'a> {
    pub(super) fn new(
        decision: &'a Decision,
        retry_after: Option<u64>,
        head: Option<Head<'a>>,
    ) -> Self {
        Self {
            decision,
            retry_after,
            head,
        }
    }

    /// Returns the decision, with the numbers of each policy. Its [wait](Decision::retry_after) is exact; the
    /// client gets [this one](Self::retry_after).
    pub fn decision(&self) -> &'a Decision {
        self.decision
    }

    /// Returns the wait that this response sends in `Retry-After`: whole seconds, rounded up, with the
    /// [jitter](crate::middleware::RateLimitLayerBuilder::retry_jitter) if there is any. `None` when no wait
    /// can help and the header is left out.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after.map(Duration::from_secs)
    }

    /// Returns the head of the request. A layer always knows it; `None` when a handler
    /// [refuses](crate::response::Responder::refuse) without it.
    pub fn head(&self) -> Option<Head<'a>> {
        self.head
    }
}

impl fmt::Debug for CustomBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomBody")
            .field("content_type", &self.content_type)
            .finish_non_exhaustive()
    }
}

/// Writes the bodies of refusals.
#[derive(Debug)]
pub(super) enum Bodies {
    Problem(Problems),
    Json,
    Text,
    Custom(CustomBody),
}

impl Bodies {
    pub(super) fn new(body: RefusalBody, status: StatusCode, rules: &[Rule]) -> Self {
        match body {
            RefusalBody::Problem => Self::Problem(Problems::new(status, rules, true)),
            RefusalBody::BareProblem => Self::Problem(Problems::new(status, rules, false)),
            RefusalBody::Json => Self::Json,
            RefusalBody::Text => Self::Text,
            RefusalBody::Custom(body) => Self::Custom(body),
        }
    }

    /// Returns `None` for a problem, whose content type every refusal has by default.
    pub(super) fn content_type(&self) -> Option<HeaderValue> {
        match self {
            Self::Problem(_) => None,
            Self::Json => Some(HeaderValue::from_static("application/json")),
            Self::Text => Some(HeaderValue::from_static("text/plain; charset=utf-8")),
            Self::Custom(body) => Some(body.content_type.clone()),
        }
    }

    /// `retry_after` is in seconds.
    pub(super) fn write(
        &self,
        outcomes: &Outcomes,
        retry_after: Option<&str>,
        denied: &Denied<'_>,
    ) -> Bytes {
        match self {
            Self::Problem(problems) => problems.denied(outcomes, retry_after),
            Self::Json => {
                let message = sentence(retry_after, outcomes.are_too_many_at_once()).concat();
                let wait = retry_after.map(|seconds| format!(r#","retry_after":{seconds}"#));
                let wait = wait.unwrap_or_default();
                format!(r#"{{"error":"rate_limit_exceeded","message":"{message}"{wait}}}"#).into()
            }
            Self::Text => {
                let message = sentence(retry_after, outcomes.are_too_many_at_once()).concat();
                [message.as_str(), "\n"].concat().into()
            }
            Self::Custom(body) => (body.write)(denied),
        }
    }
}
