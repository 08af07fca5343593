//! Windows at the changes of clocks, against walks through civil time and dates worked out by hand.

use proptest::prelude::*;

use super::*;
use crate::calendar::Zone;

/// Zones whose clocks change in different ways: at midnight, by two hours, by half an hour, around Ramadan, by a day.
const ZONES: [&str; 11] = [
    "Africa/Casablanca",
    "America/Havana",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Australia/Lord_Howe",
    "Europe/London",
    "Pacific/Apia",
    "Pacific/Kwajalein",
];

const UNITS: [Unit; 5] = [
    Unit::Day,
    Unit::Week(Weekday::Monday),
    Unit::Week(Weekday::Saturday),
    Unit::Month,
    Unit::Year,
];

fn windows(unit: Unit, zone: &str, start: &str) -> Windows {
    Windows {
        unit,
        zone: zone.parse().unwrap(),
        start: start.parse().unwrap(),
    }
}

fn moment(text: &str) -> Micros {
    let moment: Timestamp = text.parse().unwrap();
    Micros::new(moment.as_microsecond().try_into().unwrap())
}

/// Returns the first date of the window of a clock that shows this, as a person would say it.
fn by_hand(windows: &Windows, at: Micros) -> Date {
    let at = Timestamp::from_microsecond(at.get().try_into().unwrap()).unwrap();
    let shown = windows.zone.civil(at);
    let date = if shown < windows.start.on(shown.date()) {
        shown.date().yesterday().unwrap()
    } else {
        shown.date()
    };
    windows.unit.first(date).unwrap()
}

/// Returns the changes of a zone's clocks between two years.
fn changes(zone: Zone, from: i16, until: i16) -> Vec<Micros> {
    let new_year = |year| {
        let midnight = Date::constant(year, 1, 1).at(0, 0, 0, 0);
        zone.first_moment(midnight).unwrap()
    };
    let (from, until) = (new_year(from), new_year(until));
    let zone = jiff::tz::TimeZone::get(zone.name()).unwrap();
    zone.following(from)
        .map(|change| change.timestamp())
        .take_while(|change| *change < until)
        .map(|change| micros(change.as_microsecond()))
        .collect()
}

/// Walks around a change in steps of `minutes`: each moment is in the window that its clock shows, unless the
/// clocks were set back over a boundary; and windows neither overlap nor leave gaps.
fn walk(windows: &Windows, around: Micros, minutes: u64, steps: u64) {
    let step = Micros::from_secs(60 * minutes);
    let length = Micros::from_secs(60 * minutes * steps);
    let (mut at, end) = (around.saturating_sub(length), around.saturating_add(length));
    let mut before = windows.at(at);
    while at < end {
        let span = windows.at(at);
        assert!(span.contains(at));
        assert!(span == before || span.from == before.until, "{windows:?}");
        assert!(
            span.length() <= windows.unit.longest(),
            "{windows:?} {span:?}"
        );
        let (began, shown) = (by_hand(windows, span.from), by_hand(windows, at));
        // A clock that was set back shows the previous window for a second time.
        assert!(shown <= began, "{windows:?} at {at:?}: {shown} {began}");
        if shown < began {
            assert!(at.saturating_sub(span.from) < Micros::from_secs(3 * 3_600));
        }
        before = span;
        at = at.saturating_add(step);
    }
}

#[test]
fn windows_neither_overlap_nor_leave_anything_out_at_any_change_of_ten_zones_over_five_years() {
    let mut seen = 0;
    for name in ZONES {
        let zone: Zone = name.parse().unwrap();
        for change in changes(zone, 2011, 2016) {
            seen += 1;
            for unit in UNITS {
                for start in ["00:00", "00:30", "06:00", "23:15"] {
                    let windows = windows(unit, name, start);
                    walk(&windows, change, 1, 65);
                    walk(&windows, change, 29, 60);
                }
            }
        }
    }
    assert!(seen > 60, "only {seen} changes");
}

#[test]
fn every_window_of_45_years_follows_the_one_before() {
    for name in ZONES {
        for unit in UNITS {
            let windows = windows(unit, name, "00:00");
            let mut span = windows.at(moment("1985-01-01T00:00:00Z"));
            while span.until < moment("2030-01-01T00:00:00Z") {
                let next = windows.at(span.until);
                assert_eq!(next.from, span.until, "{windows:?}");
                assert_eq!(windows.at(Micros::new(next.from.get() - 1)), span);
                assert_eq!(windows.at(Micros::new(next.until.get() - 1)), next);
                assert!(next.length() > Micros::ZERO);
                span = next;
            }
        }
    }
}

