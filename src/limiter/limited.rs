//! Decisions in this process under one policy whose requests have several limits. They make no list of charges.

use std::sync::Arc;

use super::LocalLimiter;
use crate::clock::Micros;
use crate::decision::{Decision, Names, Outcomes, OwnWindow};
use crate::key::Key;
use crate::plan::{Choice, RuleLimit};

impl LocalLimiter {
    /// Returns the limit of a request under the only policy. The key becomes that of the state.
    #[inline]
    fn choice(&self, policy: usize, key: &mut Key) -> Choice {
        let Some(limits) = &self.policies.limits else {
            return Choice::OWN;
        };
        if self.asker.is_none()
            && let Some(choice) = limits.choice_by_plan(policy, key)
        {
            return choice;
        }
        let asker = self.with_plan_of(self.asker(), key, None);
        let choice;
        (*key, choice) = limits.choice(policy, asker, *key);
        choice
    }

    /// Decides under the only policy, and returns the verdict alone.
    pub(super) fn admit_limited(&self, policy: usize, mut key: Key, cost: u32) -> bool {
        self.policies.mistakes.note_asked_alike();
        let choice = self.choice(policy, &mut key);
        let limit = match choice.given {
            RuleLimit::Nothing => return true,
            RuleLimit::Own => None,
            RuleLimit::Limit(limit) => Some(limit),
        };
        let ledger = self.ledger.inner();
        let is_admitted = match limit {
            None => ledger.admit_one(policy, &key, cost),
            Some(limit) => ledger.admit_one_under(policy, &key, cost, limit),
        };
        let verdict = is_admitted.then_some(()).ok_or(policy);
        let asked = std::iter::once((policy, cost));
        self.policies.count_judged(asked, &key, verdict);
        is_admitted
    }

    /// Decides under the only policy.
    pub(super) fn decide_limited(
        &self,
        names: Arc<Names>,
        policy: usize,
        mut key: Key,
        cost: u32,
    ) -> Decision {
        self.policies.mistakes.note_asked_alike();
        let choice = self.choice(policy, &mut key);
        let ledger = self.ledger.inner();
        let mut decision = Decision::new(names, Outcomes::new(Micros::ZERO));
        decision.change(|outcomes| {
            let (is_allowed, window) = match choice.given {
                RuleLimit::Nothing => return,
                RuleLimit::Own => (ledger.charge_one(policy, &key, cost, outcomes), None),
                RuleLimit::Limit(limit) => {
                    let is_allowed = ledger.charge_one_under(policy, &key, cost, limit, outcomes);
                    (is_allowed, Some(OwnWindow(choice.window)))
                }
            };
            outcomes.ruled_by(policy, choice.rule, window);
            let asked = (policy, &key, cost);
            self.policies.count_one(asked, is_allowed, outcomes);
        });
        decision
    }
}
