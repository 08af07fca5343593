/// How much a [`Resolver`](super::Resolver) keeps, for metrics: see [`Resolver::usage`](super::Resolver::usage).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolverUsage {
    pub(super) found: usize,
    pub(super) not_found: usize,
    pub(super) in_flight: usize,
}

impl ResolverUsage {
    /// Returns the number of keys whose plan is kept.
    pub fn found(&self) -> usize {
        self.found
    }

    /// Returns the number of keys that are known to have no plan, or whose lookup has failed.
    pub fn not_found(&self) -> usize {
        self.not_found
    }

    /// Returns how many lookups are in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }
}
