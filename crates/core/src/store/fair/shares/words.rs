//! The words of all tenants.

use std::collections::HashMap;

use ahash::RandomState;

use super::Shares;
use super::tenant::{Standing, Tenant, WORDS};
use crate::clock::Micros;
use crate::policy::MOST_TENANTS;
use crate::store::fair::hand::Hand;
use crate::store::fair::times::fraction;
use crate::store::fair::turns::Turns;

/// How many words come before those of the tenants.
pub(super) const HEAD: usize = 7;

impl Shares {
    /// Reads what was [written](Self::words). Numbers that no rule writes are not read.
    pub(in crate::store) fn read(words: &[u64]) -> Option<Self> {
        if words.is_empty() {
            return Some(Self::default());
        }
        let (&[virtual_time, at, growing, still, hand, due, count], words) =
            words.split_first_chunk::<HEAD>()?;
        let count = usize::try_from(count).ok()?.checked_mul(WORDS)?;
        let (words, turns) = words.split_at_checked(count)?;
        let (each, _) = words.as_chunks();
        let tenants = each.iter().map(|words| Tenant::read(*words));
        let tenants = tenants.collect::<Option<Vec<_>>>()?;
        let places = tenants.iter().enumerate();
        let places = places.map(|(place, tenant)| (tenant.name, place));
        let places: HashMap<_, _, RandomState> = places.collect();
        let weights = |standing| {
            let those = tenants.iter().filter(move |it| it.standing == standing);
            those.map(|it| u64::from(it.weight)).sum()
        };
        let at = Micros::new(at);
        let given = tenants.iter().filter(|tenant| tenant.turn > 0).count();
        let turns = Turns::read(turns, given)?;
        // All that are not told apart are one more.
        let is_possible = (1..=MOST_TENANTS as usize + 1).contains(&tenants.len())
            && places.len() == tenants.len();
        is_possible.then_some(())?;
        Some(Self {
            virtual_time: fraction(virtual_time)?,
            at,
            accruing: weights(Standing::Accruing),
            sated: weights(Standing::Sated),
            growing: fraction(growing)?,
            still: fraction(still)?,
            waiting: tenants.iter().filter(|tenant| tenant.waits).count(),
            large: tenants.iter().filter(|tenant| tenant.is_large).count(),
            hand: Hand {
                place: hand.try_into().ok()?,
                due: fraction(due)?,
            },
            tenants,
            places,
            turns,
        })
    }

    /// Returns them as words: virtual time, the latest moment, the claims that grow and those that have ended, the tenant that was visited last,
    /// the visits that are due, and how many tenants there are; then for each tenant its name, a word of its weight, its standing, whether it
    /// waits, whether its turn is large and, in the last four bytes, the units of its turn, the moment of its turn, when it has last asked,
    /// its tag, since when its claim is counted, and its part of the claims that have ended; then the [turns](Turns::words). Numbers with a
    /// fraction are the bits of a binary64. No tenants are no words.
    pub(in crate::store) fn words(&self) -> Vec<u64> {
        if self.tenants.is_empty() {
            return Vec::new();
        }
        let head: [u64; HEAD] = [
            self.virtual_time.to_bits(),
            self.at.get(),
            self.growing.to_bits(),
            self.still.to_bits(),
            self.hand.place as u64,
            self.hand.due.to_bits(),
            self.tenants.len() as u64,
        ];
        let each = self.tenants.iter().flat_map(Tenant::words);
        head.into_iter()
            .chain(each)
            .chain(self.turns.words())
            .collect()
    }
}
