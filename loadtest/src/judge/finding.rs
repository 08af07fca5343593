//! The checks, and the broken promises.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::exchange::Exchange;

/// A promise of a limiter that time stamps can disprove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// A request that waits for `Retry-After` passes.
    RetryAfterEnough,
    /// No request passes more than a second before `Retry-After` is over.
    RetryAfterLeast,
    /// With `remaining` = n, n more requests pass, and no more.
    Remaining,
    /// No span holds more admissions than the policy allows.
    Bound,
    /// No request is refused while the policy has room.
    Strictness,
    /// Headers are well formed, and agree with one another and with the policy.
    Headers,
    /// Clients with one key each have the same limit.
    Fairness,
    /// A refusal charges nothing.
    RefusalsCharge,
    /// A refusal takes no longer than an admission.
    RefusalLatency,
    /// Several nodes together admit one limit.
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

    /// Returns the name in reports.
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

    /// Returns the premise of all findings of this check.
    pub(super) fn premise(self) -> Premise {
        match self {
            Self::RetryAfterEnough | Self::Remaining => Premise::OwnLimit,
            Self::Strictness | Self::Fairness | Self::RefusalsCharge => Premise::OnlyLimit,
            _ => Premise::None,
        }
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
    /// The promise.
    pub check: Check,
    /// A description of how the requests break it.
    pub text: String,
    /// The requests, in the order of sending.
    pub requests: Vec<Arc<Exchange>>,
    /// The premise under which it is a failure.
    pub(super) premise: Premise,
}

/// The premise of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Premise {
    /// The time stamps alone.
    None,
    /// No other client uses the limit.
    OwnLimit,
    /// No other client uses the limit, and there is no other policy.
    OnlyLimit,
}

impl Finding {
    pub(super) fn new(check: Check, text: String, requests: &[&Arc<Exchange>]) -> Self {
        let mut requests: Vec<_> = requests.iter().map(|request| Arc::clone(request)).collect();
        requests.sort_by_key(|request| request.number);
        requests.dedup_by_key(|request| request.number);
        Self {
            check,
            text,
            requests,
            premise: check.premise(),
        }
    }

    /// Returns the same finding, which holds if no other policy refuses requests.
    pub(super) fn under_the_only_limit(self) -> Self {
        let premise = Premise::OnlyLimit;
        Self { premise, ..self }
    }
}

/// The findings of a run. All are counted, and the first of each check are listed.
#[derive(Debug, Default)]
pub(super) struct Findings(BTreeMap<(Check, Premise), (u64, Vec<Finding>)>);

impl Findings {
    /// The number of findings that are listed for each check.
    const LISTED: usize = 3;

    pub(super) fn add(&mut self, finding: Finding) {
        let (count, listed) = self.0.entry((finding.check, finding.premise)).or_default();
        *count += 1;
        if listed.len() < Self::LISTED {
            listed.push(finding);
        }
    }

    /// Removes findings with a stronger premise than this.
    pub(super) fn keep_up_to(&mut self, most: Premise) {
        self.0.retain(|(_, premise), _| *premise <= most);
    }

    /// Returns the number of findings of a check, and the first of them.
    pub(super) fn of(&self, check: Check) -> (u64, Vec<Finding>) {
        let mut all = (0, Vec::new());
        for ((other, _), (count, listed)) in &self.0 {
            if *other == check {
                all.0 += count;
                all.1.extend(listed.iter().cloned());
            }
        }
        all.1.truncate(Self::LISTED);
        all
    }
}
