//! Why a request has no key, and what a closure may return in place of one.

use std::fmt;

use super::{IntoKey, Key};
use crate::diagnostics::Diagnostic;

/// Why a request has no key.
///
/// The policy's [`OnMissingKey`][OnMissingKey] can change what happens to such requests.
///
/// [OnMissingKey]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/policy/enum.OnMissingKey.html
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// The client left it out. All such requests share one quota.
    ByClient,
    /// The server is not set up to provide it. The answer is `500 Internal Server Error`, and the
    /// diagnostic is logged once per process.
    ByServer(Diagnostic),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByClient => f.write_str("the client has left the key out"),
            Self::ByServer(diagnostic) => diagnostic.fmt(f),
        }
    }
}

impl std::error::Error for Missing {}

/// A type that a closure may return as a key.
///
/// It is implemented for every [`IntoKey`] type, for an `Option` of one (`None` is
/// [`Missing::ByClient`]), and for `Result<_, Missing>`. Any other type gets an error with the
/// remedy:
///
/// ```compile_fail,E0277
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::key::Extracted;
///
/// struct User {
///     id: u64,
/// }
///
/// let key = Extracted::extracted(User { id: 7 });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be used as a rate limit key",
    label = "not a key",
    note = "return text, bytes, a whole number, an address, a pair of these, or an `Option` of one; of a struct, return the field that tells clients apart, such as `user.id`",
    note = "or implement `tower_ratelimit::key::IntoKey` for it"
)]
pub trait Extracted {
    /// Returns the key, or the reason why there is none.
    ///
    /// # Errors
    ///
    /// The reason why there is no key.
    fn extracted(self) -> Result<Key, Missing>;
}

impl<K: IntoKey> Extracted for K {
    fn extracted(self) -> Result<Key, Missing> {
        Ok(self.into_key())
    }
}

impl<K: IntoKey> Extracted for Option<K> {
    fn extracted(self) -> Result<Key, Missing> {
        self.map(IntoKey::into_key).ok_or(Missing::ByClient)
    }
}

impl<K: IntoKey> Extracted for Result<K, Missing> {
    fn extracted(self) -> Result<Key, Missing> {
        self.map(IntoKey::into_key)
    }
}
