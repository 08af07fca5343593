//! How the slots of a limit on concurrency are divided among the tenants that ask for them.
//!
//! A slot cannot be taken away from the request that holds it. So what is divided is what is free, by max–min fairness: the *level* is the
//! number of slots, for each unit of weight, up to which all tenants that want more can be filled at once. A tenant *wants* what it has
//! held at once lately, and all that there is while its requests are refused. It is *sated* if that is below the level: what it wants is
//! kept for it. It is *full* if it holds more than the level gives it, and else *hungry*.
//!
//! A request passes if so many slots are free and its tenant is below the level by as many. If it is below by less, it passes in turn: of
//! the time for which slots are held, its tenant must not have used more than the others that want more. That is what the *tag* counts: the
//! virtual time at which a tenant has used its share. A request also passes if slots are left beside what is kept for all others, or if all
//! are free and no other tenant was refused lately.
//!
//! A request of several slots that is refused in turn has a *claim*: the slots that are given back are kept for it until they are enough.
//! Slots that nobody gives back would be waited for without an end, so a claim ends when none has come back for long. After a claim that has
//! ended without its request, the tenant *rests* until the others have had as much as was idle for it: it claims nothing meanwhile, and
//! nothing is kept for what it was refused.
//!
//! The level follows from sums over the tenants of each standing. Who has changed its standing because the level has is found out when the
//! tenant asks, and by a hand that visits all tenants in turn, a few with each request.

mod holder;
mod scale;
mod share;
mod sums;
mod words;

use std::collections::HashMap;

use ahash::RandomState;

use self::holder::{Holder, ROUNDED, Standing};
use self::sums::Sums;
use super::hand::Hand;
use super::times::{earlier, in_all, in_micros, rounded_down};
use crate::clock::Micros;

pub(in crate::store) use self::scale::SlotScale;
pub(in crate::store) use self::share::SlotShare;

/// The tenants of one shared limit.
#[derive(Debug, Default)]
pub(in crate::store) struct Holders {
    virtual_time: f64,
    /// The latest moment that was seen.
    at: Micros,
    sums: Sums,
    /// How many tenants have been refused lately.
    waiting: usize,
    /// The request of several slots that has others wait until so many are free.
    claim: Option<Claim>,
    /// The slots that all tenants hold.
    held: u32,
    tenants: Vec<Holder>,
    places: HashMap<u64, usize, RandomState>,
    hand: Hand,
}

/// A request of a tenant for which slots are kept.
#[derive(Clone, Copy, Debug)]
struct Claim {
    name: u64,
    slots: u32,
    began: Micros,
    /// When a slot was last given back.
    since: Micros,
    /// The time for which slots were idle for it, in microseconds of one slot.
    idle: f64,
}

/// For how many times of `active_for` a claim waits for a slot that is given back.
const PATIENCE: f64 = 5.0;

/// The virtual time that is counted to: 18 minutes of one tenant.
const LATEST: f64 = (1 << 30) as f64;

/// The name of all tenants together that are not told apart.
const OTHERS: u64 = 0;

impl Holders {
    /// Returns how many tenants are kept.
    pub(in crate::store) fn len(&self) -> usize {
        self.tenants.len()
    }

    /// Returns when nothing would change any more if all tenants were forgotten, if none asks again and all slots have ended by this
    /// moment.
    pub(in crate::store) fn lapse_at(&self, ended: Micros, scale: &SlotScale) -> Micros {
        let ended = ended.max(self.at);
        let limit = f64::from(scale.limit.max(1));
        let debts = self.tenants.iter().map(|it| {
            let held_for = in_micros(ended.saturating_sub(it.settled)) / limit;
            let grows = held_for * f64::from(it.held) / f64::from(it.weight);
            it.tag - self.virtual_time + grows
        });
        // Whoever is visited meanwhile may stand elsewhere.
        let weights = self.tenants.iter().map(|it| u64::from(it.weight)).sum();
        let debt = earlier(debts.fold(0.0, f64::max) * in_all(weights));
        let lasts = scale.active_for.max(debt).saturating_add(Micros::new(1));
        let rests = self.tenants.iter().map(|it| it.rests);
        let lapses = ended.saturating_add(lasts.min(Micros::LONGEST));
        rests.fold(lapses, Micros::max)
    }

