//! Decisions with policies on concurrency.
//!
//! The slots of the keys are locked, in the order of the tables, while the other policies decide. So the
//! request gets all or nothing, at one moment.

use smallvec::SmallVec;

use super::MemoryBackend;
use super::driver::Purpose;
use super::fair::SlotSeat;
use super::opened::Opened;
use super::slots::{KeySlots, outcome};
use crate::algorithm::Limit;
use crate::clock::Micros;
use crate::decision::{Outcome, Outcomes};
use crate::store::charged::mark;
use crate::store::fair::SlotShare;
use crate::store::{Charge, Charges, Wanted};

/// One policy's part of a decision.
struct SlotPart<'a> {
    charge: &'a Charge,
    limit: u32,
    seat: KeySlots<'a>,
    blocked: Option<Micros>,
    /// The tenants, and what the one that asks may take, if the slots are divided.
    divided: Option<(SlotSeat<'a>, SlotShare)>,
}

impl SlotPart<'_> {
    fn outcome(&self, takes: bool) -> Outcome {
        let (held, cost) = (self.seat.taken(), self.charge.cost);
        let outcome = outcome(held, self.limit, cost, takes);
        let Some((_, share)) = &self.divided else {
            return outcome;
        };
        let free = self.limit.saturating_sub(held);
        let passes = outcome.is_allowed() && (cost == 0 || share.passes(free, cost));
        let own = if takes && passes { cost } else { 0 };
        let left = share.of(free.saturating_sub(own), own);
        let outcome = outcome.with_remaining(left);
        if passes {
            outcome
        } else {
            outcome.denied(None)
        }
    }

    fn fits(&self) -> bool {
        self.outcome(false).is_allowed()
    }

    /// Follows the end of a request that takes its slots, or is refused by this limit alone, or neither.
    fn conclude(&mut self, takes: bool, is_refused: bool) {
        let cost = self.charge.cost;
        if takes {
            self.seat.take(cost);
        }
        if let Some((tenants, _)) = &mut self.divided {
            match (takes, is_refused) {
                (true, _) => tenants.take(self.charge.slot, cost),
                (false, true) => tenants.refuse(cost),
                (false, false) => tenants.pass_by(),
            }
        }
    }

    fn denies(&self) -> bool {
        let is_refused = self.blocked.is_some() || !(self.fits() || self.charge.is_soft);
        is_refused && !self.charge.is_shadow
    }
}

impl MemoryBackend {
    /// Decides a request that takes slots of one key, and concerns nothing else. Returns `None` in all but the common
    /// case.
    #[inline]
    pub(super) fn take_slots_at_once(
        &self,
        charge: &Charge,
        outcomes: &mut Outcomes,
    ) -> Option<bool> {
        let opened = self.opened(charge.policy)?;
        let slots = opened.slots.as_ref()?;
        let is_common = charge.slot.is_some() && charge.cost > 0 && !charge.is_soft;
        if !is_common || opened.blocks.are_any() || opened.slot_division.is_some() {
            return None;
        }
        let limit = charge.limit.map(Limit::size);
        let limit = limit.or_else(|| opened.algorithm.limit()).unwrap_or(0);
        let taken = slots
            .lock_key(self.fingerprint(&charge.key))
            .take_if_free(charge.cost, limit);
        let outcome = outcome(taken, limit, charge.cost, true);
        outcomes.decided_at(self.clock().now());
        outcomes.push(charge.policy, outcome);
        Some(outcome.is_allowed())
    }

    /// Decides charges, some of which are of policies on concurrency. `purpose` says whether anything is
    /// charged.
    pub(super) fn decide_with_slots(
        &self,
        charges: &[Charge],
        wanted: Wanted,
        purpose: Purpose,
        outcomes: &mut Outcomes,
    ) -> bool {
        if !charges.iter().all(|charge| self.is_open(charge)) {
            return false;
        }
        let of_rates =
            |charge: &&Charge| !self.opened(charge.policy).is_some_and(Opened::takes_slots);
        let mut places = self.places(charges, purpose);
        let denies = places.iter().any(SlotPart::denies) || purpose == Purpose::Deny;
        let allowed = if charges.iter().any(|charge| of_rates(&charge)) {
            let rest = charges.iter().filter(of_rates);
            let rest: Charges = rest.copied().collect();
            let purpose = if denies { Purpose::Deny } else { purpose };
            self.decide_rest(&rest, wanted, purpose, outcomes)
        } else {
            outcomes.decided_at(self.clock().now());
            !denies
        };
        let is_denied = |charge: &Charge| {
            let mut all = outcomes.iter();
            let is_over = all.any(|(policy, it)| policy == charge.policy && !it.is_allowed());
            is_over && !charge.is_shadow && !charge.is_soft
        };
        let is_denied_elsewhere = charges.iter().filter(of_rates).any(is_denied);
        let denying = places.iter().filter(|place| place.denies()).count();
        for place in &mut places {
            let Charge { cost, slot, .. } = *place.charge;
            let takes = allowed && place.fits() && place.blocked.is_none() && cost > 0;
            let outcome = place.outcome(takes && slot.is_some());
            if slot.is_some() && cost > 0 && purpose == Purpose::Charge {
                let is_over = !place.fits() && place.blocked.is_none();
                let is_alone = denying == usize::from(place.denies()) && !is_denied_elsewhere;
                place.conclude(takes, is_over && is_alone);
            }
            if wanted.includes(allowed) {
                outcomes.push(place.charge.policy, outcome);
                if let Some(left) = place.blocked {
                    outcomes.block(place.charge.policy, left);
                }
            }
        }
        outcomes.put_in_order();
        mark(charges, outcomes);
        allowed
    }

    /// Locks the slots of each key in the order of the tables, as all decisions do.
    fn places<'a>(
        &'a self,
        charges: &'a [Charge],
        purpose: Purpose,
    ) -> SmallVec<[SlotPart<'a>; 2]> {
        let mut places = SmallVec::new();
        for (policy, opened) in self.in_order_of_locking() {
            let of_policy = |charge: &&Charge| charge.policy == policy;
            if let (Some(slots), Some(charge)) = (&opened.slots, charges.iter().find(of_policy)) {
                let fingerprint = self.fingerprint(&charge.key);
                let root = if opened.slot_division.is_some() {
                    self.fingerprint(&charge.key.root())
                } else {
                    fingerprint
                };
                let only_asks = purpose != Purpose::Charge || charge.cost == 0;
                let blocked = opened.blocks.are_any().then(|| {
                    let clock = self.clock();
                    opened
                        .blocks
                        .left(fingerprint, clock.now(), clock, only_asks)
                });
                let limit = charge.limit.map(Limit::size);
                let divided = opened.slot_division.as_ref().map(|division| {
                    let mut tenants = division.seat(root, (fingerprint, charge.weight));
                    let takes = !only_asks && charge.slot.is_some();
                    let now = self.clock().now();
                    let share = if takes {
                        tenants.ask(now)
                    } else {
                        tenants.look(now)
                    };
                    (tenants, share)
                });
                places.push(SlotPart {
                    charge,
                    limit: limit.or(opened.algorithm.limit()).unwrap_or(0),
                    seat: slots.lock_key(root),
                    blocked: blocked.flatten(),
                    divided,
                });
            }
        }
        places
    }
}
