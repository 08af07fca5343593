use super::gate::Gate;
use crate::key::Head;
use crate::limiter::Charges;
use crate::plan::{LimitContext, PlanLookup};
use crate::store::Charge;

impl Gate {
    /// Returns the charges of a request with this head at this cost, whatever the lists say of it. A policy
    /// for which it has no key is left out. Nothing is counted.
    pub(super) fn charges_like(&self, head: &Head<'_>, cost: u32) -> Charges {
        let finding = self.known_of(head);
        let plan = self.plan(head, finding.as_ref());
        let mut charges = Charges::new();
        for (policy, reader) in self.readers() {
            let Some(key) = reader
                .key(head)
                .ok()
                .filter(|_| reader.applies(head) && reader.is_limited())
            else {
                continue;
            };
            let mut charge = Charge::new(*policy, key, cost);
            charge.is_soft = reader.is_soft();
            let is_counted = self.limiter().limits().is_none_or(|limits| {
                let operations = limits.limits().operations(*policy);
                let operation =
                    operations.and_then(|operations| reader.operation(head, operations));
                let asker = LimitContext {
                    plan,
                    operation,
                    ..LimitContext::default()
                };
                let unhashed = || reader.plain_key(head);
                let finding = finding.as_ref();
                limits.apply(&mut charge, asker, finding, &unhashed, &|| {
                    reader.limit(head)
                })
            });
            if is_counted {
                self.limiter().price(&mut charge, || reader.class(head));
                charges.push(charge);
            }
        }
        charges
    }

    fn known_of(&self, head: &Head<'_>) -> Option<crate::plan::Finding> {
        self.look_up(head).map(PlanLookup::now)
    }
}