    /// Returns whether nothing would change if all tenants were forgotten.
    pub(in crate::store) fn are_idle(&self, now: Micros, scale: &SlotScale) -> bool {
        let away = now.saturating_sub(self.at);
        let debts = self.tenants.iter().map(|it| it.tag - self.virtual_time);
        let weights = self.sums.hungry_weights + self.sums.full_weights;
        let longest = debts.fold(0.0, f64::max) * in_all(weights.max(1));
        away > scale.active_for
            && self
                .tenants
                .iter()
                .all(|it| it.held == 0 && it.rests <= now)
            && in_micros(away) > longest
    }

    /// Returns what a request of this tenant may take, which is active from now on, and the place of the tenant until another one asks.
    pub(in crate::store) fn ask(
        &mut self,
        (name, weight): (u64, u32),
        now: Micros,
        scale: &SlotScale,
    ) -> (usize, SlotShare) {
        self.advance(now, scale);
        let place = self.find(name, weight, scale);
        self.rouse(place, weight, scale);
        (place, self.share_of(self.tenants.get(place), scale))
    }

    /// Returns what a request of this tenant might take.
    pub(in crate::store) fn look(&self, name: u64, now: Micros, scale: &SlotScale) -> SlotShare {
        if now.saturating_sub(self.at) > scale.active_for {
            // All tenants have lapsed.
            return SlotShare::whole(scale.limit);
        }
        let places = [name, OTHERS].map(|name| self.places.get(&name));
        let place = places.into_iter().flatten().next();
        self.share_of(place.and_then(|place| self.tenants.get(*place)), scale)
    }

    /// Returns the weights of the tenants but this one that have asked lately.
    pub(in crate::store) fn active_beside(
        &self,
        name: u64,
        now: Micros,
        scale: &SlotScale,
    ) -> impl Iterator<Item = u32> {
        let active_for = scale.active_for;
        let others = self.tenants.iter().filter(move |it| it.name != name);
        let active = others.filter(move |it| now.saturating_sub(it.seen) <= active_for);
        active.map(|it| it.weight)
    }

    /// Counts the slots of a request that has passed, of the tenant at this place.
    pub(in crate::store) fn take(&mut self, place: usize, slots: u32, scale: &SlotScale) {
        let name = self.tenants[place].name;
        match self.claim.filter(|claim| claim.name == name) {
            // It has what was kept for it.
            Some(claim) if slots >= claim.slots => self.claim = None,
            Some(_) => self.end_claim(scale),
            None => {}
        }
        self.hold(place, slots, scale);
    }

    /// Counts the slots that each tenant holds, of these names, unless it has counted as many.
    pub(in crate::store) fn count_anew(
        &mut self,
        held: impl Iterator<Item = (u64, u32)> + Clone,
        now: Micros,
        scale: &SlotScale,
    ) {
        if held.clone().map(|(_, slots)| u64::from(slots)).sum::<u64>() == self.held.into() {
            return;
        }
        self.advance(now, scale);
        for place in 0..self.tenants.len() {
            self.change(place, scale, |tenant| tenant.held = 0);
        }
        self.held = 0;
        for (name, slots) in held {
            let place = self.find(name, 1, scale);
            self.hold(place, slots, scale);
        }
    }

    fn hold(&mut self, place: usize, slots: u32, scale: &SlotScale) {
        self.held = self.held.saturating_add(slots);
        self.change(place, scale, |tenant| {
            tenant.held = tenant.held.saturating_add(slots);
        });
    }

    /// Notes that a request of the tenant at this place was refused, which asked for so many slots.
    pub(in crate::store) fn refuse(
        &mut self,
        (place, share): (usize, SlotShare),
        slots: u32,
        scale: &SlotScale,
    ) {
        if slots > scale.limit {
            return self.pass_by(place, scale);
        }
        let at = self.at;
        let name = self.tenants[place].name;
        // A single slot is kept by the level.
        let is_its_turn =
            slots > 1 && self.tenants[place].rests <= at && (share.is_next || slots <= share.whole);
        match &mut self.claim {
            Some(claim) if claim.name != name => {}
            Some(claim) if is_its_turn => claim.slots = slots,
            Some(_) => self.end_claim(scale),
            none => {
                *none = is_its_turn.then_some(Claim {
                    name,
                    slots,
                    began: at,
                    since: at,
                    idle: 0.0,
                });
            }
        }
        self.change(place, scale, |tenant| {
            tenant.refused = at;
            tenant.waits = true;
        });
    }

    /// Notes that a request of the tenant at this place was not for this limit to decide, so that the tenant does not wait for room.
    pub(in crate::store) fn pass_by(&mut self, place: usize, scale: &SlotScale) {
        let name = self.tenants[place].name;
        if self.claim.is_some_and(|claim| claim.name == name) {
            self.end_claim(scale);
        }
    }

