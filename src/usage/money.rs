//! Amounts of money.

use std::fmt;
use std::str::FromStr;

use crate::error::ConfigError;

/// How many billionths one has.
const ONE: u64 = 1_000_000_000;

/// The digits behind the point of a billionth.
const DIGITS: i32 = 9;

/// An amount of money, exact to a billionth. It has no currency: all amounts of a policy are of one.
///
/// ```
/// use tower_ratelimit::usage::Money;
///
/// let price: Money = "0.0375".parse()?;
/// assert_eq!(price, Money::millionths(37_500));
/// assert_eq!(Money::cents(250).to_string(), "2.50");
/// assert!("1,5".parse::<Money>().is_err());
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Money {
    billionths: u64,
}

impl Money {
    /// The unit of [`Prices`](super::Prices) that have no other: a millionth.
    pub const MILLIONTH: Self = Self::millionths(1);

    /// So many whole units of the currency, such as dollars.
    pub const fn whole(amount: u32) -> Self {
        Self::of(amount, ONE)
    }

    /// So many hundredths.
    pub const fn cents(amount: u32) -> Self {
        Self::of(amount, ONE / 100)
    }

    /// So many millionths.
    pub const fn millionths(amount: u32) -> Self {
        Self::of(amount, ONE / 1_000_000)
    }

    /// The product fits, since one has less than 2^32 billionths.
    const fn of(amount: u32, billionths: u64) -> Self {
        Self {
            billionths: amount as u64 * billionths,
        }
    }

    pub(super) fn billionths(self) -> u64 {
        self.billionths
    }

    /// Returns how many units of this size the amount has, for the limit of a policy that counts money.
    ///
    /// ```
    /// use tower_ratelimit::usage::Money;
    ///
    /// assert_eq!(Money::whole(250).in_units_of(Money::MILLIONTH)?, 250_000_000);
    /// let error = Money::whole(5_000).in_units_of(Money::MILLIONTH).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "`money` cannot be \"5000.00\": units of 0.000001 go up to 4294.967295, so take a coarser unit, 0.00001"
    /// );
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the amount has more units than a limit can be (2^32 − 1), or is no whole number of units. The message says
    /// which unit would do.
    pub fn in_units_of(self, unit: Self) -> Result<u32, ConfigError> {
        let wrong = |remedy: String| ConfigError::quoting("money", &self.to_string(), remedy);
        if unit.billionths == 0 {
            return Err(wrong("the unit is 0; give one such as 0.000001".to_owned()));
        }
        if !self.billionths.is_multiple_of(unit.billionths) {
            return Err(wrong(format!(
                "it is no whole number of units of {unit}; round it, or take a finer unit"
            )));
        }
        u32::try_from(self.billionths / unit.billionths).map_err(|_| {
            let most = u64::from(u32::MAX).saturating_mul(unit.billionths);
            let most = Self { billionths: most };
            let remedy = match self.fitting_unit() {
                Some(fitting) => format!("take a coarser unit, {fitting}"),
                None => "give less, or a coarser unit".to_owned(),
            };
            wrong(format!("units of {unit} go up to {most}, so {remedy}"))
        })
    }

    /// Returns the finest decimal unit of which a limit can have as many as this amount, as a whole number.
    fn fitting_unit(self) -> Option<Self> {
        let units = (0..=18).map(|digits| 10_u64.pow(digits));
        let fits = |unit: &u64| {
            self.billionths.is_multiple_of(*unit) && u32::try_from(self.billionths / unit).is_ok()
        };
        let billionths = units.skip_while(|unit| *unit < 1_000).find(fits)?;
        Some(Self { billionths })
    }

    /// Returns the amount that so many units of this size are.
    pub fn of_units(units: u32, unit: Self) -> Self {
        Self {
            billionths: unit.billionths.saturating_mul(units.into()),
        }
    }
}

