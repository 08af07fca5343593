use http::header::{COOKIE, HeaderName};

use tower_ratelimit_core::__internal::or_panic;

use super::header::text_or_bytes;
use super::{Extractor, Head, IntoKey, Key, KeyOf, Missing, Origin, Read, Secret, Typed};
use crate::error::ConfigError;

/// The value of a cookie, as 128 bits of a keyed hash. No key contains the value itself.
///
/// All `Cookie` headers are read, and the first pair with this name counts. The name is
/// case-sensitive. The value is compared byte by byte, without enclosing quotes. Clients that do
/// not send the cookie share one quota.
///
/// The hash is keyed with [`Secret::of_the_process`] unless [`hashed`](Extractor::hashed) gives
/// another secret. Nodes that share a store need one.
///
/// A client chooses the value, and this extractor does not verify it. A policy on it alone is a
/// bypass, because each fresh value has a fresh quota, and so has each other spelling of a value
/// that the application decodes. Declare a policy on the address beside it, or use an
/// [`extension`](super::extension()) that the session layer has put there.
///
/// # Panics
///
/// When `name` is not a valid cookie name, or the operating system provides no random bytes. This
/// is meant for a literal, at start-up; [`try_cookie`] returns an error.
///
/// ```
/// use tower_ratelimit::{Policy, TokenBucket, key};
///
/// let policy = Policy::new("session", TokenBucket::per_second(5)).key(key::cookie("session"));
/// ```
#[track_caller]
pub fn cookie(name: &str) -> Extractor<Cookie> {
    or_panic(try_cookie(name))
}

/// Returns the extractor; see [`cookie`].
///
/// # Errors
///
/// When `name` is not a valid cookie name (a token of RFC 9110), or the operating system
/// provides no random bytes.
pub fn try_cookie(name: &str) -> Result<Extractor<Cookie>, ConfigError> {
    // The names of headers are tokens too.
    if HeaderName::from_bytes(name.as_bytes()).is_err() {
        let remedy = "give a name such as session";
        return Err(ConfigError::quoting("cookie", name, remedy));
    }
    Ok(Extractor {
        source: Cookie { name: name.into() },
        secret: Some(Secret::of_the_process()?),
    })
}

#[derive(Clone, Debug)]
pub struct Cookie {
    name: Box<str>,
}

impl Cookie {
    fn bytes<'a>(&self, head: &Head<'a>) -> Result<&'a [u8], Missing> {
        head.headers()
            .get_all(COOKIE)
            .iter()
            .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'))
            .find_map(|pair| value_of(self.name.as_bytes(), pair))
            .ok_or(Missing::ByClient)
    }
}

impl Origin for Cookie {
    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }

    fn chosen(&self) -> Option<String> {
        Some(format!("cookie {}", self.name))
    }
}

impl Typed for Cookie {
    type Value<'a> = &'a str;

    fn value<'a>(&self, head: &Head<'a>) -> Result<&'a str, Missing> {
        str::from_utf8(self.bytes(head)?).map_err(|_| Missing::ByClient)
    }
}

impl Read for Cookie {
    fn read(&self, head: &Head<'_>) -> Result<Key, Missing> {
        Ok(text_or_bytes(self.bytes(head)?))
    }
}

impl KeyOf for Cookie {
    type Value<'a> = &'a str;

    fn make(&self, value: &str) -> Result<Key, Missing> {
        Ok(value.into_key())
    }
}

/// Returns the value, if the pair has this name.
fn value_of<'a>(name: &[u8], pair: &'a [u8]) -> Option<&'a [u8]> {
    let rest = pair.trim_ascii().strip_prefix(name)?;
    let value = rest.trim_ascii_start().strip_prefix(b"=")?.trim_ascii();
    let unquoted = value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""));
    Some(unquoted.unwrap_or(value))
}
