use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use super::{Extract, Head, IntoKey, Key, Missing};
use crate::diagnostics::Diagnostic;

/// A value that a layer outside has put into the request's extensions, such as the identity
/// that authentication has verified.
///
/// If it is not there, requests are answered with `500 Internal Server Error`, and the log says so
/// once (`TRL002`): as a rule the layers are in the wrong order. Where some requests have it and
/// others do not, say to which the policy applies:
/// `.when(|head| head.extension::<UserId>().is_some())`.
///
/// ```
/// use tower_ratelimit::key::{self, IntoKey, Key};
/// use tower_ratelimit::{Policy, TokenBucket};
///
/// #[derive(Clone)]
/// struct UserId(u64);
///
/// impl IntoKey for UserId {
///     fn into_key(self) -> Key {
///         self.0.into_key()
///     }
/// }
///
/// let policy = Policy::new("user", TokenBucket::per_second(5)).key(key::extension::<UserId>());
/// ```
pub fn extension<T: IntoKey + Clone + Send + Sync + 'static>() -> Extension<T> {
    Extension { of: PhantomData }
}

/// The extractor that [`extension`] returns.
pub struct Extension<T> {
    // `fn() -> T`, so that the extractor is `Send` and `Sync` whatever `T` is.
    of: PhantomData<fn() -> T>,
}

impl<T: IntoKey + Clone + Send + Sync + 'static> Extract for Extension<T> {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        match head.extension::<T>() {
            Some(value) => Ok(value.clone().into_key()),
            None => Err(Missing::ByServer(Diagnostic::new(
                "TRL002",
                type_name::<T>(),
                "the request has no extension of this type, so clients cannot be told apart",
                "put it there in a layer outside this one (a router's last `.layer` is its outermost), or say to which requests the policy applies with `.when(..)`",
            ))),
        }
    }

    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}

impl<T> Clone for Extension<T> {
    fn clone(&self) -> Self {
        Self { of: PhantomData }
    }
}

impl<T> fmt::Debug for Extension<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extension<{}>", type_name::<T>())
    }
}
