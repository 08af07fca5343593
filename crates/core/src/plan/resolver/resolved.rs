use std::sync::Arc;

use crate::plan::plans::Plan;

/// The answer of a source of plans for a key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Resolved {
    /// The plan with this name, among the plans of the layer or the limiter. An unknown name stands for the
    /// default plan, and the log names it once.
    Plan(Arc<str>),
    /// These limits, under the name of a plan that the layer does not know. They come before the limits of
    /// operations and of keys. A policy that they do not mention has the limit that it would have without
    /// them. The log names once a limit that its policy cannot have.
    Limits(Plan),
    /// No plan: the source does not know the key, which has the default plan.
    NotFound,
}

impl Resolved {
    /// Returns the plan with this name: see [`Resolved::Plan`].
    pub fn plan(name: impl Into<Arc<str>>) -> Self {
        Self::Plan(name.into())
    }
}
