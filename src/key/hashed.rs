use super::combinators::combinators;
use super::{Extract, Head, Key, KeyOf, Missing, Secret};

/// 128 bits of a keyed hash in place of a key: what `hashed` returns.
#[derive(Clone, Debug)]
pub struct Hashed<E> {
    secret: Secret,
    of: E,
}

impl<E> Hashed<E> {
    pub(super) fn new(secret: Secret, of: E) -> Self {
        Self { secret, of }
    }
}

impl<E: Extract> Extract for Hashed<E> {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        Ok(self.secret.hash(self.of.extract(head)?))
    }

    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.of.plain(head)
    }

    fn identity(&self) -> Option<String> {
        self.of.identity()
    }

    fn is_of_this_process(&self) -> bool {
        self.secret.is_of_the_process() || self.of.is_of_this_process()
    }
}

impl<E: KeyOf> KeyOf for Hashed<E> {
    type Value<'a> = E::Value<'a>;

    fn make(&self, value: E::Value<'_>) -> Result<Key, Missing> {
        Ok(self.secret.hash(self.of.make(value)?))
    }
}

combinators!(Hashed<E>; E);
