//! The trait of key extractors, and the results that closures may return.
//!
//! The errors of the compiler say what to write, since a wrong closure is the most common mistake.

use std::fmt;

use super::{Head, IntoKey, Key};
use crate::diagnostics::Diagnostic;

/// Takes the key from the head of a request.
///
/// The functions of [`key`](crate::key) return extractors, and closures over [`Head`] are
/// extractors. The argument of a closure has to be annotated (except in
/// [`from_fn`](super::from_fn())), and its result must not borrow from the request.
/// `IntoKey::into_key` copies without allocating:
///
/// ```
/// use tower_ratelimit::key::{Head, IntoKey};
/// use tower_ratelimit::{Policy, TokenBucket};
///
/// let policy = Policy::new("tenant", TokenBucket::per_second(50))
///     .key(|head: &Head<'_>| head.header("x-tenant").map(IntoKey::into_key));
/// ```
///
/// Without the annotation the compiler reports "type annotations needed" (E0282) or "implementation
/// of `FnOnce` is not general enough". With a borrowed result it reports "lifetime may not live
/// long enough". A type that is no extractor gets an error with the remedy:
///
/// ```compile_fail,E0277
/// # use tower_ratelimit::{Policy, TokenBucket};
/// let policy = Policy::new("tenant", TokenBucket::per_second(50)).key("x-tenant");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not take a rate limit key from a request",
    label = "not a key extractor",
    note = "use one of the functions of `tower_ratelimit::key`, such as `key::client_ip()`",
    note = "or a closure with an annotated argument: `|head: &Head<'_>| head.header(\"x-tenant\").map(IntoKey::into_key)`",
    note = "of an extension that is no key by itself, take what tells clients apart: `key::extension::<User>().map(|user: &User| user.id)`"
)]
pub trait Extract: Send + Sync + 'static {
    /// Returns the key, or the reason why there is none.
    ///
    /// # Errors
    ///
    /// [`Missing::ByClient`] when the client has left it out; [`Missing::ByServer`] when the server
    /// is not set up to provide it.
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing>;

    /// Describes what this extractor reads.
    ///
    /// If two extractors return the same text, requests with the same key for the first have the
    /// same key for the second. `None` if there is no such text, as for a closure.
    ///
    /// The layer uses it at build time to find policies that another policy makes pointless.
    fn identity(&self) -> Option<String> {
        None
    }

    /// Returns the credential that is in the key as the client has sent it, such as `header authorization`.
    /// `None` if there is none, or if that is unknown, as for a closure.
    ///
    /// With it, a layer over a shared store warns of it when it is built ([`TRL015`](crate::diagnostics));
    /// otherwise it checks the first requests.
    fn credential_in_the_clear(&self) -> Option<String> {
        None
    }

    /// Returns whether the key is hashed with [`Secret::of_the_process`](super::Secret::of_the_process), so
    /// that no other process makes the same key of the same request.
    ///
    /// If so, a layer over a shared store warns of it when it is built ([`TRL013`](crate::diagnostics)).
    fn is_of_this_process(&self) -> bool {
        false
    }

    /// Returns the key that lists compare: what is read from the request, before a hash, a prefix or a source
    /// is added. By default it is the key itself.
    ///
    /// # Errors
    ///
    /// See [`extract`](Extract::extract).
    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.extract(head)
    }
}

/// Why a request has no key.
///
/// The policy's [`NoKey`](crate::policy::NoKey) can change what happens to such requests.
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
/// # use tower_ratelimit::{Policy, TokenBucket, key};
/// #[derive(Clone)]
/// struct User {
///     id: u64,
/// }
///
/// let user = key::extension::<User>().map(|user: &User| user.clone());
/// let policy = Policy::new("user", TokenBucket::per_second(5)).key(user);
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

impl<F, K> Extract for F
where
    F: Fn(&Head<'_>) -> K + Send + Sync + 'static,
    K: Extracted,
{
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self(head).extracted()
    }
}
