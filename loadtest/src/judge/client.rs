//! The observations of one client, and the promises that its answers break.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use super::bound::{Bound, Excess};
use super::finding::{Check, Finding};
use super::hypothesis::Hypotheses;
use super::remaining::{Promises, Remaining};
use super::strict::Strict;
use super::terms::{Rule, Terms};
use super::waits::{Doubt, Known, Promised, Waits};
use crate::exchange::{Exchange, Failure, Verdict};
use crate::info::Family;

/// One client, or all clients as if they were one.
///
/// A request is opened in the order of sending, and closed when another request is sent after its receipt. By then,
/// all requests are known that can have been decided before it. So the judge uses the headers of a response for
/// requests that are opened after it was closed, and looks for broken promises when it is closed.
#[derive(Debug)]
pub(super) struct Client {
    open: BinaryHeap<Open>,
    /// The number of requests that can have been charged: of all requests, and of those that were certainly decided.
    charged: u64,
    charged_for_certain: u64,
    /// The number of admissions: of all requests, and of those that were certainly decided.
    admitted: u64,
    admitted_for_certain: u64,
    /// The moment until which a failed request can have given its charge back.
    failed_until: Duration,
    last_refusal: Option<Duration>,
    waits: Waits,
    remaining: Remaining,
    policy: Option<Policy>,
    pub(super) tally: Tally,
}

/// The observations under the stated policy.
#[derive(Debug)]
struct Policy {
    terms: Terms,
    bound: Bound,
    /// Like `bound`, but it also learns from refusals that nothing was left.
    learned: Bound,
    strict: Strict,
    hypotheses: Hypotheses,
}

/// The counts of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) sent: u64,
    pub(super) allowed: u64,
    pub(super) limited: u64,
    pub(super) refused_wrongly: u64,
    pub(super) admitted_wrongly: u64,
    pub(super) waits_kept: u64,
}

#[derive(Debug)]
struct Open {
    answer: Arc<Exchange>,
    charged_before: u64,
    can_charge: bool,
    doubt: Doubt,
    promises: Promises,
}

/// The results of a request.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) findings: Vec<Finding>,
    pub(super) promised: Option<Promised>,
}

impl Client {
    /// `room` is the number of times that are stored for each rule.
    pub(super) fn new(terms: Option<Terms>, room: usize) -> Self {
        Self {
            open: BinaryHeap::new(),
            charged: 0,
            charged_for_certain: 0,
            admitted: 0,
            admitted_for_certain: 0,
            failed_until: Duration::ZERO,
            last_refusal: None,
            waits: Waits::default(),
            remaining: Remaining::new(terms.is_some()),
            policy: terms.map(|terms| Policy {
                terms,
                bound: Bound::new(&terms, room),
                learned: Bound::new(&terms, room),
                strict: Strict::new(terms, room),
                hypotheses: Hypotheses::new(terms.algorithm),
            }),
            tally: Tally::default(),
        }
    }

    /// Processes the next answer, in the order of sending.
    pub(super) fn answered(&mut self, answer: &Arc<Exchange>) -> News {
        let mut news = News::default();
        self.close_until(answer.sent, &mut news);
        self.open(answer, &mut news);
        news
    }

    /// Closes the remaining requests, when no more answers come.
    pub(super) fn ended(&mut self) -> News {
        let mut news = News::default();
        self.close_until(Duration::MAX, &mut news);
        news
    }

    fn open(&mut self, answer: &Arc<Exchange>, news: &mut News) {
        let can_charge = !matches!(
            answer.verdict,
            Verdict::Limited | Verdict::Failed(Failure::Connect)
        );
        let charged_before = self.charged_for_certain;
        let between = self.admitted - self.admitted_for_certain;
        self.tally.sent += 1;
        if can_charge {
            self.charged += 1;
            if let Some(policy) = &mut self.policy {
                policy.strict.charged(answer);
            }
        }
        if let Verdict::Failed(_) = answer.verdict
            && can_charge
        {
            self.failed_until = self.failed_until.max(answer.received);
        }
        if let Some(policy) = &mut self.policy {
            policy.hypotheses.answered(answer);
        }
        match answer.verdict {
            Verdict::Allowed => {
                self.tally.allowed += 1;
                self.admitted += 1;
                self.admit(answer, between, news);
            }
            Verdict::Limited => self.tally.limited += 1,
            Verdict::Failed(_) => {}
        }
        let (doubt, kept) = self.waits.opened(answer, can_charge);
        if kept {
            self.tally.waits_kept += 1;
            news.promised = Some(Promised::Kept);
        }
        // A request that the server may decide at any time is never closed.
        if answer.received < Duration::MAX {
            self.open.push(Open {
                answer: Arc::clone(answer),
                charged_before,
                can_charge,
                doubt,
                promises: self.remaining.opened(),
            });
        }
    }

