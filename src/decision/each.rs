//! The list of the outcomes of a request, which does not allocate in the long run.
//!
//! Up to four outcomes are stored in place. More room would be copied with each decision: with eight in
//! place, a decision on one policy takes 16 % more instructions. Longer lists reuse those that this thread
//! has used before.

use std::cell::RefCell;
use std::mem;
use std::ops::{Deref, DerefMut};

use smallvec::SmallVec;

use super::outcome::Outcome;

/// The policy of an outcome, and the rule that gave the limit, by their indices in the limiter.
#[derive(Clone, Copy, Debug)]
pub(super) struct PolicyRule {
    pub(super) policy: u32,
    pub(super) rule: u32,
}

impl PolicyRule {
    #[inline]
    pub(super) fn of(policy: usize) -> Self {
        let policy = u32::try_from(policy).unwrap_or(u32::MAX);
        Self { policy, rule: 0 }
    }

    #[inline]
    pub(super) fn policy(self) -> usize {
        self.policy as usize
    }
}

type One = (PolicyRule, Outcome);

const IN_PLACE: usize = 4;

/// The capacity of a new list.
const ROOM: usize = 8;

/// The longest list that is kept, and how many of them a thread keeps.
const LONGEST: usize = 64;
const MOST: usize = 64;

thread_local! {
    static FREE: RefCell<Vec<Vec<One>>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug)]
pub(super) struct Each(SmallVec<[One; IN_PLACE]>);

impl Each {
    #[inline]
    pub(super) fn new() -> Self {
        Self(SmallVec::new())
    }

    /// Copies the outcomes, and not the unused room.
    pub(super) fn copy_of(other: &Self) -> Self {
        if other.len() <= IN_PLACE {
            return Self(SmallVec::from_slice(other));
        }
        let mut list = list();
        list.extend_from_slice(other);
        Self(SmallVec::from_vec(list))
    }

    #[inline]
    pub(super) fn push(&mut self, one: One) {
        if self.0.len() == IN_PLACE && !self.0.spilled() {
            self.move_out();
        }
        self.0.push(one);
    }

    #[cold]
    #[inline(never)]
    fn move_out(&mut self) {
        let mut list = list();
        list.extend_from_slice(&self.0);
        self.0 = SmallVec::from_vec(list);
    }

    pub(super) fn retain(&mut self, keeps: impl FnMut(&mut One) -> bool) {
        self.0.retain(keeps);
    }

    #[cold]
    #[inline(never)]
    fn give_back(&mut self) {
        let mut list = mem::take(&mut self.0).into_vec();
        if list.capacity() > LONGEST {
            return;
        }
        list.clear();
        // A thread that ends has none.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < MOST {
                free.push(list);
            }
        });
    }
}

/// Returns an empty list with room for more than fit in place.
fn list() -> Vec<One> {
    let used = FREE.try_with(|free| free.borrow_mut().pop());
    used.ok()
        .flatten()
        .unwrap_or_else(|| Vec::with_capacity(ROOM))
}

impl Deref for Each {
    type Target = [One];

    #[inline]
    fn deref(&self) -> &[One] {
        &self.0
    }
}

impl DerefMut for Each {
    #[inline]
    fn deref_mut(&mut self) -> &mut [One] {
        &mut self.0
    }
}

impl Drop for Each {
    #[inline]
    fn drop(&mut self) {
        if self.0.spilled() {
            self.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Micros;

    fn outcomes(number: u32) -> Each {
        let mut each = Each::new();
        for policy in 0..number {
            let outcome = Outcome::allowed(policy, 0, Micros::ZERO);
            each.push((PolicyRule::of(policy as usize), outcome));
        }
        each
    }

    fn limits(each: &Each) -> Vec<u32> {
        each.iter().map(|(_, outcome)| outcome.limit()).collect()
    }

    #[test]
    fn a_list_of_any_length_keeps_what_is_put_into_it_and_so_does_its_copy() {
        for number in [0, 1, 4, 5, 8, 9, 100] {
            let each = outcomes(number);
            let expected: Vec<u32> = (0..number).collect();
            assert_eq!(limits(&each), expected);
            let mut copy = Each::copy_of(&each);
            drop(each);
            assert_eq!(limits(&copy), expected);
            copy.retain(|(_, outcome)| outcome.limit() % 2 == 0);
            assert_eq!(u32::try_from(copy.len()), Ok(number.div_ceil(2)));
        }
    }

    #[test]
    fn a_thread_keeps_so_many_lists_of_a_bounded_length() {
        let kept = || FREE.with(|free| free.borrow().iter().map(Vec::capacity).collect::<Vec<_>>());
        let many: Vec<_> = (0..2 * MOST).map(|_| outcomes(5)).collect();
        drop((many, outcomes(1_000)));
        assert_eq!(kept().len(), MOST);
        assert!(kept().iter().all(|room| *room <= LONGEST));
        // A copy that fits in place takes no list.
        let before = kept().len();
        drop(Each::copy_of(&outcomes(3)));
        assert_eq!(kept().len(), before);
    }
}
