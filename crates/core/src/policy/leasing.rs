use super::Policy;
use crate::algorithm::Limit;

impl Policy {
    /// Lets the store decide each request, where it [leases][many_nodes] units to nodes.
    /// Without leases it changes nothing.
    ///
    /// [many_nodes]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/many_nodes/index.html
    pub fn without_lease(mut self) -> Self {
        self.is_without_lease = true;
        self
    }

    /// Returns whether units of the policy can be leased, apart from the algorithm.
    ///
    /// # Errors
    ///
    /// The reason why they cannot, unless the policy is [`without_lease`](Self::without_lease).
    // For `tower-ratelimit-redis`.
    #[doc(hidden)]
    pub fn is_leased(&self) -> Result<bool, &'static str> {
        if self.is_without_lease || !self.is_limited() {
            return Ok(false);
        }
        if self.penalty.is_some() {
            return Err("it counts refusals for a penalty");
        }
        if self.guaranteed.is_some() {
            return Err("it is guaranteed a part of the limit above");
        }
        if self.patience.is_any() {
            return Err("its requests wait for their turn");
        }
        if self.terms.reserve() > 0 {
            return Err("it keeps a reserve from requests of low priority");
        }
        // In units, and not in parts of them.
        let units = self.parts().map_or(&self.algorithm, |(_, units)| units);
        if units.limits().map_or(0, Limit::size) < LEAST_LEASED {
            return Err("it admits less than 8 units at once");
        }
        Ok(true)
    }
}

/// The smallest limit that is leased: a grant of a smaller one would be less than a unit.
pub const LEAST_LEASED: u32 = 8;
