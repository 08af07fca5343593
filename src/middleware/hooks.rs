use std::fmt;
use std::sync::Arc;

use crate::decision::Decision;
use crate::key::{Head, Key};

/// The receivers of decisions beside the client.
#[derive(Clone, Default)]
pub(super) struct Hooks {
    pub(super) on_decision: Option<Arc<OnDecision>>,
    /// Whether responses have the decision in their extensions.
    pub(super) in_response: bool,
}

pub(super) type OnDecision = dyn Fn(&Head<'_>, Key, &Decision) + Send + Sync;

impl Hooks {
    pub(super) fn are_any(&self) -> bool {
        self.on_decision.is_some() || self.in_response
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("in_response", &self.in_response)
            .finish_non_exhaustive()
    }
}
