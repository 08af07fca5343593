//! Detects a layer that is applied to a route twice, and a layer that is built for each request.
//!
//! Both are common mistakes that compile and mostly work: the first halves every limit, the second
//! limits nothing. The checks cost two writes to a thread local for each call and each poll.

use crate::diagnostics::Diagnostic;
use tower_ratelimit_core::__internal::Warning;

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};

static TWICE: Warning = Warning::new(Diagnostic::new(
    "TRL004",
    "RateLimitLayer",
    "a request has passed the same rate limiting layer twice, and is charged twice",
    "add the layer to the router or to the route, not to both",
));

static FOR_EACH_REQUEST: Warning = Warning::new(Diagnostic::new(
    "TRL005",
    "RateLimitLayer",
    "the rate limiting layer is built anew for each request, and loses its counts",
    "build the layer once, outside the handler, and clone it or the service around which it stands",
));

/// How many nested layers are remembered.
const DEPTH: usize = 2;

thread_local! {
    /// The enforcers in which this thread calls or polls a service, the innermost first.
    static WITHIN: Cell<[usize; DEPTH]> = const { Cell::new([0; DEPTH]) };
}

/// Marks that this thread is within an enforcer, until it is dropped.
pub(crate) struct Within {
    before: [usize; DEPTH],
}

impl Within {
    /// Enters an enforcer. `enforcer` is a number that all clones of a layer share. It is not 0.
    #[inline]
    pub(crate) fn enter(enforcer: usize) -> Self {
        let before = WITHIN.get();
        let [innermost, _] = before;
        WITHIN.set([enforcer, innermost]);
        Self { before }
    }
}

impl Drop for Within {
    #[inline]
    fn drop(&mut self) {
        WITHIN.set(self.before);
    }
}

/// Warns once if this thread is already within this enforcer.
#[inline]
pub(crate) fn look_for_itself(enforcer: usize) {
    if WITHIN.get().contains(&enforcer) {
        TWICE.log_if(|| true);
    }
}

/// The number of an enforcer, and its requests, counted up to "more than one".
#[derive(Debug)]
pub(crate) struct Life {
    /// No other enforcer of this process has it. It is not 0.
    pub(crate) number: usize,
    requests: AtomicU8,
}

/// More dropped enforcers with a single request than this are no accident.
const SHORT_LIVED: u32 = 100;

impl Life {
    pub(crate) fn new() -> Self {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        // A number of its own, because a memory address may be reused while a response to a request
        // of this enforcer is still polled.
        Self {
            number: BEGUN.fetch_add(1, Ordering::Relaxed).wrapping_add(1),
            requests: AtomicU8::new(0),
        }
    }

    #[inline]
    pub(crate) fn request(&self) {
        const MANY: u8 = 2;
        // At most about two writes: a write by every request would be shared by all processors.
        if self.requests.load(Ordering::Relaxed) < MANY {
            self.requests.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        static SHORT: AtomicU32 = AtomicU32::new(0);
        let saw_one = self.requests.load(Ordering::Relaxed) == 1;
        FOR_EACH_REQUEST
            .log_if(|| saw_one && SHORT.fetch_add(1, Ordering::Relaxed) + 1 >= SHORT_LIVED);
    }
}

#[cfg(test)]
mod tests {
    use super::Life;

    /// A response may outlive its layer, and be polled when another layer has the same place in
    /// memory.
    #[test]
    fn no_enforcer_has_the_number_of_one_that_was_dropped() {
        let mut numbers: Vec<_> = (0..100).map(|_| Life::new().number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 100);
    }
}
