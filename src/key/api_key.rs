use http::header::HeaderName;

use super::combinators::{combinators, map};
use super::take::Take;
use super::{Extract, Head, Header, IntoKey, Key, KeyOf, Missing, Secret};
use crate::error::{ConfigError, or_panic};

/// An API key, read from the header `x-api-key`, as 128 bits of a keyed hash: the API key itself is
/// in no key.
///
/// Another header is named by [`from_header`](ApiKey::from_header). The value is compared byte by
/// byte; the first one counts if there are several. Clients that do not send the header share one
/// quota.
///
/// The hash is keyed with [`Secret::of_the_process`] unless another is given by
/// [`hashed`](ApiKey::hashed), which nodes that share a store need.
///
/// A client chooses what it sends, and nothing here verifies the API key: a policy on it alone is a
/// bypass, because each made-up value has a fresh quota. Declare a policy on the address beside it, or
/// count the client that authentication has verified: see
/// [a verified client](crate::key#a-verified-client-or-its-address).
///
/// # Panics
///
/// When the operating system gives no random bytes. [`ApiKey::try_new`] returns an error.
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
pub fn api_key() -> ApiKey {
    or_panic(ApiKey::try_new())
}

/// The extractor that [`api_key`] returns.
#[derive(Clone, Debug)]
pub struct ApiKey {
    header: Header,
    secret: Secret,
}

impl ApiKey {
    /// An API key in the header `x-api-key`; see [`api_key`].
    ///
    /// # Errors
    ///
    /// When the operating system gives no random bytes.
    pub fn try_new() -> Result<Self, ConfigError> {
        Ok(Self {
            header: Header::named(HeaderName::from_static("x-api-key")),
            secret: Secret::of_the_process()?,
        })
    }

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
            header: Header::try_new(name)?,
            ..self
        })
    }

    /// Hashes with this secret, in place of that of the process.
    pub fn hashed(self, secret: &Secret) -> Self {
        Self {
            secret: secret.clone(),
            ..self
        }
    }
}

impl Take for ApiKey {
    type Out<'a> = &'a str;

    fn take<'a>(&self, head: &Head<'a>) -> Result<&'a str, Missing> {
        self.header.take(head)
    }

    fn secret(&self) -> Option<&Secret> {
        Some(&self.secret)
    }
}

impl Extract for ApiKey {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        Ok(self.seal(self.plain(head)?))
    }

    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.header.extract(head)
    }

    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }

    fn is_of_this_process(&self) -> bool {
        self.secret.is_of_the_process()
    }
}

impl KeyOf for ApiKey {
    type Value<'a> = &'a str;

    fn make(&self, value: &str) -> Result<Key, Missing> {
        Ok(self.seal(value.into_key()))
    }
}

combinators!(ApiKey);
map!(ApiKey, &str);
