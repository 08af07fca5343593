//! Settlements of the real cost of requests, and the calls that are made of them.

use std::sync::Arc;

use tokio::time::Instant;

use super::batcher::Operation;
use super::calls::{Calls, Forgetting, Names};
use super::failure::{failure, interrupted};
use super::link::Link;
use super::opened::{OpenedPolicy, Rule, place, rules_of};
use super::script::{Call, Script};
use crate::algorithm::Lua;
use crate::clock::Micros;
use crate::error::StoreError;
use crate::key::Key;
use crate::store::{Amendment, Charge};

/// The settlement of one charge. No request waits for it, and a server that is far away gets no backlog: those that come while
/// a call is under way share the next call, or as many calls as they fill.
#[derive(Debug)]
pub(super) struct Settlement {
    key: Key,
    state_key: String,
    rule: Rule,
    /// Negative for units to give back.
    amount: i64,
    /// Until when it can be given back.
    until: Micros,
    /// The time, if the server does not use its own.
    moment: Option<Micros>,
}

/// The script that settles charges of some policies.
pub(super) struct Settling {
    policies: Arc<[OpenedPolicy]>,
    script: Script,
}

impl Settling {
    pub(super) fn new(policies: &Arc<[OpenedPolicy]>) -> Self {
        let rules: Vec<Lua> = policies.iter().filter_map(|policy| policy.lua).collect();
        Self {
            policies: Arc::clone(policies),
            script: Script::of(&rules, include_str!("settle.lua")),
        }
    }
}

impl Operation for Settlement {
    type Encoder = Settling;

    const FEW_CALLS: usize = 1;
    const MOST_CALLS: usize = 256;
    /// Other clients of the server wait meanwhile.
    const MOST_TOGETHER: usize = 64;
    const IS_REQUEST: bool = false;

    fn key(&self) -> &Key {
        &self.key
    }

    fn until(&self, link: &Link) -> Instant {
        link.deadline()
    }

    fn fits_behind(&self, first: &Self) -> bool {
        self.moment == first.moment
    }

    fn charges(&self) -> usize {
        1
    }

    fn encode<'a>(
        encoder: &'a Settling,
        settlements: impl Iterator<Item = &'a Self> + Clone,
    ) -> (&'a Script, Call) {
        let moment = settlements.clone().find_map(|settlement| settlement.moment);
        let mut call = Call::at(moment);
        let rules = rules_of(settlements.clone().map(|settlement| settlement.rule));
        call.argument(rules.len());
        for rule in &rules {
            let (name, numbers) = rule.name_and_numbers(&encoder.policies, moment);
            call.argument(name);
            call.numbers(numbers);
            call.argument(rule.hours(&encoder.policies, moment));
        }
        for settlement in settlements {
            call.key(&settlement.state_key);
            call.argument(place(&rules, &settlement.rule));
            call.argument(settlement.amount);
            call.argument(settlement.until.get());
        }
        (&encoder.script, call)
    }
}

impl Calls {
    /// Settles what was charged, in a call that others share if one server has all keys.
    pub(super) async fn settle(
        &self,
        charges: &[Charge],
        amendment: Amendment,
    ) -> Result<bool, StoreError> {
        if self.link.is_divided() {
            return self.change_each(charges, amendment).await;
        }
        self.epochs.advance(charges);
        // A request may be denied in between, and whatever the result, the server may have executed it.
        let _forgetting = Forgetting(self, charges);
        let mut names = Names::default();
        let settlements = charges.iter().filter_map(|charge| {
            let policy = self.policies.get(charge.policy)?;
            let (amount, until) = match amendment {
                Amendment::TakeBack(taken) => (-i64::from(charge.cost), taken.until()),
                _ => (i64::from(charge.cost), Micros::ZERO),
            };
            Some(Settlement {
                key: charge.key,
                state_key: names.name(&self.prefix, &charge.key, &policy.suffix),
                rule: Rule {
                    policy: charge.policy,
                    limit: policy.limit_of(charge),
                },
                amount,
                until,
                moment: self.moment(),
            })
        });
        let mut settled = Ok(true);
        for answer in self.settle.send(settlements.collect()) {
            let answer = answer.await.map_err(|_| interrupted());
            let answer = answer.and_then(|answer| answer.map_err(failure));
            settled = answer.map(|_| true).and(settled);
        }
        settled
    }
}
