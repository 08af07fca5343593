use http::header::{HeaderName, InvalidHeaderName};

use super::{Extract, Head, IntoKey, Key, Missing};
use crate::error::ConfigError;

/// The value of a header field, compared byte by byte; the first one if there are several.
///
/// A client chooses what it sends: a policy on an unverified header alone is a bypass, because
/// each fresh value has a fresh quota. Declare a policy on the address beside it, or use an
/// [`extension`](super::extension()) that authentication has put there.
///
/// Clients that do not send the field share one quota. (A closure over
/// [`Head::header`](super::Head::header) differs: that is `None` for a value which is not visible
/// ASCII.)
///
/// # Panics
///
/// When `name` is not a valid name of a header field. This is meant for a literal, at start-up;
/// [`Header::try_new`] returns an error.
///
/// ```
/// use tower_ratelimit::{Policy, TokenBucket, key};
///
/// let policy = Policy::new("key", TokenBucket::per_second(50)).key(key::header("x-api-key"));
/// ```
#[track_caller]
pub fn header(name: &str) -> Header {
    match Header::try_new(name) {
        Ok(header) => header,
        Err(error) => panic!("{error}"),
    }
}

/// The extractor that [`header`] returns.
#[derive(Clone, Debug)]
pub struct Header {
    name: HeaderName,
}

impl Header {
    /// The value of a header field; see [`header`].
    ///
    /// # Errors
    ///
    /// When `name` is not a valid name of a header field.
    pub fn try_new(name: &str) -> Result<Self, ConfigError> {
        let name = name.parse().map_err(|_: InvalidHeaderName| {
            ConfigError::quoting("header", name, "give a name such as x-api-key")
        })?;
        Ok(Self { name })
    }
}

impl Extract for Header {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        match head.headers().get(&self.name) {
            Some(value) => Ok(value.as_bytes().into_key()),
            None => Err(Missing::ByClient),
        }
    }

    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}
