use std::fmt;
use std::sync::Arc;

use crate::error::ConfigError;
use crate::key::{Head, is_plain};

/// The lists that decide requests without a policy.
#[derive(Clone, Default)]
pub(super) struct Lists {
    denied: Vec<Arc<Condition>>,
    allowed: Vec<Arc<Condition>>,
    /// Whole paths, without a query.
    exempt_paths: Vec<String>,
}

type Condition = dyn Fn(&Head<'_>) -> bool + Send + Sync;

/// The decision of the lists on a request.
pub(super) enum Listed {
    Denied,
    Allowed,
    Nowhere,
}

impl Lists {
    pub(super) fn deny(&mut self, condition: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) {
        self.denied.push(Arc::new(condition));
    }

    pub(super) fn allow(&mut self, condition: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) {
        self.allowed.push(Arc::new(condition));
    }

    pub(super) fn exempt_path(&mut self, path: String) {
        self.exempt_paths.push(path);
    }

    /// Returns whether all lists are empty.
    pub(super) fn are_empty(&self) -> bool {
        self.denied.is_empty() && self.allowed.is_empty() && self.exempt_paths.is_empty()
    }

    #[cfg(feature = "tonic")]
    pub(super) fn exempt_paths(&self) -> &[String] {
        &self.exempt_paths
    }

    /// Rejects a path that no request can have.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        // Another path is one that some servers take for a third.
        let is_path = |path: &str| is_plain(path) && !path.contains('*');
        match self.exempt_paths.iter().find(|path| !is_path(path)) {
            None => Ok(()),
            Some(path) => {
                let remedy = "give a whole path in its plain form, such as /health; for others there is `allow`";
                Err(ConfigError::quoting("exempt_paths", path, remedy))
            }
        }
    }

    pub(super) fn look_up(&self, head: &Head<'_>) -> Listed {
        let holds = |condition: &Arc<Condition>| condition(head);
        if self.denied.iter().any(holds) {
            return Listed::Denied;
        }
        if self.exempt_paths.iter().any(|path| path == head.path())
            || self.allowed.iter().any(holds)
        {
            return Listed::Allowed;
        }
        Listed::Nowhere
    }
}

impl fmt::Debug for Lists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lists")
            .field("exempt_paths", &self.exempt_paths)
            .finish_non_exhaustive()
    }
}
