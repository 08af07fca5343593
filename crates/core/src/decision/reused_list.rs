//! A list that does not allocate in the long run.
//!
//! A few items are stored in place, and no more than is common: all of the room in place is copied wherever the list moves.
//! Longer lists reuse the memory of those that the thread has used before.

use std::cell::RefCell;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::thread::LocalKey;

use smallvec::SmallVec;

/// Lists that a thread has used and that are empty now.
pub(crate) type FreeLists<T> = RefCell<Vec<Vec<T>>>;

/// An item of a reused list.
pub(crate) trait Reused: Copy + 'static {
    /// The capacity of a new list.
    const ROOM: usize;

    /// The largest capacity of a list that is kept.
    const LONGEST: usize;

    fn free_lists() -> &'static LocalKey<FreeLists<Self>>;
}

/// The number of empty lists that a thread keeps at most, for each type of item.
const MOST: usize = 64;

#[derive(Debug)]
pub(crate) struct ReusedList<T: Reused, const IN_PLACE: usize>(SmallVec<[T; IN_PLACE]>);

impl<T: Reused, const IN_PLACE: usize> ReusedList<T, IN_PLACE> {
    #[inline]
    pub(crate) fn new() -> Self {
        Self(SmallVec::new())
    }

    /// Copies the items, and not the unused room.
    pub(crate) fn copy_of(other: &Self) -> Self {
        if other.len() <= IN_PLACE {
            return Self(SmallVec::from_slice(other));
        }
        let mut list = empty_list();
        list.extend_from_slice(other);
        Self(SmallVec::from_vec(list))
    }

    #[inline]
    pub(crate) fn push(&mut self, item: T) {
        if self.0.len() == IN_PLACE && !self.0.spilled() {
            self.move_out();
        }
        self.0.push(item);
    }

    #[cold]
    #[inline(never)]
    fn move_out(&mut self) {
        let mut list = empty_list();
        list.extend_from_slice(&self.0);
        self.0 = SmallVec::from_vec(list);
    }

    pub(crate) fn retain(&mut self, keeps: impl FnMut(&mut T) -> bool) {
        self.0.retain(keeps);
    }

    #[cold]
    #[inline(never)]
    fn give_back(&mut self) {
        let mut list = mem::take(&mut self.0).into_vec();
        if list.capacity() > T::LONGEST {
            return;
        }
        list.clear();
        // A thread that ends has no lists.
        let _ = T::free_lists().try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < MOST {
                free.push(list);
            }
        });
    }
}

/// Returns an empty list with room for more items than fit in place.
fn empty_list<T: Reused>() -> Vec<T> {
    let used = T::free_lists().try_with(|free| free.borrow_mut().pop());
    used.ok()
        .flatten()
        .unwrap_or_else(|| Vec::with_capacity(T::ROOM))
}

impl<T: Reused, const IN_PLACE: usize> Deref for ReusedList<T, IN_PLACE> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Reused, const IN_PLACE: usize> DerefMut for ReusedList<T, IN_PLACE> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T: Reused, const IN_PLACE: usize> Drop for ReusedList<T, IN_PLACE> {
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

    thread_local! {
        static FREE: FreeLists<u32> = const { RefCell::new(Vec::new()) };
    }

    impl Reused for u32 {
        const ROOM: usize = 8;
        const LONGEST: usize = 64;

        fn free_lists() -> &'static LocalKey<FreeLists<Self>> {
            &FREE
        }
    }

    fn numbers<const IN_PLACE: usize>(len: u32) -> ReusedList<u32, IN_PLACE> {
        let mut list = ReusedList::new();
        (0..len).for_each(|number| list.push(number));
        list
    }

    fn kept() -> Vec<usize> {
        FREE.with(|free| free.borrow().iter().map(Vec::capacity).collect())
    }

    fn keeps_what_is_put_into_it<const IN_PLACE: usize>() {
        for len in [0, 1, 4, 5, 8, 9, 100] {
            let list = numbers::<IN_PLACE>(len);
            let expected: Vec<u32> = (0..len).collect();
            assert_eq!(*list, expected);
            let mut copy = ReusedList::copy_of(&list);
            drop(list);
            assert_eq!(*copy, expected);
            copy.retain(|number| *number % 2 == 0);
            assert_eq!(u32::try_from(copy.len()), Ok(len.div_ceil(2)));
        }
    }

    #[test]
    fn a_list_of_any_length_keeps_what_is_put_into_it_and_so_does_its_copy() {
        keeps_what_is_put_into_it::<1>();
        keeps_what_is_put_into_it::<4>();
    }

    #[test]
    fn a_thread_keeps_so_many_lists_of_a_bounded_length() {
        let many: Vec<_> = (0..2 * MOST).map(|_| numbers::<4>(5)).collect();
        drop((many, numbers::<4>(1_000)));
        assert_eq!(kept().len(), MOST);
        assert!(kept().iter().all(|room| (5..=u32::LONGEST).contains(room)));
        // A copy that fits in place takes no list.
        drop(ReusedList::copy_of(&numbers::<4>(3)));
        assert_eq!(kept().len(), MOST);
    }
}
