use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use super::problem::Problems;
use crate::decision::{Decision, Outcomes};
use crate::policy::Policy;

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
    /// The same problem without `detail`, the sentence with the wait.
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

type Write = dyn Fn(&Decision) -> Bytes + Send + Sync;

impl RefusalBody {
    /// Sends what `write` makes of the decision, with this content type.
    ///
    /// `write` runs on the request path and must not block. The [wait](Decision::retry_after) of
    /// the decision is exact; `Retry-After` is that wait in whole seconds, rounded up, plus the
    /// jitter.
    ///
    /// ```
    /// use http::HeaderValue;
    /// use tower_ratelimit::response::RefusalBody;
    ///
    /// let page = RefusalBody::custom(HeaderValue::from_static("text/html"), |decision| {
    ///     let policy = decision.binding().map_or("", |(name, _)| name);
    ///     format!("<h1>Slow down</h1><p>The limit is called {policy:?}.")
    /// });
    /// ```
    pub fn custom<B: Into<Bytes>>(
        content_type: HeaderValue,
        write: impl Fn(&Decision) -> B + Send + Sync + 'static,
    ) -> Self {
        Self::Custom(CustomBody {
            content_type,
            write: Arc::new(move |decision| write(decision).into()),
        })
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
    pub(super) fn new(body: RefusalBody, status: StatusCode, policies: &[Policy]) -> Self {
        match body {
            RefusalBody::Problem => Self::Problem(Problems::new(status, policies, true)),
            RefusalBody::BareProblem => Self::Problem(Problems::new(status, policies, false)),
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
        decision: impl FnOnce() -> Decision,
    ) -> Bytes {
        match self {
            Self::Problem(problems) => problems.quota_exceeded(outcomes, retry_after),
            Self::Json => {
                let message = sentence(retry_after).concat();
                let wait = retry_after.map(|seconds| format!(r#","retry_after":{seconds}"#));
                let wait = wait.unwrap_or_default();
                format!(r#"{{"error":"rate_limit_exceeded","message":"{message}"{wait}}}"#).into()
            }
            Self::Text => [sentence(retry_after).concat().as_str(), "\n"]
                .concat()
                .into(),
            Self::Custom(body) => (body.write)(&decision()),
        }
    }
}

/// Returns the sentence of a refusal for humans. If the wait is several seconds it has three parts,
/// the second of which is the number.
pub(super) fn sentence(retry_after: Option<&str>) -> [&str; 3] {
    match retry_after {
        None => ["Too many requests. No wait will let this one pass.", "", ""],
        Some("1") => ["Too many requests. Retry after 1 second.", "", ""],
        Some(seconds) => ["Too many requests. Retry after ", seconds, SECONDS],
    }
}

pub(super) const SECONDS: &str = " seconds.";
