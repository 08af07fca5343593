//! How a limit is divided among the tenants that ask for it.
//!
//! The rule is fair queueing by virtual time, without a queue (Parekh and Gallager, *A generalized processor sharing approach to flow
//! control*, 1993). It approaches max–min fairness: what a tenant leaves goes to those that ask for more.
//!
//! All amounts are times in microseconds: that in which the shared limit grants so many units. Virtual time goes on by the real time
//! divided by the weights of the tenants that accrue, so a tenant of weight w accrues w in each microsecond of virtual time. A tenant has
//! a *tag*, the virtual time at which it has used its share, and a charge moves the tag on. What lies between the tag and the present is
//! the tenant's *claim*, or its debt, which is of one request, or of two if a turn has come early. A claim ends at the tenant's share of
//! the burst, unless a request of the tenant waits for room. From then on the tenant does not accrue, and the others accrue faster.
//!
//! A request passes if the limit has room and its tenant claims its cost. It also passes if room is left beside the claims of the others, or
//! if nothing of the limit is used and no other tenant waits. Some requests pass if the limit has room and their tenant has no debt: the
//! first of a tenant that comes, and one of as many units as its tenant's share of the burst or more, since the claims of all would not fit
//! into the burst.
//!
//! A request that is refused has a [turn](super::turns), which is the wait that it is told, and any other request leaves what is kept for
//! turns. A turn comes when the tenant has accrued the cost, beside all that are active; or, if the cost is its share of the burst or more, when
//! it has paid its debt and accrued the part of the cost that the limit does not have. A request takes what its turn is for whatever others
//! claim, and if that is more than its tenant claims, it is a debt.
//!
//! What the others claim is a sum that grows with the time. That a claim has ended, or that a tenant has lapsed, is found out when the
//! tenant asks, and by a hand that visits all tenants in turn, a few with each request. Until then the sum may be too large: a request may
//! be refused for less than what is left, and nobody's claim is taken.
//!
//! `shares.lua` is the same rule for Redis. Items and snapshots have the tenants as [words](Shares::words), which stay the same from
//! version to version.
//!
//! These are the only numbers with a fraction in a decision. They divide what the algorithm of the limit grants, in whole units, and never
//! grant more.

mod amending;
mod concluding;
mod scale;
mod share;
mod tenant;
mod words;

use std::collections::HashMap;

use ahash::RandomState;

use self::tenant::{Standing, Tenant};
use super::hand::Hand;
use super::times::{earlier, in_all, in_micros, later, rounded_down, rounded_up};
use super::turns::Turns;
use crate::clock::Micros;

pub(in crate::store) use self::scale::Scale;
pub(in crate::store) use self::share::Share;

/// The tenants of one shared limit.
#[derive(Debug, Default)]
pub(in crate::store) struct Shares {
    virtual_time: f64,
    /// The latest moment that was seen.
    at: Micros,
    /// The weights of the tenants whose claims grow, and of those whose claims have ended.
    accruing: u64,
    sated: u64,
    /// The claims of both, or more.
    growing: f64,
    still: f64,
    /// How many tenants wait for room.
    waiting: usize,
    /// How many have a turn that was given for more than a quarter of the limit.
    large: usize,
    tenants: Vec<Tenant>,
    places: HashMap<u64, usize, RandomState>,
    hand: Hand,
    turns: Turns,
}

/// The virtual time that is counted to: 18 minutes.
const LATEST: f64 = (1 << 30) as f64;

/// The name of all tenants together that are not told apart.
const OTHERS: u64 = 0;

impl Shares {
    /// Returns how many tenants are kept.
    pub(in crate::store) fn len(&self) -> usize {
        self.tenants.len()
    }

    /// Returns when nothing would change any more if all tenants were forgotten, if none asks again.
    pub(in crate::store) fn lapse_at(&self, scale: &Scale) -> Micros {
        let active = scale.active_for.saturating_add(self.longest_wait());
        let lasts = active.max(later(self.longest_debt()));
        let lasts = lasts.saturating_add(Micros::new(1));
        self.at.saturating_add(lasts.min(Micros::LONGEST))
    }

    /// Returns whether nothing would change if all tenants were forgotten.
    pub(in crate::store) fn are_idle(&self, now: Micros, active_for: Micros) -> bool {
        let away = now.saturating_sub(self.at);
        away > active_for.saturating_add(self.longest_wait())
            && in_micros(away) > self.longest_debt()
    }

