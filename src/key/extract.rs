use std::fmt;

use super::{Head, IntoKey, Key};
use crate::diagnostics::Diagnostic;

/// Takes the key from a request's head.
///
/// The functions of [`key`](crate::key) return extractors, and closures over [`Head`] are
/// extractors. A closure's argument has to be annotated (in [`from_fn`](super::from_fn()) it need
/// not be), and what it returns must not borrow from the request; `IntoKey::into_key` copies
/// without allocating:
///
/// ```
/// use tower_ratelimit::key::{Head, IntoKey};
/// use tower_ratelimit::{Policy, TokenBucket};
///
/// let policy = Policy::new("tenant", TokenBucket::per_second(50))
///     .key(|head: &Head<'_>| head.header("x-tenant").map(IntoKey::into_key));
/// ```
///
/// Without the annotation the compiler says "type annotations needed" (E0282) or
/// "implementation of `FnOnce` is not general enough"; with a borrowed result it says "lifetime
/// may not live long enough". What is no extractor at all is answered with what to do instead:
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
    /// The key, or why there is none.
    ///
    /// # Errors
    ///
    /// [`Missing::ByClient`] when the client left it out; [`Missing::ByServer`] when the server
    /// is not set up to provide it.
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing>;

    /// What this extractor reads, as a text that two extractors have in common only if requests
    /// that have one key for the first have one for the second. `None`, as of a closure, if there
    /// is no such text.
    ///
    /// With it, a policy that another makes pointless is found when a layer is built.
    fn identity(&self) -> Option<String> {
        None
    }

    /// The credential that stands in the key as the client has sent it, such as
    /// `header authorization`. `None` if none does, or if that is not known, as of a closure.
    ///
    /// With it, a layer over a store that is shared warns of it when it is built
    /// ([`TRL015`](crate::diagnostics)), and without it looks through the first requests.
    fn credential_in_the_clear(&self) -> Option<String> {
        None
    }

    /// Whether the key is hashed with [`Secret::of_the_process`](super::Secret::of_the_process), so
    /// that no other process makes the same key of the same request.
    ///
    /// With it, a layer over a store that is shared warns of it when it is built
    /// ([`TRL013`](crate::diagnostics)).
    fn is_of_this_process(&self) -> bool {
        false
    }

    /// What is read of the request, before it is hashed, has a prefix, or says which source it is
    /// of: what lists are compared with. It is the key itself unless said.
    ///
    /// # Errors
    ///
    /// As [`extract`](Extract::extract).
    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.extract(head)
    }
}

/// Why a request has no key. What then becomes of it is as said here, unless the policy's
/// [`NoKey`](crate::policy::NoKey) says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// The client left it out. All who do so share one quota.
    ByClient,
    /// The server is not set up to provide it. The request is answered with
    /// `500 Internal Server Error`, and the diagnostic is logged, once per process.
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

/// What a closure may return in place of a key.
///
/// Implemented for everything that is [`IntoKey`], for an `Option` of it, where `None` is
/// [`Missing::ByClient`], and for `Result<_, Missing>`. What cannot be a key is answered with what
/// to do instead:
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
    /// The key, or why there is none.
    ///
    /// # Errors
    ///
    /// Why there is none.
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
