use std::fmt;
use std::sync::Arc;

use super::{And, Extract, Hashed, Head, Key, Missing, Or, Secret};

/// An extractor whose type is known only at run time, as in a configuration file.
#[derive(Clone)]
pub(crate) struct AnyKey {
    extract: Arc<dyn Extract>,
}

impl AnyKey {
    pub(crate) fn new(extract: impl Extract) -> Self {
        Self {
            extract: Arc::new(extract),
        }
    }

    /// Combines this key and the other one into one key.
    pub(crate) fn and(self, other: Self) -> Self {
        Self::new(And::new(self, other))
    }

    /// Returns this key, or the other one if the client has left this one out.
    pub(crate) fn or(self, other: Self) -> Self {
        Self::new(Or::new(self, other))
    }

    /// Replaces the key by 128 bits of a keyed hash.
    pub(crate) fn hashed(self, secret: &Secret) -> Self {
        Self::new(Hashed::new(secret.clone(), self))
    }
}

impl Extract for AnyKey {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.extract.extract(head)
    }

    fn identity(&self) -> Option<String> {
        self.extract.identity()
    }

    fn credential_in_the_clear(&self) -> Option<String> {
        self.extract.credential_in_the_clear()
    }

    fn is_of_this_process(&self) -> bool {
        self.extract.is_of_this_process()
    }

    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.extract.plain(head)
    }
}

impl fmt::Debug for AnyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyKey")
    }
}
