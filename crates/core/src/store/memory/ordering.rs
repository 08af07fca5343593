//! The one sort of this module. A sort for each type would add some kilobytes of code.

/// Returns the indices of these numbers, from the least number on. Equal numbers keep their order.
pub(super) fn ascending(numbers: impl IntoIterator<Item = u64>) -> Vec<usize> {
    sorted(numbers.into_iter().zip(0..).collect())
}

#[inline(never)]
fn sorted(mut numbered: Vec<(u64, usize)>) -> Vec<usize> {
    numbered.sort_unstable();
    numbered.into_iter().map(|(_, place)| place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_comes_first_and_equal_numbers_stay_in_their_order() {
        assert_eq!(ascending([7, 3, 9, 3, 0]), [4, 1, 3, 0, 2]);
        assert!(ascending([]).is_empty());
    }
}
