//! How a debt drains, which may exceed the capacity.
//!
//! A key can owe more than the capacity: after a charge after the fact, and after its limit was lowered. The
//! part above the capacity drains at the rate at which it was charged, and the rest at the present rate. So a
//! lower limit cuts no debt, and a client need not pay at the low rate for what it used at the high rate.
//!
//! The two rates meet within one step (a microsecond, or a period of a bucket by interval). In integers, a step is
//! `owed' = min(owed - slow, max(owed - fast, capacity))`, and never less than 0. It is the same whether a time
//! passes at once or in parts, and with one rate for both it is `owed - slow`.

/// The two rates, in units per step, and the capacity in units. `fast` is at least `slow`, and that at least 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    pub(super) capacity: u128,
    pub(super) fast: u64,
    pub(super) slow: u64,
}

impl Drain {
    /// Returns the debt after this many steps.
    #[inline]
    pub(super) fn after(self, steps: u64, owed: u128) -> u128 {
        if owed <= self.capacity {
            return owed.saturating_sub(product(steps, self.slow));
        }
        let (whole, rest) = self.excess(owed);
        let steps = u128::from(steps);
        if steps <= whole {
            return owed - steps * u128::from(self.fast);
        }
        rest.saturating_sub((steps - whole) * u128::from(self.slow))
    }

    /// Returns how many steps it takes until no more than `left` is owed, which is at most the capacity.
    #[inline]
    pub(super) fn steps(self, owed: u128, left: u128) -> u128 {
        let (whole, rest) = if owed <= self.capacity {
            (0, owed)
        } else {
            self.excess(owed)
        };
        whole + div_ceil(rest.saturating_sub(left), self.slow)
    }

    /// Returns in how many whole steps the excess drains, and the debt from which the slow rate continues:
    /// the rest of the excess takes one step, in which no more drains than at either rate.
    #[cold]
    fn excess(self, owed: u128) -> (u128, u128) {
        let excess = owed - self.capacity;
        let fast = u128::from(self.fast);
        let left = (excess % fast).min(self.slow.into());
        (excess / fast, self.capacity + left)
    }
}

#[inline]
pub(super) fn product(a: u64, b: u64) -> u128 {
    u128::from(a) * u128::from(b)
}

/// Most numbers fit 64 bits, where a division is faster.
pub(super) fn div_ceil(dividend: u128, divisor: u64) -> u128 {
    match u64::try_from(dividend) {
        Ok(dividend) => dividend.div_ceil(divisor).into(),
        Err(_) => dividend.div_ceil(divisor.into()),
    }
}

/// Returns the quotient and the remainder; a quotient of more than 64 bits becomes the largest number of 64
/// bits.
pub(super) fn divided(dividend: u128, divisor: u64) -> (u64, u64) {
    if let Ok(dividend) = u64::try_from(dividend) {
        return (dividend / divisor, dividend % divisor);
    }
    let divisor = u128::from(divisor);
    (narrow(dividend / divisor), narrow(dividend % divisor))
}

/// Returns the number, or the largest number of 64 bits.
pub(super) fn narrow(number: u128) -> u64 {
    number.try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the definition, step by step.
    fn step(drain: Drain, owed: u128) -> u128 {
        let fast = owed.saturating_sub(drain.fast.into()).max(drain.capacity);
        owed.saturating_sub(drain.slow.into()).min(fast)
    }

    #[test]
    fn any_number_of_steps_at_once_is_as_many_steps() {
        for (capacity, fast, slow) in [
            (0, 1, 1),
            (0, 7, 1),
            (0, 7, 3),
            (10, 1, 1),
            (10, 3, 3),
            (10, 4, 3),
            (10, 7, 3),
            (10, 30, 7),
            (10, 1_000, 999),
            (11, 5, 1),
        ] {
            let drain = Drain {
                capacity,
                fast,
                slow,
            };
            for owed in 0..90 {
                let mut left = owed;
                let mut reached = vec![None; 91];
                for steps in 0..100 {
                    assert_eq!(drain.after(steps, owed), left, "{drain:?} {owed} {steps}");
                    for reached in &mut reached[usize::try_from(left).unwrap()..] {
                        reached.get_or_insert(u128::from(steps));
                    }
                    left = step(drain, left);
                }
                for left in 0..=capacity {
                    let steps = reached[usize::try_from(left).unwrap()];
                    assert_eq!(steps, Some(drain.steps(owed, left)), "{drain:?} {owed}");
                }
            }
        }
    }

    #[test]
    fn the_largest_debt_of_the_longest_period_drains_exactly() {
        let owed = (1 << 33) * (366 * 86_400_000_000_u128);
        let drain = Drain {
            capacity: owed / 2,
            fast: u32::MAX.into(),
            slow: 1,
        };
        let fast = owed / 2 / u128::from(u32::MAX);
        assert_eq!(
            drain.after(narrow(fast), owed),
            owed - fast * u128::from(u32::MAX)
        );
        assert_eq!(
            drain.after(u64::MAX, owed),
            (owed / 2).saturating_sub((1 << 64) - 1 - fast - 1)
        );
        assert!(drain.steps(owed, 0) > owed / 2);
    }
}
