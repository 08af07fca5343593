use std::sync::Arc;

use super::layer::{RealCostOf, Rules};
use crate::decision::Outcomes;
use crate::limiter::{Held, RealCost};
use crate::store::Charge;

/// The charges and slots that a request holds until the inner service has answered. Dropping it before that ends the request
/// without an answer.
pub(super) struct Kept<T, E> {
    held: Held,
    cost: Option<Arc<RealCostOf<T, E>>>,
}

impl<T, E> Kept<T, E> {
    /// Holds the charges of this request, if any of them has to be settled.
    pub(super) fn of<Q>(
        rules: &Rules<Q, T, E>,
        charges: &[Charge],
        outcomes: &Outcomes,
    ) -> Option<Box<Self>> {
        if !rules.settles() {
            return None;
        }
        let charges = charges.iter().filter(|charge| charge.is_held);
        Some(Box::new(Self {
            held: Held::of(&rules.limiter, charges, outcomes),
            cost: rules.real_cost.clone(),
        }))
    }

    /// Settles the request at the cost in the answer.
    pub(super) fn settle(mut self, answer: &Result<T, E>) {
        let units = self.cost.as_ref().and_then(|cost| cost(answer.as_ref()));
        let cost = units.map_or(RealCost::Estimate, RealCost::Units);
        self.held.settle(|_| cost);
    }
}
