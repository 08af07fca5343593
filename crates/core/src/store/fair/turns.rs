//! The turns of requests that a divided limit has refused.
//!
//! What tenants claim may be more than the burst holds, and then not all of them find it when they come. So each refused request has a
//! *turn*: the first moment from when its tenant may have the cost at which the limit has granted it, beside the turns that were given
//! before. It is the wait that the request is told.
//!
//! The time to come is a row of slots. A turn books the time in which its cost is granted: what is free in the slots before the moment from
//! which it may be had, and then in the next ones. In a slot, time is booked from its beginning on. As booked time passes, it is *kept*: no
//! other request may take what the limit has granted in it. The request whose turn it is may take its cost, and then less is kept.
//!
//! So at each moment what is kept and what is booked before a turn are enough for it and for all earlier ones, and the limit has what is
//! kept. When the row is too short, each two slots become one: a turn may then come earlier than its tenant may have the cost, by at
//! most a slot.
//!
//! All amounts are times in microseconds, in which the limit grants so many units.

use super::times::{earlier, fraction, in_micros, later};
use crate::clock::Micros;

/// How many slots there are.
const SLOTS: usize = 64;

/// The least that a slot is long.
const NARROWEST: f64 = 1.0;

/// The least that a unit takes: a limit has fewer than 2^32, and takes a microsecond or more.
const SHORTEST: f64 = 1e-10;

/// How many words come before those of the slots.
const HEAD: usize = 4;

/// The turns of the requests of all tenants.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Turns {
    /// How many there are.
    given: usize,
    /// The time of one unit.
    unit: f64,
    /// How long ago the first slot began, and how long each slot is.
    begun: f64,
    width: f64,
    /// What the limit has granted that is kept for turns.
    kept: f64,
    /// What is booked in each slot from now on, up to the last one that has something.
    booked: Vec<f64>,
}

/// A request for a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub(super) cost: f64,
    /// The time after which its tenant may have the cost.
    pub(super) due: f64,
    /// What the limit has, and what of it the tenant claims.
    pub(super) there: f64,
    pub(super) claimed: f64,
    /// How long slots may be in which turns wait until they are due.
    pub(super) narrow: f64,
}

impl Turns {
    pub(super) fn are_none(&self) -> bool {
        self.given == 0
    }

    /// Returns what is kept for turns.
    pub(super) fn kept(&self) -> f64 {
        self.kept
    }

    /// Returns what is kept beside a turn of this cost, which comes after this time.
    pub(super) fn kept_beside(&self, cost: f64, after: Micros) -> f64 {
        let own = if cost > 0.0 && after > Micros::ZERO {
            let slots = self.slot(in_micros(after)).saturating_add(1);
            let booked = self.booked.iter().take(slots).sum::<f64>();
            (cost - booked).max(0.0)
        } else {
            cost
        };
        (self.kept - own).max(0.0)
    }

    /// Returns whether the slots reach to what comes after this time.
    pub(super) fn reach(&self, after: f64) -> bool {
        !self.are_none() && self.slot(after) < SLOTS
    }

    /// Reads what was [written](Self::words), for so many turns.
    pub(super) fn read(words: &[u64], given: usize) -> Option<Self> {
        if given == 0 && words.is_empty() {
            return Some(Self::default());
        }
        let (head, booked) = words.split_first_chunk::<HEAD>()?;
        let [unit, begun, width, kept] = head.map(fraction);
        let (unit, begun, width, kept) = (unit?, begun?, width?, kept?);
        let booked = booked.iter().map(|bits| fraction(*bits));
        let booked = booked.collect::<Option<Vec<_>>>()?;
        // What is rounded is far from a half.
        let can_be_booked = 0.0..=1.5 * width;
        let is_possible = given > 0
            && unit >= SHORTEST
            && width >= NARROWEST
            && (0.0..=width).contains(&begun)
            && kept >= 0.0
            && booked.len() <= SLOTS
            && booked.iter().all(|booked| can_be_booked.contains(booked));
        is_possible.then_some(Self {
            given,
            unit,
            begun,
            width,
            kept,
            booked,
        })
    }

    /// Returns them as words: the time of a unit, how long ago the first slot began, how long a slot is, what is kept, and what is booked in
    /// each slot, all as the bits of a binary64. No turns are no words.
    pub(super) fn words(&self) -> impl Iterator<Item = u64> {
        let head = [self.unit, self.begun, self.width, self.kept].into_iter();
        let head = head.filter(|_| !self.are_none());
        head.chain(self.booked.iter().copied()).map(f64::to_bits)
    }

    /// Follows a limit that grants a unit in this time from now on.
    pub(super) fn count_in(&mut self, unit: f64) {
        if self.unit.total_cmp(&unit).is_ne() && !self.are_none() {
            let by = unit / self.unit;
            let booked = self.booked.iter_mut();
            for time in booked.chain([&mut self.begun, &mut self.width, &mut self.kept]) {
                *time *= by;
            }
            self.width = self.width.max(NARROWEST);
        }
        self.unit = unit;
    }