/// Reads a decimal number: `2.50`, `10`, `1e-6`.
impl FromStr for Money {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let billionths = billionths(text).ok_or_else(|| {
            let remedy = "write a decimal number such as 2.50, from 0 to 18446744073, with at most nine digits behind the point";
            ConfigError::quoting("money", text, remedy)
        })?;
        Ok(Self { billionths })
    }
}

fn billionths(text: &str) -> Option<u64> {
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse::<i8>().ok()?.into()),
        None => (text, 0),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let is_number =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number(whole) || !is_number(part) {
        return None;
    }
    let part = part.trim_end_matches('0');
    let digits = format!("{whole}{part}");
    let behind_the_point = i32::try_from(part.len()).ok()?;
    let number: u128 = digits.parse().ok()?;
    let scale = DIGITS + exponent - behind_the_point;
    let power = 10_u128.checked_pow(scale.unsigned_abs())?;
    let billionths = if scale >= 0 {
        number.checked_mul(power)?
    } else if number.is_multiple_of(power) {
        number / power
    } else {
        return None;
    };
    billionths.try_into().ok()
}

/// A decimal number with as many digits as it has, and two at least.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = format!("{:09}", self.billionths % ONE);
        let digits = part.trim_end_matches('0');
        write!(f, "{}.{digits:0<2}", self.billionths / ONE)
    }
}

impl fmt::Debug for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn decimal_numbers_are_read_exactly() {
        for (text, billionths) in [
            ("2.50", Some(2_500_000_000)),
            ("10", Some(10_000_000_000)),
            ("0.1", Some(100_000_000)),
            ("0.000000001", Some(1)),
            ("0.0000000010", Some(1)),
            ("0.0000000001", None),
            ("1e-6", Some(1_000)),
            ("1.5E3", Some(1_500_000_000_000)),
            ("10e-10", Some(1)),
            ("1e-10", None),
            ("18446744073.709551615", Some(u64::MAX)),
            ("18446744073.709551616", None),
            ("1e127", None),
            ("0e127", None),
            ("-1", None),
            ("+1", None),
            (".5", None),
            ("5.", None),
            ("1,5", None),
            ("1_000", None),
            (" 1", None),
            ("", None),
            ("nan", None),
            ("inf", None),
        ] {
            let read = text.parse::<Money>().ok();
            assert_eq!(read.map(Money::billionths), billionths, "{text:?}");
        }
    }

    #[test]
    fn an_amount_that_does_not_fit_says_which_unit_would() {
        let in_units = |amount: &str, unit: &str| {
            let amount: Money = amount.parse().unwrap();
            let units = amount.in_units_of(unit.parse().unwrap());
            units.map_err(|error| error.remedy().to_owned())
        };
        assert_eq!(in_units("4294.967295", "1e-6"), Ok(u32::MAX));
        let remedy = "units of 0.000001 go up to 4294.967295, so take a coarser unit, 0.00001";
        assert_eq!(in_units("4294.96730", "1e-6"), Err(remedy.to_owned()));
        assert_eq!(in_units("4294.96730", "1e-5"), Ok(429_496_730));
        assert_eq!(
            in_units("10000000000", "0.01")
                .unwrap_err()
                .split(", ")
                .last(),
            Some("10.00")
        );
        assert_eq!(in_units("10000000000", "10"), Ok(1_000_000_000));
        let remedy = "it is no whole number of units of 0.01; round it, or take a finer unit";
        assert_eq!(in_units("0.015", "0.01"), Err(remedy.to_owned()));
        // No decimal unit has it as a whole number that fits.
        let remedy = "units of 0.000001 go up to 4294.967295, so give less, or a coarser unit";
        assert_eq!(in_units("4294.967297", "1e-6"), Err(remedy.to_owned()));
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_again(billionths: u64, units: u32, unit in 1_u64..1_000_000_000) {
            let money = Money { billionths };
            prop_assert_eq!(money.to_string().parse::<Money>().unwrap(), money);
            let unit = Money { billionths: unit };
            prop_assert_eq!(Money::of_units(units, unit).in_units_of(unit).unwrap(), units);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9.eE+-]{0,60}") {
            let _ = text.parse::<Money>();
        }
    }
}
