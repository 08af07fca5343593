//! The options for refused gRPC calls.
//!
//! Message, subject and details share the 8 KiB that clients may accept of a refusal, so each has a
//! maximum length.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::details::Subject;
use crate::error::ConfigError;
use crate::key::Head;

/// How gRPC calls are refused; for
/// [`RateLimitLayerBuilder::grpc`](crate::middleware::RateLimitLayerBuilder::grpc).
///
/// # Defaults
///
/// - calls are [`detected`](Self::detected)
/// - message: `rate limit exceeded`
/// - details: `RetryInfo`, and `QuotaFailure` with the names of the policies and without a subject
/// - no `grpc-retry-pushback-ms`
///
/// ```
/// use std::time::Duration;
/// use tower_ratelimit::response::Grpc;
/// use tower_ratelimit::{Policy, RateLimitLayer, TokenBucket, key};
///
/// let grpc = Grpc::always()
///     .message("too many calls")
///     .subject(|head, _policy| Some(format!("tenant:{}", head.header("x-tenant")?)))
///     .retry_pushback(Duration::from_millis(500));
/// let layer = RateLimitLayer::builder()
///     .policy(Policy::new("peer", TokenBucket::per_second(5)).key(key::peer_ip()))
///     .grpc(grpc)
///     .build()?;
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use = "it says nothing until a layer is built with it"]
pub struct Grpc {
    pub(super) calls: Calls,
    pub(super) message: String,
    pub(super) names_policies: bool,
    pub(super) subject: Option<Arc<Subject>>,
    pub(super) pushback: Option<Duration>,
}

/// A mark in the extensions of a request whose refusal is one of HTTP, whatever its content type and
/// [`Grpc`] say. Limits still read the content type.
///
/// It is for a service that asks a layer about requests of others, as an external authorization does: the
/// status of a refused call would be 200.
///
/// ```
/// use http::{Request, Response};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_ratelimit::response::AnswerInHttp;
/// use tower_ratelimit::{FixedWindow, RateLimitLayer, key};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let nothing = RateLimitLayer::new(key::global(), FixedWindow::per_day(0));
/// let yes = service_fn(|_| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) });
/// let call = Request::post("/shop.Cart/Add").header("content-type", "application/grpc");
/// let question = call.extension(AnswerInHttp).body(())?;
/// assert_eq!(nothing.layer(yes).oneshot(question).await?.status(), 429);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerInHttp;

/// Which requests are answered as calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Calls {
    Detected,
    All,
    None,
}

/// A longer message would leave too little of the 8 KiB that clients may accept of a refusal.
const LONGEST_MESSAGE: usize = 512;

impl Grpc {
    /// A request is a call if its content type is `application/grpc`, `application/grpc-web` or
    /// `application/grpc-web-text`, with any suffix (`+proto`). Any other request is answered as
    /// HTTP. So one layer serves both on one port.
    ///
    /// The client chooses the content type, and so whether its refusal has the status 429 or 200.
    /// To count refusals, read [`Refusal`](crate::response::Refusal) in the extensions of the
    /// response.
    pub fn detected() -> Self {
        Self::of(Calls::Detected)
    }

    /// Every request is a call. A request with another content type is answered as
    /// `application/grpc`.
    pub fn always() -> Self {
        Self::of(Calls::All)
    }

    /// No request is a call: all are answered as HTTP.
    ///
    /// A gRPC client turns a 429 into `UNAVAILABLE`. A tonic client does so only if the body is
    /// empty; it reads other bodies as messages and reports `INTERNAL`.
    pub fn never() -> Self {
        Self::of(Calls::None)
    }

    fn of(calls: Calls) -> Self {
        Self {
            calls,
            message: "rate limit exceeded".into(),
            names_policies: true,
            subject: None,
            pushback: None,
        }
    }

    /// Sets the message of a refusal by a policy, at most 512 bytes.
    pub fn message(self, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..self
        }
    }

    /// Leaves `QuotaFailure` out of the details, so that they consist of `RetryInfo`.
    pub fn without_quota_failure(self) -> Self {
        Self {
            names_policies: false,
            ..self
        }
    }

    /// Names the client that is over the limit of a policy in `QuotaFailure`. The closure gets the
    /// name of the policy.
    ///
    /// By convention a subject is `clientip:<address>` or `project:<id>`. Subjects longer than 256
    /// bytes are cut.
    ///
    /// Every refused client reads the subject: do not tell it a secret, or anything about other
    /// clients.
    pub fn subject(
        self,
        subject: impl Fn(&Head<'_>, &str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            subject: Some(Arc::new(subject)),
            ..self
        }
    }

    /// Sends `grpc-retry-pushback-ms` too (gRFC A6): the wait, plus a random time of at most
    /// `jitter`, because clients retry at exactly that moment.
    ///
    /// If no wait helps, the value is `-1`, which forbids a retry. Only clients whose retry policy
    /// lists `RESOURCE_EXHAUSTED` obey it.
    pub fn retry_pushback(self, jitter: Duration) -> Self {
        Self {
            pushback: Some(jitter),
            ..self
        }
    }

    pub(crate) fn take_all(&mut self) {
        self.calls = Calls::All;
    }

    pub(in crate::response) fn check(&self) -> Result<(), ConfigError> {
        if self.message.len() <= LONGEST_MESSAGE {
            return Ok(());
        }
        let remedy =
            "give a message of up to 512 bytes, since clients take 8 KiB of a refusal in all";
        Err(ConfigError::quoting("message", &self.message, remedy))
    }
}

impl Default for Grpc {
    fn default() -> Self {
        Self::detected()
    }
}

impl fmt::Debug for Grpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grpc")
            .field("calls", &self.calls)
            .field("message", &self.message)
            .field("names_policies", &self.names_policies)
            .field("subject", &self.subject.as_ref().map(|_| "closure"))
            .field("retry_pushback", &self.pushback)
            .finish()
    }
}
