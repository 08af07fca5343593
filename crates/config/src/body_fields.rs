//! The fields of bodies that the policies of a file read.

use std::sync::Arc;

use super::functions::Condition;

/// A field of a body that a file reads.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) path: String,
    pub(super) is: FieldOf,
}

/// What a field decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldOf {
    /// A key, or an operation.
    Text,
    Cost,
    /// It has a default for bodies that cannot be read.
    Estimate,
    /// The name of a tool, which headers repeat.
    McpName,
}

/// What a policy reads of a body.
#[derive(Clone, Default)]
pub(super) struct OfPolicy {
    /// `None` for what is read whatever policies apply.
    pub(super) name: Option<String>,
    pub(super) when: Option<Arc<Condition>>,
    pub(super) fields: Vec<Field>,
    /// Whether it estimates by the whole body.
    pub(super) estimates: bool,
    /// Whether it asks for the usage of streams.
    pub(super) includes_usage: bool,
    /// Whether it is of a file in shadow, which refuses no request.
    pub(super) is_shadow: bool,
}

impl OfPolicy {
    pub(super) fn reads_nothing(&self) -> bool {
        self.fields.is_empty() && !self.estimates && !self.includes_usage
    }

    /// Returns whether a request is refused whose body cannot be read, if the file does not say otherwise.
    pub(super) fn refuses(&self) -> bool {
        !self.is_shadow
            && self
                .fields
                .iter()
                .any(|field| field.is != FieldOf::Estimate)
    }
}