    /// Lets time pass: what is booked in it is kept from then on.
    pub(super) fn pass(&mut self, mut time: f64) {
        while time > 0.0 && !self.booked.is_empty() {
            let left = (self.width - self.begun).max(0.0);
            let step = time.min(left);
            let passed = self.booked[0].min(step);
            self.kept += passed;
            self.booked[0] -= passed;
            time -= step;
            if step < left {
                self.begun += step;
            } else {
                self.begun = 0.0;
                // Nothing is left, but for what was rounded.
                let rest = self.booked.remove(0);
                if rest > 0.0 {
                    self.book(0, rest);
                }
            }
        }
        if self.booked.is_empty() {
            self.begun = 0.0;
        }
    }

    /// Gives a turn. Returns the time after which the limit has room for it.
    pub(super) fn give(&mut self, need: Need) -> Micros {
        let narrowest = (self.unit / 4.0).max(NARROWEST);
        if self.are_none() {
            self.begun = 0.0;
            self.width = narrowest;
        }
        self.given += 1;
        while self.is_long_enough(need.due) && self.width / 2.0 >= narrowest {
            self.narrow();
        }
        let there = self.part_there(need);
        self.kept += there;
        let (mut rest, mut ready) = (need.cost - there, 0.0);
        let begins = (need.due - rest).max(0.0);
        while self.slot(begins) >= SLOTS {
            self.widen();
        }
        let mut slot = self.slot(begins);
        while rest > 0.0 {
            if slot == SLOTS {
                self.widen();
                slot = SLOTS / 2;
            }
            let booked = rest.min(self.free(slot));
            if booked > 0.0 {
                self.book(slot, booked);
                rest -= booked;
                ready = self.begins(slot).max(0.0) + self.booked[slot];
            }
            slot += 1;
        }
        if self.width <= need.narrow && ready <= need.due {
            earlier(need.due.ceil())
        } else {
            later(ready)
        }
    }

    /// Takes a part of a turn of this moment.
    pub(super) fn take(&mut self, cost: f64) {
        self.kept = (self.kept - cost).max(0.0);
    }

    /// Ends a turn of this cost that comes after this time, whether it was taken or not.
    pub(super) fn end(&mut self, mut cost: f64, after: Micros) {
        self.given = self.given.saturating_sub(1);
        if self.are_none() {
            // Nothing is left, but for what was rounded.
            self.booked.clear();
            self.kept = 0.0;
            return;
        }
        if after == Micros::ZERO {
            let kept = cost.min(self.kept);
            self.kept -= kept;
            cost -= kept;
        }
        let last = self.slot(in_micros(after)).saturating_add(1);
        let last = last.min(self.booked.len());
        let (until, behind) = self.booked.split_at_mut(last);
        let until = until.iter_mut().rev();
        // Where the limit has changed, the slots are longer or shorter than they were.
        for booked in until.chain([&mut self.kept]).chain(behind) {
            let taken = cost.min(*booked);
            *booked -= taken;
            cost -= taken;
        }
    }

    /// Returns what a turn takes of what the limit has: what its tenant claims, and what is not free until the turn is due.
    fn part_there(&self, need: Need) -> f64 {
        let there = (need.there - self.kept).max(0.0).min(need.cost);
        if need.due > need.cost {
            return there.min(need.claimed);
        }
        let last = self.slot(need.due).min(SLOTS - 1);
        let after = (self.begins(last) + self.width - need.due).max(0.0);
        let free: f64 = (0..=last).map(|slot| self.free(slot)).sum();
        let missing = need.cost - (free - after).max(0.0);
        there.min(missing.max(need.claimed))
    }

    /// Joins each two slots.
    fn widen(&mut self) {
        let pairs = self.booked.chunks(2);
        self.booked = pairs.map(|pair| pair.iter().sum()).collect();
        self.width *= 2.0;
    }

    /// Returns whether a quarter of the slots are enough for what is booked and for what is due after this time.
    fn is_long_enough(&self, due: f64) -> bool {
        self.booked.len() <= SLOTS / 4 && self.slot(due) < SLOTS / 4
    }

    /// Makes two of each slot: what is booked in it stands at its beginning.
    fn narrow(&mut self) {
        let half = self.width / 2.0;
        let mut booked = Vec::with_capacity(SLOTS);
        for (slot, time) in self.booked.iter().enumerate() {
            let begun = if slot == 0 { self.begun } else { 0.0 };
            let first = time.min((half - begun).max(0.0));
            booked.extend([first, time - first]);
        }
        while booked.pop_if(|last| *last == 0.0).is_some() {}
        if self.begun >= half {
            self.begun -= half;
            booked.drain(..booked.len().min(1));
        }
        (self.booked, self.width) = (booked, half);
    }

    fn book(&mut self, slot: usize, time: f64) {
        if self.booked.len() <= slot {
            self.booked.resize(slot + 1, 0.0);
        }
        self.booked[slot] += time;
    }

    /// Returns the time after which a slot begins.
    fn begins(&self, slot: usize) -> f64 {
        in_slots(slot) * self.width - self.begun
    }

    /// Returns the time of a slot that nobody has booked, from now on.
    fn free(&self, slot: usize) -> f64 {
        let begins = self.begins(slot);
        let left = (begins + self.width - begins.max(0.0)).max(0.0);
        (left - self.booked.get(slot).copied().unwrap_or(0.0)).max(0.0)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "what is too far is behind the last slot"
    )]
    fn slot(&self, after: f64) -> usize {
        ((after + self.begun) / self.width) as usize
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few slots")]
fn in_slots(slot: usize) -> f64 {
    slot as f64
}

#[cfg(test)]
mod tests;
