//! What a layer does with a request, for a person who asks: the steps by which the request gets its charges, recorded.

use http::StatusCode;

use tower_ratelimit_core::__internal::{Demand, NoDemand, Purpose, Steps};

use super::client_charges::Supposed;
use super::enforcer::{Enforcer, NoKeyRefusal};
use super::lists::Listed;
use crate::algorithm::Algorithm;
use crate::decision::LimitRule;
use crate::key::{Head, Key};
use crate::policy::Mode;
use crate::store::{Charge, Charges};

/// The effect of a layer on a request, without a decision.
#[derive(Debug)]
pub enum Explanation {
    /// A list denies it.
    Denied,
    /// A list allows it.
    Allowed,
    /// Its plan cannot be looked up, and it is refused with 503.
    Unresolved,
    /// The effect of each policy, by its name.
    Policies(Vec<(String, PolicyEffect)>),
}

/// The effect of a policy on a request.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyEffect {
    /// Its condition does not hold.
    DoesNotApply,
    /// Its mode is off.
    IsOff,
    /// The request has no key. It is refused with this status, or the policy does not count it.
    HasNoKey(Option<StatusCode>),
    /// The rule that exempts the request from the policy.
    CountsNothing(LimitRule),
    /// The policy counts the request.
    Counts {
        /// What it is counted by.
        key: Key,
        /// Whether it is counted with all other requests without a key.
        is_shared: bool,
        /// What it takes, in units.
        cost: u32,
        /// The limit that holds for it.
        limit: Algorithm,
        /// The rule that gives the limit.
        rule: LimitRule,
        /// Whether a refusal would be none.
        is_shadow: bool,
        /// Whether another policy of its group pays in its place, so that it is not charged.
        is_passed_over: bool,
    },
}

/// Records the steps, policy by policy.
struct Recorder<'a> {
    enforcer: &'a Enforcer,
    /// The key of the policy that is considered, and the cost in units.
    counted: (Key, u32),
    considered: Vec<(String, PolicyEffect)>,
}

impl Recorder<'_> {
    fn record(&mut self, policy: usize, considered: PolicyEffect) {
        let name = self.enforcer.policies().name_of(policy).to_owned();
        self.considered.push((name, considered));
    }
}

impl Steps<NoKeyRefusal> for Recorder<'_> {
    const END_AT_REFUSAL: bool = false;

    fn counts(&mut self, demand: &Demand, units: u32) {
        self.counted = (demand.key, units);
    }

    fn charges(&mut self, charge: &Charge) {
        let policies = self.enforcer.policies();
        let rule = policies.rule_named(charge.rule);
        let limit = policies.limit_of_charge(charge, policies.algorithm_of(charge.policy));
        let (key, cost) = self.counted;
        let considered = match limit {
            Some(limit) => PolicyEffect::Counts {
                key: charge.key,
                is_shared: key.is_missing(),
                cost,
                limit,
                rule,
                is_shadow: charge.is_shadow,
                is_passed_over: false,
            },
            None => PolicyEffect::CountsNothing(rule),
        };
        self.record(charge.policy, considered);
    }

    fn passes_over(&mut self, policy: usize) {
        let name = self.enforcer.policies().name_of(policy);
        let mut considered = self.considered.iter_mut();
        let of_policy = considered.find(|(of, _)| of == name);
        if let Some((_, PolicyEffect::Counts { is_passed_over, .. })) = of_policy {
            *is_passed_over = true;
        }
    }

    fn charges_nothing(&mut self, policy: usize, why: NoDemand<NoKeyRefusal>) {
        let policies = self.enforcer.policies();
        let is_enforced = policies.declared_modes().of(policy) == Mode::Enforce;
        let considered = match why {
            NoDemand::DoesNotApply => PolicyEffect::DoesNotApply,
            NoDemand::Off => PolicyEffect::IsOff,
            NoDemand::MissingKey => PolicyEffect::HasNoKey(None),
            NoDemand::Refused((status, _)) => PolicyEffect::HasNoKey(is_enforced.then_some(status)),
            NoDemand::Unlimited => PolicyEffect::CountsNothing(LimitRule::Policy),
            NoDemand::Exempt(rule) => PolicyEffect::CountsNothing(policies.rule_named(rule)),
        };
        self.record(policy, considered);
    }
}

impl Enforcer {
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
        let finding = self.found_or_refused(head);
        if plan.is_none() && self.unresolved(finding.as_ref()).is_some() {
            return Explanation::Unresolved;
        }
        let named = plan.and_then(|plan| self.policies().plan_named(Some(plan)));
        let readings = self.readings(head, finding.as_ref());
        let readings = readings.map(|(policy, mut reading)| {
            if plan.is_some() {
                (reading.plan, reading.finding) = (named, None);
            }
            let supposed = Supposed {
                reading,
                key,
                cost: None,
            };
            (policy, supposed)
        });
        let mut recorder = Recorder {
            enforcer: self,
            counted: (Key::MISSING, 0),
            considered: Vec::new(),
        };
        let policies = self.policies();
        let mut charges = Charges::new();
        // No refusal ends it.
        let _ = policies.charges_for(readings, Purpose::Reserve, &mut recorder, &mut charges);
        Explanation::Policies(recorder.considered)
    }
}
