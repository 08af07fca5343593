//! A share of the limit of another policy.

use super::{Algorithm, Limit};

/// A share of a limit, in millionths: more than nothing, and at most all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share(u32);

impl Share {
    const WHOLE: u32 = 1_000_000;

    /// Returns the share of a decimal number, to the nearest millionth, or `None` if that is none, or more than all.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number out of range becomes one that is refused"
    )]
    pub(crate) fn of(number: f64) -> Option<Self> {
        let millionths = (number * f64::from(Self::WHOLE)).round() as u32;
        let is_good = number <= 1.0 && (1..=Self::WHOLE).contains(&millionths);
        is_good.then_some(Self(millionths))
    }

    /// Returns this share of a number of units, rounded up. It is never more than the number.
    fn of_units(self, units: u32) -> u32 {
        let product = u64::from(units) * u64::from(self.0);
        u32::try_from(product.div_ceil(Self::WHOLE.into())).unwrap_or(units)
    }
}

impl Limit {
    /// Returns this share of each number, rounded up.
    pub(super) fn part(self, share: Share) -> Self {
        self.map(|number| share.of_units(number))
    }
}

impl Algorithm {
    /// Returns the algorithm with this share of its limit, also in its hours.
    pub(crate) fn part(&self, share: Share) -> Self {
        self.with_each_limit(&|limit| limit.part(share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_number_above_0_and_up_to_1() {
        for (number, millionths) in [
            (0.4, Some(400_000)),
            (1.0, Some(1_000_000)),
            (0.000_001, Some(1)),
            (1.0 / 3.0, Some(333_333)),
            (0.0, None),
            (0.000_000_1, None),
            (-0.4, None),
            (1.000_000_1, None),
            (f64::NAN, None),
            (f64::INFINITY, None),
        ] {
            assert_eq!(Share::of(number), millionths.map(Share), "{number}");
        }
    }

    #[test]
    fn both_numbers_of_a_limit_have_the_share_rounded_up() {
        for (text, share, part) in [
            ("fixed-window 10/minute", 0.4, "fixed-window 4/minute"),
            ("fixed-window 10/minute", 0.41, "fixed-window 5/minute"),
            ("fixed-window 1/minute", 0.001, "fixed-window 1/minute"),
            ("fixed-window 0/minute", 0.4, "fixed-window 0/minute"),
            (
                "fixed-window 4294967295/day",
                1.0,
                "fixed-window 4294967295/day",
            ),
            (
                "token-bucket 10/second burst 25",
                0.4,
                "token-bucket 4/second burst 10",
            ),
            (
                "sliding-log 70000/minute up-to 70000",
                0.5,
                "sliding-log 35000/minute",
            ),
            (
                "sliding-slots 10/minute slots 60",
                0.5,
                "sliding-slots 5/minute slots 60",
            ),
            ("gcra 5/second burst 1", 0.5, "gcra 3/second burst 1"),
            ("concurrency 10", 0.4, "concurrency 4"),
            ("unlimited", 0.4, "unlimited"),
            #[cfg(feature = "calendar")]
            (
                "calendar-day 10 zone Europe/London",
                0.4,
                "calendar-day 4 zone Europe/London",
            ),
        ] {
            let whole: Algorithm = text.parse().unwrap();
            let share = Share::of(share).unwrap();
            assert_eq!(whole.part(share).to_string(), part, "{text}");
        }
    }
}
