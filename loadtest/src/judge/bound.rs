//! An upper bound of the admissions under a policy.
//!
//! The k-th admission, in the order of decisions, was decided no earlier than the k-th request was sent, and no later
//! than the latest receipt of the first k. So a bucket that drains from the sending, and is read at the receipt, is
//! never fuller than the server's, in whatever order concurrent requests were decided.

use std::sync::Arc;
use std::time::Duration;

use super::slack::{at_most, least_step, micros, tick};
use super::terms::{Rule, Terms};
use super::times::Times;
use crate::exchange::Exchange;

/// The admissions of one key, and the bounds on them.
#[derive(Debug)]
pub(super) struct Bound {
    admitted: Times,
    latest: Duration,
    debt: Option<Debt>,
    span: Option<Span>,
    refill: Option<Refill>,
    size: u64,
}

/// More admissions than the policy allows, and the first request that shows it.
#[derive(Debug)]
pub(super) struct Excess {
    pub(super) since: Arc<Exchange>,
    pub(super) text: String,
}

/// A bucket that owes at most as much as the server's bucket.
#[derive(Debug)]
struct Debt {
    /// The number of requests in a period.
    limit: i128,
    /// The shortest time in which one request drains, times the limit.
    step: i128,
    capacity: i128,
    period: Duration,
    /// The moment at which nothing is owed any more, times the limit.
    empty_at: i128,
    /// The first admission since nothing was owed, and the number of admissions since.
    since: Option<(Arc<Exchange>, u64)>,
    /// Whether a refusal says that the bucket was full.
    learns: bool,
}

/// `more` admissions after a first one take at least `length`.
#[derive(Debug)]
struct Span {
    more: u64,
    length: Duration,
}

/// A refusal shows that nothing is left, so at most `limit` requests are admitted in the period after it.
#[derive(Debug)]
struct Refill {
    limit: u64,
    period: Duration,
    marks: [Option<Mark>; 2],
}

/// The last refusal before an admission.
#[derive(Clone, Debug)]
struct Mark {
    refusal: Arc<Exchange>,
    admitted_before: u64,
}

impl Bound {
    pub(super) fn new(terms: &Terms, room: usize) -> Self {
        let (n, b, w) = (terms.limit, terms.size, terms.period);
        let again = terms.refill();
        let span = |more| Some(Span { more, length: w });
        let refill = |limit| {
            Some(Refill {
                limit,
                period: w,
                marks: [None, None],
            })
        };
        let debt = |capacity, limit, learns| Some(Debt::new(capacity, limit, w, learns));
        let (debt, span, refill) = match terms.rule {
            Rule::Fixed => (debt(2 * n, n, false), span(2 * n), refill(n)),
            Rule::Anchored => (debt(2 * n, n, false), span((2 * n).max(1) - 1), refill(n)),
            Rule::Log | Rule::Slots(_) => (None, span(n), None),
            // The estimate falls by at most N in a period, as a bucket of N does.
            Rule::Estimate => (debt(n, n, true), span((2 * n).max(1) - 1), None),
            Rule::Bucket => (debt(b, n, true), None, None),
            Rule::Interval => {
                let capacity = (b + again).max(1) - 1;
                (debt(capacity, again, false), span(capacity), refill(again))
            }
            // The bound is on departures, because an answer is received after the turn.
            Rule::Queue => (debt(b.min(1), n, false), None, None),
            Rule::Unlimited => (None, None, None),
        };
        Self {
            admitted: Times::new(room),
            latest: Duration::ZERO,
            debt,
            span,
            refill,
            size: b,
        }
    }

    /// Counts an admission, in the order of sending.
    pub(super) fn admitted(&mut self, answer: &Arc<Exchange>) -> Option<Excess> {
        self.latest = self.latest.max(answer.received);
        self.admitted.push(answer, self.latest);
        let latest = self.latest;
        let debt = self.debt.as_mut();
        let debt = debt.and_then(|debt| debt.admitted(answer, latest));
        let excess = debt.or_else(|| self.beyond(0, latest));
        if let Some(span) = &self.span {
            self.admitted.keep_newest(span.more + 1);
        }
        excess
    }

