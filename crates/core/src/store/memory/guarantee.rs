//! The children to whom the keys of a policy guarantee a part, such as the teams of an organisation.
//!
//! Children are kept beside the states of the policy above, by the fingerprint of its key. A decision locks the children of its keys
//! first, in the order of the tables, and then decides as any other.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::algorithm::{Algorithm, State};
use crate::clock::Micros;
use crate::decision::Outcome;
use crate::store::Amendment;
use crate::store::guarantee::children::{Children, MOST, Scale};
use crate::store::guarantee::{Allowance, Following};
use crate::store::hashed::Hashed;

/// The children of the keys of a policy.
#[derive(Debug)]
pub(super) struct Families {
    shards: [Mutex<Shard>; SHARDS],
    /// How many children each shard keeps, about: each key has one more.
    most: usize,
}

#[derive(Debug, Default)]
struct Shard {
    places: HashMap<u64, usize, BuildHasherDefault<Hashed<SHARDS>>>,
    /// The children of each key, which stands beside them.
    each: Vec<(u64, Children)>,
    /// How many children all of them have.
    children: usize,
    /// The next key to visit.
    hand: usize,
}

const SHARDS: usize = 16;

/// How many keys are visited for a new one, at most.
const VISITS: usize = 4;

/// The guarantee that a policy gives to the keys of the one below, as a backend knows it.
#[derive(Debug)]
pub(super) struct Guarantee {
    /// The policy below.
    pub(super) child: usize,
    /// The units of a period that each of its keys has.
    units: u32,
    families: Arc<Families>,
}

/// The children of one key, locked, and the one that asks.
pub(super) struct Siblings<'a> {
    shard: MutexGuard<'a, Shard>,
    root: u64,
    /// The place of the key; `None` if it is not kept.
    place: Option<usize>,
    /// The child, if the policy below counts the request.
    child: Option<u64>,
    units: u32,
    /// The limit of the table.
    first: &'a Algorithm,
    most: usize,
    asked: Option<Asked>,
}

/// What a child has asked for at a moment.
#[derive(Clone, Copy)]
struct Asked {
    child: Option<usize>,
    allowance: Allowance,
    now: Micros,
}

impl Families {
    pub(super) fn new(max_keys: usize) -> Self {
        Self {
            shards: Default::default(),
            // At least those of one key.
            most: max_keys.div_ceil(SHARDS).max(max_keys.min(MOST)),
        }
    }

    /// Returns the keys of which a child has asked within the last period, with the words of their children.
    pub(super) fn each(&self, now: Micros, period: Micros) -> Vec<(u64, State)> {
        let mut each = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let active = shard.each.iter();
            let active = active.filter(|(_, children)| !children.are_idle(now, period));
            let words = |children: &Children| State::from_words(&children.words());
            each.extend(active.map(|(root, children)| (*root, words(children))));
        }
        each
    }

    /// Keeps the children of a key that has none yet, if there is room.
    pub(super) fn restore(&self, root: u64, children: Children) {
        let mut shard = self.shard(root);
        let is_known = shard.places.contains_key(&root);
        if is_known || shard.each.len() >= self.most || shard.children + children.len() > self.most
        {
            return;
        }
        let place = shard.each.len();
        shard.children += children.len();
        shard.each.push((root, children));
        shard.places.insert(root, place);
    }

    fn shard(&self, root: u64) -> MutexGuard<'_, Shard> {
        #[expect(clippy::cast_possible_truncation, reason = "a place in a short list")]
        let shard = &self.shards[root as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guarantee {
    pub(super) fn new(child: usize, units: u32, families: Arc<Families>) -> Self {
        Self {
            child,
            units,
            families,
        }
    }

    /// Locks the children of a key. The keys are fingerprints.
    pub(super) fn siblings<'a>(
        &'a self,
        (root, child): (u64, Option<u64>),
        first: &'a Algorithm,
    ) -> Siblings<'a> {
        let shard = self.families.shard(root);
        Siblings {
            place: shard.places.get(&root).copied(),
            shard,
            root,
            child,
            units: self.units,
            first,
            most: self.families.most,
            asked: None,
        }
    }
}

