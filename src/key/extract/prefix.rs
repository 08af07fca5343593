use super::{Extract, Head, IntoKey, Key, KeyOf, Missing, Origin, Read};

/// A key with a constant part before it.
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

impl<E: Extract> Origin for Prefix<E> {
    fn identity(&self) -> Option<String> {
        self.of.identity()
    }

    fn root(&self) -> Option<String> {
        Some(format!("{:?} before {}", self.prefix, self.of.root()?))
    }

    fn credential(&self) -> Option<String> {
        self.of.credential_in_the_clear()
    }

    fn is_of_this_process(&self) -> bool {
        self.of.is_of_this_process()
    }

    fn chosen(&self) -> Option<String> {
        self.of.chosen_by_client()
    }
}

impl<E: Extract> Read for Prefix<E> {
    fn read(&self, head: &Head<'_>) -> Result<Key, Missing> {
        Ok((self.prefix, self.of.extract(head)?).into_key())
    }

    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.of.plain(head)
    }
}

impl<E: KeyOf> KeyOf for Prefix<E> {
    type Value<'a> = E::Value<'a>;

    fn make(&self, value: E::Value<'_>) -> Result<Key, Missing> {
        Ok((self.prefix, self.of.make(value)?).into_key())
    }
}