    /// Counts slots that a request of this tenant has given back.
    pub(in crate::store) fn give_back(
        &mut self,
        name: u64,
        slots: u32,
        now: Micros,
        scale: &SlotScale,
    ) {
        self.advance(now, scale);
        let mut left = slots;
        // A tenant may have been one of the others when it took them.
        for name in [name, OTHERS] {
            let place = self.places.get(&name).copied();
            if let Some(place) = place.filter(|_| left > 0) {
                let given = left.min(self.tenants[place].held);
                left -= given;
                self.held = self.held.saturating_sub(given);
                self.change(place, scale, |tenant| tenant.held -= given);
            }
        }
        let at = self.at;
        if let Some(claim) = &mut self.claim
            && left < slots
        {
            claim.since = at;
        }
    }

    /// Counts slots of this tenant that have ended at this moment, which may be before the latest.
    pub(in crate::store) fn end(
        &mut self,
        name: u64,
        slots: u32,
        ended: Micros,
        scale: &SlotScale,
    ) {
        self.give_back(name, slots, ended.max(self.at), scale);
    }

    /// Lets others have the slots that were kept for a request, until its tenant has had no more than its share.
    fn end_claim(&mut self, scale: &SlotScale) {
        let Some(claim) = self.claim.take() else {
            return;
        };
        let (left, weights) = self.sums.shared(scale.limit);
        if let Some(&place) = self.places.get(&claim.name) {
            let tenant = &mut self.tenants[place];
            let passed = self.at.saturating_sub(claim.began);
            // A lower limit may have left nothing.
            let all_was_idle_for = (claim.idle / left).min(in_micros(passed));
            let due = all_was_idle_for * weights / f64::from(tenant.weight);
            let rest = earlier(due).saturating_sub(passed);
            tenant.rests = self.at.saturating_add(rest);
        }
    }

    fn share_of(&self, tenant: Option<&Holder>, scale: &SlotScale) -> SlotShare {
        let mut sums = self.sums;
        if let Some(tenant) = tenant {
            sums.count_out(tenant);
        }
        let (weight, held) = tenant.map_or((1, 0), |it| (it.weight, it.held));
        let below = sums.level(scale.limit, weight) - f64::from(held);
        let whole = rounded_down(below + ROUNDED);
        let is_late = tenant.is_some_and(|it| it.tag > self.virtual_time + ROUNDED);
        let own = tenant.map_or(OTHERS, |it| it.name);
        let claimed = self.claim.filter(|claim| claim.name != own);
        SlotShare {
            whole,
            in_turn: if is_late {
                whole
            } else {
                rounded_down((below - ROUNDED).ceil())
            },
            is_next: !is_late && below > ROUNDED,
            others: match sums.hungry_weights {
                0 => u32::try_from(sums.wanted.saturating_sub(sums.sated)).unwrap_or(u32::MAX),
                // The level has them share all that is free.
                _ => u32::MAX,
            },
            claimed: claimed.map_or(0, |claim| claim.slots),
            is_contended: self.waiting > usize::from(tenant.is_some_and(|it| it.waits)),
            limit: scale.limit,
        }
    }

    /// Moves on to this moment, and visits some tenants.
    fn advance(&mut self, now: Micros, scale: &SlotScale) {
        if now < self.at {
            self.step_back(now);
        }
        let passed = in_micros(now.saturating_sub(self.at));
        self.at = now;
        if let Some(claim) = &mut self.claim {
            let free = scale.limit.saturating_sub(self.held);
            claim.idle += passed * f64::from(free.min(claim.slots));
        }
        self.virtual_time += passed * self.sums.pace(scale.limit);
        if self.virtual_time > LATEST {
            self.begin_anew();
        }
        let active_for = in_micros(scale.active_for);
        self.hand.pass(passed, active_for, self.tenants.len());
        while let Some(place) = self.hand.next(self.tenants.len()) {
            self.visit(place, scale);
        }
        let is_over = |claim: Claim| {
            let place = self.places.get(&claim.name);
            let seen = place.map(|place| self.tenants[*place].seen);
            let is_away = seen.is_none_or(|seen| now.saturating_sub(seen) > scale.active_for);
            let waited = in_micros(now.saturating_sub(claim.since));
            is_away || waited > PATIENCE * in_micros(scale.active_for)
        };
        if self.claim.is_some_and(is_over) {
            self.end_claim(scale);
        }
    }

