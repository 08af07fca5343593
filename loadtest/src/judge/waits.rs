//! Checks that announced waits are long enough, and not too long.

use std::sync::Arc;
use std::time::Duration;

use super::finding::{Check, Finding};
use super::slack::{at_least, at_most};
use crate::exchange::{Exchange, Verdict};

/// The announced waits of one key.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// The wait that ends first, of those announced since the last request that can have been charged.
    first: Option<Promise>,
    /// The time until which no request can pass, by the refusal with the longest wait.
    barrier: Option<Promise>,
}

/// An announced wait, and its end.
#[derive(Clone, Debug)]
pub(super) struct Promise {
    refusal: Arc<Exchange>,
    at: Duration,
    /// The number of requests that can have been charged before the refusal.
    charged: u64,
}

/// The promise that a request seems to break.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubt {
    short: Option<Promise>,
    long: Option<Promise>,
}

/// The ending of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promised {
    /// The next request passed.
    Kept,
    /// The next request was refused.
    Broken,
}

impl Waits {
    /// Records a request, in the order of sending, and returns whether a wait was kept.
    pub(super) fn opened(&mut self, answer: &Exchange, can_charge: bool) -> (Doubt, bool) {
        let over = self.first.as_ref().filter(|wait| wait.at <= answer.sent);
        let mut doubt = Doubt::default();
        let mut kept = false;
        match answer.verdict {
            Verdict::Allowed => {
                kept = over.is_some();
                let barrier = self.barrier.as_ref();
                doubt.long = barrier.filter(|wait| answer.received < wait.at).cloned();
            }
            Verdict::Limited => doubt.short = over.cloned(),
            Verdict::Failed(_) => {}
        }
        if can_charge {
            self.first = None;
        }
        (doubt, kept)
    }

    /// Records the same request again. All requests that were sent before its receipt are known.
    pub(super) fn closed(
        &mut self,
        answer: &Arc<Exchange>,
        doubt: Doubt,
        known: Known,
    ) -> Option<Finding> {
        let finding = self.judge(answer, doubt, known);
        if answer.verdict == Verdict::Limited
            && let Some(wait) = answer.info.retry_after
        {
            let promise = |at| Promise {
                refusal: Arc::clone(answer),
                at,
                charged: known.charged_before,
            };
            let over = answer.received.saturating_add(at_least(wait.length));
            if known.charged_before == known.charged
                && self.first.as_ref().is_none_or(|first| over < first.at)
            {
                self.first = Some(promise(over));
            }
            let barrier = at_most(wait.length).saturating_sub(wait.coarse);
            let barrier = answer.sent.saturating_add(barrier);
            if known.failed_until <= answer.sent
                && self.barrier.as_ref().is_none_or(|other| barrier > other.at)
            {
                self.barrier = Some(promise(barrier));
            }
        }
        finding
    }

    fn judge(&mut self, answer: &Arc<Exchange>, doubt: Doubt, known: Known) -> Option<Finding> {
        if let Some(promise) = doubt.short
            && promise.charged == known.charged
        {
            self.first = None;
            let refusal = &promise.refusal;
            let wait = refusal.info.retry_after?.length;
            let later = answer.sent.saturating_sub(refusal.received);
            let text = format!(
                "told to wait {wait:?}, sent again {later:?} after the receipt, refused, and none was admitted between"
            );
            let check = Check::RetryAfterEnough;
            return Some(Finding::new(check, text, &[refusal, answer]));
        }
        // A failed request may have given its charge back.
        let promise = doubt
            .long
            .filter(|promise| known.failed_until <= promise.refusal.sent)?;
        self.barrier = None;
        let refusal = &promise.refusal;
        let wait = refusal.info.retry_after?;
        let later = answer.received.saturating_sub(refusal.sent);
        let text = format!(
            "told to wait {:?}, and a request was admitted and received {later:?} after the refused one was sent",
            wait.length
        );
        let check = Check::RetryAfterLeast;
        Some(Finding::new(check, text, &[refusal, answer]))
    }
}

/// The other requests of the key when a request is closed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// The number of requests that can have been charged and were certainly decided before it.
    pub(super) charged_before: u64,
    /// The number of requests that can have been charged and were sent before its receipt, including itself.
    pub(super) charged: u64,
    /// The time until which a failed request can have given its charge back.
    pub(super) failed_until: Duration,
}
