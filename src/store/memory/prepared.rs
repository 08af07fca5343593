//! The limits that requests bring, each prepared once.
//!
//! Making a rule of a limit takes longer than a decision. A table therefore keeps the rules of the first
//! limits that it meets, and a ledger keeps where they are.

use std::sync::OnceLock;

use crate::algorithm::Algorithm;

/// The number of limits that a table and a ledger keep. The rule of any other limit is made for each request.
const MOST: usize = 16;

/// Where a table keeps the rule of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RuleSlot(usize);

impl RuleSlot {
    /// The slot of the table's own limit.
    pub(super) const OWN: Self = Self(usize::MAX);
}

/// The limit that a request brings.
#[derive(Clone, Copy, Debug)]
pub(super) enum LimitSource<'a> {
    Prepared(RuleSlot),
    Limit(&'a Algorithm),
}

/// Values that are prepared once, found without a lock and never removed.
///
/// A boxed slice, because the compiler unrolls a loop over an array of known length.
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

    /// Returns the first value for which `is_it` holds. A function of its own, since inlining makes the
    /// caller slower.
    #[inline(never)]
    pub(super) fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<&T> {
        let mut kept = self.0.iter().map_while(OnceLock::get);
        kept.find(|kept| is_it(kept))
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.last().is_some_and(|last| last.get().is_some())
    }

    /// Returns the place of the first value for which `is_it` holds, and makes the value if there is none.
    /// Returns `None` if no place is left.
    pub(super) fn place_of(
        &self,
        is_it: impl Fn(&T) -> bool,
        make: impl FnOnce() -> T,
    ) -> Option<RuleSlot> {
        let mut make = Some(make);
        for (place, cell) in self.0.iter().enumerate() {
            // Another thread may have been first.
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
    fn prepared_keys_are_found_at_their_places_up_to_the_capacity() {
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
