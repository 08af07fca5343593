//! The change to the records of one policy.

use super::item::Item;
use super::others::{Asked, Others};
use super::own::{Own, Span};
use super::rule;
use super::slots::Holding;
use crate::algorithm::{Algorithm, State};
use crate::clock::Micros;
use crate::decision::DenialEffect;
use crate::decision::Outcome;
use crate::policy::{Alternative, Offences, Penalty};
use crate::store::alternatives::Choice;
use crate::store::fair::Ending;
use crate::store::{Amendment, KeyOutlook, TenantShare};

/// One policy's part of a change.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// The index of the name of the item that has the state.
    pub(super) item: usize,
    /// The same of that which has the block: another one, if the limit is divided among tenants.
    pub(super) home: usize,
    pub(super) policy: usize,
    /// The algorithm with the limit of the policy.
    pub(super) algorithm: Algorithm,
    /// The algorithm with the limit of the charge, which applies unless the key has an override.
    pub(super) limit: Algorithm,
    pub(super) tags: Tags,
    pub(super) penalty: Option<Penalty>,
    pub(super) cost: u32,
    pub(super) is_soft: bool,
    pub(super) is_shadow: bool,
    /// Its place among parts of which one is charged.
    pub(super) alternative: Option<Alternative>,
    /// How others have a part of the limit, if they have.
    pub(super) others: Option<Others>,
}

/// The tags of a policy's records in an item.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tags {
    pub(super) state: u64,
    pub(super) block: u64,
    pub(super) offences: u64,
    pub(super) own: u64,
    pub(super) children: u64,
    pub(super) tenants: u64,
}

/// The state of a key under one policy, before any charge.
pub(super) struct KeyState {
    outcome: Outcome,
    state: State,
    own: Option<Own>,
    /// The block, if it has not ended, moved back if the clock has stepped back.
    block: Option<Span>,
    /// Whether the state or the override was moved back, or the state has to be kept for longer.
    is_moved: bool,
    /// The others that have a part of the limit.
    others: Option<Asked>,
}

impl KeyState {
    /// Reads it, and makes nobody active if it only looks.
    pub(super) fn of(part: &Part, items: &[Item], now: Micros, only_looks: bool) -> Self {
        let item = &items[part.item];
        let mut state = part.state(item, now);
        let own = part.own(item, now);
        let limit = part.limit(own.as_ref());
        let others = part.others.as_ref().and_then(|others| {
            let (free, _) = rule::look(limit, state.clone(), now, (0, 0));
            others.ask(item, limit, (free.remaining(), now), only_looks)
        });
        let needs = others.as_ref().map_or(part.cost, |it| it.needs(part.cost));
        let (outcome, moved) = rule::look(limit, state.clone(), now, (part.cost, needs));
        let is_moved =
            moved.is_some() || own.is_some_and(|own| own.words() != *item.words(part.tags.own));
        if let Some(moved) = moved {
            state = moved;
        }
        // Under a lower limit than before the state lasts longer.
        let until = now.saturating_add(rule::lasts(limit, state.clone(), now));
        let is_short = until > now && item.until_of(part.tags.state) < until;
        Self {
            outcome,
            state,
            own,
            block: part.block_of(&items[part.home], now),
            is_moved: is_moved || is_short,
            others,
        }
    }

    /// Returns the state from which later outcomes are computed.
    pub(super) fn outlook(self, part: &Part, now: Micros) -> KeyOutlook {
        KeyOutlook {
            policy: part.policy,
            algorithm: part.algorithm,
            own: self.own.map(|own| own.limit),
            state: self.state,
            at: now,
            blocked: self.block.map_or(Micros::ZERO, |block| block.left(now)),
        }
    }

    pub(super) fn passes(&self, part: &Part) -> bool {
        part.is_shadow || (part.is_soft || self.outcome.is_allowed()) && !self.is_blocked()
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.block.is_some()
    }

    /// Returns how many units the policy grants, as long as the key is not blocked.
    pub(super) fn remaining(&self) -> u32 {
        let left = self.outcome.remaining();
        self.others.as_ref().map_or(left, |others| others.of(left))
    }

    /// Returns whether the limit has no room for a request.
    fn is_refused(&self, cost: u32) -> bool {
        cost > 0 && !self.outcome.is_allowed() && !self.is_blocked()
    }

    /// Returns whether a limit that is divided among tenants has no room for a request, to which it may give a turn.
    pub(super) fn gives_turn(&self, part: &Part) -> bool {
        let others = self.others.as_ref();
        others.is_some_and(|others| others.give_turns(part.cost)) && self.is_refused(part.cost)
    }
}

impl Part {
    /// Returns whether a store of this version can have written all of the item that only this part looks at.
    pub(super) fn is_legible(&self, item: &Item) -> bool {
        let others = self.others.as_ref();
        others.is_none_or(|others| others.are_legible(item))
    }

