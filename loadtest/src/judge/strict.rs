//! A lower bound of the room that a policy has left.
//!
//! A refusal is right if the requests that can have been charged, at the latest possible times, leave no room. The
//! usage before the run is unknown.

use std::sync::Arc;
use std::time::Duration;

use super::slack::{at_least, longest_step, micros, tick};
use super::terms::{Rule, Terms};
use super::times::Times;
use crate::exchange::{Exchange, Verdict};

/// The requests of one key that can have been charged.
#[derive(Debug)]
pub(super) struct Strict {
    terms: Terms,
    charged: Times,
    latest: Duration,
    /// The moment at which nothing is owed any more by the bucket that owes most, times the limit.
    empty_at: i128,
    /// Whether the server may still charge a request at any time.
    is_open: bool,
    failed: bool,
}

impl Strict {
    pub(super) fn new(terms: Terms, room: usize) -> Self {
        Self {
            terms,
            charged: Times::new(room),
            latest: Duration::ZERO,
            // A bucket may have been full when the run began.
            empty_at: i128::from(terms.size) * longest_step(micros(terms.period)),
            is_open: false,
            failed: false,
        }
    }

    /// Counts a request that can have been charged, in the order of sending.
    pub(super) fn charged(&mut self, answer: &Arc<Exchange>) {
        if answer.received == Duration::MAX {
            self.is_open = true;
            return;
        }
        self.latest = self.latest.max(answer.received);
        self.charged.push(answer, self.latest);
        let limit = i128::from(self.terms.limit);
        let at = micros(self.latest) * limit;
        // A queue answers at the turn of the request, and charges it before.
        let owed = if self.terms.rule == Rule::Queue {
            at
        } else {
            self.empty_at.max(at)
        };
        let step = longest_step(micros(self.terms.period));
        self.empty_at = self.empty_at.max(owed + step);
        // An admission shows that at most the capacity was owed. A failure shows nothing.
        self.failed |= answer.verdict != Verdict::Allowed;
        if !self.failed {
            let full = at + tick() * limit + i128::from(self.terms.size) * step;
            self.empty_at = self.empty_at.min(full);
        }
    }

    /// Returns why a refusal cannot be right. All requests that were sent before its receipt are counted.
    pub(super) fn refused(&mut self, answer: &Exchange) -> Option<String> {
        let terms = &self.terms;
        if self.is_open || terms.size == 0 {
            return None;
        }
        match terms.rule {
            Rule::Unlimited => Some(String::from("there is no limit")),
            Rule::Bucket | Rule::Queue => self.bucket(answer.sent),
            Rule::Estimate => self.estimate(answer.sent),
            Rule::Fixed | Rule::Anchored | Rule::Log => {
                self.count(answer.sent, terms.limit, terms.period)
            }
            Rule::Interval => self.count(answer.sent, terms.refill(), terms.period),
            Rule::Slots(slots) => {
                let slot = terms.period / u32::try_from(slots.max(1)).unwrap_or(u32::MAX);
                self.count(answer.sent, terms.limit, terms.period.saturating_add(slot))
            }
        }
    }

    fn bucket(&self, sent: Duration) -> Option<String> {
        let limit = i128::from(self.terms.limit);
        let step = longest_step(micros(self.terms.period));
        let capacity = i128::from(self.terms.size);
        let has_room =
            self.empty_at + step + tick() * limit <= micros(sent) * limit + capacity * step;
        has_room.then(|| {
            let owed = (self.empty_at - micros(sent) * limit).max(0) / step + 1;
            format!("at most {owed} of {capacity} can be owed")
        })
    }

    /// Returns the reason if fewer than `least` can have been charged within the span.
    fn count(&mut self, sent: Duration, least: u64, span: Duration) -> Option<String> {
        let begin = sent.checked_sub(at_least(span))?;
        self.charged.keep_after(begin);
        let count = self.charged.possibly_after(begin);
        (count < least).then(|| {
            format!("at most {count} can have been charged in the {span:?} before it, of {least}")
        })
    }

    /// Returns the window of the server began at an unknown moment, so the estimate has to leave no room for every such
    /// moment.
    fn estimate(&mut self, sent: Duration) -> Option<String> {
        const PLACES: u32 = 32;
        let window = self.terms.period;
        let begin = sent.checked_sub(at_least(2 * window))?;
        self.charged.keep_after(begin);
        let full = (i128::from(self.terms.limit) - 1) * micros(window);
        let mut most = 0;
        for place in 0..PLACES {
            let elapsed = window * place / PLACES;
            let until = window * (place + 1) / PLACES;
            let current = self
                .charged
                .possibly_after(sent.checked_sub(at_least(until))?);
            let both = self
                .charged
                .possibly_after(sent.checked_sub(at_least(until + window))?);
            let estimate = i128::from(current) * micros(window)
                + i128::from(both - current) * micros(window.saturating_sub(elapsed));
            if estimate > full {
                return None;
            }
            most = most.max(both);
        }
        Some(format!(
            "at most {most} can have been charged in the two windows before it, and wherever a window begins, their estimate leaves room"
        ))
    }
}
