//! What was checked, and what was disproved.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::answer::Answer;

/// A promise of a limiter that time stamps can disprove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// A request that waits as told passes.
    RetryAfterEnough,
    /// No request passes more than a second earlier than told.
    RetryAfterLeast,
    /// With `remaining` = n, n more requests pass, and no more.
    Remaining,
    /// No span holds more admissions than the policy allows.
    Bound,
    /// No request is refused while the policy has room.
    Strictness,
    /// Headers can be read, and agree with one another and with the policy.
    Headers,
    /// Clients with a key each have the same limit.
    Fairness,
    /// A refusal charges nothing.
    RefusalsCharge,
    /// A refusal takes no longer than an admission.
    RefusalLatency,
    /// Several nodes admit together what one may.
    Nodes,
}

impl Check {
    /// All checks, in the order of the report.
    pub const ALL: [Self; 10] = [
        Self::RetryAfterEnough,
        Self::RetryAfterLeast,
        Self::Remaining,
        Self::Bound,
        Self::Strictness,
        Self::Headers,
        Self::Fairness,
        Self::RefusalsCharge,
        Self::RefusalLatency,
        Self::Nodes,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::RetryAfterEnough => "retry-after-too-short",
            Self::RetryAfterLeast => "retry-after-too-long",
            Self::Remaining => "remaining",
            Self::Bound => "over-admission",
            Self::Strictness => "over-strict",
            Self::Headers => "headers",
            Self::Fairness => "unfair",
            Self::RefusalsCharge => "refusals-charge",
            Self::RefusalLatency => "slow-refusals",
            Self::Nodes => "nodes",
        }
    }

    /// Whether a finding for one client relies on a limit that other clients do not use.
    pub(super) fn needs_a_limit_of_its_own(self) -> bool {
        matches!(
            self,
            Self::RetryAfterEnough
                | Self::Remaining
                | Self::Strictness
                | Self::Fairness
                | Self::RefusalsCharge
        )
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A promise that was broken, with the requests that show it.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Which promise.
    pub check: Check,
    /// How the requests break it.
    pub text: String,
    /// The requests, in the order of sending.
    pub requests: Vec<Arc<Answer>>,
}

impl Finding {
    pub(super) fn new(check: Check, text: String, requests: &[&Arc<Answer>]) -> Self {
        let mut requests: Vec<_> = requests.iter().map(|request| Arc::clone(request)).collect();
        requests.sort_by_key(|request| request.number);
        requests.dedup_by_key(|request| request.number);
        Self {
            check,
            text,
            requests,
        }
    }
}

/// The findings of a run: all are counted, and the first of each check are kept.
#[derive(Debug, Default)]
pub(super) struct Findings {
    kept: BTreeMap<Check, Vec<Finding>>,
    counts: BTreeMap<Check, u64>,
}

impl Findings {
    /// How many findings of a check are kept.
    const KEPT: usize = 3;

    pub(super) fn add(&mut self, finding: Finding) {
        *self.counts.entry(finding.check).or_default() += 1;
        let kept = self.kept.entry(finding.check).or_default();
        if kept.len() < Self::KEPT {
            kept.push(finding);
        }
    }

    pub(super) fn count(&self, check: Check) -> u64 {
        self.counts.get(&check).copied().unwrap_or(0)
    }

    /// Copies of those that are kept.
    pub(super) fn peek(&self, check: Check) -> Vec<Finding> {
        self.kept.get(&check).cloned().unwrap_or_default()
    }

    pub(super) fn take(&mut self, check: Check) -> Vec<Finding> {
        self.kept.remove(&check).unwrap_or_default()
    }
}