    /// Returns the time after which no tenant has a debt, if none asks.
    fn longest_debt(&self) -> f64 {
        let debts = self.tenants.iter().map(|it| it.debt(self.virtual_time));
        // Where nobody is active, virtual time passes as time does.
        debts.fold(0.0, f64::max) * in_all(self.active().max(1))
    }

    /// Returns the time until the last moment at which a tenant was told to come.
    fn longest_wait(&self) -> Micros {
        let told = self.tenants.iter().map(|it| it.seen.max(it.turn_at));
        told.max().unwrap_or_default().saturating_sub(self.at)
    }

    /// Returns what a request of this tenant may take, which is active from now on, and the place of the tenant until another one asks.
    pub(in crate::store) fn ask(
        &mut self,
        (name, weight): (u64, u32),
        now: Micros,
        scale: &Scale,
    ) -> (usize, Share) {
        self.advance(now, scale);
        let place = self.find(name, weight, scale);
        let is_new = self.rouse(place, weight, scale);
        let times = (self.virtual_time, self.growing);
        let tenant = &self.tenants[place];
        let share = self.share_of((Some(tenant), is_new), times, (now, &self.turns), scale);
        (place, share)
    }

    /// Returns what a request of this tenant might take.
    pub(in crate::store) fn look(&self, name: u64, now: Micros, scale: &Scale) -> Share {
        let passed = in_micros(now.saturating_sub(self.at));
        let tenant = self.place_of(name).map(|place| &self.tenants[place]);
        let goes_ahead = tenant.is_none_or(|it| it.standing == Standing::Lapsed);
        let mut turns = self.turns.clone();
        turns.count_in(scale.time_of(1));
        turns.pass(passed);
        let turns = (now, &turns);
        self.share_of((tenant, goes_ahead), self.after(passed), turns, scale)
    }

    /// Returns the place of a tenant, or that of all that are not told apart.
    fn place_of(&self, name: u64) -> Option<usize> {
        let own = self.places.get(&name);
        own.or_else(|| self.places.get(&OTHERS)).copied()
    }

    fn share_of(
        &self,
        (tenant, goes_ahead): (Option<&Tenant>, bool),
        (virtual_time, growing): (f64, f64),
        (now, turns): (Micros, &Turns),
        scale: &Scale,
    ) -> Share {
        let debt = tenant.map_or(0.0, |tenant| tenant.debt(virtual_time));
        let own = tenant.map_or(0.0, |tenant| tenant.part(virtual_time) + tenant.still);
        let claim = tenant.map_or(0.0, |tenant| tenant.claim(virtual_time));
        let accruing = tenant.filter(|tenant| tenant.standing == Standing::Accruing);
        let others = (growing + self.still - own).max(0.0);
        let weight = tenant.map_or(1, |tenant| tenant.weight.into());
        let (active, unit) = (self.active().max(weight), scale.time_of(1));
        let portion = self.portion(weight, scale);
        let others = rounded_up(others / unit);
        let turn = tenant.filter(|tenant| !self.is_too_late(tenant, now, scale));
        let turn = turn.map_or(0, |tenant| tenant.turn);
        let turn_after = tenant.map_or(Micros::ZERO, |tenant| tenant.turn_at.saturating_sub(now));
        let is_alone =
            others == 0 && self.accruing == accruing.map_or(0, |tenant| tenant.weight.into());
        // What it can have of the limit, it claims.
        let of_weight = if is_alone {
            0.0
        } else {
            in_all(active) / in_all(weight)
        };
        Share {
            has_debt: debt > 0.0,
            goes_ahead,
            claim: if debt > 0.0 {
                0
            } else {
                let whole = rounded_down(claim / unit);
                whole.saturating_add((goes_ahead || portion == 0).into())
            },
            portion,
            others,
            is_contended: self.waiting > usize::from(tenant.is_some_and(|tenant| tenant.waits)),
            balance: if debt > 0.0 {
                later(debt * in_all(weight) * of_weight)
            } else {
                earlier(claim * of_weight)
            },
            pace: unit * of_weight,
            limit: scale.limit,
            turn,
            turn_after,
            kept: if turns.kept() > 0.0 {
                let kept = turns.kept_beside(scale.time_of(turn), turn_after, scale.fill());
                // At most a half of the limit, so that turns which nobody takes leave room, unless one is for more than a quarter: there may be
                // several. What is rounded is not a unit more.
                let most = if self.large > 0 {
                    scale.limit
                } else {
                    scale.limit / 2
                };
                rounded_up(kept / unit - 1e-6).min(most)
            } else {
                0
            },
        }
    }

