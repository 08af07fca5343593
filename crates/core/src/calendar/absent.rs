//! What stands in the place of civil time in a program without feature `calendar`: the same names, of which there are no
//! values.
//!
//! Everything with a calendar begins with a zone, and none is known here: its name is an error that says what is missing.
//! So the compiler knows that no limit has a calendar, and leaves out the code for those that have.

use std::fmt;
use std::str::FromStr;

use super::{Span, Stretch, Windows};
use crate::clock::Micros;
use crate::error::ConfigError;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Nothing {}

/// A time zone of the IANA database. The program knows none: it is built without feature `calendar`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Zone(Nothing);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Calendar(Nothing);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Timetable(Nothing);

/// A stretch of civil time: see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval(Nothing);

/// A date and a time: see the module.
#[derive(Clone, Copy, Debug)]
pub struct LocalTime(Nothing);

#[derive(Clone, Copy)]
pub(crate) struct There(Nothing);

pub(crate) struct Walk(Nothing);

fn missing(field: &'static str, text: &str) -> ConfigError {
    let remedy = "turn on feature `calendar`, by which a program knows calendars and time zones";
    ConfigError::quoting(field, text, remedy)
}

impl Zone {
    /// Returns an error that names the missing feature.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn named(name: &str) -> Result<Self, ConfigError> {
        Err(missing("zone", name))
    }

    /// Its name in the database.
    pub fn name(self) -> &'static str {
        match self.0 {}
    }

    pub(crate) fn moment(self, _: LocalTime) -> Option<Micros> {
        match self.0 {}
    }
}

impl FromStr for Zone {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        Self::named(name)
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

impl Calendar {
    pub(crate) fn new(windows: Windows) -> Self {
        match windows.zone.0 {}
    }

    pub(crate) fn windows(self) -> &'static Windows {
        match self.0 {}
    }

    pub(crate) fn at(self, _: Micros) -> Span {
        match self.0 {}
    }

    pub(crate) fn beside(self, _: Micros) -> Span {
        match self.0 {}
    }
}

impl Windows {
    pub(crate) fn at(&self, _: Micros) -> Span {
        match self.zone.0 {}
    }
}

impl Interval {
    /// Returns an error that names the missing feature.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Err(missing("interval", text))
    }

    /// Returns the text as it was written.
    pub fn text(&self) -> &str {
        match self.0 {}
    }

    /// Returns whether any moment is in both.
    pub fn overlaps(&self, _: &Self) -> bool {
        match self.0 {}
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

impl LocalTime {
    /// Returns an error that names the missing feature.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Err(missing("at", text))
    }
}

/// There are none to be read.
pub fn read_zone_data_again() {}

impl Timetable {
    pub(crate) const MOST: usize = 255;

    pub(crate) fn new(zone: Zone, _: &[Interval]) -> Self {
        match zone.0 {}
    }

    pub(crate) fn zone(self) -> Zone {
        match self.0 {}
    }

    pub(crate) fn interval(self, _: u8) -> Option<&'static Interval> {
        match self.0 {}
    }

    pub(crate) fn at(self, _: Micros) -> Stretch {
        match self.0 {}
    }

    pub(crate) fn stretch(self, _: Micros) -> Stretch {
        match self.0 {}
    }

    pub(crate) fn ends(self, _: Micros) -> Option<Micros> {
        match self.0 {}
    }

    pub(crate) fn recurs_from(self, _: u8, _: Micros) -> bool {
        match self.0 {}
    }

    pub(crate) fn walk(self, _: Micros, _: usize) -> Walk {
        match self.0 {}
    }
}

impl There {
    pub(crate) fn of(timetable: Timetable) -> Self {
        match timetable.0 {}
    }
}

impl Walk {
    pub(crate) fn steps(&self) -> usize {
        match self.0 {}
    }
}

impl Iterator for Walk {
    type Item = Stretch;

    fn next(&mut self) -> Option<Stretch> {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_takes_no_room_for_a_calendar() {
        assert_eq!(size_of::<Option<Calendar>>(), 0);
        assert_eq!(size_of::<Option<There>>(), 0);
    }
}
