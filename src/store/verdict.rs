use super::Charge;
use crate::decision::Outcomes;
use crate::error::{StoreError, StoreErrorKind};

/// Whether a request may go on, with the numbers of a request that may not.
#[derive(Clone, Debug)]
#[must_use = "a request that is denied must not go on"]
#[expect(clippy::large_enum_variant, reason = "a denial must not allocate")]
pub enum Verdict {
    /// Every policy allows the request, and has been charged. Soft charges that do not fit are left
    /// out.
    Allowed,
    /// A policy denies the request, and none has been charged.
    Denied(Outcomes),
}

impl Verdict {
    /// Makes a verdict from the answer to these charges.
    pub(super) fn of(
        charges: &[Charge],
        answer: Result<Outcomes, StoreError>,
    ) -> Result<Self, StoreError> {
        let outcomes = answered(charges, answer)?;
        if outcomes.is_allowed() {
            return Ok(Self::Allowed);
        }
        Ok(Self::Denied(outcomes))
    }
}

/// Checks the answer of a store to these charges. An answer without one of the policies is an
/// error, not a permission.
#[inline]
pub(crate) fn answered(
    charges: &[Charge],
    mut answer: Result<Outcomes, StoreError>,
) -> Result<Outcomes, StoreError> {
    look_through(charges, &mut answer);
    answer
}

/// As [`answered`], in place: an answer is large, and a move of it costs as much as the decision.
#[inline]
pub(crate) fn look_through(charges: &[Charge], answer: &mut Result<Outcomes, StoreError>) {
    let Ok(outcomes) = answer else {
        return;
    };
    outcomes.put_in_order();
    if is_of(outcomes, charges) {
        soften(charges, outcomes);
    } else {
        let cause = "it answered about other policies than it was asked about";
        let error = StoreError::new(StoreErrorKind::Misconfigured).caused_by(cause);
        *answer = Err(error);
    }
}

/// Whether these are the outcomes of these charges. A degraded decision may lack policies that
/// allow everything while their store is away.
#[inline]
fn is_of(outcomes: &Outcomes, charges: &[Charge]) -> bool {
    let mut answered = outcomes.iter().map(|(policy, _)| policy);
    let mut asked = charges.iter().map(|charge| charge.policy);
    if outcomes.is_degraded() {
        return answered.all(|policy| asked.any(|asked| asked == policy));
    }
    answered.eq(asked)
}

/// Marks the outcomes of soft charges and of limits that are not the policy's own, so that a store does not have to.
pub(super) fn soften(charges: &[Charge], outcomes: &mut Outcomes) {
    for charge in charges {
        if charge.rule > 0 || charge.limit.is_some() {
            let window = charge.limit.map(|_| charge.window);
            outcomes.ruled_by(charge.policy, charge.rule, window);
        }
    }
    if charges.iter().any(Charge::is_soft) {
        outcomes.soften(|policy| {
            let of = |charge: &&Charge| charge.policy == policy;
            charges.iter().find(of).is_some_and(Charge::is_soft)
        });
    }
}
