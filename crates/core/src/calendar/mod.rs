//! Days, weeks, months and years in a time zone.
//!
//! With feature `calendar`, a [`Zone`] is resolved when a policy is built, from the zone data of the system or, with feature
//! `tzdb`, from the data in the program. Without it, every zone is an error that says so.
//!
//! All arithmetic is civil: a day lasts from its start to the start of the next, and has 23 or 25 hours where the clocks
//! change.
//!
//! - A boundary that the clocks skip is at the end of the gap: where there is no midnight, the day begins at
//!   01:00.
//! - A boundary that the clocks show twice is at the first time.
//! - A date that a zone leaves out has no window: in `Pacific/Apia`, 2011-12-29 ends where 2011-12-31 begins.
//!
//! [`CalendarWindow`](crate::algorithm::CalendarWindow) is a limit in such windows.

#[cfg_attr(not(feature = "calendar"), path = "absent.rs")]
pub(crate) mod civil;
mod interned;
mod span;
mod time_of_day;
mod weekday;
mod windows;

pub use self::civil::Zone;
pub use self::time_of_day::TimeOfDay;
pub use self::weekday::Weekday;

pub(crate) use self::civil::{Calendar, Interval, LocalTime, There, Timetable};
pub(crate) use self::interned::Interned;
pub(crate) use self::span::{Span, Stretch};
pub(crate) use self::windows::{Unit, Windows};
