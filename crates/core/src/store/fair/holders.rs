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

use std::collections::HashMap;

use ahash::RandomState;

use super::hand::Hand;
use super::times::{fraction, in_micros};
use crate::algorithm::Algorithm;
use crate::clock::Micros;
use crate::decision::Outcome;
use crate::policy::{Fair, MOST_TENANTS};

/// What the rule has to know of the shared limit and of its tenants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::store) struct SlotScale {
    /// The slots of the whole limit.
    pub(in crate::store) limit: u32,
    /// How long a tenant counts that does not ask.
    pub(in crate::store) active_for: Micros,
    /// How many tenants are told apart.
    pub(in crate::store) tenants: usize,
}

impl SlotScale {
    /// Returns that of a policy with this algorithm, or `None` if it grants nothing.
    pub(in crate::store) fn of(algorithm: &Algorithm, fair: &Fair) -> Option<Self> {
        Some(Self {
            limit: algorithm.limit()?,
            active_for: fair.is_active_for(),
            tenants: fair.tenants(),
        })
    }
}

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

/// The tenants of each standing together.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    hungry_weights: u64,
    full_weights: u64,
    /// The slots that are held by the full tenants, by the sated ones, and by those that are away.
    full: u64,
    sated: u64,
    away: u64,
    /// The slots that the sated tenants want.
    wanted: u64,
}

#[derive(Debug)]
struct Holder {
    name: u64,
    weight: u32,
    standing: Standing,
    held: u32,
    /// The slots that it wants, as they were when it was counted.
    wants: u32,
    /// When it has used its share of the time for which slots are held, in virtual time.
    tag: f64,
    /// The time for which slots are held is counted in the tag up to this moment.
    settled: Micros,
    /// When it has last asked, and when it was last refused.
    seen: Micros,
    refused: Micros,
    /// Whether it was refused lately.
    waits: bool,
    /// Until when it claims no slots.
    rests: Micros,
    /// The most slots that it has held in this span, which began then, and in the one before.
    most: [u32; 2],
    span: Micros,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It wants more than the level gives it, and does not hold more.
    Hungry,
    /// It holds more.
    Full,
    Sated,
    /// It has not asked for long.
    Away,
}

/// What a request of a tenant may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct SlotShare {
    /// The slots by which the tenant is below the level.
    whole: u32,
    /// The same, and the part of one more that is left, if it is its turn.
    in_turn: u32,
    /// Whether a request may pass that asks for more than that, because it is its turn.
    is_next: bool,
    /// The free slots that are kept for others.
    others: u32,
    /// The free slots that a large request of another tenant waits for.
    claimed: u32,
    /// Whether another tenant was refused lately, so that unused slots are left to it.
    is_contended: bool,
    limit: u32,
}

/// For how many times of `active_for` a claim waits for a slot that is given back.
const PATIENCE: f64 = 5.0;

/// The virtual time that is counted to: 18 minutes of one tenant.
const LATEST: f64 = (1 << 30) as f64;

/// A difference of slots, or of microseconds, that is due to rounding.
const ROUNDED: f64 = 1e-6;

/// The name of all tenants together that are not told apart.
const OTHERS: u64 = 0;

/// How many words come before those of the tenants, and how many a tenant is.
const HEAD: usize = 9;
const WORDS: usize = 9;

impl SlotShare {
    /// The rule in Lua, for stores that run it where the state is.
    pub(in crate::store) const LUA: &str = include_str!("holders.lua");

    /// Reads what the rule in Lua has told, and how many slots the request has taken.
    pub(in crate::store) fn read(words: &[u64]) -> Option<(Self, u32)> {
        let &[
            whole,
            in_turn,
            is_next,
            others,
            claimed,
            is_contended,
            limit,
            taken,
        ] = words
        else {
            return None;
        };
        let share = Self {
            whole: whole.try_into().ok()?,
            in_turn: in_turn.try_into().ok()?,
            is_next: is_next != 0,
            others: others.try_into().ok()?,
            claimed: claimed.try_into().ok()?,
            is_contended: is_contended != 0,
            limit: limit.try_into().ok()?,
        };
        Some((share, taken.try_into().ok()?))
    }

    /// Writes into an outcome of the limit what is left for the tenant, whose request has taken so many slots.
    pub(in crate::store) fn tell(&self, outcome: &mut Outcome, taken: u32) {
        if outcome.is_blocked() {
            return;
        }
        let told = outcome.with_remaining(self.of(outcome.remaining(), taken));
        *outcome = if outcome.is_allowed() {
            told
        } else {
            told.denied(None)
        };
    }

    /// The whole of this limit, undivided.
    pub(in crate::store) fn whole(limit: u32) -> Self {
        Self {
            whole: limit,
            in_turn: limit,
            is_next: true,
            others: 0,
            claimed: 0,
            is_contended: false,
            limit,
        }
    }

    /// Returns whether a request of this cost passes if so many slots are free.
    pub(in crate::store) fn passes(&self, free: u32, cost: u32) -> bool {
        let is_free = self.is_all_free(free);
        let free = free.saturating_sub(self.claimed);
        let passes = cost <= self.whole || self.is_next || cost <= self.beside_others(free);
        cost <= free && (passes || is_free)
    }

    /// Returns how many slots the tenant may take one by one, if so many are free and it has just taken some.
    pub(in crate::store) fn of(&self, free: u32, taken: u32) -> u32 {
        let is_free = self.is_all_free(free);
        let free = free.saturating_sub(self.claimed);
        let own = self.in_turn.saturating_sub(taken).max(is_free.into());
        own.max(self.beside_others(free)).min(free)
    }

    /// Returns whether all slots are free, and no other tenant waits for them.
    fn is_all_free(&self, free: u32) -> bool {
        free == self.limit && !self.is_contended
    }

