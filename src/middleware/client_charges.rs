//! A request like one of a client, for who asks about another key, or about the keys of the client at another cost.

use tower_ratelimit_core::__internal::{
    ClientCharges, Demand, Finding, LimitContext, Limits, NoDemand, Purpose, Reads,
};

use super::enforcer::{Enforcer, NoKeyRefusal, Reading};
use crate::algorithm::Algorithm;
use crate::key::{Head, Key};
use crate::store::Charges;

/// A request with another key or cost.
pub(super) struct Supposed<'a> {
    pub(super) reading: Reading<'a>,
    pub(super) key: Option<Key>,
    /// With a cost, a policy for which the request has no key leaves it out.
    pub(super) cost: Option<u32>,
}

impl Reads for Supposed<'_> {
    type Refusal = NoKeyRefusal;

    fn demand(&self) -> Result<Demand, NoDemand<NoKeyRefusal>> {
        let Reading { reader, head, .. } = self.reading;
        let demand = reader.demand(head, self.key, |_| {});
        match (self.cost, demand) {
            (None, demand) => demand,
            (Some(cost), Ok(demand)) if !demand.key.is_missing() => Ok(Demand {
                cost,
                is_estimate: false,
                ..demand
            }),
            (Some(_), Ok(_) | Err(NoDemand::Refused(_))) => Err(NoDemand::MissingKey),
            (Some(_), why) => why,
        }
    }

    fn context(&self, policy: usize, limits: &Limits) -> LimitContext {
        self.reading.context(policy, limits)
    }

    fn finding(&self) -> Option<&Finding> {
        self.reading.finding
    }

    fn is_whole(&self) -> bool {
        true
    }

    fn plain_key(&self) -> Option<Key> {
        self.key.or_else(|| self.reading.plain_key())
    }

    fn limit(&self) -> Option<Algorithm> {
        self.reading.limit()
    }
}

impl Enforcer {
    /// Returns what a request with this head is charged at this cost, whatever the lists and the modes of policies say
    /// of it. A policy for which it has no key is left out. Nothing is counted.
    pub(super) fn client_charges(&self, head: &Head<'_>, cost: u32) -> ClientCharges {
        let finding = self.found_now(head);
        let limiter = self.limiter();
        let charges = |purpose| {
            let readings = self.readings(head, finding.as_ref());
            let readings = readings.map(|(policy, reading)| {
                let supposed = Supposed {
                    reading,
                    key: None,
                    cost: Some(cost),
                };
                (policy, supposed)
            });
            let mut charges = Charges::new();
            match limiter
                .policies()
                .charges_for(readings, purpose, &mut (), &mut charges)
            {
                Ok(()) => charges,
                Err(_) => Charges::new(),
            }
        };
        let its = ClientCharges::new(limiter, charges(Purpose::Manage));
        if limiter.groups().next().is_none() {
            return its;
        }
        its.decided_by(charges(Purpose::Decide))
    }
}
