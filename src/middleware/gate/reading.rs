//! Reads the charges of a request.

use http::{Request, StatusCode};

use super::{Gate, Ruling};
use crate::diagnostics::diagnose;
use crate::key::{Head, Key, Missing};
use crate::observe::{Count, Request as RequestCount};
use crate::plan::{ChosenPlan, Finding, LimitContext};
use crate::policy::{Http, NoKey};
use crate::store::Charge;

impl Gate {
    /// Returns the plan of a request, which is the same for all policies.
    #[inline]
    pub(in crate::middleware) fn plan(
        &self,
        head: &Head<'_>,
        finding: Option<&Finding>,
    ) -> Option<ChosenPlan> {
        let mut plan = self.limiter.plan_found(finding);
        if plan.is_some() {
            return plan;
        }
        let (plan_of, limits) = (self.sources.plan_of.as_ref()?, self.limiter.limits()?);
        plan_of.read(head, |name| plan = limits.limits().plan(name));
        plan
    }

    /// Writes the charge of a policy for this request. Returns whether there is one.
    #[inline]
    pub(super) fn read(
        &self,
        reader: &Http,
        charge: &mut Charge,
        (plan, finding): (Option<ChosenPlan>, Option<&Finding>),
        head: &Head<'_>,
    ) -> Result<bool, NoCharge> {
        let Some(is_default) = read(reader, charge, head)? else {
            self.skipped(charge.policy);
            return Ok(false);
        };
        if let Some(limits) = self.limiter.limits() {
            let operations = limits.limits().operations(charge.policy);
            let operation = operations.and_then(|operations| reader.operation(head, operations));
            let asker = LimitContext {
                plan,
                operation,
                ..LimitContext::default()
            };
            let unhashed = || reader.plain_key(head);
            if !limits.apply(charge, asker, finding, &unhashed, &|| reader.limit(head)) {
                self.skipped(charge.policy);
                return Ok(false);
            }
        }
        if is_default {
            self.limiter.cut(charge);
        }
        let is_low = reader.is_low_priority(head);
        self.limiter.demand(charge, is_low);
        if is_default && is_low {
            self.limiter.cut(charge);
        }
        self.limiter.hold(charge);
        self.limiter.price(charge, || reader.class(head));
        Ok(true)
    }

    fn skipped(&self, policy: usize) {
        let counters = self.limiter.counters();
        counters.policy(policy, Count::Skipped, 1);
    }

    pub(super) fn refuse_for<B>(&self, no_charge: NoCharge, request: &mut Request<B>) -> Ruling {
        self.limiter.counters().request(RequestCount::WithoutKey);
        let NoCharge { status, missing } = no_charge;
        Ruling::Refuse(self.answers.no_key(status, missing, request))
    }
}

/// The refusal of a request without a key.
#[derive(Clone, Copy)]
pub(super) struct NoCharge {
    status: StatusCode,
    missing: Missing,
}

/// Writes the charge of a policy for this request. Returns whether its cost is a default estimate, or `None`
/// if the policy charges nothing.
#[inline]
fn read(reader: &Http, charge: &mut Charge, head: &Head<'_>) -> Result<Option<bool>, NoCharge> {
    if !reader.applies(head) {
        return Ok(None);
    }
    match reader.key(head) {
        Ok(key) => charge.key = key,
        Err(missing) if is_counted(reader, missing)? => charge.key = Key::MISSING,
        Err(_) => return Ok(None),
    }
    if !reader.is_limited() {
        return Ok(None);
    }
    let (cost, is_default) = reader.cost(head);
    charge.cost = cost;
    charge.is_soft = reader.is_soft();
    Ok(Some(is_default))
}

/// Returns whether a request without a key is counted, together with all others without one.
#[cold]
fn is_counted(reader: &Http, missing: Missing) -> Result<bool, NoCharge> {
    if let Missing::ByServer(diagnostic) = &missing {
        diagnose(diagnostic);
    }
    match reader.no_key(&missing) {
        NoKey::Shared => Ok(true),
        NoKey::Skip => Ok(false),
        NoKey::Refuse(status) => Err(NoCharge { status, missing }),
    }
}
