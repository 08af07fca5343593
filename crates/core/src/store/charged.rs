//! The answer of a store to a charge, and the checks on it.
//!
//! Every answer is checked here, so that a faulty store of a user cannot let a request pass by leaving a
//! policy out.

use std::fmt;
use std::pin::Pin;

use super::alternatives::are_answered_by_some;
use super::{Charge, Reply};
use crate::decision::{DenialEffect, Outcomes, OwnWindow};
use crate::error::{StoreError, StoreErrorKind};

/// Selects the requests whose numbers the caller needs; see [`Backend::charge`](super::Backend::charge).
// Stores have it, and a user of them does not.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// None: the verdict is enough.
    Verdict,
    /// Denied requests.
    Refusals,
    /// All requests.
    Everything,
}

impl Wanted {
    /// Adds the numbers of denied requests.
    pub(in crate::store) fn with_refusals(self) -> Self {
        match self {
            Self::Verdict => Self::Refusals,
            wanted => wanted,
        }
    }

    /// Returns whether the numbers of an allowed or of a denied request are wanted.
    #[inline]
    pub fn includes(self, allowed: bool) -> bool {
        match self {
            Self::Verdict => false,
            Self::Refusals => !allowed,
            Self::Everything => true,
        }
    }
}

/// The answer to a [charge](super::Backend::charge), now or later.
///
/// Outcomes have room for several policies, and moving them costs as much as the decision. So a store that
/// answers now writes them where the caller needs them.
// Stores have it, and a user of them does not.
#[doc(hidden)]
#[must_use = "a request that is denied must not go on"]
#[non_exhaustive]
pub enum Charged {
    /// Whether the request is allowed. The outcomes are written, if they are [wanted](Wanted).
    Now(Result<bool, StoreError>),
    /// This future returns all outcomes, whatever was wanted.
    Later(Pin<Box<dyn Future<Output = Result<Outcomes, StoreError>> + Send>>),
}

impl Charged {
    /// Makes an answer of outcomes of these charges that were decided elsewhere, and writes them in place.
    pub fn now(
        charges: &[Charge],
        answer: Result<Outcomes, StoreError>,
        outcomes: &mut Outcomes,
    ) -> Self {
        Self::Now(answer.map(|decided| {
            *outcomes = decided;
            mark(charges, outcomes);
            outcomes.is_allowed()
        }))
    }

    /// Makes an answer of outcomes that come now or later, and writes those that come now in place.
    pub fn of(
        charges: &[Charge],
        answer: Reply<Result<Outcomes, StoreError>>,
        outcomes: &mut Outcomes,
    ) -> Self {
        match answer {
            Reply::Now(answer) => Self::now(charges, answer, outcomes),
            Reply::Later(answer) => Self::Later(answer),
        }
    }

    /// Makes an answer from this future.
    pub fn later(
        future: impl Future<Output = Result<Outcomes, StoreError>> + Send + 'static,
    ) -> Self {
        Self::Later(Box::pin(future))
    }

    /// Returns the outcomes by value. `outcomes` are those that [`Backend::charge`](super::Backend::charge) may
    /// have filled in.
    pub fn with(self, outcomes: Outcomes) -> Reply<Result<Outcomes, StoreError>> {
        match self {
            Self::Now(answer) => Reply::Now(answer.map(|_| outcomes)),
            Self::Later(answer) => Reply::Later(answer),
        }
    }
}

impl fmt::Debug for Charged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(answer) => f.debug_tuple("Now").field(answer).finish(),
            Self::Later(_) => f.debug_tuple("Later").finish_non_exhaustive(),
        }
    }
}

/// Checks a store's answer to these charges; see `check`.
///
/// # Errors
///
/// When the store has failed, or has answered about other policies.
#[inline]
pub fn answered(
    charges: &[Charge],
    answer: Result<Outcomes, StoreError>,
) -> Result<Outcomes, StoreError> {
    let mut outcomes = answer?;
    check(charges, &mut outcomes)?;
    Ok(outcomes)
}

/// Checks the outcomes of these charges in place: sorts them, and marks the outcomes of soft charges and of
/// limits that are not the policy's own, so that a store does not have to.
///
/// # Errors
///
/// When a policy is missing: that is an error of the store, not a permission.
#[inline]
pub(crate) fn check(charges: &[Charge], outcomes: &mut Outcomes) -> Result<(), StoreError> {
    let is_complete = outcomes.are_of(charges.iter().map(|charge| charge.policy));
    if is_complete && !charges.iter().any(Charge::marks_its_outcome) {
        return Ok(());
    }
    check_each(charges, outcomes)
}

#[inline(never)]
fn check_each(charges: &[Charge], outcomes: &mut Outcomes) -> Result<(), StoreError> {
    outcomes.put_in_order();
    if !is_of(outcomes, charges) {
        let cause = "it answered about other policies than it was asked about";
        return Err(StoreError::new(StoreErrorKind::Misconfigured).caused_by(cause));
    }
    mark(charges, outcomes);
    Ok(())
}

/// Returns whether these are the outcomes of these charges. A degraded decision may lack policies that allow
/// everything while their store is away.
fn is_of(outcomes: &Outcomes, charges: &[Charge]) -> bool {
    let mut answered = outcomes.iter().map(|(policy, _)| policy);
    let mut policies = charges.iter().map(|charge| charge.policy);
    if outcomes.is_degraded() {
        return answered.all(|policy| policies.any(|of| of == policy));
    }
    answered.eq(policies) || are_answered_by_some(charges, outcomes)
}

/// Marks the outcomes of soft charges, and of limits that are not the policy's own.
pub(super) fn mark(charges: &[Charge], outcomes: &mut Outcomes) {
    for charge in charges.iter().filter(|charge| charge.is_ruled()) {
        let own = charge.limit.map(|_| OwnWindow(charge.window));
        outcomes.ruled_by(charge.policy, charge.rule, own);
    }
    if charges.iter().any(Charge::is_soft) {
        outcomes.set_effects(|policy| {
            let of = |charge: &&Charge| charge.policy == policy;
            charges
                .iter()
                .find(of)
                .map_or(DenialEffect::Full, Charge::effect)
        });
    }
}

/// Returns the error for an override with a limit that the policy's algorithm cannot have.
pub fn cannot_have() -> StoreError {
    let cause = "the policy's algorithm cannot have this limit";
    StoreError::new(StoreErrorKind::Misconfigured).caused_by(cause)
}