    /// Returns the virtual time, and the growing claims, when this time has passed.
    fn after(&self, passed: f64) -> (f64, f64) {
        match self.accruing {
            // What nobody uses pays the debts.
            0 => (self.virtual_time + passed, 0.0),
            weights => (
                self.virtual_time + passed / in_all(weights),
                self.growing + passed,
            ),
        }
    }

    /// Returns the weights of the tenants but this one that have asked lately.
    pub(in crate::store) fn active_beside(
        &self,
        name: u64,
        now: Micros,
        scale: &Scale,
    ) -> impl Iterator<Item = u32> {
        let active_for = scale.active_for;
        let others = self.tenants.iter().filter(move |it| it.name != name);
        let active = others.filter(move |it| now.saturating_sub(it.seen) <= active_for);
        active.map(|it| it.weight)
    }

    fn active(&self) -> u64 {
        self.accruing + self.sated
    }

    /// Brings all claims to this moment, and visits some tenants.
    fn advance(&mut self, now: Micros, scale: &Scale) {
        if now < self.at {
            self.step_back(now);
        }
        let passed = in_micros(now.saturating_sub(self.at));
        self.at = now;
        self.turns.count_in(scale.time_of(1));
        self.turns.pass(passed);
        (self.virtual_time, self.growing) = self.after(passed);
        if self.virtual_time > LATEST {
            self.begin_anew();
        }
        let active_for = in_micros(scale.active_for);
        self.hand.pass(passed, active_for, self.tenants.len());
        while let Some(place) = self.hand.next(self.tenants.len()) {
            self.visit(place, scale);
        }
    }

    /// Follows a clock that has stepped back.
    #[cold]
    fn step_back(&mut self, now: Micros) {
        let by = self.at.saturating_sub(now);
        for tenant in &mut self.tenants {
            tenant.seen = tenant.seen.saturating_sub(by);
            tenant.turn_at = tenant.turn_at.saturating_sub(by);
        }
        self.at = now;
    }

    /// Counts virtual time from now on, so that a short time still changes it.
    #[cold]
    fn begin_anew(&mut self) {
        for tenant in &mut self.tenants {
            tenant.tag -= self.virtual_time;
            tenant.since -= self.virtual_time;
        }
        self.virtual_time = 0.0;
    }

    /// Returns the place of a tenant, which is made if it is not known.
    fn find(&mut self, name: u64, weight: u32, scale: &Scale) -> usize {
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
        self.tenants.push(Tenant {
            name,
            weight,
            standing: Standing::Lapsed,
            tag: self.virtual_time,
            since: self.virtual_time,
            still: 0.0,
            seen: Micros::ZERO,
            waits: false,
            turn: 0,
            turn_at: Micros::ZERO,
            is_large: false,
        });
        self.places.insert(name, place);
        place
    }

    /// Lets a tenant accrue. Returns whether it was not active until now.
    fn rouse(&mut self, place: usize, weight: u32, scale: &Scale) -> bool {
        self.visit_known(place, scale);
        let is_new = self.tenants[place].standing == Standing::Lapsed;
        let most = self.most(place, scale);
        self.count_out(place);
        let tenant = &mut self.tenants[place];
        // It may have been told to come later.
        tenant.seen = tenant.seen.max(self.at);
        if tenant.standing == Standing::Lapsed && tenant.debt(self.virtual_time) == 0.0 {
            // It has accrued nothing while it was away.
            tenant.tag = self.virtual_time;
        }
        let weight = if tenant.name == OTHERS { 1 } else { weight };
        if weight != tenant.weight {
            // What it claims or owes stays as it is.
            let rest = (tenant.tag - self.virtual_time) * f64::from(tenant.weight);
            tenant.tag = self.virtual_time + rest / f64::from(weight);
            tenant.weight = weight;
        }
        if !tenant.waits {
            tenant.tag = tenant
                .tag
                .max(self.virtual_time - most / f64::from(tenant.weight));
        }
        (tenant.standing, tenant.still) = (Standing::Accruing, 0.0);
        self.count_in(place);
        is_new
    }

