//! The share of a limit that is in force.
//!
//! A policy may hold a [`FactorCell`]. The writer of the cell (a controller of
//! [`tower-ratelimit-adapt`](https://docs.rs/tower-ratelimit-adapt/latest/tower_ratelimit_adapt/), or your own code)
//! sets the share of the policy's limit that holds from then on. The limiter reads it once for each charge.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// The share of a limit that is in force, in thousandths: 1,000 is the whole limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Factor(u32);

impl Factor {
    /// The whole limit.
    pub const ONE: Self = Self(1_000);

    /// The least factor, one thousandth.
    pub const LEAST: Self = Self(1);

    /// The largest factor, a thousand times the limit.
    pub const MOST: Self = Self(1_000_000);

    /// Creates a factor from thousandths, from [`LEAST`](Self::LEAST) to [`MOST`](Self::MOST). Numbers out of
    /// that range are moved into it, so a factor never closes a policy.
    pub const fn thousandths(thousandths: u32) -> Self {
        match thousandths {
            0 => Self::LEAST,
            1..=1_000_000 => Self(thousandths),
            _ => Self::MOST,
        }
    }

    /// Returns the factor in thousandths.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the product of two shares, rounded down.
    pub fn times(self, other: Self) -> Self {
        let product = u64::from(self.0) * u64::from(other.0) / 1_000;
        Self::thousandths(u32::try_from(product).unwrap_or(u32::MAX))
    }
}

impl Default for Factor {
    fn default() -> Self {
        Self::ONE
    }
}

impl fmt::Display for Factor {
    /// Writes a decimal number: `0.75`, `1`, `5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 1_000, self.0 % 1_000);
        if part == 0 {
            return write!(f, "{whole}");
        }
        let part = format!("{part:03}");
        write!(f, "{whole}.{}", part.trim_end_matches('0'))
    }
}

/// A factor with its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    factor: Factor,
    cause: Option<Arc<str>>,
    since: SystemTime,
}

impl Explanation {
    /// Returns the factor.
    pub fn factor(&self) -> Factor {
        self.factor
    }

    /// Returns the cause, such as `memory 83 %`, or `None` if there is no load.
    pub fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }

    /// Returns since when this factor is in force, by the clock of the system.
    pub fn since(&self) -> SystemTime {
        self.since
    }
}

/// A factor that policies hold and a controller writes. Clones share the factor.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::factor::{Factor, FactorCell};
///
/// let cell = FactorCell::new();
/// cell.set(Factor::thousandths(250), "a backup runs");
/// assert_eq!(cell.get().to_string(), "0.25");
/// assert_eq!(cell.explain().cause(), Some("a backup runs"));
///
/// // More than the most that the cell holds counts as that.
/// cell.set(Factor::thousandths(2_000), "");
/// assert_eq!(cell.get(), Factor::ONE);
/// ```
#[derive(Clone)]
pub struct FactorCell(Arc<Cell>);

struct Cell {
    factor: AtomicU32,
    least: Factor,
    most: Factor,
    /// Whether a limit with this cell was reached since the last read.
    was_reached: AtomicBool,
    explanation: Mutex<Explanation>,
    /// The last readings of the signals behind the factor, if there are any.
    signals: Mutex<Vec<(String, Option<f64>)>>,
}

/// The importance of a request. Less important classes get less of the limit when the factor falls.
///
/// The names are those of Google's *Site Reliability Engineering*, chapter 21.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Class {
    /// Serious harm if it fails: never reduced.
    CriticalPlus,
    /// The default: takes the factor as it is.
    #[default]
    Critical,
    /// Some of it may be refused: has the square of the factor, a quarter for a half.
    SheddablePlus,
    /// Much of it may be refused: has the cube of the factor, an eighth for a half.
    Sheddable,
}

impl Class {
    /// Returns the factor of this class, when `factor` is that of [`Critical`](Self::Critical). The power
    /// does not reduce it below `least`. Above 1, all classes have the same.
    pub fn of(self, factor: Factor, least: Factor) -> Factor {
        if factor >= Factor::ONE {
            return factor;
        }
        let power = match self {
            Self::CriticalPlus => return Factor::ONE,
            Self::Critical => return factor,
            Self::SheddablePlus => factor.times(factor),
            Self::Sheddable => factor.times(factor).times(factor),
        };
        power.max(least.min(factor))
    }
}

impl FactorCell {
    /// Creates a factor of 1, which can fall to a tenth and come back.
    pub fn new() -> Self {
        Self::between(Factor::thousandths(100), Factor::ONE)
    }

    /// Creates a factor of 1 that can fall to `least` and rise to `most`. A `least` above 1, or a `most`
    /// below 1, counts as 1.
    pub fn between(least: Factor, most: Factor) -> Self {
        Self(Arc::new(Cell {
            factor: AtomicU32::new(Factor::ONE.get()),
            least: least.min(Factor::ONE),
            most: most.max(Factor::ONE),
            was_reached: AtomicBool::new(false),
            explanation: Mutex::new(Explanation {
                factor: Factor::ONE,
                cause: None,
                since: SystemTime::now(),
            }),
            signals: Mutex::default(),
        }))
    }

