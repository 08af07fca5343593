//! The builder of hours: intervals as text, each with a limit or a share.
//!
//! It checks everything that can be wrong, so that the rule in `step.rs` cannot fail.

use super::ByHours;
use super::schedule::{Change, Schedule};
use crate::algorithm::Algorithm;
use crate::calendar::{Interval, Timetable, Zone};
use crate::error::ConfigError;
use crate::factor::Factor;

/// Limits that depend on the time in a zone: twice as many at night, less on a date.
///
/// An interval is text: times, days, or both.
///
/// | text | from | to |
/// | --- | --- | --- |
/// | `22:00-06:00` | 22:00 on each day | 06:00 on the next |
/// | `saturday,sunday` | 00:00 on these days | 24:00 |
/// | `monday-friday 08:00-18:00` | 08:00 on these days | 18:00 |
/// | `friday 22:00-06:00` | 22:00 on Friday | 06:00 on Saturday |
/// | `2026-12-24,2026-12-31 18:00-24:00` | 18:00 on these dates | 24:00 |
///
/// An interval belongs to the day on which it begins, and does not include its end. Intervals do not overlap. Outside all
/// of them, the limit is the policy's own.
///
/// An interval changes the limit in one of two ways:
///
/// - An algorithm replaces the policy's own limit. It differs from the policy's only in its numbers. It does
///   not replace a limit by plan, operation, key or resolver.
/// - A [`Factor`] is a share of the limit of the request, wherever that comes from:
///   `Factor::thousandths(2_000)` is twice as many. It is rounded up.
///
/// A key has one state. When the limit changes, what was used stays used. A debt of a bucket drains at the
/// rate in force at each moment. A client that is refused and waits as told passes: the wait is computed
/// through the switches.
///
/// Zones need feature `calendar`. The page `hours` of the [guide][hours] has more.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::factor::Factor;
/// use tower_ratelimit::{Hours, Limiter, Policy, TokenBucket};
///
/// # #[cfg(feature = "calendar")] {
/// let hours = Hours::in_zone("Europe/Berlin")?
///     .at("22:00-06:00", TokenBucket::per_second(20).burst(40))?
///     .at("saturday,sunday 06:00-22:00", Factor::thousandths(1_500))?;
/// let policy = Policy::new("api", TokenBucket::per_second(10).burst(20)).hours(&hours)?;
/// let limiter = Limiter::builder().policy(policy).build_local()?;
/// assert!(limiter.check("ann", 1).now().is_allowed());
///
/// let error = hours.at("05:00-07:00", Factor::thousandths(500)).unwrap_err();
/// assert_eq!(error.field(), "hours");
/// # }
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
///
/// [hours]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/hours/index.html
#[derive(Clone, Debug)]
#[must_use = "hours change nothing until a policy has them"]
pub struct Hours {
    zone: Zone,
    intervals: Vec<Interval>,
    limits: Vec<HourlyLimit>,
}

/// The limit in an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum HourlyLimit {
    /// Replaces the policy's own limit.
    Limit(Algorithm),
    /// Multiplies the limit of the request by this share.
    Share(Factor),
}

impl<A: Into<Algorithm>> From<A> for HourlyLimit {
    fn from(algorithm: A) -> Self {
        Self::Limit(algorithm.into())
    }
}

impl From<Factor> for HourlyLimit {
    fn from(share: Factor) -> Self {
        Self::Share(share)
    }
}

impl Hours {
    /// The most intervals.
    pub const MOST: usize = Timetable::MOST;

    /// Creates hours in the zone with this name in the IANA database, without an interval.
    ///
    /// # Errors
    ///
    /// If there is no zone with this name, or no zone data: see [`Zone::named`].
    pub fn in_zone(name: &str) -> Result<Self, ConfigError> {
        Zone::named(name).map(Self::of)
    }

    /// Creates hours in this zone, without an interval.
    pub fn of(zone: Zone) -> Self {
        Self {
            zone,
            intervals: Vec::new(),
            limits: Vec::new(),
        }
    }

    /// Adds an interval with a limit, or with a share of the limit.
    ///
    /// # Errors
    ///
    /// If the text is not an interval, if it overlaps another one, whose text the error names, and if there
    /// are 255 already.
    pub fn at(
        mut self,
        interval: &str,
        limit: impl Into<HourlyLimit>,
    ) -> Result<Self, ConfigError> {
        let interval = Interval::parse(interval)?;
        if let Some(other) = self.overlapped(&interval) {
            let remedy = format!("let it have no moment in common with {:?}", other.text());
            return Err(ConfigError::quoting("hours", interval.text(), remedy));
        }
        if self.intervals.len() == Timetable::MOST {
            let remedy = "give 255 intervals at most";
            return Err(ConfigError::quoting("hours", interval.text(), remedy));
        }
        self.intervals.push(interval);
        self.limits.push(limit.into());
        Ok(self)
    }