    fn beside_others(&self, free: u32) -> u32 {
        free.saturating_sub(self.others)
    }
}

impl Holders {
    /// Returns how many tenants are kept.
    pub(in crate::store) fn len(&self) -> usize {
        self.tenants.len()
    }

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
        let debt = in_whole_micros(debts.fold(0.0, f64::max) * in_slots(weights));
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
        let longest = debts.fold(0.0, f64::max) * in_slots(weights.max(1));
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
            let rest = in_whole_micros(due).saturating_sub(passed);
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

impl Holder {
    fn read(words: [u64; WORDS]) -> Option<Self> {
        let [name, traits, slots, tag, moments @ ..] = words;
        let [weight, standing, waits, 0, before @ ..] = traits.to_be_bytes() else {
            return None;
        };
        let [settled, seen, refused, rests, span] = moments.map(Micros::new);
        let most = [low(slots), u32::from_be_bytes(before)];
        Some(Self {
            name,
            weight: (weight > 0).then_some(weight.into())?,
            standing: match standing {
                0 => Standing::Away,
                1 => Standing::Hungry,
                2 => Standing::Full,
                3 => Standing::Sated,
                _ => return None,
            },
            held: low(slots >> 32),
            wants: most[0].max(most[1]),
            tag: fraction(tag)?,
            settled,
            seen,
            refused,
            waits: waits != 0,
            rests,
            most,
            span,
        })
    }

    fn words(&self) -> [u64; WORDS] {
        let standing = match self.standing {
            Standing::Away => 0,
            Standing::Hungry => 1,
            Standing::Full => 2,
            Standing::Sated => 3,
        };
        let weight = u8::try_from(self.weight).unwrap_or(u8::MAX);
        let [most, before] = self.most;
        let [a, b, c, d] = before.to_be_bytes();
        let traits = [weight, standing, self.waits.into(), 0, a, b, c, d];
        [
            self.name,
            u64::from_be_bytes(traits),
            u64::from(self.held) << 32 | u64::from(most),
            self.tag.to_bits(),
            self.settled.get(),
            self.seen.get(),
            self.refused.get(),
            self.rests.get(),
            self.span.get(),
        ]
    }

    /// Finds out how many slots it wants, and whether it was refused lately.
    fn look_back(&mut self, now: Micros, scale: &SlotScale) {
        let span = now.saturating_sub(self.span);
        if span > scale.active_for {
            let is_next = span.saturating_sub(scale.active_for) <= scale.active_for;
            self.most = [self.held, if is_next { self.most[0] } else { 0 }];
            self.span = now;
        }
        self.most[0] = self.most[0].max(self.held);
        self.wants = self.most[0].max(self.most[1]);
        self.waits &= now.saturating_sub(self.refused) <= scale.active_for;
    }

    /// Finds out where it stands if the level gives it so many slots.
    fn stand(&mut self, share: f64, now: Micros, scale: &SlotScale) {
        self.standing = if now.saturating_sub(self.seen) > scale.active_for {
            Standing::Away
        } else if !(self.waits && self.rests <= now) && f64::from(self.wants) <= share + ROUNDED {
            Standing::Sated
        } else if f64::from(self.held) > share + ROUNDED {
            Standing::Full
        } else {
            Standing::Hungry
        };
    }
}

impl Sums {
    /// Returns how many slots the level gives to a tenant of this weight that is in none of the sums.
    fn level(&self, limit: u32, weight: u32) -> f64 {
        let taken = self.wanted + self.full + self.away;
        let left = u64::from(limit).saturating_sub(taken);
        let weights = self.hungry_weights + u64::from(weight);
        in_slots(left) * f64::from(weight) / in_slots(weights)
    }

    /// Returns how fast virtual time goes on: by the part of the limit that tenants share which want more than they have.
    fn pace(&self, limit: u32) -> f64 {
        let (left, weights) = self.shared(limit);
        if weights > 0.0 {
            left / f64::from(limit.max(1)) / weights
        } else {
            1.0
        }
    }

    /// Returns the slots that tenants share which want more than they have, and the weights of these.
    fn shared(&self, limit: u32) -> (f64, f64) {
        let left = u64::from(limit).saturating_sub(self.sated + self.away);
        let weights = self.hungry_weights + self.full_weights;
        (in_slots(left), in_slots(weights))
    }

    fn count_out(&mut self, tenant: &Holder) {
        let (weight, held) = (u64::from(tenant.weight), u64::from(tenant.held));
        match tenant.standing {
            Standing::Hungry => self.hungry_weights -= weight,
            Standing::Full => {
                self.full_weights -= weight;
                self.full -= held;
            }
            Standing::Sated => {
                self.sated -= held;
                self.wanted -= u64::from(tenant.wants);
            }
            Standing::Away => self.away -= held,
        }
    }

    fn count_in(&mut self, tenant: &Holder) {
        let (weight, held) = (u64::from(tenant.weight), u64::from(tenant.held));
        match tenant.standing {
            Standing::Hungry => self.hungry_weights += weight,
            Standing::Full => {
                self.full_weights += weight;
                self.full += held;
            }
            Standing::Sated => {
                self.sated += held;
                self.wanted += u64::from(tenant.wants);
            }
            Standing::Away => self.away += held,
        }
    }
}

/// Returns the lower half of a word.
fn low(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time that is too long is cut, and one below 0 is 0"
)]
fn in_whole_micros(time: f64) -> Micros {
    Micros::new(time as u64)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a sum of slots or of weights that passes 2^53 is rounded"
)]
fn in_slots(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number that is too large is cut, and one below 0 is 0"
)]
fn rounded_down(number: f64) -> u32 {
    number as u32
}

#[cfg(all(test, not(tower_ratelimit_loom)))]
mod tests;