    /// Returns the factor that is in force.
    #[inline]
    pub fn get(&self) -> Factor {
        Factor(self.0.factor.load(Ordering::Relaxed))
    }

    /// Returns the factor that is in force for a class of requests.
    #[inline]
    pub fn of(&self, class: Class) -> Factor {
        class.of(self.get(), self.0.least)
    }

    /// Returns the least possible factor.
    pub fn least(&self) -> Factor {
        self.0.least
    }

    /// Returns the greatest possible factor.
    pub fn most(&self) -> Factor {
        self.0.most
    }

    /// Puts a factor in force, from the next charge on, with its cause. An empty cause means that there is no
    /// load. A factor beyond [`least`](Self::least) or [`most`](Self::most) is cut to it.
    ///
    /// [`Explanation::since`] does not change if neither the factor nor the cause changes.
    pub fn set(&self, factor: Factor, cause: &str) {
        self.set_as_of(factor, cause, SystemTime::now());
    }

    /// Puts a factor in force as of this moment.
    pub(crate) fn set_as_of(&self, factor: Factor, cause: &str, since: SystemTime) {
        let factor = factor.clamp(self.0.least, self.0.most);
        self.0.factor.store(factor.get(), Ordering::Relaxed);
        let mut last = self.lock();
        let cause = Some(cause).filter(|cause| !cause.is_empty());
        if last.factor != factor || last.cause.as_deref() != cause {
            let since = if last.factor == factor {
                last.since
            } else {
                since
            };
            *last = Explanation {
                factor,
                cause: cause.map(Arc::from),
                since,
            };
        }
    }

    /// Returns the factor with its cause and its age.
    pub fn explain(&self) -> Explanation {
        self.lock().clone()
    }

    /// Records that a key has reached its limit, which a rise above 1 requires.
    #[inline]
    pub(crate) fn note_reached(&self) {
        if !self.0.was_reached.load(Ordering::Relaxed) {
            self.0.was_reached.store(true, Ordering::Relaxed);
        }
    }

    /// Records the last readings of the signals, as shares of their targets.
    // For `tower-ratelimit-adapt`.
    #[doc(hidden)]
    pub fn note_signals(&self, signals: Vec<(String, Option<f64>)>) {
        *self.signals_lock() = signals;
    }

    /// Returns the last readings of the signals, if there are any.
    pub(crate) fn signals(&self) -> Vec<(String, Option<f64>)> {
        self.signals_lock().clone()
    }

    fn signals_lock(&self) -> std::sync::MutexGuard<'_, Vec<(String, Option<f64>)>> {
        self.0
            .signals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a key has reached its limit since the last call.
    // For `tower-ratelimit-adapt`.
    #[doc(hidden)]
    pub fn take_reached(&self) -> bool {
        self.0.was_reached.swap(false, Ordering::Relaxed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Explanation> {
        let explanation = self.0.explanation.lock();
        explanation.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for FactorCell {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for FactorCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FactorCell")
            .field("factor", &self.get())
            .field("least", &self.least())
            .field("most", &self.most())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_factor_is_shown_as_a_decimal_number() {
        for (thousandths, shown) in [(1, "0.001"), (750, "0.75"), (1_000, "1"), (5_200, "5.2")] {
            assert_eq!(Factor::thousandths(thousandths).to_string(), shown);
        }
    }

    #[test]
    fn a_factor_is_never_0_and_never_without_bound() {
        assert_eq!(Factor::thousandths(0), Factor::LEAST);
        assert_eq!(Factor::thousandths(u32::MAX), Factor::MOST);
        assert_eq!(Factor::LEAST.times(Factor::LEAST), Factor::LEAST);
        assert_eq!(Factor::MOST.times(Factor::MOST), Factor::MOST);
        let half = Factor::thousandths(500);
        assert_eq!(half.times(half).get(), 250);
    }

    #[test]
    fn a_class_that_matters_less_falls_further_and_keeps_its_floor() {
        let classes = [
            Class::CriticalPlus,
            Class::Critical,
            Class::SheddablePlus,
            Class::Sheddable,
        ];
        let cell = FactorCell::between(Factor::thousandths(100), Factor::thousandths(2_000));
        let factors = |factor| {
            cell.set(Factor::thousandths(factor), "a test");
            classes.map(|class| cell.of(class).get())
        };
        assert_eq!(factors(500), [1_000, 500, 250, 125]);
        assert_eq!(factors(200), [1_000, 200, 100, 100]);
        assert_eq!(factors(1), [1_000, 100, 100, 100]);
        assert_eq!(factors(1_000), [1_000; 4]);
        assert_eq!(factors(9_000), [2_000; 4]);
    }

    #[test]
    fn since_is_the_moment_of_the_last_change_of_the_factor() {
        let cell = FactorCell::new();
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        cell.set_as_of(Factor::thousandths(500), "cpu 80 %", at(5));
        cell.set_as_of(Factor::thousandths(500), "memory 75 %", at(6));
        let explanation = cell.explain();
        assert_eq!(explanation.cause(), Some("memory 75 %"));
        assert_eq!(explanation.since(), at(5));
        cell.set_as_of(Factor::ONE, "", at(7));
        assert_eq!(
            (cell.explain().cause(), cell.explain().since()),
            (None, at(7))
        );
    }
}
