use super::Algorithm;
use super::kind::Replenishment;
use crate::clock::Micros;

impl Algorithm {
    /// Returns how often, at most, a client can be refused within this time that sends one request at a time
    /// and waits for `Retry-After`. Under a limit of 0 there is no wait, so nothing is known about it.
    pub(crate) fn most_refusals(&self, within: Micros) -> u64 {
        let (Some(limit), (_, Some(period), slots)) = (self.limits(), self.frame()) else {
            return 0;
        };
        let (limit, period) = (limit.quota(), Micros::from(period).get());
        if limit == 0 {
            return 0;
        }
        // One refusal in each window that the time touches: just before the end of one, and again when the
        // client has used up the next.
        let once_in_each = |length: u64| within.get().div_ceil(length.max(1)).saturating_add(1);
        // One refusal, and then one for each unit that comes back.
        let for_each_unit = || {
            let units = u128::from(within.get()) * u128::from(limit) / u128::from(period.max(1));
            u64::try_from(units).unwrap_or(u64::MAX).saturating_add(2)
        };
        match self.replenishment() {
            None => 0,
            Some(Replenishment::Aligned | Replenishment::Anchored | Replenishment::Interval) => {
                once_in_each(period)
            }
            // The shortest day and the shortest year are more than half of the longest.
            Some(Replenishment::Calendar) => once_in_each(period / 2),
            Some(Replenishment::Slots) => {
                once_in_each(period / u64::from(slots.unwrap_or(1).max(1)))
            }
            // All units that were charged at about the same time come back one by one, as quickly.
            Some(Replenishment::Log) => once_in_each(period).saturating_mul(limit.into()),
            Some(Replenishment::Sliding | Replenishment::Steady) => for_each_unit(),
            // There is no wait, and nothing is known of consecutive limits.
            Some(Replenishment::OnRelease | Replenishment::ByHours) => u64::MAX,
        }
    }
}
