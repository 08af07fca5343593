use super::Charge;
use crate::decision::Outcomes;
use crate::error::{StoreError, StoreErrorKind};

/// Whether a request may go on, with the numbers of one that may not.
#[derive(Clone, Debug)]
#[must_use = "a request that is denied must not go on"]
#[expect(clippy::large_enum_variant, reason = "a denial must not allocate")]
pub enum Verdict {
    /// Every policy allows it, and has been charged; one that is soft may have been left out.
    Allowed,
    /// A policy denies it, and none has been charged.
    Denied(Outcomes),
}

impl Verdict {
    /// What this answer to these charges means.
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

/// A store's answer to these charges. One that leaves a policy out does not mean that it allows.
#[inline]
pub(crate) fn answered(
    charges: &[Charge],
    mut answer: Result<Outcomes, StoreError>,
) -> Result<Outcomes, StoreError> {
    look_through(charges, &mut answer);
    answer
}

/// The same where it stands, since it is large, and moving it would cost as much as deciding.
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

/// Whether these are the outcomes of these charges. Without its store, a policy may have let everything go on
/// unasked.
#[inline]
fn is_of(outcomes: &Outcomes, charges: &[Charge]) -> bool {
    let mut answered = outcomes.iter().map(|(policy, _)| policy);
    let mut asked = charges.iter().map(|charge| charge.policy);
    if outcomes.is_degraded() {
        return answered.all(|policy| asked.any(|asked| asked == policy));
    }
    answered.eq(asked)
}

/// Marks the outcomes of soft charges, so that a store need not.
pub(super) fn soften(charges: &[Charge], outcomes: &mut Outcomes) {
    if charges.iter().any(Charge::is_soft) {
        outcomes.soften(|policy| {
            let of = |charge: &&Charge| charge.policy == policy;
            charges.iter().find(of).is_some_and(Charge::is_soft)
        });
    }
}
