use super::item::Item;
use super::own::{Own, Span};
use super::rule;
use crate::algorithm::{Algorithm, State};
use crate::clock::Micros;
use crate::decision::Outcome;
use crate::store::Amendment;

/// One policy's part of a change.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// The place of the item's name.
    pub(super) item: usize,
    pub(super) policy: usize,
    pub(super) algorithm: Algorithm,
    pub(super) tags: Tags,
    pub(super) cost: u32,
    pub(super) is_soft: bool,
}

/// What an item calls the records of a policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tags {
    pub(super) state: u64,
    pub(super) block: u64,
    pub(super) own: u64,
}

/// What one policy says before anything is charged.
pub(super) struct Seen {
    told: Outcome,
    state: State,
    own: Option<Own>,
    /// The block, if it has not ended, moved back if it had to be.
    block: Option<Span>,
    /// Whether the state or the limit had to be moved back.
    is_moved: bool,
}

impl Seen {
    pub(super) fn of(part: &Part, item: &Item, now: Micros) -> Self {
        let (own, mut state) = part.as_of(item, now);
        let limit = part.limit(own.as_ref());
        let (told, moved) = rule::look(limit, state.clone(), now, part.cost);
        let is_moved =
            moved.is_some() || own.is_some_and(|own| own.words() != *item.words(part.tags.own));
        if let Some(moved) = moved {
            state = moved;
        }
        let block = Span::of(item.words(part.tags.block));
        let block = block.map(|block| block.moved_back(now));
        Self {
            told,
            state,
            own,
            block: block.filter(|block| block.until > now),
            is_moved,
        }
    }

    pub(super) fn passes(&self, part: &Part) -> bool {
        (part.is_soft || self.told.is_allowed()) && !self.is_blocked()
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.block.is_some()
    }

    /// How many units the policy grants, as long as the key is not blocked.
    pub(super) fn remaining(&self) -> u32 {
        self.told.remaining()
    }
}

impl Part {
    /// Tells of a request and, if all policies allow it, charges it in the item, if there is one to be
    /// changed.
    pub(super) fn charge(
        &self,
        seen: Seen,
        item: Option<&mut Item>,
        now: Micros,
        allowed: bool,
    ) -> Outcome {
        let Seen {
            mut told,
            mut state,
            own,
            block,
            is_moved,
        } = seen;
        let is_charged = allowed && told.is_allowed() && self.cost > 0;
        if is_charged {
            (told, state) = self.limit(own.as_ref()).step(state, now, self.cost);
        }
        if let Some(item) = item
            && self.cost > 0
        {
            if is_charged || is_moved {
                self.keep(item, &state, own, now);
            }
            if let Some(block) = block {
                self.keep_block(item, block);
            }
        }
        if let Some(own) = own {
            told = told.overridden(own.limit.period());
        }
        match block {
            Some(block) => told.blocked_for(block.left(now)),
            None => told,
        }
    }

    pub(super) fn amend(&self, item: &mut Item, now: Micros, amendment: Amendment) {
        let (mut own, state) = self.as_of(item, now);
        let limit = *self.limit(own.as_ref());
        let state = match amendment {
            Amendment::Refund => limit.refund(state, now, self.cost),
            Amendment::TakeBack(taken) if now < taken.until() => {
                limit.refund(state, now, self.cost)
            }
            Amendment::TakeBack(_) => return,
            Amendment::Settle => limit.settle(state, now, self.cost),
            Amendment::GiveBack(departure) => {
                rule::give_back(&limit, state, now, self.cost, departure)
            }
            Amendment::Reset => State::NEW,
            Amendment::Block(length) => return self.block(item, now, length),
            Amendment::Unblock => return item.put(self.tags.block, &[], Micros::ZERO),
            Amendment::Override(another, length) => {
                let Some(another) = self.algorithm.under(another) else {
                    return;
                };
                let span = Span::new(now, length);
                own = Some(Own {
                    span,
                    limit: another,
                });
                another.refund(limit.refund(state, now, 0), now, 0)
            }
            Amendment::EndOverride => match own.take() {
                Some(_) => self.algorithm.refund(limit.refund(state, now, 0), now, 0),
                None => state,
            },
        };
        self.keep(item, &state, own, now);
    }

    /// The limit of the key's own at this moment, moved back if it had to be, and the state under it.
    fn as_of(&self, item: &Item, now: Micros) -> (Option<Own>, State) {
        let state = State::from_words(item.words(self.tags.state));
        let Some(mut own) = Own::of(item.words(self.tags.own), &self.algorithm) else {
            return (None, state);
        };
        own.span = own.span.moved_back(now);
        if own.span.until > now {
            return (Some(own), state);
        }
        (None, own.ended(&self.algorithm, state))
    }

    fn limit<'a>(&'a self, own: Option<&'a Own>) -> &'a Algorithm {
        own.map_or(&self.algorithm, |own| &own.limit)
    }

    /// Keeps a state, and the limit that it is under.
    fn keep(&self, item: &mut Item, state: &State, own: Option<Own>, now: Micros) {
        let lasts = rule::lasts(self.limit(own.as_ref()), state.clone(), now);
        let mut until = now.saturating_add(lasts);
        if let Some(own) = own {
            let end = own.span.until;
            let left = own.ended(&self.algorithm, state.clone());
            let left = rule::lasts(&self.algorithm, left, end);
            if left > Micros::ZERO {
                until = until.max(end.saturating_add(left));
            }
        }
        // What is as good as new is a new one.
        let words = if until > now { state.words() } else { &[] };
        let own = own.map(|own| (own.words(), own.span.until));
        let owns = own.as_ref().map_or(&[][..], |(words, _)| words);
        if words != item.words(self.tags.state) || owns != item.words(self.tags.own) {
            item.put(self.tags.state, words, until);
            // At its end it is asked for as long as there is a state of before.
            let end = own.map_or(Micros::ZERO, |(_, end)| end.max(until));
            item.put(self.tags.own, owns, end);
        }
    }

    fn keep_block(&self, item: &mut Item, block: Span) {
        if block.words() != *item.words(self.tags.block) {
            item.put(self.tags.block, &block.words(), block.until);
        }
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