#[test]
fn days_are_as_long_as_a_calendar_on_the_wall_says() {
    for (zone, start, at, from, until, hours) in [
        // There is no midnight.
        (
            "America/Sao_Paulo",
            "00:00",
            "2015-10-18T12:00:00Z",
            "2015-10-18T03:00:00Z",
            "2015-10-19T02:00:00Z",
            23,
        ),
        // The last hour exists twice.
        (
            "America/Sao_Paulo",
            "00:00",
            "2016-02-20T12:00:00Z",
            "2016-02-20T02:00:00Z",
            "2016-02-21T03:00:00Z",
            25,
        ),
        // Midnight exists twice; the day begins with the first.
        (
            "America/Havana",
            "00:00",
            "2015-11-01T12:00:00Z",
            "2015-11-01T04:00:00Z",
            "2015-11-02T05:00:00Z",
            25,
        ),
        (
            "Antarctica/Troll",
            "00:00",
            "2015-10-25T12:00:00Z",
            "2015-10-24T22:00:00Z",
            "2015-10-26T00:00:00Z",
            26,
        ),
        (
            "Europe/London",
            "06:00",
            "2015-03-29T00:00:00Z",
            "2015-03-28T06:00:00Z",
            "2015-03-29T05:00:00Z",
            23,
        ),
        // The day that was left out.
        (
            "Pacific/Apia",
            "00:00",
            "2011-12-30T09:00:00Z",
            "2011-12-29T10:00:00Z",
            "2011-12-30T10:00:00Z",
            24,
        ),
        (
            "Pacific/Apia",
            "00:00",
            "2011-12-30T10:00:00Z",
            "2011-12-30T10:00:00Z",
            "2011-12-31T10:00:00Z",
            24,
        ),
    ] {
        let span = windows(Unit::Day, zone, start).at(moment(at));
        let expected = Span {
            from: moment(from),
            until: moment(until),
        };
        assert_eq!(span, expected, "{zone} {at}");
        assert_eq!(span.length(), Micros::from_secs(hours * 3_600));
    }
}

#[test]
fn weeks_months_and_years_begin_on_their_first_day() {
    for (unit, zone, start, at, from, until) in [
        (
            Unit::Week(Weekday::Monday),
            "UTC",
            "00:00",
            "2026-11-22T23:59:59Z",
            "2026-11-16T00:00:00Z",
            "2026-11-23T00:00:00Z",
        ),
        (
            Unit::Week(Weekday::Sunday),
            "UTC",
            "00:00",
            "2026-11-22T23:59:59Z",
            "2026-11-22T00:00:00Z",
            "2026-11-29T00:00:00Z",
        ),
        (
            Unit::Month,
            "Europe/London",
            "00:00",
            "2026-10-31T23:59:00Z",
            "2026-09-30T23:00:00Z",
            "2026-11-01T00:00:00Z",
        ),
        (
            Unit::Month,
            "UTC",
            "06:00",
            "2024-03-01T05:59:59Z",
            "2024-02-01T06:00:00Z",
            "2024-03-01T06:00:00Z",
        ),
        (
            Unit::Year,
            "Asia/Tehran",
            "00:00",
            "2024-06-01T00:00:00Z",
            "2023-12-31T20:30:00Z",
            "2024-12-31T20:30:00Z",
        ),
    ] {
        let span = windows(unit, zone, start).at(moment(at));
        assert_eq!(
            (span.from, span.until),
            (moment(from), moment(until)),
            "{zone} {at}"
        );
    }
}

/// The told waits have a bound.
#[test]
fn no_window_of_any_zone_is_longer_than_the_longest() {
    for name in jiff::tz::db().available() {
        let Ok(zone) = name.as_str().parse::<Zone>() else {
            continue;
        };
        for change in changes(zone, 1970, 2040) {
            for unit in [
                Unit::Day,
                Unit::Week(Weekday::Monday),
                Unit::Month,
                Unit::Year,
            ] {
                let windows = windows(unit, zone.name(), "00:00");
                let span = windows.at(change);
                assert!(
                    span.length() <= windows.unit.longest(),
                    "{windows:?} {span:?}"
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn any_moment_of_any_zone_is_in_one_window(
        zone in prop::sample::select(jiff::tz::db().available().map(|name| name.to_string()).collect::<Vec<_>>()),
        unit in prop::sample::select(UNITS.to_vec()),
        (hour, minute) in (0_u8..24, 0_u8..60),
        seconds in 0_u64..4_000_000_000,
    ) {
        prop_assume!(zone.parse::<Zone>().is_ok());
        let windows = Windows {
            unit,
            zone: zone.parse().unwrap(),
            start: TimeOfDay::new(hour, minute).unwrap(),
        };
        let now = Micros::from_secs(seconds);
        let span = windows.at(now);
        prop_assert!(span.contains(now));
        for inside in [span.from, Micros::new(span.until.get() - 1)] {
            prop_assert_eq!(windows.at(inside), span);
        }
        prop_assert_eq!(windows.at(span.until).from, span.until);
        prop_assert!(span.length() <= windows.unit.longest());
        prop_assert!(by_hand(&windows, now) <= by_hand(&windows, span.from));
    }
}
