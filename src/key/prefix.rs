use super::combinators::{combinators, hashed};
use super::{Extract, Head, IntoKey, Key, KeyOf, Missing};

/// A key with a constant part before it: what `prefix` returns.
///
/// It separates values of one source that mean different things, for example in the branches of an
/// [`Or`](super::Or), or for one [`Limiter`](crate::Limiter) that serves several applications. As
/// in [`And`](super::And), the parts cannot run together.
#[derive(Clone, Copy, Debug)]
pub struct Prefix<E> {
    prefix: Key,
    of: E,
}

impl<E> Prefix<E> {
    pub(super) fn new(prefix: Key, of: E) -> Self {
        Self { prefix, of }
    }
}

impl<E: Extract> Extract for Prefix<E> {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        Ok((self.prefix, self.of.extract(head)?).into_key())
    }

    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.of.plain(head)
    }

    fn identity(&self) -> Option<String> {
        self.of.identity()
    }

    fn credential_in_the_clear(&self) -> Option<String> {
        self.of.credential_in_the_clear()
    }

    fn is_of_this_process(&self) -> bool {
        self.of.is_of_this_process()
    }
}

impl<E: KeyOf> KeyOf for Prefix<E> {
    type Value<'a> = E::Value<'a>;

    fn make(&self, value: E::Value<'_>) -> Result<Key, Missing> {
        Ok((self.prefix, self.of.make(value)?).into_key())
    }
}

combinators!(Prefix<E>; E);
hashed!(Prefix<E>; E);
