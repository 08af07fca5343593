use std::time::Duration;

/// See [`ResolverBuilder`](super::ResolverBuilder).
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) capacity: usize,
    pub(super) not_found_capacity: usize,
    pub(super) fresh_for: Duration,
    pub(super) stale_for: Duration,
    pub(super) not_found_for: Duration,
    pub(super) retry_after: Duration,
    pub(super) timeout: Duration,
    pub(super) lookup_timeout: Duration,
    pub(super) in_flight: usize,
    pub(super) refuses: bool,
}

impl Options {
    pub(super) const DEFAULT: Self = Self {
        capacity: 10_000,
        not_found_capacity: 1_000,
        fresh_for: Duration::from_secs(60),
        stale_for: Duration::from_secs(600),
        not_found_for: Duration::from_secs(10),
        retry_after: Duration::from_secs(1),
        timeout: Duration::from_millis(50),
        lookup_timeout: Duration::from_secs(10),
        in_flight: 64,
        refuses: false,
    };

    /// Returns how many lookups may be in flight when one of a key begins. A quarter of the places is for
    /// keys that have a plan, so that invented keys cannot prevent the refresh of plans.
    pub(super) fn places(&self, has_a_plan: bool) -> usize {
        if has_a_plan {
            return self.in_flight;
        }
        (self.in_flight - self.in_flight / 4).max(1)
    }
}
