use http::header::HeaderName;

use tower_ratelimit_core::__internal::or_panic;

use super::{Extractor, Head, Header, Key, KeyOf, Missing, Origin, Read, Secret, Typed};
use crate::error::ConfigError;

/// An API key, read from the header `x-api-key`, as 128 bits of a keyed hash: the API key itself is
/// in no key.
///
/// Another header is named by [`from_header`](Extractor::from_header). The value is compared byte by
/// byte; the first one counts if there are several. Clients that do not send the header share one
/// quota.
///
/// The hash is keyed with [`Secret::of_the_process`] unless another is given by
/// [`hashed`](Extractor::hashed), which nodes that share a store need.
///
/// A client chooses what it sends, and nothing here verifies the API key: a policy on it alone is a
/// bypass, because each made-up value has a fresh quota. Declare a policy on the address beside it, or
/// count the client that authentication has verified: see
/// [a verified client](crate::key#a-verified-client-or-its-address).
///
/// # Panics
///
/// When the operating system gives no random bytes. [`try_api_key`] returns an error.
///
/// ```
/// use tower_ratelimit::key::{self, Secret};
/// use tower_ratelimit::{Policy, TokenBucket};
///
/// # let configured = "b2f0e6f2c6a44f6db4f3a1f9d7c0a5e8";
/// let secret = Secret::new(configured)?;
/// let policy = Policy::new("api-key", TokenBucket::per_second(50))
///     .key(key::api_key().hashed(&secret));
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
#[track_caller]
pub fn api_key() -> Extractor<ApiKey> {
    or_panic(try_api_key())
}

/// Returns the extractor of an API key in the header `x-api-key`; see [`api_key`].
///
/// # Errors
///
/// When the operating system gives no random bytes.
pub fn try_api_key() -> Result<Extractor<ApiKey>, ConfigError> {
    Ok(Extractor {
        source: ApiKey(Header::named(HeaderName::from_static("x-api-key"))),
        secret: Some(Secret::of_the_process()?),
    })
}

#[derive(Clone, Debug)]
pub struct ApiKey(Header);

impl Extractor<ApiKey> {
    /// Reads this header, in place of `x-api-key`.
    ///
    /// # Panics
    ///
    /// When `name` is not a valid name of a header field. This is meant for a literal, at start-up;
    /// [`try_from_header`](Self::try_from_header) returns an error.
    #[track_caller]
    pub fn from_header(self, name: &str) -> Self {
        or_panic(self.try_from_header(name))
    }

    /// Reads this header; see [`from_header`](Self::from_header).
    ///
    /// # Errors
    ///
    /// When `name` is not a valid name of a header field.
    pub fn try_from_header(self, name: &str) -> Result<Self, ConfigError> {
        Ok(Self {
            source: ApiKey(Header::parse(name)?),
            ..self
        })
    }
}

impl Origin for ApiKey {
    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }

    fn chosen(&self) -> Option<String> {
        self.0.chosen()
    }
}

impl Typed for ApiKey {
    type Value<'a> = &'a str;

    fn value<'a>(&self, head: &Head<'a>) -> Result<&'a str, Missing> {
        self.0.value(head)
    }
}

impl Read for ApiKey {
    fn read(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.0.read(head)
    }
}

impl KeyOf for ApiKey {
    type Value<'a> = &'a str;

    fn make(&self, value: &str) -> Result<Key, Missing> {
        self.0.make(value)
    }
}