    /// Visits a tenant, and forgets it if it has lapsed and has neither a debt nor a turn. A turn does not keep the place from one that asks.
    fn visit(&mut self, place: usize, scale: &Scale) {
        self.visit_known(place, scale);
        let tenant = &self.tenants[place];
        let keeps_turn = tenant.turn > 0 && self.tenants.len() < scale.tenants;
        let is_gone = tenant.standing == Standing::Lapsed && !keeps_turn;
        if is_gone && tenant.debt(self.virtual_time) == 0.0 {
            self.end_turn(place, scale);
            let tenant = &self.tenants[place];
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

    /// Finds out whether a tenant has lapsed, and whether its claim or its turn has ended.
    fn visit_known(&mut self, place: usize, scale: &Scale) {
        if self.is_too_late(&self.tenants[place], self.at, scale) {
            self.end_turn(place, scale);
        }
        let most = self.most(place, scale);
        self.count_out(place);
        let virtual_time = self.virtual_time;
        let tenant = &mut self.tenants[place];
        if self.at.saturating_sub(tenant.seen) > scale.active_for {
            (tenant.standing, tenant.still) = (Standing::Lapsed, 0.0);
            self.stop_waiting(place);
            return;
        }
        let claim = tenant.claim(virtual_time);
        (tenant.standing, tenant.still) = if claim < most || tenant.waits {
            (Standing::Accruing, 0.0)
        } else {
            (Standing::Sated, most)
        };
        self.count_in(place);
    }

    /// Returns the whole units below the share of the burst of a tenant of this weight.
    fn portion(&self, weight: u64, scale: &Scale) -> u32 {
        let active = self.active().max(weight);
        let portion = (u64::from(scale.limit) * weight).saturating_sub(1) / active;
        u32::try_from(portion).unwrap_or(u32::MAX)
    }

    /// Returns the most that a tenant may claim that does not wait: its share of the burst, or one unit.
    fn most(&self, place: usize, scale: &Scale) -> f64 {
        let tenant = &self.tenants[place];
        let active = self.active().max(tenant.weight.into());
        let share = scale.fill() * f64::from(tenant.weight) / in_all(active);
        share.max(scale.time_of(1))
    }

    /// Returns the virtual time of the most that a tenant may claim that does not wait: nothing while it is away.
    fn longest_claim(&self, place: usize, scale: &Scale) -> f64 {
        let tenant = &self.tenants[place];
        match tenant.standing {
            Standing::Lapsed => 0.0,
            Standing::Accruing | Standing::Sated => {
                self.most(place, scale) / f64::from(tenant.weight)
            }
        }
    }

    fn change(&mut self, place: usize, change: impl FnOnce(&mut Tenant, f64)) {
        self.count_out(place);
        change(&mut self.tenants[place], self.virtual_time);
        self.count_in(place);
    }

    fn stop_waiting(&mut self, place: usize) {
        let tenant = &mut self.tenants[place];
        self.waiting -= usize::from(tenant.waits);
        tenant.waits = false;
    }

    /// Takes a tenant out of the sums.
    fn count_out(&mut self, place: usize) {
        let tenant = &self.tenants[place];
        let weight = u64::from(tenant.weight);
        // A sum of nothing is 0, whatever was rounded before.
        let without = |sum: f64, part: f64, weights: u64| match weights {
            0 => 0.0,
            _ => (sum - part).max(0.0),
        };
        match tenant.standing {
            Standing::Accruing => {
                let part = tenant.part(self.virtual_time);
                self.accruing -= weight;
                self.growing = without(self.growing, part, self.accruing);
            }
            Standing::Sated => {
                self.sated -= weight;
                self.still = without(self.still, tenant.still, self.sated);
            }
            Standing::Lapsed => {}
        }
    }

    /// Counts a tenant in the sums.
    fn count_in(&mut self, place: usize) {
        let tenant = &mut self.tenants[place];
        let weight = u64::from(tenant.weight);
        match tenant.standing {
            Standing::Accruing => {
                tenant.since = tenant.tag.min(self.virtual_time);
                self.accruing += weight;
                self.growing += tenant.part(self.virtual_time);
            }
            Standing::Sated => {
                self.sated += weight;
                self.still += tenant.still;
            }
            Standing::Lapsed => {}
        }
    }
}

#[cfg(test)]
mod tests;
