//! The children to whom a key guarantees a part of its limit: one record of the item of that key.
//!
//! Its words are those of [`Children::words`], in which the name of a child is the tag of its key's name. It ends a period after it was
//! written, when no child is active any more. Words of another layout would have another tag.

use super::item::Item;
use crate::algorithm::Algorithm;
use crate::clock::Micros;
use crate::decision::Outcome;
use crate::store::Amendment;
use crate::store::guarantee::children::{Children, Scale};
use crate::store::guarantee::{Allowance, Following};

/// What a policy guarantees to the keys of the one below.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guarantee {
    /// The tag of the record.
    pub(super) tag: u64,
    /// The units of a period that each child has.
    pub(super) units: u32,
    /// The child that asks, if the policy below counts the request.
    pub(super) child: Option<u64>,
}

/// The children of a key, of which one has asked.
pub(super) struct Family {
    tag: u64,
    children: Children,
    child: Option<usize>,
    allowance: Allowance,
    now: Micros,
}

impl Guarantee {
    /// Returns whether the record is one that a store of this version writes.
    pub(super) fn is_legible(&self, item: &Item) -> bool {
        Children::read(item.words(self.tag)).is_some()
    }

    /// Asks for the child, if so many units are left of this limit of the key. Returns `None` if that grants nothing.
    pub(super) fn ask(
        &self,
        item: &Item,
        limit: &Algorithm,
        (left, now): (u32, Micros),
    ) -> Option<Family> {
        let scale = Scale::of(limit, self.units)?;
        let mut children = self.children(item);
        let (child, allowance) =
            Allowance::ask(&mut children, self.child, (left, now), (scale, usize::MAX));
        Some(Family {
            tag: self.tag,
            children,
            child,
            allowance,
            now,
        })
    }

    /// Follows an amendment of the state of the key by these units, under this limit.
    pub(super) fn amend(
        &self,
        item: &mut Item,
        (units, now): (u32, Micros),
        (limit, amendment): (&Algorithm, Amendment),
    ) {
        let Some(following) = Following::of(amendment, now) else {
            return;
        };
        let (Some(scale), Some(child)) = (Scale::of(limit, self.units), self.child) else {
            if matches!(following, Following::Forget) {
                item.put(self.tag, &[], Micros::ZERO);
            }
            return;
        };
        let mut children = self.children(item);
        match following {
            Following::UseUp => children.use_up(child, units, now, (&scale, usize::MAX)),
            Following::GiveBack => children.give_back(child, units, now, &scale),
            Following::Forget => children = Children::default(),
        }
        item.put(self.tag, &children.words(), scale.lapses_at(now));
    }

    fn children(&self, item: &Item) -> Children {
        Children::read(item.words(self.tag)).unwrap_or_default()
    }
}

impl Family {
    /// Returns the units that have to be left beside those of a request of this cost.
    pub(super) fn beside(&self, cost: u32) -> u32 {
        self.allowance.beside(cost)
    }

    /// Returns how many units the request may take.
    pub(super) fn granted(&self) -> u32 {
        self.allowance.granted()
    }

    /// Writes into an outcome what is left for the child, and how long it waits. `taken` is what this request has taken.
    pub(super) fn tell(&self, outcome: &mut Outcome, asked: (u32, u32)) {
        self.allowance.tell(outcome, asked, self.now);
    }

    /// Charges the child, and writes the record.
    pub(super) fn keep(&mut self, item: &mut Item, taken: u32) {
        if let Some(child) = self.child {
            self.allowance.charge(&mut self.children, child, taken);
        }
        let until = self.allowance.lapses_at(self.now);
        item.put(self.tag, &self.children.words(), until);
    }
}
