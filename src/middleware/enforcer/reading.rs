//! Reads a request of HTTP for the policies.

use http::{Request, StatusCode};

use tower_ratelimit_core::__internal::{
    ChosenPlan, Count, Demand, Finding, LimitContext, Limits, NoDemand, Policies, Reads,
    Request as RequestCount, Steps, Verdict, diagnose,
};

use super::{Enforcer, EnforcerVerdict};
use crate::algorithm::Algorithm;
use crate::key::{Head, Key, Missing};
use crate::policy::Http;

/// The refusal of a request without a key.
pub(in crate::middleware) type NoKeyRefusal = (StatusCode, Missing);

/// A request, as one policy reads it.
pub(in crate::middleware) struct Reading<'a> {
    pub(in crate::middleware) reader: &'a Http,
    pub(in crate::middleware) head: &'a Head<'a>,
    /// The plan of the request, which is the same for all policies.
    pub(in crate::middleware) plan: Option<ChosenPlan>,
    pub(in crate::middleware) finding: Option<&'a Finding>,
}

impl Reads for Reading<'_> {
    type Refusal = NoKeyRefusal;

    #[inline]
    fn demand(&self) -> Result<Demand, NoDemand<NoKeyRefusal>> {
        self.reader.demand(self.head, None, |missing| {
            if let Missing::ByServer(diagnostic) = missing {
                diagnose(diagnostic);
            }
        })
    }

    fn context(&self, policy: usize, limits: &Limits) -> LimitContext {
        let operations = limits.operations(policy);
        LimitContext {
            plan: self.plan,
            operation: operations.and_then(|it| self.reader.operation(self.head, it)),
            ..LimitContext::default()
        }
    }

    #[inline]
    fn finding(&self) -> Option<&Finding> {
        self.finding
    }

    fn plain_key(&self) -> Option<Key> {
        self.reader.plain_key(self.head)
    }

    fn limit(&self) -> Option<Algorithm> {
        self.reader.limit(self.head)
    }
}

/// Counts the policies that leave a request out.
pub(super) struct Skips<'a>(pub(super) &'a Policies);

impl Steps<NoKeyRefusal> for Skips<'_> {
    fn charges_nothing(&mut self, policy: usize, why: NoDemand<NoKeyRefusal>) {
        if !matches!(why, NoDemand::Off | NoDemand::Refused(_)) {
            self.0.counters().policy(policy, Count::Skipped, 1);
        }
    }
}

impl Enforcer {
    /// Returns the plan of a request, which is the same for all policies.
    #[inline]
    pub(in crate::middleware) fn plan(
        &self,
        head: &Head<'_>,
        finding: Option<&Finding>,
    ) -> Option<ChosenPlan> {
        let sources = &self.sources;
        if finding.is_none() && sources.plan_of.is_none() {
            return None;
        }
        self.policies
            .plan_by(finding, |limits| sources.choose(head, limits))
    }

    pub(super) fn refuse_for<B>(
        &self,
        (status, missing): NoKeyRefusal,
        request: &mut Request<B>,
    ) -> EnforcerVerdict {
        self.policies.counters().request(RequestCount::WithoutKey);
        Verdict::Refuse(self.answers.missing_key(status, missing, request))
    }
}
