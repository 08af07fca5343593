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
//! So at each moment what is kept and what is booked before a turn are enough for it and for all earlier ones. And the limit has what is
//! kept, since no turn comes later after the time that it books than the burst holds what is granted. When the row is too short, each two
//! slots become one: a turn may then come earlier than its tenant may have the cost, by at most a slot, and if a slot is longer than the
//! burst, what is booked in it may be granted too early to be held.
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

/// What is granted between a turn and the request that comes for it, since it is told whole microseconds.
const ROUNDED: f64 = 3.0;

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
    /// The time in which the whole limit is granted.
    pub(super) fill: f64,
}

impl Need {
    /// Returns how long slots may be in which turns wait until they are due.
    fn widest_to_wait_in(&self) -> f64 {
        self.fill / 4.0
    }

    /// Returns the time that is booked. What follows the whole burst is granted from when it has been taken.
    fn time(&self) -> f64 {
        booked_for(self.cost, self.fill)
    }
}

/// Returns the time that is booked for this cost.
fn booked_for(cost: f64, fill: f64) -> f64 {
    let follows = if cost > fill - ROUNDED { ROUNDED } else { 0.0 };
    cost + follows
}

impl Turns {
    pub(super) fn are_none(&self) -> bool {
        self.given == 0
    }

    /// Returns what is kept for turns.
    pub(super) fn kept(&self) -> f64 {
        self.kept
    }

