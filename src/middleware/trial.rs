use super::guard::ResponseGuard;
use crate::decision::Decision;

/// The decision of a gate that does not affect the request.
#[derive(Debug)]
pub(crate) enum Trial {
    /// No policy applies.
    Exempt,
    /// The request is charged. Dropping the guard settles the charges.
    Allowed(Decision, ResponseGuard),
    Denied(Decision),
    /// The request is denied now, and would wait for its turn.
    Waits(Decision),
    /// A list denies it.
    Forbidden,
    /// A policy refuses it, because it has no key.
    NoKey,
    /// There is no answer yet: a resolver looks the customer up, or the store is not in this process.
    Unknown,
}
