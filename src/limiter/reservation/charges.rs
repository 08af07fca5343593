//! The list of the charges that a request holds, which does not allocate in the long run.
//!
//! One charge is stored in place. More room would be most of a reservation, and be copied wherever that moves. Longer
//! lists reuse those that this thread has used before.

use std::cell::RefCell;
use std::mem;
use std::ops::Deref;

use smallvec::SmallVec;

use crate::store::{Charge, Taken};

/// A charge that is settled at the end of its request, or released if it holds slots.
#[derive(Clone, Copy)]
pub(super) struct HeldCharge {
    pub(super) charge: Charge,
    /// `None` if it holds slots.
    pub(super) taken: Option<Taken>,
}

/// The charges of a request.
pub(super) struct HeldCharges(SmallVec<[HeldCharge; IN_PLACE]>);

const IN_PLACE: usize = 1;

/// The capacity of a new list.
const ROOM: usize = 4;

/// The longest list that is kept, and how many of them a thread keeps.
const LONGEST: usize = 32;
const MOST: usize = 64;

thread_local! {
    static FREE: RefCell<Vec<Vec<HeldCharge>>> = const { RefCell::new(Vec::new()) };
}

impl HeldCharges {
    #[inline]
    pub(super) fn new() -> Self {
        Self(SmallVec::new())
    }

    #[inline]
    pub(super) fn push(&mut self, held: HeldCharge) {
        if self.0.len() == IN_PLACE && !self.0.spilled() {
            self.move_out();
        }
        self.0.push(held);
    }

    #[inline(never)]
    fn move_out(&mut self) {
        let mut list = list();
        list.extend_from_slice(&self.0);
        self.0 = SmallVec::from_vec(list);
    }

    #[inline(never)]
    fn give_back(&mut self) {
        let mut list = mem::take(&mut self.0).into_vec();
        if list.capacity() > LONGEST {
            return;
        }
        list.clear();
        // A thread that ends has no lists.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < MOST {
                free.push(list);
            }
        });
    }
}

/// Returns an empty list.
fn list() -> Vec<HeldCharge> {
    let used = FREE.try_with(|free| free.borrow_mut().pop());
    used.ok()
        .flatten()
        .unwrap_or_else(|| Vec::with_capacity(ROOM))
}

impl Deref for HeldCharges {
    type Target = [HeldCharge];

    #[inline]
    fn deref(&self) -> &[HeldCharge] {
        &self.0
    }
}

impl Drop for HeldCharges {
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
    use crate::key::IntoKey;

    fn held(number: usize) -> HeldCharges {
        let mut held = HeldCharges::new();
        for policy in 0..number {
            held.push(HeldCharge {
                charge: Charge::new(policy, "ann".into_key(), 1),
                taken: None,
            });
        }
        held
    }

    #[test]
    fn a_list_begins_empty_and_a_thread_keeps_so_many_of_a_bounded_length() {
        let kept = || FREE.with(|free| free.borrow().iter().map(Vec::capacity).collect::<Vec<_>>());
        drop(held(3));
        let policies: Vec<_> = held(2).iter().map(|held| held.charge.policy).collect();
        assert_eq!(policies, [0, 1]);
        let many: Vec<_> = (0..2 * MOST).map(|_| held(2)).collect();
        drop((many, held(1_000), held(1), held(0)));
        assert_eq!(kept().len(), MOST);
        assert!(kept().iter().all(|room| (2..=LONGEST).contains(room)));
    }
}
