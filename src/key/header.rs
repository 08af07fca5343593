use http::header::{HeaderName, InvalidHeaderName};

use super::combinators::{combinators, hashed, map};
use super::take::Take;
use super::{Extract, Head, Key, Missing};
use crate::error::{ConfigError, or_panic};

/// The value of a header, compared byte by byte. If there are several values, the first counts.
///
/// A client chooses its headers: a policy on an unverified header alone is a bypass, because each
/// fresh value has a fresh quota. Declare a policy on the address beside it, or use an
/// [`extension`](super::extension()) that authentication has put there.
///
/// Clients that do not send the header share one quota. ([`map`](Header::map) treats a value that
/// is not UTF-8 as absent; [`Head::header`](super::Head::header) in a closure treats a value that
/// is not visible ASCII as absent.) For a secret value, such as an API key,
/// [`hashed`](Header::hashed) keeps 128 bits of a keyed hash.
///
/// # Panics
///
/// When `name` is not a valid header name. This is meant for a literal, at start-up;
/// [`Header::try_new`] returns an error.
///
/// ```
/// use tower_ratelimit::{Policy, TokenBucket, key};
///
/// let policy = Policy::new("key", TokenBucket::per_second(50)).key(key::header("x-api-key"));
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
}

combinators!(Header);
hashed!(Header);
map!(Header, &str);
