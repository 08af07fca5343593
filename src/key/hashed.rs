use super::combinators::combinators;
use super::{Extract, Head, Key, Missing, Secret};

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
}

combinators!(Hashed<E>; E);