    fn overlapped(&self, interval: &Interval) -> Option<&Interval> {
        self.intervals.iter().find(|known| known.overlaps(interval))
    }

    /// Returns this algorithm with these hours.
    ///
    /// # Errors
    ///
    /// If the algorithm is unlimited or has hours already, or if it cannot have the limit of an interval: of another kind
    /// or period, or too large.
    pub fn over(&self, algorithm: impl Into<Algorithm>) -> Result<Algorithm, ConfigError> {
        let algorithm = algorithm.into();
        if matches!(algorithm, Algorithm::Unlimited | Algorithm::ByHours(_)) {
            let remedy = "give hours once, to a policy with a limit";
            return Err(ConfigError::new("hours", algorithm, remedy));
        }
        let mut changes = Vec::new();
        for (interval, limit) in self.intervals.iter().zip(&self.limits) {
            changes.push(change(&algorithm, interval, limit)?);
        }
        let timetable = Timetable::new(self.zone, &self.intervals);
        let schedule = Schedule::new(timetable, algorithm, &changes).ok_or_else(|| {
            let remedy =
                "let each share of the limit be less than 2^32 and such as the algorithm can have";
            ConfigError::new("hours", algorithm, remedy)
        })?;
        Ok(ByHours::new(schedule).into())
    }
}

fn change(
    algorithm: &Algorithm,
    interval: &Interval,
    limit: &HourlyLimit,
) -> Result<Change, ConfigError> {
    match limit {
        HourlyLimit::Share(share) => Ok(Change::Share(*share)),
        HourlyLimit::Limit(limit) => {
            let numbers = limit
                .limits()
                .filter(|_| limit.differs_in_its_limit_alone(algorithm))
                .filter(|_| !matches!(limit, Algorithm::ByHours(_)));
            numbers.map(Change::Limit).ok_or_else(|| {
                let remedy = format!(
                    "give {:?} a limit that differs from the policy's, {algorithm}, in its numbers alone, not in \
                     its kind or its period",
                    interval.text(),
                );
                ConfigError::new("hours", limit, remedy)
            })
        }
    }
}

#[cfg(all(test, feature = "calendar"))]
mod tests {
    use super::*;
    use crate::algorithm::{FixedWindow, Limit, TokenBucket};

    fn berlin() -> Hours {
        Hours::in_zone("Europe/Berlin").unwrap()
    }

    #[test]
    fn overlapping_intervals_are_an_error_that_names_both() {
        let hours = berlin().at("22:00-06:00", FixedWindow::per_minute(5));
        let error = hours.unwrap().at("saturday", FixedWindow::per_minute(7));
        let error = error.unwrap_err();
        assert_eq!((error.field(), error.value()), ("hours", "\"saturday\""));
        assert!(error.remedy().contains("\"22:00-06:00\""), "{error}");
    }

    #[test]
    fn a_limit_of_another_kind_or_period_is_an_error_that_names_the_interval() {
        let hours = berlin()
            .at("22:00-06:00", FixedWindow::per_minute(5))
            .unwrap();
        assert!(hours.over(FixedWindow::per_minute(7)).is_ok());
        for other in [
            FixedWindow::per_hour(5).into(),
            TokenBucket::per_minute(5).into(),
            hours.over(FixedWindow::per_minute(7)).unwrap(),
            Algorithm::Unlimited,
        ] {
            let error = hours.over(other).unwrap_err();
            assert_eq!(error.field(), "hours");
        }
        let error = hours.over(FixedWindow::per_hour(5)).unwrap_err();
        assert!(error.remedy().contains("22:00-06:00"), "{error}");
    }

    #[test]
    fn a_share_that_is_too_large_is_an_error() {
        let hours = berlin().at("sunday", Factor::thousandths(2_000)).unwrap();
        assert!(hours.over(FixedWindow::per_minute(u32::MAX / 2)).is_ok());
        assert!(hours.over(FixedWindow::per_minute(u32::MAX)).is_err());
    }

    #[test]
    fn a_share_is_of_the_limit_of_the_request_and_a_limit_replaces_the_policys_own() {
        let hours = berlin()
            .at("22:00-06:00", FixedWindow::per_minute(20))
            .unwrap()
            .at("06:00-08:00", Factor::thousandths(1_500))
            .unwrap();
        let own = hours.over(FixedWindow::per_minute(5)).unwrap();
        let given = own.under(Limit::new(7, 7)).unwrap();
        for (algorithm, limits) in [(own, [5, 20, 8]), (given, [7, 7, 11])] {
            let Algorithm::ByHours(by_hours) = algorithm else {
                panic!("{algorithm}");
            };
            let each: Vec<_> = by_hours.each().map(|each| each.limit().unwrap()).collect();
            assert_eq!(each, limits);
        }
    }
}
