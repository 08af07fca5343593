use http::header::{HeaderName, InvalidHeaderName};

use super::combinators::{combinators, hashed, map};
use super::credentials;
use super::take::Take;
use super::{Extract, Head, IntoKey, Key, KeyOf, Missing};
use crate::error::{ConfigError, or_panic};

/// The value of a header, compared byte by byte. If there are several values, the first counts.
///
/// A client chooses its headers: a policy on an unverified header alone is a bypass, because each
/// fresh value has a fresh quota. Declare a policy on the address beside it, or use an
/// [`extension`](super::extension()) that authentication has put there.
///
/// Clients that do not send the field share one quota. (For [`map`](Header::map) a value that is not
/// UTF-8 is not there; for a closure over [`Head::header`](super::Head::header) one that is not
/// visible ASCII.) A value that must not be seen becomes 128 bits of a keyed hash by
/// [`hashed`](Header::hashed); for an API key there is [`api_key`](super::api_key()).
///
/// # Panics
///
/// When `name` is not a valid header name. This is meant for a literal, at start-up;
/// [`Header::try_new`] returns an error.
///
/// ```
/// use tower_ratelimit::{Policy, TokenBucket, key};
///
/// let policy = Policy::new("tenant", TokenBucket::per_second(50)).key(key::header("x-tenant"));
/// ```
#[track_caller]
pub fn header(name: &str) -> Header {
    or_panic(Header::try_new(name))
}

/// The extractor that [`header`] returns.
#[derive(Clone, Debug)]
pub struct Header {
    name: HeaderName,
}

impl Header {
    /// Returns the extractor; see [`header`].
    ///
    /// # Errors
    ///
    /// When `name` is not a valid header name.
    pub fn try_new(name: &str) -> Result<Self, ConfigError> {
        let name = name.parse().map_err(|_: InvalidHeaderName| {
            ConfigError::quoting("header", name, "give a name such as x-api-key")
        })?;
        Ok(Self { name })
    }

    pub(super) fn named(name: HeaderName) -> Self {
        Self { name }
    }

    fn value<'a>(&self, head: &Head<'a>) -> Result<&'a [u8], Missing> {
        let value = head.headers().get(&self.name).ok_or(Missing::ByClient)?;
        Ok(value.as_bytes())
    }
}

impl Take for Header {
    type Out<'a> = &'a str;

    fn take<'a>(&self, head: &Head<'a>) -> Result<&'a str, Missing> {
        str::from_utf8(self.value(head)?).map_err(|_| Missing::ByClient)
    }

    fn reads(&self) -> Option<String> {
        self.identity()
    }
}

impl Extract for Header {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        Ok(Key::text_or_bytes(self.value(head)?))
    }

    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }

    fn credential_in_the_clear(&self) -> Option<String> {
        credentials::in_header(&self.name)
    }
}

impl KeyOf for Header {
    type Value<'a> = &'a str;

    fn make(&self, value: &str) -> Result<Key, Missing> {
        Ok(value.into_key())
    }
}

combinators!(Header);
hashed!(Header);
map!(Header, &str);