    /// Follows a clock that has stepped back.
    #[cold]
    fn step_back(&mut self, now: Micros) {
        let by = self.at.saturating_sub(now);
        for tenant in &mut self.tenants {
            for moment in [
                &mut tenant.seen,
                &mut tenant.refused,
                &mut tenant.settled,
                &mut tenant.span,
                &mut tenant.rests,
            ] {
                *moment = moment.saturating_sub(by);
            }
        }
        if let Some(claim) = &mut self.claim {
            claim.began = claim.began.saturating_sub(by);
            claim.since = claim.since.saturating_sub(by);
        }
        self.at = now;
    }

    /// Counts virtual time from now on, so that a short time still changes it.
    #[cold]
    fn begin_anew(&mut self) {
        for tenant in &mut self.tenants {
            tenant.tag -= self.virtual_time;
        }
        self.virtual_time = 0.0;
    }

    /// Returns the place of a tenant, which is made if it is not known.
    fn find(&mut self, name: u64, weight: u32, scale: &SlotScale) -> usize {
        if let Some(&place) = self.places.get(&name) {
            return place;
        }
        let (name, weight) = if self.tenants.len() < scale.tenants {
            (name, weight)
        } else {
            (OTHERS, 1)
        };
        if let Some(&place) = self.places.get(&name) {
            return place;
        }
        let place = self.tenants.len();
        self.tenants.push(Holder {
            name,
            weight,
            standing: Standing::Away,
            held: 0,
            wants: 0,
            tag: self.virtual_time,
            settled: self.at,
            seen: self.at,
            refused: self.at,
            waits: false,
            rests: Micros::ZERO,
            most: [0; 2],
            span: self.at,
        });
        self.places.insert(name, place);
        place
    }

    /// Makes a tenant active.
    fn rouse(&mut self, place: usize, weight: u32, scale: &SlotScale) {
        let (at, virtual_time) = (self.at, self.virtual_time);
        // It gets no more than a slot for the time in which it counts for what it has not used.
        let most = in_micros(scale.active_for) / f64::from(scale.limit.max(1));
        self.change(place, scale, |tenant| {
            let was_away = at.saturating_sub(tenant.seen) > scale.active_for;
            tenant.seen = at;
            let weight = if tenant.name == OTHERS { 1 } else { weight };
            if weight != tenant.weight {
                // What it owes stays as it is.
                let rest = (tenant.tag - virtual_time) * f64::from(tenant.weight);
                tenant.tag = virtual_time + rest / f64::from(weight);
                tenant.weight = weight;
            }
            let most = if was_away { 0.0 } else { most };
            tenant.tag = tenant.tag.max(virtual_time - most / f64::from(weight));
        });
    }

    /// Finds out where a tenant stands, and forgets it if nothing would change.
    fn visit(&mut self, place: usize, scale: &SlotScale) {
        self.change(place, scale, |_| {});
        let tenant = &self.tenants[place];
        let is_late = tenant.tag > self.virtual_time || tenant.rests > self.at;
        if tenant.standing == Standing::Away && tenant.held == 0 && !is_late {
            self.places.remove(&tenant.name);
            self.tenants.swap_remove(place);
            if self.tenants.len() < self.tenants.capacity() / 8 {
                self.tenants.shrink_to(2 * self.tenants.len());
                self.places.shrink_to(2 * self.tenants.len());
            }
            if let Some(moved) = self.tenants.get(place) {
                self.places.insert(moved.name, place);
            }
        }
    }

    /// Changes a tenant, whose use of slots is counted up to this moment, and finds out where it stands.
    fn change(&mut self, place: usize, scale: &SlotScale, change: impl FnOnce(&mut Holder)) {
        let tenant = &mut self.tenants[place];
        self.sums.count_out(tenant);
        self.waiting -= usize::from(tenant.waits);
        let held_for = in_micros(self.at.saturating_sub(tenant.settled)) * f64::from(tenant.held);
        tenant.settled = self.at;
        tenant.tag += held_for / f64::from(scale.limit.max(1)) / f64::from(tenant.weight);
        if self.waiting == 0 {
            // What nobody else waits for is not held against the tenant that has it.
            tenant.tag = tenant.tag.min(self.virtual_time);
        }
        change(tenant);
        tenant.look_back(self.at, scale);
        let share = self.sums.level(scale.limit, tenant.weight);
        tenant.stand(share, self.at, scale);
        self.waiting += usize::from(tenant.waits);
        self.sums.count_in(tenant);
    }
}

#[cfg(all(test, not(tower_ratelimit_loom)))]
mod tests;
