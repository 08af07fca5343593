//! Time zones of the IANA database.
//!
//! A zone is a reference to rules that are never freed, so that policies and limits with a zone stay `Copy`.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ptr;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

use crate::calendar::Interned;
use crate::clock::Micros;
use crate::error::ConfigError;

/// A time zone of the IANA database, such as `Europe/London`.
///
/// It is copied as a reference to its rules, which are read once and kept for the life of the program.
/// Changed zone data is read at a reload of the configuration. A program that names the zone again also reads
/// it, once the data is five minutes old. Zones are equal if they have the same name and the same rules.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::calendar::Zone;
///
/// let zone = Zone::named("Europe/London")?;
/// assert_eq!(zone.name(), "Europe/London");
///
/// let error = Zone::named("Europe/Lodnon").unwrap_err();
/// assert_eq!(error.field(), "zone");
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Zone(&'static Rules);

struct Rules {
    name: String,
    zone: TimeZone,
}

static ZONES: Interned<Rules> = Interned::new();

const UTC: &str = "UTC";

impl Zone {
    /// Coordinated Universal Time, which needs no zone data.
    pub fn utc() -> Self {
        Self::of(UTC, &TimeZone::UTC)
    }

    /// Returns the zone with this name in the IANA database, ignoring case.
    ///
    /// The data is that of the system, in `TZDIR` or `/usr/share/zoneinfo`. Where the system has none, as in
    /// an image without packages, feature `tzdb` adds the data to the program.
    ///
    /// # Errors
    ///
    /// If there is no zone with this name, or no zone data. No other zone is used instead.
    pub fn named(name: &str) -> Result<Self, ConfigError> {
        if name.eq_ignore_ascii_case(UTC) {
            return Ok(Self::utc());
        }
        let zone = TimeZone::get(name).map_err(|_| unknown(name))?;
        Ok(Self::of(zone.iana_name().unwrap_or(name), &zone))
    }

    fn of(name: &str, zone: &TimeZone) -> Self {
        let is_it = |known: &Rules| known.name == name && known.zone == *zone;
        Self(ZONES.get(is_it, || Rules {
            name: name.to_owned(),
            zone: zone.clone(),
        }))
    }

    /// Its name in the database.
    pub fn name(self) -> &'static str {
        &self.0.name
    }

    /// Returns the first moment at which its clock shows this time, or a later time if it never shows this
    /// time, since the epoch; `None` before the epoch.
    pub(crate) fn moment(self, LocalTime(shown): LocalTime) -> Option<Micros> {
        let moment = self.first_moment(shown)?.as_microsecond();
        u64::try_from(moment).ok().map(Micros::new)
    }

    /// Returns the time on its clock at this moment.
    pub(super) fn civil(self, at: Timestamp) -> DateTime {
        self.0.zone.to_datetime(at)
    }

    /// Returns the first moment at which its clock shows this time, or a later time if it never shows this
    /// time.
    pub(super) fn first_moment(self, shown: DateTime) -> Option<Timestamp> {
        let zone = &self.0.zone;
        let ambiguous = zone.to_ambiguous_timestamp(shown);
        let AmbiguousOffset::Gap { after, .. } = ambiguous.offset() else {
            return ambiguous.earlier().ok();
        };
        // By the offset after the gap, a time inside the gap is a moment before it.
        let before = after.to_timestamp(shown).ok()?;
        let mut changes = zone.following(before);
        let end = changes.find(|change| change.offset() == after);
        end.map(|end| end.timestamp())
            .or_else(|| ambiguous.later().ok())
    }
}

/// Lets the next lookup of a zone read the system's data, even if it was read recently.
pub fn read_zone_data_again() {
    jiff::tz::db().reset();
}

fn unknown(name: &str) -> ConfigError {
    let remedy = if TimeZone::get("Europe/London").is_ok() {
        "write the name of a zone in the IANA database, such as UTC or Europe/London"
    } else {
        "there is no zone data here: install the system's package tzdata, or turn on feature `tzdb`, which adds the \
         data to the program"
    };
    ConfigError::quoting("zone", name, remedy)
}

/// A date and a time on the clock of a zone that is given elsewhere: `2026-03-29T02:30`.
#[derive(Clone, Copy, Debug)]
pub struct LocalTime(DateTime);

impl LocalTime {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// When it is none.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        text.parse().map(Self).map_err(|_| {
            let remedy = "write a date and a time such as 2026-03-29T02:30";
            ConfigError::quoting("at", text, remedy)
        })
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl Eq for Zone {}

impl Hash for Zone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        ptr::hash(self.0, state);
    }
}

impl FromStr for Zone {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        Self::named(name)
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Zone").field(&self.name()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_the_same_by_whatever_case_it_is_named() {
        let zone = Zone::named("america/sao_paulo").unwrap();
        assert_eq!(zone.name(), "America/Sao_Paulo");
        assert_eq!("America/Sao_Paulo".parse(), Ok(zone));
        assert_eq!(Zone::named("utc"), Ok(Zone::utc()));
        assert_ne!(zone, Zone::utc());
    }

    #[test]
    fn an_unknown_zone_is_an_error_with_the_remedy() {
        for name in [
            "",
            "Mars/Olympus",
            "America/Sao Paulo",
            "../etc/passwd",
            "+03:00",
        ] {
            let error = Zone::named(name).unwrap_err();
            assert_eq!(error.field(), "zone", "{name}");
            assert!(error.remedy().contains("IANA database"), "{error}");
        }
    }
}
