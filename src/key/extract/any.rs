use std::fmt;
use std::sync::Arc;

use super::{Extract, Extractor, Head, Key, Missing, Origin, Read};

/// An extractor whose type is known only at run time, as in a configuration file.
pub type AnyKey = Extractor<Erased>;

/// What it extracts by.
#[derive(Clone)]
pub struct Erased(Arc<dyn Extract>);

impl AnyKey {
    /// Creates it of any other.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn new(extract: impl Extract) -> Self {
        Self::of(Erased(Arc::new(extract)))
    }
}

impl Origin for Erased {
    fn identity(&self) -> Option<String> {
        self.0.identity()
    }

    fn root(&self) -> Option<String> {
        Some(root_of(&self.0))
    }

    fn credential(&self) -> Option<String> {
        self.0.credential_in_the_clear()
    }

    fn is_of_this_process(&self) -> bool {
        self.0.is_of_this_process()
    }

    fn chosen(&self) -> Option<String> {
        self.0.chosen_by_client()
    }
}

impl Read for Erased {
    fn read(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.0.extract(head)
    }

    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.0.plain(head)
    }
}

/// Describes what this extractor reads for the root of the key: if that is unknown, each extractor is one of its own.
pub(crate) fn root_of(of: &Arc<dyn Extract>) -> String {
    let root = of.root();
    root.unwrap_or_else(|| format!("what is at {:p}", Arc::as_ptr(of)))
}

impl fmt::Debug for Erased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyKey")
    }
}