    /// Learns from a refusal that nothing was left. All requests that were sent before its receipt are counted.
    pub(super) fn refused(&mut self, answer: &Arc<Exchange>) {
        if self.size == 0 {
            return;
        }
        if let Some(debt) = &mut self.debt {
            debt.refused(answer);
        }
        if let Some(refill) = &mut self.refill {
            refill.refused(answer, self.admitted.total());
        }
    }

    /// Returns whether this many more requests can be admitted up to a moment.
    pub(super) fn has_room(&self, more: u64, by: Duration) -> bool {
        if more > self.size {
            return false;
        }
        let debt = self.debt.as_ref();
        debt.is_none_or(|debt| debt.has_room(more, by)) && self.beyond(more, by).is_none()
    }

    /// Returns the excess if the newest admission, or `more` after it, are too many up to a moment.
    fn beyond(&self, more: u64, by: Duration) -> Option<Excess> {
        if let Some(span) = &self.span
            && let Some(back) = span.more.checked_sub(more)
            && let Some(first) = self.admitted.back(back)
            && by < first.sent.saturating_add(at_most(span.length))
        {
            let text = format!(
                "{} admitted within {:?}, and at most {} can be",
                span.more + 1,
                by.saturating_sub(first.sent),
                span.more,
            );
            let since = Arc::clone(first);
            return Some(Excess { since, text });
        }
        let refill = self.refill.as_ref()?;
        let total = self.admitted.total() + more;
        refill.marks.iter().flatten().find_map(|mark| {
            let count = total - mark.admitted_before;
            let late = by >= mark.refusal.sent.saturating_add(at_most(refill.period));
            (count > refill.limit && !late).then(|| Excess {
                since: Arc::clone(&mark.refusal),
                text: format!(
                    "{count} admitted within {:?} after a refusal, and at most {} can be",
                    by.saturating_sub(mark.refusal.sent),
                    refill.limit,
                ),
            })
        })
    }
}

impl Debt {
    fn new(capacity: u64, limit: u64, period: Duration, learns: bool) -> Self {
        Self {
            limit: i128::from(limit),
            step: least_step(micros(period)),
            capacity: i128::from(capacity),
            period,
            empty_at: i128::MIN / 4,
            since: None,
            learns,
        }
    }

    fn admitted(&mut self, answer: &Arc<Exchange>, latest: Duration) -> Option<Excess> {
        let has_room = self.has_room(1, latest);
        let sent = micros(answer.sent) * self.limit;
        self.since = match self.since.take() {
            Some((first, count)) if sent < self.empty_at => Some((first, count + 1)),
            _ => Some((Arc::clone(answer), 1)),
        };
        self.empty_at = self.empty_at.max(sent) + self.step;
        if has_room {
            return None;
        }
        let (since, count) = self.since.clone()?;
        let span = latest.saturating_sub(since.sent);
        let text = format!(
            "{count} admitted within {span:?}, by a bucket of {} that drains {} in {:?}",
            self.capacity, self.limit, self.period,
        );
        Some(Excess { since, text })
    }

    fn refused(&mut self, answer: &Arc<Exchange>) {
        if !self.learns {
            return;
        }
        let sent = micros(answer.sent) * self.limit;
        let owed = (self.capacity - 1) * self.step - tick() * self.limit;
        if sent + owed > self.empty_at {
            self.empty_at = sent + owed;
            self.since = Some((Arc::clone(answer), 0));
        }
    }

    fn has_room(&self, more: u64, by: Duration) -> bool {
        let by = (micros(by) + tick()) * self.limit;
        let owed =
            self.empty_at.max(i128::MIN / 8) + (i128::from(more) - self.capacity) * self.step;
        i128::from(more) <= self.capacity && by >= owed
    }
}

impl Refill {
    fn refused(&mut self, answer: &Arc<Exchange>, admitted_before: u64) {
        if let [_, Some(mark)] = &mut self.marks
            && mark.admitted_before == admitted_before
        {
            if mark.refusal.sent < answer.sent {
                mark.refusal = Arc::clone(answer);
            }
            return;
        }
        self.marks.rotate_left(1);
        self.marks[1] = Some(Mark {
            refusal: Arc::clone(answer),
            admitted_before,
        });
    }
}
