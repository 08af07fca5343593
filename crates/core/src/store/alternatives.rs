//! The answers to groups of charges of which one is made.

use super::Charge;
use crate::decision::Outcomes;

/// Returns whether these are outcomes of these charges, of which some are one of several: one of each group, and one of each charge that
/// is always made.
#[cold]
pub(super) fn are_answered_by_some(charges: &[Charge], outcomes: &Outcomes) -> bool {
    if charges.iter().all(|charge| charge.alternative.is_none()) {
        return false;
    }
    let is_asked = |policy| charges.iter().any(|charge| charge.policy == policy);
    let is_answered = |charge: &&Charge| outcomes.iter().any(|(it, _)| it == charge.policy);
    let is_told = |charge: &Charge| {
        let Some(mine) = charge.alternative else {
            return is_answered(&charge);
        };
        let is_of_group = |other: &&Charge| {
            let group = other.alternative.map(|it| it.group);
            group == Some(mine.group)
        };
        let group = charges.iter().filter(is_of_group);
        let told = group.filter(is_answered).count();
        told == 1 || told == 0 && mine.is_optional
    };
    outcomes.iter().all(|(policy, _)| is_asked(policy)) && charges.iter().all(is_told)
}
