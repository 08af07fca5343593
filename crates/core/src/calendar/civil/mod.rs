//! Civil time, by the zone data that feature `calendar` brings. Without the feature, `absent.rs` stands in its place.

mod cached;
pub(crate) mod interval;
mod search;
mod timetable;
pub(crate) mod zone;

pub(crate) use self::cached::Calendar;
pub use self::interval::Interval;
pub(crate) use self::timetable::Timetable;
pub use self::zone::{LocalTime, Zone, read_zone_data_again};

use super::Span;
use crate::clock::Micros;

impl Span {
    fn contains(self, now: Micros) -> bool {
        (self.from..self.until).contains(&now)
    }
}

/// A sign that there is a timetable, for a type that refers to one: without the feature, such a type has no value either.
#[derive(Clone, Copy)]
pub(crate) struct There(());

impl There {
    pub(crate) fn of(_: Timetable) -> Self {
        Self(())
    }
}
