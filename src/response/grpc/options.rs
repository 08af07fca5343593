use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::details::Subject;
use crate::error::ConfigError;
use crate::key::Head;

/// How calls of gRPC are refused; for
/// [`RateLimitLayerBuilder::grpc`](crate::middleware::RateLimitLayerBuilder::grpc).
///
/// # Defaults
///
/// - what is a call is [`detected`](Self::detected)
/// - message: `rate limit exceeded`
/// - details: `RetryInfo` and `QuotaFailure`, which names the policies and no subject
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

/// Which requests are answered as calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Calls {
    Detected,
    All,
    None,
}

/// A longer one would leave too little of the 8 KiB that clients may take of a whole refusal.
const LONGEST_MESSAGE: usize = 512;

impl Grpc {
    /// A request is a call if its content type is `application/grpc`, `application/grpc-web` or
    /// `application/grpc-web-text`, with any suffix (`+proto`); any other is answered as HTTP. So one
    /// layer serves both on one port.
    ///
    /// A client chooses what it is taken for, and so whether its refusal has the status 429 or 200: who
    /// counts refusals reads [`Refusal`](crate::response::Refusal) in the extensions of the response.
    pub fn detected() -> Self {
        Self::of(Calls::Detected)
    }

    /// Every request is a call. One of another content type is answered as `application/grpc`.
    pub fn always() -> Self {
        Self::of(Calls::All)
    }

    /// No request is a call: all are answered as HTTP, with a 429 of which a client of gRPC makes
    /// `UNAVAILABLE`; one of tonic only if the body is empty, since it reads others as messages and
    /// makes `INTERNAL` of them.
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

    /// The message of a refusal by a policy, up to 512 bytes.
    pub fn message(self, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..self
        }
    }

    /// Leaves `QuotaFailure` out of the details, so that they are `RetryInfo` alone.
    pub fn without_quota_failure(self) -> Self {
        Self {
            names_policies: false,
            ..self
        }
    }

    /// Tells in `QuotaFailure` who is over the limit of a policy, of which the closure gets the name.
    /// By convention this reads `clientip:<address>` or `project:<id>`. What is longer than 256 bytes
    /// is cut.
    ///
    /// Every client that is refused reads it: tell it nothing of others, and no secret.
    pub fn subject(
        self,
        subject: impl Fn(&Head<'_>, &str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            subject: Some(Arc::new(subject)),
            ..self
        }
    }

    /// Sends `grpc-retry-pushback-ms` too (gRFC A6): the wait, and a random time from zero to this
    /// one, since clients then retry at exactly that moment. Where no wait can help it is `-1`, which
    /// forbids a retry.
    ///
    /// It is heeded by clients whose retry policy lists `RESOURCE_EXHAUSTED`, and by no others.
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
