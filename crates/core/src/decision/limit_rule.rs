use std::fmt;
use std::sync::Arc;

/// The rule that gave a policy the limit of a request.
///
/// The `Display` form is for operators: `plan pro`, `prefix "partner-"`. It shows keys and prefixes as the
/// configuration has them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimitRule {
    /// The limit with which the policy was declared.
    Policy,
    /// The plan of this name.
    Plan(Arc<str>),
    /// The closure of the policy: see [`Policy::limit_by`](crate::Policy::limit_by).
    Closure,
    /// The entry for this key, among limits by key.
    Key(Arc<str>),
    /// The entry for keys that begin with this text.
    Prefix(Arc<str>),
    /// The entry for all other keys.
    Other,
    /// The entry for this operation.
    Operation(Arc<str>),
    /// The entry for all other operations.
    OtherOperation,
    /// The limit of this interval, among the policy's [hours](crate::Hours). An interval that has a share of the limit
    /// gives none: the rule is that of the limit of which it is a share.
    Hours(Arc<str>),
    /// The limits that a resolver gives, under the name of this plan. The name is empty if the resolver has given
    /// limits under more than 10,000 names before.
    Resolver(Arc<str>),
    /// An override of the key, or this node's share of the limit while the store is away.
    Override,
}

impl fmt::Display for LimitRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy => f.write_str("policy"),
            Self::Plan(name) => write!(f, "plan {name}"),
            Self::Closure => f.write_str("closure"),
            Self::Key(key) => write!(f, "key {key:?}"),
            Self::Prefix(prefix) => write!(f, "prefix {prefix:?}"),
            Self::Other => f.write_str("other keys"),
            Self::Operation(name) => write!(f, "operation {name}"),
            Self::OtherOperation => f.write_str("other operations"),
            Self::Hours(interval) => write!(f, "hours {interval}"),
            Self::Resolver(name) => write!(f, "resolver {name}"),
            Self::Override => f.write_str("override"),
        }
    }
}
