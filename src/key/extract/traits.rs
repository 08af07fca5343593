//! The trait of key extractors, and the results that closures may return.
//!
//! The errors of the compiler say what to write, since a wrong closure is the most common mistake.

use super::from_fn::identity_of;
use super::{Extracted, Head, Key, Missing};

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
    /// same key for the second. `None` if there is no such text, as for a closure that captures something. One that captures nothing is taken
    /// to be a function of the request alone.
    ///
    /// The layer uses it at build time to find policies that another policy makes pointless.
    fn identity(&self) -> Option<String> {
        None
    }

    /// Describes what this extractor reads for the root of the key, such that extractors with the same text return the same key for the
    /// same request: a prefix and a secret that hashes it count. It is what makes all of the key, except for that of a level of a tree.
    ///
    /// With it, a layer over a Redis Cluster finds out when it is built that the policies of
    /// [`first_of`](crate::middleware::RateLimitLayerBuilder::first_of) are in different slots. Where it is unknown what
    /// two of them read, the layer is refused.
    fn root(&self) -> Option<String> {
        self.identity()
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

    /// Describes what the client chooses of which the key is made, and nothing has verified, such as `header x-tenant`. `None` if a
    /// client cannot invent keys, or if that is unknown, as for a closure over the head.
    ///
    /// With it, a layer warns of [tenants](crate::Policy::fair) that a client can invent, when it is built
    /// ([`TRL041`](crate::diagnostics)).
    fn chosen_by_client(&self) -> Option<String> {
        None
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

impl<F, K> Extract for F
where
    F: Fn(&Head<'_>) -> K + Send + Sync + 'static,
    K: Extracted,
{
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self(head).extracted()
    }

    fn identity(&self) -> Option<String> {
        identity_of::<F>()
    }
}
