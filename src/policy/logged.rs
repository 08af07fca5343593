//! The key and the plan of a request that is replayed from a log.

use std::sync::Arc;

use crate::key::{Extract, Head, Key, Missing};

/// Part of the extensions of the request.
#[derive(Clone, Debug, Default)]
pub struct Logged {
    /// Replaces a key that the request does not show.
    pub key: Option<Key>,
    /// Replaces the cost.
    pub cost: Option<u32>,
    /// Replaces the plan.
    pub plan: Option<Arc<str>>,
}

/// Extracts a key, or takes that of the log.
pub(super) struct OrLogged(Arc<dyn Extract>);

impl OrLogged {
    pub(super) fn of(key: &Arc<dyn Extract>) -> Arc<dyn Extract> {
        Arc::new(Self(Arc::clone(key)))
    }

    fn or_logged(head: &Head<'_>, key: Result<Key, Missing>) -> Result<Key, Missing> {
        key.or_else(|missing| {
            let logged = head.extension::<Logged>();
            logged.and_then(|logged| logged.key).ok_or(missing)
        })
    }
}

impl Extract for OrLogged {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        Self::or_logged(head, self.0.extract(head))
    }

    fn identity(&self) -> Option<String> {
        self.0.identity()
    }

    fn root(&self) -> Option<String> {
        self.0.root()
    }

    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        Self::or_logged(head, self.0.plain(head))
    }
}
