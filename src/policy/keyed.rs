use super::{Http, Policy};

/// What a policy of a [`RateLimitLayer`](crate::RateLimitLayer) reads from a request: only [`Http`], which
/// [`Policy::key`] makes. For a policy without a key, the compiler says what to do:
///
/// ```compile_fail,E0277
/// use tower_ratelimit::{Policy, RateLimitLayer, TokenBucket};
///
/// let unkeyed = Policy::new("address", TokenBucket::per_second(5));
/// let builder = RateLimitLayer::builder().policy(unkeyed);
/// ```
#[diagnostic::on_unimplemented(
    message = "a policy of a layer has to say whom it counts, and this one has no key",
    label = "a policy without a key",
    note = "add one: `Policy::new(…).key(key::client_ip())`"
)]
pub trait Keyed: sealed::Sealed {
    /// Returns the policy as it is.
    // The layer calls it for its policies.
    #[doc(hidden)]
    fn keyed(policy: Policy<Self>) -> Policy<Http>
    where
        Self: Sized;
}

impl Keyed for Http {
    fn keyed(policy: Policy<Self>) -> Policy<Http> {
        policy
    }
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for super::Http {}
}
