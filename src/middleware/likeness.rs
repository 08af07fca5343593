use super::gate::{Gate, NoKeyRefusal, Reading};
use crate::algorithm::Algorithm;
use crate::key::{Head, Key};
use crate::limiter::{Likeness, Purpose, Reads};
use crate::plan::{Finding, LimitContext, Limits, PlanLookup};
use crate::policy::{Demand, NoDemand};

/// A request at another cost. A policy for which it has no key leaves it out.
struct AtCost<'a> {
    reading: Reading<'a>,
    cost: u32,
}

impl Reads for AtCost<'_> {
    type Refusal = NoKeyRefusal;

    fn demand(&self) -> Result<Demand, NoDemand<NoKeyRefusal>> {
        let demand = self.reading.reader.demand(self.reading.head, None, |_| {});
        match demand {
            Ok(demand) if demand.key != Key::MISSING => Ok(Demand {
                cost: self.cost,
                is_estimate: false,
                ..demand
            }),
            Ok(_) | Err(NoDemand::Refused(_)) => Err(NoDemand::NoKey),
            why => why,
        }
    }

    fn context(&self, policy: usize, limits: &Limits) -> LimitContext {
        self.reading.context(policy, limits)
    }

    fn finding(&self) -> Option<&Finding> {
        self.reading.finding
    }

    fn plain_key(&self) -> Option<Key> {
        self.reading.plain_key()
    }

    fn limit(&self) -> Option<Algorithm> {
        self.reading.limit()
    }
}

impl Gate {
    /// Returns what a request with this head is charged at this cost, whatever the lists and the modes of policies say
    /// of it. A policy for which it has no key is left out. Nothing is counted.
    pub(super) fn like(&self, head: &Head<'_>, cost: u32) -> Likeness {
        let finding = self.look_up(head).map(PlanLookup::now);
        let readings = self.readings(head, finding.as_ref());
        let readings = readings.map(|(policy, reading)| (policy, AtCost { reading, cost }));
        let charges = self
            .limiter()
            .charges_for(readings, Purpose::Amend, &mut ());
        Likeness::new(self.limiter(), charges.unwrap_or_default())
    }
}