impl Siblings<'_> {
    /// Finds out what the request may take, if so many units are left of the key, which may have a limit of its own. Returns a function
    /// of the cost: the units that have to be there beside it, and the units that the request may take at most.
    pub(super) fn ask(
        &mut self,
        (left, now): (u32, Micros),
        limit: Option<&Algorithm>,
        is_charged: bool,
    ) -> impl Fn(u32) -> (u32, u32) + use<> {
        let limit = limit.unwrap_or(self.first);
        let asked = Scale::of(limit, self.units).map(|scale| {
            let child = self.child;
            let asks = move |children: &mut Children, room| {
                Allowance::ask(children, child, (left, now), (scale, room))
            };
            let answer = if is_charged {
                self.with_children((now, scale), asks)
            } else {
                let mut children = self.children().cloned().unwrap_or_default();
                Some(asks(&mut children, usize::MAX))
            };
            let (child, allowance) =
                answer.unwrap_or_else(|| (None, Allowance::whole(scale, left)));
            Asked {
                child,
                allowance,
                now,
            }
        });
        self.asked = asked;
        move |cost| match asked {
            Some(Asked { allowance, .. }) => (allowance.beside(cost), allowance.granted()),
            None => (0, left),
        }
    }

    /// Follows an amendment of the state of the key, which may have a limit of its own.
    pub(super) fn amend(
        &mut self,
        (units, now): (u32, Micros),
        limit: Option<Algorithm>,
        amendment: Amendment,
    ) {
        let limit = limit.unwrap_or(*self.first);
        let Some(scale) = Scale::of(&limit, self.units) else {
            return;
        };
        match (Following::of(amendment, now), self.child) {
            (Some(Following::UseUp), Some(child)) => {
                self.with_children((now, scale), |children, room| {
                    children.use_up(child, units, now, (&scale, room));
                });
            }
            (Some(Following::GiveBack), Some(child)) if self.place.is_some() => {
                self.with_children((now, scale), |children, _| {
                    children.give_back(child, units, now, &scale);
                });
            }
            (Some(Following::Forget), _) => self.forget(),
            _ => {}
        }
    }

    /// Charges the child that has asked.
    pub(super) fn charge(&mut self, cost: u32) {
        if let Some(Asked {
            child, allowance, ..
        }) = self.asked
            && let (Some(child), Some(children)) = (child, self.children())
        {
            allowance.charge(children, child, cost);
        }
    }

    /// Writes into an outcome what is left for the child, and how long it waits. `taken` is what this request has taken.
    pub(super) fn tell(&self, outcome: &mut Outcome, (cost, taken): (u32, u32)) {
        if let Some(Asked { allowance, now, .. }) = self.asked {
            allowance.tell(outcome, (cost, taken), now);
        }
    }

    /// Acts on the children, which are kept from now on if there is room, and on how many there may be.
    fn with_children<T>(
        &mut self,
        (now, scale): (Micros, Scale),
        act: impl FnOnce(&mut Children, usize) -> T,
    ) -> Option<T> {
        let shard = &mut *self.shard;
        if self.place.is_none() {
            self.place = shard.make_place(self.root, self.most, now, &scale);
        }
        let others = shard.children;
        let children = &mut shard.each[self.place?].1;
        let before = children.len();
        let room = self.most.saturating_sub(others - before).max(1);
        let answer = act(children, room);
        shard.children = others + children.len() - before;
        Some(answer)
    }

    fn children(&mut self) -> Option<&mut Children> {
        let place = self.place?;
        Some(&mut self.shard.each[place].1)
    }

    /// Forgets the children: the key is as a new one.
    fn forget(&mut self) {
        if let Some(place) = self.place.take() {
            self.shard.forget(place);
        }
    }
}

impl Shard {
    /// Makes a place for a key, if there is room. Keys without active children are forgotten.
    fn make_place(&mut self, root: u64, most: usize, now: Micros, scale: &Scale) -> Option<usize> {
        for _ in 0..VISITS.min(self.each.len()) {
            let last = self.each.len() - 1;
            self.hand = self.hand.checked_sub(1).unwrap_or(last).min(last);
            if self.each[self.hand].1.are_idle(now, scale.period) {
                self.forget(self.hand);
            }
        }
        if self.each.len() >= most {
            return None;
        }
        let place = self.each.len();
        self.each.push((root, Children::default()));
        self.places.insert(root, place);
        Some(place)
    }

    fn forget(&mut self, place: usize) {
        let (key, children) = self.each.swap_remove(place);
        self.children -= children.len();
        self.places.remove(&key);
        if let Some((moved, _)) = self.each.get(place) {
            self.places.insert(*moved, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::FixedWindow;

    /// What is given back after a pause finds children that are idle by now.
    #[test]
    fn children_that_are_forgotten_leave_their_places() {
        let limit = Algorithm::from(FixedWindow::per_second(10));
        let families = Arc::new(Families::new(1_000));
        let guarantee = Guarantee::new(1, 3, Arc::clone(&families));
        let children = || families.shards[0].lock().unwrap().children;
        for child in 1..=3 {
            let mut siblings = guarantee.siblings((16, Some(child)), &limit);
            let now = Micros::new(1_000_000);
            let _ = siblings.ask((10, now), None, true);
            siblings.charge(1);
        }
        assert_eq!(children(), 3);
        let later = (1, Micros::new(5_000_000));
        let mut siblings = guarantee.siblings((16, Some(1)), &limit);
        siblings.amend(later, None, Amendment::Refund);
        drop(siblings);
        assert_eq!(
            children(),
            families.shards[0].lock().unwrap().each[0].1.len()
        );
        assert!(children() < 3);
    }
}
