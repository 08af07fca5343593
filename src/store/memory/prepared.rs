//! The limits that requests bring, each prepared once.
//!
//! To make a rule of a limit takes longer than a decision. A table therefore keeps the rules of the first limits that it
//! meets, and a ledger where they are.

use std::sync::OnceLock;

use crate::algorithm::Algorithm;

/// How many limits a table and a ledger keep. The rule of any other is made for each request.
const MOST: usize = 16;

/// Where a table keeps the rule of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RuleSlot(usize);

impl RuleSlot {
    /// Of the limit of the table itself.
    pub(super) const OWN: Self = Self(usize::MAX);
}

/// The limit that a request brings.
#[derive(Clone, Copy, Debug)]
pub(super) enum Under<'a> {
    Prepared(RuleSlot),
    Limit(&'a Algorithm),
}

/// What was prepared. It is found without a lock, and stays.
///
/// The length of a slice is not known to the compiler, which would write the end of each place of an array out.
#[derive(Debug)]
pub(super) struct Prepared<T>(Box<[OnceLock<T>]>);

impl<T> Default for Prepared<T> {
    fn default() -> Self {
        Self((0..MOST).map(|_| OnceLock::new()).collect())
    }
}

impl<T> Prepared<T> {
    #[inline]
    pub(super) fn get(&self, RuleSlot(place): RuleSlot) -> Option<&T> {
        self.0.get(place)?.get()
    }

    /// The first that is so. Apart from its caller, which it makes slower.
    #[inline(never)]
    pub(super) fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<&T> {
        let mut kept = self.0.iter().map_while(OnceLock::get);
        kept.find(|kept| is_it(kept))
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.last().is_some_and(|last| last.get().is_some())
    }

    /// The place of the first that is so, which is made if there is none; `None` if there is no place left.
    pub(super) fn place_of(
        &self,
        is_it: impl Fn(&T) -> bool,
        make: impl FnOnce() -> T,
    ) -> Option<RuleSlot> {
        let mut make = Some(make);
        for (place, cell) in self.0.iter().enumerate() {
            // Another thread may be the first.
            let kept = cell.get().or_else(|| Some(cell.get_or_init(make.take()?)));
            if is_it(kept?) {
                return Some(RuleSlot(place));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(all: &Prepared<usize>, number: usize) -> Option<RuleSlot> {
        all.place_of(|kept| *kept == number, || number)
    }

    #[test]
    fn what_was_prepared_is_found_at_its_place_and_no_more_is_kept_than_there_is_room_for() {
        let all = Prepared::default();
        for number in 0..MOST {
            assert!(!all.is_full());
            let first = place(&all, number);
            assert_eq!(first, Some(RuleSlot(number)));
            assert_eq!(place(&all, number), first);
            assert_eq!(first.and_then(|place| all.get(place)), Some(&number));
        }
        assert!(all.is_full());
        assert_eq!(place(&all, MOST), None);
        assert_eq!(place(&all, 3), Some(RuleSlot(3)));
        assert_eq!(all.find(|kept| *kept > 6), Some(&7));
        assert_eq!(all.get(RuleSlot::OWN), None);
    }
}
