use super::ending::Kept;
use crate::decision::Decision;

/// What a gate decides on a request that does not feel it.
#[derive(Debug)]
pub(crate) enum Trial {
    /// No policy is asked.
    Exempt,
    /// The charges stand, and this settles them when it is dropped.
    Allowed(Decision, Kept),
    Denied(Decision),
    /// It is denied now, and would wait for its turn.
    Waits(Decision),
    /// A list denies it.
    Forbidden,
    /// A policy refuses it, because it has no key.
    NoKey,
    /// The answer is not there yet: a resolver looks the customer up, or the store is not in this process.
    Unknown,
}
