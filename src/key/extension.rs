use std::any::{TypeId, type_name};
use std::fmt;
use std::marker::PhantomData;

use super::combinators::{combinators, hashed, map};
use super::take::Take;
use super::{Extract, Head, IntoKey, Key, KeyOf, Missing};
use crate::diagnostics::Diagnostic;

/// A value that a layer outside has put into the request's extensions, such as the identity
/// that authentication has verified.
///
/// If it is not there, requests are answered with `500 Internal Server Error`, and the log says so
/// once (`TRL002`): as a rule the layers are in the wrong order. Where some requests have it and
/// others do not, say to which the policy applies
/// (`.when(|head| head.extension::<User>().is_some())`), or what counts instead, behind
/// [`optional`](Extension::optional).
///
/// Of a type of yours, [`map`](Extension::map) takes what tells clients apart; a type that is
/// [`IntoKey`] is a key by itself.
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
pub fn extension<T: Clone + Send + Sync + 'static>() -> Extension<T> {
    Extension {
        of: PhantomData,
        is_optional: false,
    }
}

/// The extractor that [`extension`] returns.
pub struct Extension<T> {
    // `fn() -> T`, so that the extractor is `Send` and `Sync` whatever `T` is.
    of: PhantomData<fn() -> T>,
    is_optional: bool,
}

impl<T> Extension<T> {
    /// Takes a request without the extension for one whose client has left it out, such as a
    /// visitor who has not logged in. All of these share one quota, or another key is theirs by
    /// `or`:
    ///
    /// ```
    /// use tower_ratelimit::key;
    /// use tower_ratelimit::{Policy, TokenBucket};
    ///
    /// let user = key::extension::<String>().optional();
    /// let policy = Policy::new("caller", TokenBucket::per_second(5)).key(user.or(key::client_ip()));
    /// ```
    ///
    /// That the layers are in the wrong order is then not noticed.
    pub fn optional(self) -> Self {
        Self {
            is_optional: true,
            ..self
        }
    }
}

impl<T: Clone + Send + Sync + 'static> Take for Extension<T> {
    type Out<'a> = &'a T;

    fn take<'a>(&self, head: &Head<'a>) -> Result<&'a T, Missing> {
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

    fn reads(&self) -> Option<String> {
        // Two types may have one name.
        Some(format!("{self:?} {:?}", TypeId::of::<T>()))
    }
}

impl<T: IntoKey + Clone + Send + Sync + 'static> Extract for Extension<T> {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        Ok(self.take(head)?.clone().into_key())
    }

    fn identity(&self) -> Option<String> {
        self.reads()
    }
}

impl<T: IntoKey + Clone + Send + Sync + 'static> KeyOf for Extension<T> {
    type Value<'a> = &'a T;

    fn make(&self, value: &T) -> Result<Key, Missing> {
        Ok(value.clone().into_key())
    }
}

impl<T> Copy for Extension<T> {}

impl<T> Clone for Extension<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> fmt::Debug for Extension<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extension<{}>", type_name::<T>())
    }
}

combinators!(Extension<T>; T: Clone + Send + Sync + 'static);
hashed!(Extension<T>; T: Clone + Send + Sync + 'static);
map!(Extension<T>, &T; T: Clone + Send + Sync + 'static);
