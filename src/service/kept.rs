use std::sync::Arc;

use super::layer::{RealCostOf, Rules};
use crate::decision::Outcomes;
use crate::limiter::{Held, RealCost};
use crate::store::{Charge, Ledger};

/// What a request holds until the inner service has answered. One that is dropped before ends without an answer.
pub(super) struct Kept<T, E> {
    held: Held<dyn Ledger>,
    cost: Option<Arc<RealCostOf<T, E>>>,
}

impl<T, E> Kept<T, E> {
    /// Keeps what this request was charged, if anything is to be settled.
    pub(super) fn of<Q>(
        rules: &Rules<Q, T, E>,
        charges: &[Charge],
        outcomes: &Outcomes,
    ) -> Option<Box<Self>> {
        if !rules.settles() {
            return None;
        }
        // A request behind has moved up in a queue, or has not: its places are not settled.
        let charges = charges.iter();
        let charges = charges.filter(|charge| !rules.limiter.is_a_queue(charge.policy));
        Some(Box::new(Self {
            held: Held::of(&rules.limiter, charges, outcomes),
            cost: rules.real_cost.clone(),
        }))
    }

    /// Settles at what the answer tells.
    pub(super) fn settle(mut self, answer: &Result<T, E>) {
        let units = self.cost.as_ref().and_then(|cost| cost(answer.as_ref()));
        let cost = units.map_or(RealCost::Estimate, RealCost::Units);
        self.held.settle(|_| cost);
    }
}
