//! The limits that requests bring, each made into an algorithm once.
//!
//! That takes longer than a decision. A backend therefore keeps the algorithms of the first limits that it meets.

use std::sync::OnceLock;

use crate::algorithm::{Algorithm, Limit};

/// The number of limits that a backend keeps. The algorithm of any other limit is made for each request.
const MOST: usize = 16;

type OfLimit = (Limit, Option<Algorithm>);

/// The algorithms of limits, found without a lock and never removed. There is none for the limit of the counter itself.
///
/// A boxed slice, because the compiler unrolls a loop over an array of known length.
#[derive(Debug)]
pub(super) struct Prepared(Box<[OnceLock<OfLimit>]>);

impl Default for Prepared {
    fn default() -> Self {
        Self((0..MOST).map(|_| OnceLock::new()).collect())
    }
}

impl Prepared {
    /// Returns the algorithm of this limit, if it is kept. A function of its own, since inlining makes the caller
    /// slower.
    #[inline(never)]
    pub(super) fn find(&self, limit: Limit) -> Option<&Option<Algorithm>> {
        let mut kept = self.0.iter().map_while(OnceLock::get);
        kept.find_map(|(known, algorithm)| (*known == limit).then_some(algorithm))
    }

    /// Keeps the algorithm of this limit, if there is a place left.
    #[inline]
    pub(super) fn keep(&self, limit: Limit, algorithm: Option<Algorithm>) {
        if self.0.last().is_none_or(|last| last.get().is_some()) {
            return;
        }
        // Another thread may have been first.
        let is_kept = |cell: &OnceLock<_>| cell.get_or_init(|| (limit, algorithm)).0 == limit;
        let _ = self.0.iter().any(is_kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Gcra;

    #[test]
    fn limits_are_kept_once_up_to_the_capacity() {
        let all = Prepared::default();
        let mut numbers = 1..=u32::try_from(MOST).unwrap();
        let limit = |number| Limit::new(number, number);
        let algorithm = |number| Some(Gcra::per_second(number).into());
        for number in numbers.clone().chain(numbers.clone()) {
            all.keep(limit(number), algorithm(number));
            assert_eq!(all.find(limit(number)), Some(&algorithm(number)));
        }
        all.keep(limit(99), algorithm(99));
        assert_eq!(all.find(limit(99)), None);
        assert!(numbers.all(|number| all.find(limit(number)) == Some(&algorithm(number))));
    }
}
