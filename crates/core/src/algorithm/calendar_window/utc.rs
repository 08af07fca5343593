use super::CalendarWindow;
use crate::algorithm::FixedWindow;
use crate::calendar::{TimeOfDay, Unit, Weekday, Windows, Zone};

/// Windows of a calendar, in UTC and from midnight unless it is said.
impl FixedWindow {
    /// This many requests in each day of a calendar. The zone is UTC until [`zone`](CalendarWindow::zone) says another.
    pub fn per_calendar_day(limit: u32) -> CalendarWindow {
        in_utc(limit, Unit::Day)
    }

    /// This many requests in each week of a calendar, where a week begins on this day. The zone is UTC until
    /// [`zone`](CalendarWindow::zone) says another.
    pub fn per_calendar_week(limit: u32, first_day: Weekday) -> CalendarWindow {
        in_utc(limit, Unit::Week(first_day))
    }

    /// This many requests in each month of a calendar. The zone is UTC until [`zone`](CalendarWindow::zone) says another.
    pub fn per_calendar_month(limit: u32) -> CalendarWindow {
        in_utc(limit, Unit::Month)
    }

    /// This many requests in each year of a calendar. The zone is UTC until [`zone`](CalendarWindow::zone) says another.
    pub fn per_calendar_year(limit: u32) -> CalendarWindow {
        in_utc(limit, Unit::Year)
    }
}

fn in_utc(limit: u32, unit: Unit) -> CalendarWindow {
    let windows = Windows {
        unit,
        zone: Zone::utc(),
        start: TimeOfDay::MIDNIGHT,
    };
    CalendarWindow::in_windows(limit, windows)
}
