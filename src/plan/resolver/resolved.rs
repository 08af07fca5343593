use std::sync::Arc;

use crate::plan::plans::Plan;

/// What a source of plans has for a key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Resolved {
    /// The plan of this name, among the plans of the layer or the limiter. A name that is not among them is the default
    /// plan, and the log names it once.
    Plan(Arc<str>),
    /// These limits, under the name of a plan that the layer does not know. They come before the limits of operations
    /// and of keys. A policy of which they do not speak has the limit that it would have without them. The log names
    /// a limit once that its policy cannot have.
    Limits(Plan),
    /// The source does not know the key: it has the default plan.
    NotFound,
}

impl Resolved {
    /// The plan of this name: see [`Resolved::Plan`].
    pub fn plan(name: impl Into<Arc<str>>) -> Self {
        Self::Plan(name.into())
    }
}
