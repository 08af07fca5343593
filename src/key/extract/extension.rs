use std::any::{TypeId, type_name};
use std::fmt;
use std::marker::PhantomData;

use crate::diagnostics::Diagnostic;

use super::{Extractor, Head, IntoKey, Key, Keyed, Missing, Origin, Typed};

/// A value that an outer layer has put into the extensions of the request, such as the identity that
/// authentication has verified.
///
/// If it is absent, the answer is `500 Internal Server Error`, and the log says so once (`TRL002`):
/// the layers are usually in the wrong order. If only some requests have the extension, either
///
/// - state to which requests the policy applies
///   (`.when(|head| head.extension::<User>().is_some())`), or
/// - declare it [`optional`](Extractor::optional), and give the other requests another key.
///
/// For a type of your own, [`map`](Extractor::map) takes the part that identifies the client. A
/// type that is [`IntoKey`] is a key by itself.
///
/// ```
/// use tower_ratelimit::key;
/// use tower_ratelimit::{Policy, TokenBucket};
///
/// #[derive(Clone)]
/// struct User {
///     id: u64,
/// }
///
/// let policy = Policy::new("user", TokenBucket::per_second(5))
///     .key(key::extension::<User>().map(|user: &User| user.id));
/// ```
pub fn extension<T: Clone + Send + Sync + 'static>() -> Extractor<Extension<T>> {
    Extractor::of(Extension {
        of: PhantomData,
        is_optional: false,
    })
}

pub struct Extension<T> {
    // `fn() -> T` makes the extractor `Send` and `Sync` for every `T`.
    of: PhantomData<fn() -> T>,
    is_optional: bool,
}

impl<T> Extractor<Extension<T>> {
    /// Treats a request without the extension as one whose client has left it out, such as a
    /// visitor who is not logged in. All such requests share one quota, or `or` gives them another
    /// key:
    ///
    /// ```
    /// use tower_ratelimit::key;
    /// use tower_ratelimit::{Policy, TokenBucket};
    ///
    /// let user = key::extension::<String>().optional();
    /// let policy = Policy::new("caller", TokenBucket::per_second(5)).key(user.or(key::client_ip()));
    /// ```
    ///
    /// Layers in the wrong order are then not reported.
    pub fn optional(mut self) -> Self {
        self.source.is_optional = true;
        self
    }
}

impl<T: Clone + Send + Sync + 'static> Origin for Extension<T> {
    fn identity(&self) -> Option<String> {
        // The type id is part of the text because two types may have the same name.
        Some(format!("{self:?} {:?}", TypeId::of::<T>()))
    }
}

impl<T: Clone + Send + Sync + 'static> Typed for Extension<T> {
    type Value<'a> = &'a T;

    fn value<'a>(&self, head: &Head<'a>) -> Result<&'a T, Missing> {
        match head.extension::<T>() {
            Some(value) => Ok(value),
            None if self.is_optional => Err(Missing::ByClient),
            None => Err(Missing::ByServer(Diagnostic::new(
                "TRL002",
                type_name::<T>(),
                "the request has no extension of this type, so clients cannot be told apart",
                "put it there in a layer outside this one (a router's last `.layer` is its outermost), or say that some requests have none: `key::extension::<T>().optional()`",
            ))),
        }
    }
}

impl<T: IntoKey + Clone + Send + Sync + 'static> Keyed for Extension<T> {
    fn key(&self, value: &T) -> Result<Key, Missing> {
        Ok(value.clone().into_key())
    }
}

impl<T> Clone for Extension<T> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<T> fmt::Debug for Extension<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extension<{}>", type_name::<T>())
    }
}
