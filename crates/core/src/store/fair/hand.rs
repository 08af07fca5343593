//! Which tenants a request visits beside its own.

/// A hand that goes through the places of all tenants in turn, a few with each request.
#[derive(Debug, Default)]
pub(in crate::store) struct Hand {
    /// The place that was visited last.
    pub(super) place: usize,
    /// How many visits are due.
    pub(super) due: f64,
}

/// How many tenants a request visits, at least.
const VISITS: f64 = 2.0;

impl Hand {
    /// Makes visits due after this time, so that each of so many tenants is visited as often as it may lapse.
    #[expect(clippy::cast_precision_loss, reason = "at most 1,025 tenants")]
    #[inline]
    pub(in crate::store) fn pass(&mut self, time: f64, active_for: f64, tenants: usize) {
        let all = tenants as f64;
        self.due = (self.due + VISITS + all * time / active_for).min(all);
        if self.due >= all {
            // From the end, so that a visited tenant stands at the place of one that is forgotten, and each is visited once.
            self.place = 0;
        }
    }

    /// Returns the place to visit of so many that are left, or `None` if no visit is due. Who is forgotten there leaves its place to the
    /// last tenant.
    #[inline]
    pub(in crate::store) fn next(&mut self, tenants: usize) -> Option<usize> {
        let last = tenants.checked_sub(1)?;
        if self.due < 1.0 {
            return None;
        }
        self.due -= 1.0;
        self.place = self.place.checked_sub(1).unwrap_or(last).min(last);
        Some(self.place)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Some are forgotten at their visit, and others are kept. The hand may stand anywhere before.
        #[test]
        fn after_a_pause_each_tenant_is_visited_once(
            are_kept in prop::collection::vec(any::<bool>(), 1..50),
            place in 0_usize..50,
        ) {
            let mut tenants: Vec<usize> = (0..are_kept.len()).collect();
            let mut visited = Vec::new();
            let mut hand = Hand { place, due: 0.0 };
            hand.pass(2.0, 1.0, tenants.len());
            while let Some(place) = hand.next(tenants.len()) {
                visited.push(tenants[place]);
                if !are_kept[tenants[place]] {
                    tenants.swap_remove(place);
                }
            }
            visited.sort_unstable();
            prop_assert_eq!(visited, (0..are_kept.len()).collect::<Vec<_>>());
        }

        #[test]
        fn requests_without_a_pause_visit_all_in_turn(tenants in 2_usize..50, place in 0_usize..50) {
            let mut hand = Hand { place, due: 0.0 };
            let mut visited = Vec::new();
            for _ in 0..tenants.div_ceil(2) {
                hand.pass(0.0, 1.0, tenants);
                while let Some(place) = hand.next(tenants) {
                    visited.push(place);
                }
            }
            visited.sort_unstable();
            visited.dedup();
            prop_assert_eq!(visited.len(), tenants);
        }
    }
}
