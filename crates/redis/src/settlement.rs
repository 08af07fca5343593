//! Settlements of the real cost of requests, and the calls that are made of them.

use std::sync::Arc;

use tokio::time::Instant;

use super::batcher::Operation;
use super::link::Link;
use super::opened::{OpenedPolicy, Rule, place, rules_of};
use super::script::{Call, Script};
use tower_ratelimit_core::__internal::Lua;
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::key::Key;

/// The settlement of one charge. No request waits for it, and a server that is far away gets no backlog: those that come while
/// a call is under way share the next call, or as many calls as they fill.
#[derive(Debug)]
pub(super) struct Settlement {
    pub(super) key: Key,
    pub(super) state_key: String,
    pub(super) rule: Rule,
    /// Negative for units to give back.
    pub(super) amount: i64,
    /// Until when it can be given back.
    pub(super) until: Micros,
    /// The time, if the server does not use its own.
    pub(super) moment: Option<Micros>,
}

/// The script that settles charges of some policies.
pub(super) struct SettlementEncoder {
    policies: Arc<[OpenedPolicy]>,
    script: Script,
}

impl SettlementEncoder {
    pub(super) fn new(policies: &Arc<[OpenedPolicy]>) -> Self {
        let rules: Vec<Lua> = policies.iter().filter_map(|policy| policy.lua).collect();
        Self {
            policies: Arc::clone(policies),
            script: Script::of(&rules, include_str!("settle.lua")),
        }
    }
}

impl Operation for Settlement {
    type Encoder = SettlementEncoder;

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
        encoder: &'a SettlementEncoder,
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
