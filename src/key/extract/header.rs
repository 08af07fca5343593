use http::header::{HeaderName, InvalidHeaderName};

use tower_ratelimit_core::__internal::or_panic;

use super::credentials;
use super::{Extractor, Head, IntoKey, Key, KeyOf, Missing, Origin, Read, Typed};
use crate::error::ConfigError;

/// The value of a header, compared byte by byte. If there are several values, the first counts.
///
/// A client chooses its headers: a policy on an unverified header alone is a bypass, because each
/// fresh value has a fresh quota. Declare a policy on the address beside it, or use an
/// [`extension`](super::extension()) that authentication has put there.
///
/// Clients that do not send the field share one quota. (For [`map`](Extractor::map) a value that is not
/// UTF-8 is not there; for a closure over [`Head::header`](super::Head::header) one that is not
/// visible ASCII.) A value that must not be seen becomes 128 bits of a keyed hash by
/// [`hashed`](Extractor::hashed); for an API key there is [`api_key`](super::api_key()).
///
/// # Panics
///
/// When `name` is not a valid header name. This is meant for a literal, at start-up;
/// [`try_header`] returns an error.
///
/// ```
/// use tower_ratelimit::{Policy, TokenBucket, key};
///
/// let policy = Policy::new("tenant", TokenBucket::per_second(50)).key(key::header("x-tenant"));
/// ```
#[track_caller]
pub fn header(name: &str) -> Extractor<Header> {
    or_panic(try_header(name))
}

/// Returns the extractor; see [`header`].
///
/// # Errors
///
/// When `name` is not a valid header name.
pub fn try_header(name: &str) -> Result<Extractor<Header>, ConfigError> {
    Header::parse(name).map(Extractor::of)
}

#[derive(Clone, Debug)]
pub struct Header {
    name: HeaderName,
}

impl Header {
    pub(super) fn parse(name: &str) -> Result<Self, ConfigError> {
        let name = name.parse().map_err(|_: InvalidHeaderName| {
            ConfigError::quoting("header", name, "give a name such as x-api-key")
        })?;
        Ok(Self { name })
    }

    pub(super) fn named(name: HeaderName) -> Self {
        Self { name }
    }

    fn bytes<'a>(&self, head: &Head<'a>) -> Result<&'a [u8], Missing> {
        let value = head.headers().get(&self.name).ok_or(Missing::ByClient)?;
        Ok(value.as_bytes())
    }
}

impl Origin for Header {
    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }

    fn chosen(&self) -> Option<String> {
        Some(format!("header {}", self.name))
    }

    fn credential(&self) -> Option<String> {
        credentials::in_header(&self.name)
    }
}

impl Typed for Header {
    type Value<'a> = &'a str;

    fn value<'a>(&self, head: &Head<'a>) -> Result<&'a str, Missing> {
        str::from_utf8(self.bytes(head)?).map_err(|_| Missing::ByClient)
    }
}

/// Returns a key that is text if the value is UTF-8, otherwise bytes.
pub(super) fn text_or_bytes(value: &[u8]) -> Key {
    match str::from_utf8(value) {
        Ok(text) => text.into_key(),
        Err(_) => value.into_key(),
    }
}

impl Read for Header {
    fn read(&self, head: &Head<'_>) -> Result<Key, Missing> {
        Ok(text_or_bytes(self.bytes(head)?))
    }
}

impl KeyOf for Header {
    type Value<'a> = &'a str;

    fn make(&self, value: &str) -> Result<Key, Missing> {
        Ok(value.into_key())
    }
}