    /// Returns whether the limit depends on the hour.
    pub(super) fn has_hours(&self) -> bool {
        self.limit.has_hours()
    }

    /// Returns what becomes of it, if it is one of several of which one is charged.
    pub(super) fn choice<'a>(
        &self,
        each: impl Iterator<Item = (&'a Self, &'a KeyState)>,
        has_room: impl Fn(&Self, &KeyState) -> bool,
    ) -> Option<Choice> {
        let members =
            each.filter_map(|(part, seen)| Some((part.alternative?, has_room(part, seen))));
        Some(self.alternative?.choice(members))
    }

    /// Returns what a denial of this policy does to the request.
    pub(super) fn effect(&self) -> DenialEffect {
        match (self.is_shadow, self.is_soft) {
            (true, _) => DenialEffect::Shadow,
            (false, true) => DenialEffect::Soft,
            (false, false) => DenialEffect::Full,
        }
    }

    /// Writes the outcome of a request and, if all policies allow it, charges it in the items, if there are
    /// items to change. `denied_elsewhere` says whether another policy denies it, other than one that gives it a turn as well.
    pub(super) fn charge(
        &self,
        seen: KeyState,
        items: Option<&mut [Item]>,
        now: Micros,
        (allowed, denied_elsewhere): (bool, bool),
    ) -> Outcome {
        let is_refused = seen.is_refused(self.cost) && !denied_elsewhere;
        let KeyState {
            mut outcome,
            mut state,
            own,
            mut block,
            is_moved,
            mut others,
        } = seen;
        // A request without a slot asks, and takes none.
        let only_asks = self.holding().is_some_and(|holding| holding.number == 0);
        let is_charged =
            allowed && outcome.is_allowed() && block.is_none() && self.cost > 0 && !only_asks;
        if is_charged {
            (outcome, state) = self.limit(own.as_ref()).step(state, now, self.cost);
        }
        let taken = if is_charged { self.cost } else { 0 };
        let was_blocked = block.is_some();
        let mut is_penalized = false;
        if let Some(items) = items {
            if let Some(others) = &mut others {
                let ending = match (is_charged, is_refused) {
                    (true, _) => Ending::Passed,
                    (false, true) => Ending::Refused(outcome.reset_micros()),
                    (false, false) => Ending::Elsewhere,
                };
                others.keep(&mut items[self.item], ending, self.cost);
            }
            if self.cost > 0 && (is_charged || is_moved) && self.holding().is_none() {
                self.keep(&mut items[self.item], &state, own, now);
            }
            if self.cost > 0 {
                let home = &mut items[self.home];
                if !self.is_soft && (block.is_some() || !outcome.is_allowed()) {
                    let new = self.penalize(home, now, block);
                    is_penalized = new.is_some();
                    block = new.or(block);
                }
                if let Some(block) = block {
                    self.keep_block(home, block);
                }
            }
        }
        let limit = self.limit(own.as_ref());
        if own.is_some() {
            outcome = outcome.overridden(limit.period());
        } else if *limit != self.algorithm {
            outcome = outcome.within(limit.period());
        }
        if let Some(others) = others.filter(|_| !was_blocked) {
            others.tell(&mut outcome, (self.cost, taken));
        }
        match block {
            Some(block) if is_penalized => outcome.penalized_for(block.left(now)),
            Some(block) => outcome.blocked_for(block.left(now)),
            None => outcome,
        }
    }

    /// Changes the state of a key; see [`Backend::amend`](crate::store::Backend::amend).
    pub(super) fn amend(&self, item: &mut Item, now: Micros, amendment: Amendment) -> bool {
        if let Some(holding) = self.holding().filter(|_| !amendment.is_of_blocks()) {
            holding.amend(item, now, amendment);
            return !matches!(amendment, Amendment::GiveBack(_));
        }
        let (mut own, mut state) = (self.own(item, now), self.state(item, now));
        let limit = *self.limit(own.as_ref());
        if let Amendment::GiveBack(departure) = amendment {
            let (left, are_last) =
                rule::give_back(&limit, state, now, self.cost, departure.begins());
            if !are_last {
                return false;
            }
            state = left;
        }
        if let Some(others) = self.others.filter(|_| !amendment.is_of_blocks()) {
            others.amend(item, (self.cost, now), (&self.limit, amendment));
        }
        let state = match amendment {
            Amendment::GiveBack(_) => state,
            Amendment::Refund => limit.refund(state, now, self.cost),
            Amendment::TakeBack(taken) if now < taken.until() => {
                limit.refund(state, now, self.cost)
            }
            Amendment::TakeBack(_) | Amendment::Release => return true,
            Amendment::Settle | Amendment::Add(_) => limit.settle(state, now, self.cost),
            Amendment::Reset => State::NEW,
            Amendment::Block(length) => {
                self.block(item, now, length);
                return true;
            }
            Amendment::Unblock => {
                let was_blocked = self.block_of(item, now).is_some();
                item.put(self.tags.offences, &[], Micros::ZERO);
                item.put(self.tags.block, &[], Micros::ZERO);
                return was_blocked;
            }
            // Until this moment a debt drains under the previous limit.
            Amendment::Override(another, length) => {
                let Some(another) = self.algorithm.without_hours().under(another) else {
                    return true;
                };
                let span = Span::new(now, length);
                own = Some(Own {
                    span,
                    limit: another,
                });
                limit.refund(state, now, 0)
            }
            // Without an override the debt drains as before.
            Amendment::EndOverride if own.is_none() => return true,
            Amendment::EndOverride => {
                own = None;
                limit.refund(state, now, 0)
            }
        };
        self.keep(item, &state, own, now);
        true
    }

    /// Returns the part of the tenant that asks, if the limit is divided.
    pub(super) fn share(&self, item: &Item, now: Micros) -> Option<TenantShare> {
        self.others.as_ref()?.share(item, now)
    }

    /// Returns how the slots of the key are held, if the policy is on concurrency.
    pub(super) fn holding(&self) -> Option<&Holding> {
        match &self.others {
            Some(Others::Holders(holding)) => Some(holding),
            _ => None,
        }
    }

    fn state(&self, item: &Item, now: Micros) -> State {
        match self.holding() {
            Some(holding) => State::from_words(&[holding.taken(item, now).into()]),
            None => State::from_words(item.words(self.tags.state)),
        }
    }

    /// Returns the override of the key at this moment, moved back if the clock has stepped back.
    fn own(&self, item: &Item, now: Micros) -> Option<Own> {
        let mut own = Own::of(item.words(self.tags.own), &self.algorithm)?;
        own.span = own.span.moved_back(now);
        (own.span.until > now).then_some(own)
    }

    fn limit<'a>(&'a self, own: Option<&'a Own>) -> &'a Algorithm {
        own.map_or(&self.limit, |own| &own.limit)
    }

    /// Writes a state, and the override of the key.
    fn keep(&self, item: &mut Item, state: &State, own: Option<Own>, now: Micros) {
        let lasts = |limit| now.saturating_add(rule::lasts(limit, state.clone(), now));
        let limit = self.limit(own.as_ref());
        let mut until = lasts(limit);
        if *limit != self.algorithm {
            // The state may last longer under the policy's limit.
            until = until.max(lasts(&self.algorithm));
        }
        let own = own.map(|own| (own.words(), own.span.until));
        let own = own.as_ref().map(|(words, end)| (&words[..], *end));
        let (owns, end) = own.unwrap_or_default();
        let is_short = until > now && item.until_of(self.tags.state) < until;
        let is_same = state.words() == item.words(self.tags.state);
        if is_short || !is_same || owns != item.words(self.tags.own) {
            // A state that is as good as new is not stored.
            let words = if until > now { state.words() } else { &[] };
            item.put(self.tags.state, words, until);
            item.put(self.tags.own, owns, end);
        }
    }

    /// Returns the block of the key at this moment, moved back if the clock has stepped back.
    fn block_of(&self, item: &Item, now: Micros) -> Option<Span> {
        let block = Span::of(item.words(self.tags.block))?.moved_back(now);
        (block.until > now).then_some(block)
    }

    fn keep_block(&self, item: &mut Item, block: Span) {
        if block.words() != *item.words(self.tags.block) {
            item.put(self.tags.block, &block.words(), block.until);
        }
    }

    /// Returns how many refusals count now.
    pub(super) fn refusals(&self, item: &Item, now: Micros) -> u32 {
        let Some(penalty) = &self.penalty else {
            return 0;
        };
        Offences::of_words(item.words(self.tags.offences)).counting(now, penalty)
    }

    /// Counts a refusal, and returns the block that begins with it, if one does.
    fn penalize(&self, item: &mut Item, now: Micros, block: Option<Span>) -> Option<Span> {
        let penalty = self.penalty?;
        let mut offences = Offences::of_words(item.words(self.tags.offences));
        let before = offences.clone();
        let length = offences.note(now, &penalty, block.is_some());
        if offences != before {
            item.put(
                self.tags.offences,
                &offences.words(),
                offences.last_until(&penalty),
            );
        }
        let new = Span::new(now, length?);
        block.is_none_or(|old| old.until < new.until).then_some(new)
    }

    fn block(&self, item: &mut Item, now: Micros, length: Micros) {
        let new = Span::new(now, length);
        let old = Span::of(item.words(self.tags.block));
        let old = old.map_or(now, |block| block.moved_back(now).until);
        if new.until > old {
            self.keep_block(item, new);
        }
    }
}
