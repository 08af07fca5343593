/// How much a [`Resolver`](super::Resolver) keeps, for metrics: see [`Resolver::usage`](super::Resolver::usage).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResolverUsage {
    /// The number of keys whose plan is kept.
    pub found: usize,
    /// The number of keys that are known to have no plan, or whose lookup has failed.
    pub not_found: usize,
    /// How many lookups are in flight.
    pub in_flight: usize,
}
