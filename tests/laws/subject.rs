use std::sync::Arc;

use tower_ratelimit::Algorithm;

use crate::support::driver::{Seen, micros};
use crate::support::model::{Model, Rule};

/// The code under test, and the rule that it must follow.
pub(crate) struct Subject {
    pub(crate) algorithm: Algorithm,
    pub(crate) rule: Arc<dyn Rule>,
}

impl Subject {
    pub(crate) fn new(algorithm: impl Into<Algorithm>, rule: impl Rule + 'static) -> Self {
        Self {
            algorithm: algorithm.into(),
            rule: Arc::new(rule),
        }
    }

    /// Returns whether no wait exceeds the longest wait of the algorithm.
    pub(crate) fn is_within_the_longest_wait(&self, seen: &Seen) -> bool {
        let longest = self.algorithm.longest_wait().map_or(0, micros);
        seen.reset_after <= longest && seen.retry_after.unwrap_or(0) <= longest
    }

    pub(crate) fn model(&self) -> Model {
        Model::new(Arc::clone(&self.rule))
    }
}
