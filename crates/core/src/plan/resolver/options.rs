use std::time::Duration;

/// What a lookup is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A plan that requests go on with meanwhile.
    Refresh,
    /// A plan that is too old, or was invalidated: requests wait.
    Again,
    /// A key that has no plan so far: requests wait.
    First,
}

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

    /// Returns whether a lookup may begin while so many are in flight, of which so many are refreshes.
    ///
    /// Requests with a stale plan do not wait for its refresh. So refreshes give way: they take a quarter of the places, or as
    /// many as half of them while the others are free. That quarter is never given to keys without a plan, so that invented keys
    /// cannot prevent refreshes.
    pub(super) fn has_place(&self, purpose: Purpose, in_flight: usize, refreshes: usize) -> bool {
        let (most, quarter) = (self.in_flight, self.in_flight / 4);
        in_flight < most
            && match purpose {
                Purpose::Refresh => refreshes < quarter || in_flight < (most / 2).max(1),
                Purpose::Again => true,
                Purpose::First => in_flight - refreshes.min(in_flight) < (most - quarter).max(1),
            }
    }
}
