use super::gate::Gate;
use super::lists::Listed;
use crate::algorithm::Algorithm;
use crate::decision::LimitRule;
use crate::key::{Head, Key};
use crate::plan::LimitContext;

/// The effect of a layer on a request, without a decision.
#[derive(Debug)]
pub(crate) enum Explanation {
    /// A list denies it.
    Denied,
    /// A list allows it.
    Allowed,
    /// The effect of each policy, by its name.
    Policies(Vec<(String, Considered)>),
}

/// The effect of a policy on a request.
#[derive(Debug)]
pub(crate) enum Considered {
    DoesNotApply,
    HasNoKey,
    /// The rule that exempts the request from the policy.
    CountsNothing(LimitRule),
    Counts {
        cost: u32,
        limit: Algorithm,
        rule: LimitRule,
    },
}

impl Gate {
    /// Explains a request. `plan` and `key` replace those of the request.
    pub(super) fn explain(
        &self,
        head: &Head<'_>,
        plan: Option<&str>,
        key: Option<Key>,
    ) -> Explanation {
        match self.listed(head) {
            Listed::Denied => return Explanation::Denied,
            Listed::Allowed => return Explanation::Allowed,
            Listed::Nowhere => {}
        }
        let limits = self.limiter().limits();
        let plan = match plan {
            Some(plan) => limits.and_then(|limits| limits.limits().plan(Some(plan))),
            None => self.plan(head, None),
        };
        let policies = self.readers().iter().map(|(policy, reader)| {
            let name = self.limiter().name_of(*policy).to_owned();
            if !reader.applies(head) {
                return (name, Considered::DoesNotApply);
            }
            let Some(counted) = key.or_else(|| reader.key(head).ok()) else {
                return (name, Considered::HasNoKey);
            };
            let (cost, is_default) = reader.cost(head);
            let mut charge = crate::store::Charge::new(*policy, counted, cost);
            let counts = limits.is_none_or(|limits| {
                let operations = limits.limits().operations(*policy);
                let operation =
                    operations.and_then(|operations| reader.operation(head, operations));
                let asker = LimitContext {
                    plan,
                    operation,
                    ..LimitContext::default()
                };
                let unhashed = || key.or_else(|| reader.plain_key(head));
                limits.apply(&mut charge, asker, None, &unhashed, &|| reader.limit(head))
            });
            if is_default {
                self.limiter().cut(&mut charge);
            }
            let is_low = reader.is_low_priority(head);
            let mut cost = charge.cost;
            self.limiter().demand(&mut charge, is_low);
            if is_default && is_low {
                self.limiter().cut(&mut charge);
                cost = charge.cost;
            }
            let rule = self.limiter().rule_named(charge.rule);
            let own = self.limiter().algorithm_of(*policy);
            let limit = self.limiter().limit_told(&charge, own);
            let considered = match limit {
                Some(limit) if counts => Considered::Counts { cost, limit, rule },
                _ => Considered::CountsNothing(rule),
            };
            (name, considered)
        });
        Explanation::Policies(policies.collect())
    }
}