    /// Returns what is kept beside a turn of this cost, if there is one, which comes after this time.
    pub(super) fn kept_beside(&self, cost: f64, after: Micros, fill: f64) -> f64 {
        let time = if cost > 0.0 {
            booked_for(cost, fill)
        } else {
            0.0
        };
        let own = if after > Micros::ZERO {
            let slots = self.slot(in_micros(after)).saturating_add(1);
            let booked = self.booked.iter().take(slots).sum::<f64>();
            (time - booked).max(0.0)
        } else {
            time
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
        let time = need.time();
        let mut there = self.part_there(time, need);
        let (mut first, mut ready) = self.place(time - there, need);
        if there > 0.0 && self.kept + there + ready.max(need.due) > need.fill {
            // The burst could not hold it beside what is granted until then.
            there = 0.0;
            (first, ready) = self.place(time, need);
        }
        self.kept += there;
        self.book_from(first, time - there);
        if self.width <= need.widest_to_wait_in() && ready <= need.due {
            earlier(need.due.ceil())
        } else {
            later(ready - (time - need.cost))
        }
    }

    /// Takes a part of a turn of this moment, which was of this cost.
    pub(super) fn take(&mut self, part: f64, cost: f64, fill: f64) {
        let time = booked_for(cost, fill) - booked_for(cost - part, fill);
        self.kept = (self.kept - time).max(0.0);
    }

    /// Ends a turn of this cost that comes after this time, whether it was taken or not.
    pub(super) fn end(&mut self, cost: f64, after: Micros, fill: f64) {
        self.given = self.given.saturating_sub(1);
        if self.are_none() {
            // Nothing is left, but for what was rounded.
            self.booked.clear();
            self.kept = 0.0;
            return;
        }
        let mut time = booked_for(cost, fill);
        if after == Micros::ZERO {
            let kept = time.min(self.kept);
            self.kept -= kept;
            time -= kept;
        }
        let last = self.slot(in_micros(after)).saturating_add(1);
        let last = last.min(self.booked.len());
        let (until, behind) = self.booked.split_at_mut(last);
        let until = until.iter_mut().rev();
        // Where the limit has changed, the slots are longer or shorter than they were.
        for booked in until.chain([&mut self.kept]).chain(behind) {
            let taken = time.min(*booked);
            *booked -= taken;
            time -= taken;
        }
    }

    /// Returns the first slot of so much free time, and when it has passed. From when it begins until it has passed and the turn is due, no more
    /// is granted than the burst holds.
    fn place(&mut self, time: f64, need: Need) -> (usize, f64) {
        if time <= 0.0 {
            return (0, 0.0);
        }
        let begins = (need.due - time).max(0.0);
        while self.slot(begins) >= SLOTS {
            self.widen();
        }
        let mut first = self.slot(begins);
        // What is free from the first slot to the one before the last.
        let (mut last, mut free) = (first, 0.0);
        loop {
            if last == SLOTS {
                self.widen();
                (first, last) = (first / 2, SLOTS / 2);
                free = (first..last).map(|slot| self.free(slot)).sum();
            }
            let here = self.free(last);
            if here <= 0.0 || free + here < time {
                free += here;
                last += 1;
                continue;
            }
            let ready = self.booked_until(last) + (time - free);
            let is_narrow = self.width <= need.widest_to_wait_in();
            let due = if is_narrow { need.due } else { 0.0 };
            let held = ready.max(due) - self.booked_until(first);
            // The last digits of a sum may be off.
            let is_held = held <= (need.fill - ROUNDED).max(time) + 1e-3;
            if is_held || !is_narrow && first == last {
                return (first, ready);
            }
            if first < last {
                free = (free - self.free(first)).max(0.0);
                first += 1;
            } else {
                (first, last) = (first + 1, last + 1);
            }
        }
    }

    /// Books so much of what is free from this slot on.
    fn book_from(&mut self, first: usize, mut time: f64) {
        for slot in first..SLOTS {
            let booked = time.min(self.free(slot));
            if booked > 0.0 {
                self.book(slot, booked);
                time -= booked;
            }
        }
    }

    /// Returns what a turn of so much time takes of what the limit has: what its tenant claims, and what is not free until the turn is due.
    fn part_there(&self, time: f64, need: Need) -> f64 {
        let there = (need.there - self.kept).max(0.0).min(time);
        if need.due > time {
            return there.min(need.claimed);
        }
        let last = self.slot(need.due).min(SLOTS - 1);
        let after = (self.begins(last) + self.width - need.due).max(0.0);
        let free: f64 = (0..=last).map(|slot| self.free(slot)).sum();
        let missing = time - (free - after).max(0.0);
        there.min(missing.max(need.claimed))
    }

    /// Joins each two slots.
    fn widen(&mut self) {
        let pairs = self.booked.len().div_ceil(2);
        for slot in 0..pairs {
            let second = self.booked.get(2 * slot + 1).copied();
            self.booked[slot] = self.booked[2 * slot] + second.unwrap_or(0.0);
        }
        self.booked.truncate(pairs);
        self.width *= 2.0;
    }

    /// Returns whether a quarter of the slots are enough for what is booked and for what is due after this time.
    fn is_long_enough(&self, due: f64) -> bool {
        self.booked.len() <= SLOTS / 4 && self.slot(due) < SLOTS / 4
    }

    /// Makes two of each slot: what is booked in it stands at its beginning.
    fn narrow(&mut self) {
        let half = self.width / 2.0;
        let slots = self.booked.len();
        self.booked.resize(2 * slots, 0.0);
        for slot in (0..slots).rev() {
            let begun = if slot == 0 { self.begun } else { 0.0 };
            let time = self.booked[slot];
            let first = time.min((half - begun).max(0.0));
            self.booked[2 * slot] = first;
            self.booked[2 * slot + 1] = time - first;
        }
        while self.booked.pop_if(|last| *last == 0.0).is_some() {}
        if self.begun >= half {
            self.begun -= half;
            self.booked.drain(..self.booked.len().min(1));
        }
        self.width = half;
    }

    fn book(&mut self, slot: usize, time: f64) {
        if self.booked.len() <= slot {
            // None of them allocates later.
            self.booked.reserve_exact(SLOTS - self.booked.len());
            self.booked.resize(slot + 1, 0.0);
        }
        self.booked[slot] += time;
    }

    /// Returns the time after which a slot begins.
    fn begins(&self, slot: usize) -> f64 {
        in_slots(slot) * self.width - self.begun
    }

    /// Returns the time after which what is booked in a slot has passed.
    fn booked_until(&self, slot: usize) -> f64 {
        self.begins(slot).max(0.0) + self.booked.get(slot).copied().unwrap_or(0.0)
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
