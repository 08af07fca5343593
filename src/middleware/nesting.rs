//! Finds a layer that stands on a route twice, and one that is built anew for each request.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};

use crate::diagnostics::{Diagnostic, Warning};

static TWICE: Warning = Warning::new(Diagnostic::new(
    "TRL004",
    "RateLimitLayer",
    "a request has passed the same rate limiting layer twice, and is charged twice",
    "add the layer to the router or to the route, not to both",
));

static FOR_EACH_REQUEST: Warning = Warning::new(Diagnostic::new(
    "TRL005",
    "RateLimitLayer",
    "rate limiting layers are built for one request each and forget at once whom they have counted",
    "build the layer once, outside the handler, and clone it or the service around which it stands",
));

/// How many layers one within another are remembered.
const DEPTH: usize = 2;

thread_local! {
    /// The gates within which this thread calls or polls a service, the innermost first.
    static WITHIN: Cell<[usize; DEPTH]> = const { Cell::new([0; DEPTH]) };
}

/// While it lives, this thread is within a gate.
pub(super) struct Within {
    before: [usize; DEPTH],
}

impl Within {
    /// `gate` is any number that is the same for all clones of a layer, and not 0.
    #[inline]
    pub(super) fn enter(gate: usize) -> Self {
        let before = WITHIN.get();
        let [innermost, _] = before;
        WITHIN.set([gate, innermost]);
        Self { before }
    }
}

impl Drop for Within {
    #[inline]
    fn drop(&mut self) {
        WITHIN.set(self.before);
    }
}

/// Warns, once, if this thread is within this gate already.
#[inline]
pub(super) fn look_for_itself(gate: usize) {
    TWICE.say_if(|| WITHIN.get().contains(&gate));
}

/// The number of a gate, and how many requests it has seen, as far as one and more than one differ.
#[derive(Debug)]
pub(super) struct Life {
    number: usize,
    requests: AtomicU8,
}

/// So many gates that were dropped after their only request are no accident.
const SHORT_LIVED: u32 = 100;

impl Life {
    pub(super) fn new() -> Self {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        // Not the place in memory, which another gate may have while a response to this one's
        // request is polled still.
        Self {
            number: BEGUN.fetch_add(1, Ordering::Relaxed).wrapping_add(1),
            requests: AtomicU8::new(0),
        }
    }

    /// That of no other gate of this process, and not 0.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    #[inline]
    pub(super) fn request(&self) {
        const MANY: u8 = 2;
        // Written twice at most or so: a write by every request would be shared by all processors.
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
            .say_if(|| saw_one && SHORT.fetch_add(1, Ordering::Relaxed) + 1 >= SHORT_LIVED);
    }
}

#[cfg(test)]
mod tests {
    use crate::algorithm::TokenBucket;
    use crate::key::global;
    use crate::middleware::RateLimitLayer;

    /// A response may outlive the layer, and be polled within it still when another has the
    /// layer's place in memory.
    #[test]
    fn no_layer_has_the_number_of_one_that_was_dropped() {
        let layer = || RateLimitLayer::new(global(), TokenBucket::per_second(1));
        let mut numbers: Vec<_> = (0..100).map(|_| layer().number()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 100);
    }
}
