//! How busy something is, and the readings of all signals at one moment.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use tower_ratelimit::error::ConfigError;

/// How busy something is, as a share of its capacity, in millionths: 1,000,000 is all of it. It may be more,
/// as when requests take twice their target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Load(u32);

impl Load {
    /// Idle.
    pub const NONE: Self = Self(0);

    /// At full capacity.
    pub const FULL: Self = Self(1_000_000);

    /// Creates a load in millionths.
    pub const fn millionths(millionths: u32) -> Self {
        Self(millionths)
    }

    /// Creates a load in percent.
    pub const fn percent(percent: u32) -> Self {
        Self(percent.saturating_mul(10_000))
    }

    /// Converts a share such as 0.93, rounded up. Returns `None` for `NaN` and for numbers below 0.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast of a float saturates, and the number is not negative"
    )]
    pub fn share(share: f64) -> Option<Self> {
        (share >= 0.0).then(|| Self((share * 1e6).ceil() as u32))
    }

    /// Returns `part` of `whole`, rounded to the nearest, or `None` if `whole` is 0.
    pub fn of(part: u64, whole: u64) -> Option<Self> {
        let (part, whole) = (u128::from(part), u128::from(whole));
        let millionths = (part * 1_000_000 + whole / 2).checked_div(whole)?;
        Some(Self(u32::try_from(millionths).unwrap_or(u32::MAX)))
    }

    /// Returns the load in millionths.
    pub const fn get(self) -> u32 {
        self.0
    }

    pub(super) fn less(self, by: Self) -> Self {
        Self(self.0.saturating_sub(by.0))
    }
}

impl fmt::Display for Load {
    /// Writes percent with at most one decimal, rounded to the nearest: `83.5 %`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (u64::from(self.0) + 500) / 1_000;
        match tenths % 10 {
            0 => write!(f, "{} %", tenths / 10),
            part => write!(f, "{}.{part} %", tenths / 10),
        }
    }
}

impl FromStr for Load {
    type Err = ConfigError;

    /// Parses percent as a decimal number, `93` or `93.5`, and rounds up to a millionth: a load above a
    /// threshold stays above it.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let wrong = || ConfigError::quoting("load", text, "give percent, such as 93.5");
        let number = text.trim().trim_end_matches('%').trim_end();
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let is_digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits(whole) || !is_digits(part) || whole.len() + part.len() == 0 {
            return Err(wrong());
        }
        let (kept, finer) = part.split_at(part.len().min(4));
        let digits = format!("{whole}{kept:0<4}");
        let up = u64::from(finer.bytes().any(|digit| digit != b'0'));
        let millionths = digits.parse::<u64>().map_err(|_| wrong())?.checked_add(up);
        let millionths = millionths.and_then(|number| u32::try_from(number).ok());
        millionths.map(Self).ok_or_else(wrong)
    }
}

/// The readings of all signals at one moment, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    each: Vec<(Cow<'static, str>, Option<Load>)>,
    is_wanted: bool,
}

impl Loads {
    /// No signals yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the reading of a signal; `None` if it is absent. It replaces an earlier reading of the same name.
    pub fn insert(&mut self, name: impl Into<Cow<'static, str>>, load: Option<Load>) {
        let name = name.into();
        match self.each.iter_mut().find(|(known, _)| *known == name) {
            Some((_, told)) => *told = load,
            None => self.each.push((name, load)),
        }
    }

    /// Adds the reading of a signal, and returns the loads; see [`insert`](Self::insert).
    pub fn with(
        mut self,
        name: impl Into<Cow<'static, str>>,
        load: impl Into<Option<Load>>,
    ) -> Self {
        self.insert(name, load.into());
        self
    }

    /// Sets whether the demand at that moment exceeds the limits.
    pub fn wanted(self, is_wanted: bool) -> Self {
        Self { is_wanted, ..self }
    }

    /// Returns the reading of the signal with this name, or `None` if it is absent or unknown.
    pub fn get(&self, name: &str) -> Option<Load> {
        let mut each = self.each.iter();
        each.find(|(known, _)| known == name)
            .and_then(|(_, load)| *load)
    }

    /// Returns whether a limit was reached since the loads were last read, which a rise above the base
    /// requires.
    pub fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Returns each signal with its reading.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, Option<Load>)> {
        self.each.iter().map(|(name, load)| (&**name, *load))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_is_read_exactly_and_rounded_up_beyond() {
        for (text, millionths) in [
            ("90", 900_000),
            ("90.0", 900_000),
            (" 90.1 %", 901_000),
            ("90.00001", 900_001),
            ("0", 0),
            (".5", 5_000),
            ("150.25", 1_502_500),
        ] {
            assert_eq!(text.parse(), Ok(Load(millionths)), "{text}");
        }
        for wrong in [
            "",
            ".",
            "-1",
            "NaN",
            "1e3",
            "9 9",
            "99999999999999999999",
            "429497",
        ] {
            assert!(wrong.parse::<Load>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_load_must_be_a_number() {
        assert_eq!(Load::share(f64::NAN), None);
        assert_eq!(Load::share(-0.1), None);
        assert_eq!(Load::share(f64::INFINITY), Some(Load(u32::MAX)));
        assert_eq!(Load::share(0.935), Some(Load(935_000)));
        assert_eq!(Load::of(1, 0), None);
        assert_eq!(Load::of(u64::MAX, 1), Some(Load(u32::MAX)));
        assert_eq!(Load::of(1, 3), Some(Load(333_333)));
    }

    #[test]
    fn a_load_is_shown_in_percent() {
        assert_eq!(Load::millionths(835_400).to_string(), "83.5 %");
        assert_eq!(Load::percent(90).to_string(), "90 %");
    }
}
