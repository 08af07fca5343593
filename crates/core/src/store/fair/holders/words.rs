//! The words of all tenants.

use std::collections::HashMap;

use ahash::RandomState;

use super::holder::Holder;
use super::sums::Sums;
use super::{Claim, Holders};
use crate::clock::Micros;
use crate::policy::MOST_TENANTS;
use crate::store::fair::hand::Hand;
use crate::store::fair::times::fraction;

/// How many words come before those of the tenants.
pub(super) const HEAD: usize = 9;

impl Holders {
    /// Reads what was [written](Self::words). Numbers that no rule writes are not read.
    pub(in crate::store) fn read(words: &[u64]) -> Option<Self> {
        if words.is_empty() {
            return Some(Self::default());
        }
        let (&[virtual_time, at, hand, due, name, slots, began, since, idle], words) =
            words.split_first_chunk::<HEAD>()?;
        let (each, rest) = words.as_chunks();
        let tenants = each.iter().map(|words| Holder::read(*words));
        let tenants = tenants.collect::<Option<Vec<_>>>()?;
        let places = tenants.iter().enumerate();
        let places = places.map(|(place, tenant)| (tenant.name, place));
        let places: HashMap<_, _, RandomState> = places.collect();
        let is_possible = rest.is_empty()
            // All that are not told apart are one more.
            && (1..=MOST_TENANTS as usize + 1).contains(&tenants.len())
            && places.len() == tenants.len();
        is_possible.then_some(())?;
        let mut sums = Sums::default();
        for tenant in &tenants {
            sums.count_in(tenant);
        }
        let claim = Claim {
            name,
            slots: slots.try_into().ok()?,
            began: Micros::new(began),
            since: Micros::new(since),
            idle: fraction(idle)?,
        };
        Some(Self {
            virtual_time: fraction(virtual_time)?,
            at: Micros::new(at),
            sums,
            waiting: tenants.iter().filter(|tenant| tenant.waits).count(),
            claim: Some(claim).filter(|claim| claim.slots > 0),
            held: tenants
                .iter()
                .fold(0, |held, it| u32::saturating_add(held, it.held)),
            hand: Hand {
                place: hand.try_into().ok()?,
                due: fraction(due)?,
            },
            tenants,
            places,
        })
    }

    /// Returns them as words: virtual time, the latest moment, the tenant that was visited last and the visits that are due; of the claim
    /// its tenant, its slots, or 0 if there is none, when it began, when a slot was last given back, and for how long slots were idle for
    /// it; then for each tenant its name, a word whose first bytes are its weight, its standing and whether it waits, and whose last four
    /// are the most slots that it has held in the span before, a word of the slots that it holds and of the most in this span, its tag,
    /// until when its use is counted, when it has last asked, when it was last refused, until when it rests, and when its span began.
    /// Numbers with a fraction are the bits of a binary64. No tenants are no words.
    pub(in crate::store) fn words(&self) -> Vec<u64> {
        if self.tenants.is_empty() {
            return Vec::new();
        }
        let claim = self.claim.as_ref();
        let claim = claim.map_or([0; 5], |claim| {
            let [began, since] = [claim.began, claim.since].map(Micros::get);
            [
                claim.name,
                claim.slots.into(),
                began,
                since,
                claim.idle.to_bits(),
            ]
        });
        let head = [
            self.virtual_time.to_bits(),
            self.at.get(),
            self.hand.place as u64,
            self.hand.due.to_bits(),
        ];
        let each = self.tenants.iter().flat_map(Holder::words);
        head.into_iter().chain(claim).chain(each).collect()
    }
}
