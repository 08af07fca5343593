use std::any::TypeId;
use std::fmt;

use super::{Extracted, Extractor, Head, Key, Missing, Origin, Read};

/// A closure over the head of the request, as an extractor with the combining methods.
///
/// A bare closure is an extractor too, but has no methods, and its argument has to be annotated.
/// The returned value must not borrow from the request: `IntoKey::into_key` copies without
/// allocating.
///
/// ```
/// use tower_ratelimit::key::{self, IntoKey};
/// use tower_ratelimit::{Policy, TokenBucket};
///
/// let tenant = key::from_fn(|head| head.path().split('/').nth(1).map(IntoKey::into_key));
/// let policy = Policy::new("tenant", TokenBucket::per_second(50)).key(tenant.and(key::client_ip()));
/// ```
pub fn from_fn<F, K>(extract: F) -> Extractor<FromFn<F>>
where
    F: Fn(&Head<'_>) -> K + Send + Sync + 'static,
    K: Extracted,
{
    Extractor::of(FromFn { extract })
}

#[derive(Clone, Copy)]
pub struct FromFn<F> {
    extract: F,
}

impl<F, K> Origin for FromFn<F>
where
    F: Fn(&Head<'_>) -> K + Send + Sync + 'static,
    K: Extracted,
{
    fn identity(&self) -> Option<String> {
        identity_of::<F>()
    }
}

impl<F, K> Read for FromFn<F>
where
    F: Fn(&Head<'_>) -> K + Send + Sync + 'static,
    K: Extracted,
{
    fn read(&self, head: &Head<'_>) -> Result<Key, Missing> {
        (self.extract)(head).extracted()
    }
}

/// Describes a closure. Two of one type that capture nothing return the same result.
pub(super) fn identity_of<F: 'static>() -> Option<String> {
    let captures_nothing = size_of::<F>() == 0;
    captures_nothing.then(|| format!("a closure, {:?}", TypeId::of::<F>()))
}

impl<F> fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FromFn")
    }
}
