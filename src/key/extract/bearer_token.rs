use http::header::AUTHORIZATION;

use tower_ratelimit_core::__internal::or_panic;

use super::{Extractor, Head, IntoKey, Key, Keyed, Missing, Origin, Secret, Typed};
use crate::error::ConfigError;

/// The token of `Authorization: Bearer`, as 128 bits of a keyed hash. No key contains the token
/// itself.
///
/// The scheme is case-insensitive, and the token must have the form of RFC 6750, section 2.1. All
/// requests without a token, or with any other value, share one quota.
///
/// The hash is keyed with [`Secret::of_the_process`] unless [`hashed`](Extractor::hashed) gives
/// another secret. Nodes that share a store need one.
///
/// A client chooses the token, and this extractor does not verify it. A policy on it alone is a
/// bypass, because each fresh token has a fresh quota. Declare a policy on the address beside it,
/// or use an [`extension`](super::extension()) that authentication has put there.
///
/// # Panics
///
/// When the operating system provides no random bytes. [`try_bearer_token`] returns an error.
///
/// ```
/// use tower_ratelimit::{Policy, TokenBucket, key};
///
/// let policy = Policy::new("token", TokenBucket::per_second(50)).key(key::bearer_token());
/// ```
#[track_caller]
pub fn bearer_token() -> Extractor<BearerToken> {
    or_panic(try_bearer_token())
}

/// Returns the extractor; see [`bearer_token`].
///
/// # Errors
///
/// When the operating system provides no random bytes.
pub fn try_bearer_token() -> Result<Extractor<BearerToken>, ConfigError> {
    Ok(Extractor {
        source: BearerToken(()),
        secret: Some(Secret::of_the_process()?),
    })
}

#[derive(Clone, Copy, Debug)]
pub struct BearerToken(());

impl Origin for BearerToken {
    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }

    fn chosen(&self) -> Option<String> {
        Some("header authorization".to_owned())
    }
}

impl Typed for BearerToken {
    /// The token alone, without its scheme.
    type Value<'a> = &'a str;

    fn value<'a>(&self, head: &Head<'a>) -> Result<&'a str, Missing> {
        head.headers()
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(token)
            .ok_or(Missing::ByClient)
    }
}

impl Keyed for BearerToken {
    fn key(&self, token: &str) -> Result<Key, Missing> {
        let token = is_token(token).then_some(token).ok_or(Missing::ByClient)?;
        Ok(token.into_key())
    }
}

fn token(credentials: &str) -> Option<&str> {
    let (scheme, token) = credentials.split_once(' ')?;
    let token = token.trim_start_matches(' ');
    (scheme.eq_ignore_ascii_case("bearer") && is_token(token)).then_some(token)
}

/// Returns whether this has the form of a token (RFC 6750, section 2.1, `b64token`).
fn is_token(token: &str) -> bool {
    let unpadded = token.trim_end_matches('=');
    let is_b64 = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    !unpadded.is_empty() && unpadded.bytes().all(is_b64)
}