    /// `between` is the number of admissions that may have been decided before or after this one.
    fn admit(&mut self, answer: &Arc<Exchange>, between: u64, news: &mut News) {
        let Some(policy) = &mut self.policy else {
            return;
        };
        let excess = policy.bound.admitted(answer);
        let learned = policy.learned.admitted(answer);
        if excess.is_some() || learned.is_some() {
            self.tally.admitted_wrongly += 1;
        }
        let finding = |excess: Excess| {
            let requests = [&excess.since, answer];
            Finding::new(Check::Bound, excess.text.clone(), &requests)
        };
        if let Some(excess) = excess {
            news.findings.push(finding(excess));
            return;
        }
        if let Some(excess) = learned {
            news.findings.push(finding(excess).under_the_only_limit());
            return;
        }
        // A queue reports the places that were left when the request arrived, long before its answer.
        if policy.terms.rule == Rule::Queue {
            return;
        }
        let service_limit = one_remaining(answer);
        let more = service_limit.and_then(|remaining| u64::try_from(remaining).ok());
        let more = more.and_then(|more| more.checked_sub(between));
        if let Some(more) = more.filter(|more| *more > 0)
            && !policy.learned.has_room(more, answer.received)
        {
            let text = format!(
                "told {} remaining, more than the policy can have left",
                service_limit.unwrap_or_default()
            );
            let finding = Finding::new(Check::Remaining, text, &[answer]);
            news.findings.push(finding.under_the_only_limit());
        }
    }

    fn close_until(&mut self, moment: Duration, news: &mut News) {
        while let Some(open) = self.open.peek()
            && open.answer.received <= moment
            && let Some(open) = self.open.pop()
        {
            self.close(open, news);
        }
    }

    fn close(&mut self, open: Open, news: &mut News) {
        let answer = &open.answer;
        let known = Known {
            charged_before: open.charged_before,
            charged: self.charged,
            failed_until: self.failed_until,
        };
        if let Some(finding) = self.waits.closed(answer, open.doubt, known) {
            if finding.check == Check::RetryAfterEnough {
                news.promised = Some(Promised::Broken);
            }
            news.findings.push(finding);
        }
        let last_refusal = self.last_refusal;
        let between = |promise: &Exchange| last_refusal.is_some_and(|sent| sent > promise.sent);
        let finding = self.remaining.closed(answer, open.promises, known, between);
        news.findings.extend(finding);

        self.charged_for_certain += u64::from(open.can_charge);
        match answer.verdict {
            Verdict::Allowed => self.admitted_for_certain += 1,
            Verdict::Limited => {
                self.last_refusal = self.last_refusal.max(Some(answer.sent));
                self.refuse(answer, news);
            }
            Verdict::Failed(_) => {}
        }
    }

    fn refuse(&mut self, answer: &Arc<Exchange>, news: &mut News) {
        let Some(policy) = &mut self.policy else {
            return;
        };
        if let Some(text) = policy.strict.refused(answer) {
            self.tally.refused_wrongly += 1;
            let check = if policy.hypotheses.refusals_charge() {
                Check::RefusalsCharge
            } else {
                Check::Strictness
            };
            let text = format!("refused, although {text}");
            news.findings.push(Finding::new(check, text, &[answer]));
        } else if self.failed_until <= answer.sent {
            policy.learned.refused(answer);
        }
    }
}

/// Returns the remaining requests of the policy, if the answer has only one.
fn one_remaining(answer: &Exchange) -> Option<i64> {
    let in_lists = |family: Family| {
        let service_limits = answer.info.service_limits.iter();
        service_limits.filter(move |service_limit| service_limit.name.family == family)
    };
    if in_lists(Family::Lists).count() > 1 {
        return None;
    }
    let service_limits = answer.info.service_limits.iter();
    service_limits
        .map(|service_limit| service_limit.remaining)
        .max()
}

impl PartialEq for Open {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Open {}

impl PartialOrd for Open {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The heap returns its greatest element, which is the request that was received first.
impl Ord for Open {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |open: &Self| (open.answer.received, open.answer.number);
        key(other).cmp(&key(self))
    }
}
