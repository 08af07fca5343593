use http::header::AUTHORIZATION;

use super::combinators::{combinators, map};
use super::take::Take;
use super::{Extract, Head, IntoKey, Key, KeyOf, Missing, Secret};
use crate::error::{ConfigError, or_panic};

/// The token of `Authorization: Bearer`, as 128 bits of a keyed hash. No key contains the token
/// itself.
///
/// The scheme is case-insensitive, and the token must have the form of RFC 6750, section 2.1. All
/// requests without a token, or with any other value, share one quota.
///
/// The hash is keyed with [`Secret::of_the_process`] unless [`hashed`](BearerToken::hashed) gives
/// another secret. Nodes that share a store need one.
///
/// A client chooses the token, and this extractor does not verify it. A policy on it alone is a
/// bypass, because each fresh token has a fresh quota. Declare a policy on the address beside it,
/// or use an [`extension`](super::extension()) that authentication has put there.
///
/// # Panics
///
/// When the operating system provides no random bytes. [`BearerToken::try_new`] returns an error.
///
/// ```
/// use tower_ratelimit::{Policy, TokenBucket, key};
///
/// let policy = Policy::new("token", TokenBucket::per_second(50)).key(key::bearer_token());
/// ```
#[track_caller]
pub fn bearer_token() -> BearerToken {
    or_panic(BearerToken::try_new())
}

/// The extractor that [`bearer_token`] returns.
#[derive(Clone, Debug)]
pub struct BearerToken {
    secret: Secret,
}

impl BearerToken {
    /// Returns the extractor; see [`bearer_token`].
    ///
    /// # Errors
    ///
    /// When the operating system provides no random bytes.
    pub fn try_new() -> Result<Self, ConfigError> {
        let secret = Secret::of_the_process()?;
        Ok(Self { secret })
    }

    /// Hashes with this secret in place of the secret of the process.
    pub fn hashed(self, secret: &Secret) -> Self {
        Self {
            secret: secret.clone(),
        }
    }
}

impl Take for BearerToken {
    type Out<'a> = &'a str;

    fn take<'a>(&self, head: &Head<'a>) -> Result<&'a str, Missing> {
        head.headers()
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(token)
            .ok_or(Missing::ByClient)
    }

    fn secret(&self) -> Option<&Secret> {
        Some(&self.secret)
    }
}

impl Extract for BearerToken {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        Ok(self.seal(self.plain(head)?))
    }

    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        Ok(self.take(head)?.into_key())
    }

    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }

    fn is_of_this_process(&self) -> bool {
        self.secret.is_of_the_process()
    }
}

impl KeyOf for BearerToken {
    /// The token alone, without its scheme.
    type Value<'a> = &'a str;

    fn make(&self, token: &str) -> Result<Key, Missing> {
        let token = is_token(token).then_some(token).ok_or(Missing::ByClient)?;
        Ok(self.seal(token.into_key()))
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

combinators!(BearerToken);
map!(BearerToken, &str);
