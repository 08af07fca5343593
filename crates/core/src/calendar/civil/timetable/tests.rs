//! Timetables at the changes of clocks, against stretches worked out by hand.

use super::*;

fn timetable(zone: &str, intervals: &[&str]) -> Timetable {
    let intervals = intervals.iter().map(|text| Interval::parse(text).unwrap());
    let intervals: Vec<_> = intervals.collect();
    Timetable::new(Zone::named(zone).unwrap(), &intervals)
}

fn at(text: &str) -> Micros {
    let moment: Timestamp = text.parse().unwrap();
    Micros::new(moment.as_microsecond().try_into().unwrap())
}

/// Returns the interval at a moment, and its end.
fn at_moment(timetable: Timetable, moment: &str) -> (Option<&'static str>, Option<Micros>) {
    let now = at(moment);
    let stretch = timetable.at(now);
    assert_eq!(stretch, timetable.stretch(now));
    assert!(stretch.span.contains(now));
    let interval = timetable.interval(stretch.place).map(Interval::text);
    (interval, timetable.ends(now))
}

#[test]
fn a_night_belongs_to_the_day_on_which_it_begins_and_ends_before_its_end() {
    let nights = timetable("Europe/Berlin", &["friday 22:00-06:00", "2026-12-24"]);
    // 2026-11-20 is a Friday, and Berlin one hour ahead.
    let night = Some("friday 22:00-06:00");
    for (moment, interval, ends) in [
        ("2026-11-20T20:59:59.999999Z", None, "2026-11-20T21:00:00Z"),
        ("2026-11-20T21:00:00Z", night, "2026-11-21T05:00:00Z"),
        ("2026-11-21T04:59:59.999999Z", night, "2026-11-21T05:00:00Z"),
        ("2026-11-21T05:00:00Z", None, "2026-11-27T21:00:00Z"),
        (
            "2026-12-24T00:00:00Z",
            Some("2026-12-24"),
            "2026-12-24T23:00:00Z",
        ),
    ] {
        assert_eq!(
            at_moment(nights, moment),
            (interval, Some(at(ends))),
            "{moment}"
        );
    }
}

#[test]
fn hours_that_the_clocks_skip_or_show_twice() {
    // In Berlin the clocks skip 02:00 to 03:00 on 2026-03-29, at 01:00 UTC.
    let skipped = timetable("Europe/Berlin", &["02:00-03:00", "03:00-04:00"]);
    let after = Some("03:00-04:00");
    assert_eq!(
        at_moment(skipped, "2026-03-29T00:59:59Z"),
        (None, Some(at("2026-03-29T01:00:00Z")))
    );
    assert_eq!(
        at_moment(skipped, "2026-03-29T01:00:00Z"),
        (after, Some(at("2026-03-29T02:00:00Z")))
    );
    let half = timetable("Europe/Berlin", &["02:30-03:30"]);
    assert_eq!(
        at_moment(half, "2026-03-29T01:00:00Z"),
        (Some("02:30-03:30"), Some(at("2026-03-29T01:30:00Z")))
    );
    // They show 02:00 to 03:00 twice on 2026-10-25, from 00:00 to 02:00 UTC.
    let twice = timetable("Europe/Berlin", &["02:00-03:00"]);
    let both = Some("02:00-03:00");
    let ends = Some(at("2026-10-25T02:00:00Z"));
    for moment in ["2026-10-25T00:00:00Z", "2026-10-25T01:59:59Z"] {
        assert_eq!(at_moment(twice, moment), (both, ends));
    }
}

#[test]
fn a_date_that_a_zone_leaves_out_has_no_hours() {
    let apia = timetable("Pacific/Apia", &["2011-12-30", "saturday 00:00-01:00"]);
    // 2011-12-29 ended at 10:00 UTC of the 30th, and Saturday the 31st began.
    assert_eq!(
        at_moment(apia, "2011-12-30T10:00:00Z"),
        (
            Some("saturday 00:00-01:00"),
            Some(at("2011-12-30T11:00:00Z"))
        )
    );
    assert_eq!(at_moment(apia, "2011-12-30T09:59:59Z").0, None);
}

#[test]
fn a_timetable_equals_a_slow_search_minute_by_minute() {
    for (zone, intervals) in [
        (
            "Europe/Berlin",
            &["22:00-06:00", "saturday 08:00-20:00"][..],
        ),
        ("America/Sao_Paulo", &["00:00-00:30", "12:00-24:00"]),
        ("Antarctica/Troll", &["monday-friday", "sunday 01:15-03:45"]),
        ("Asia/Tehran", &["23:30-00:15", "2016-03-21 06:00-07:00"]),
    ] {
        let timetable = timetable(zone, intervals);
        let zone = Zone::named(zone).unwrap();
        let mut last = timetable.at(at("2015-12-31T23:30:00Z")).span.until;
        // Where the clocks go forward only, a moment is in an interval exactly if its time on the clock is.
        for minutes in (0..500_000).step_by(7) {
            let now = at("2016-01-01T00:00:00Z").saturating_add(Micros::from_secs(minutes * 60));
            let shown = zone.civil(Timestamp::from_microsecond(now.get().cast_signed()).unwrap());
            let before = zone.civil(
                Timestamp::from_microsecond(now.get().cast_signed() - 7_200_000_000).unwrap(),
            );
            let is_plain = shown.duration_since(before).as_secs() == 7_200;
            let stretch = timetable.at(now);
            assert_eq!(stretch, timetable.stretch(now));
            if now >= last {
                assert_eq!(timetable.stretch(last).span.from, last);
                last = stretch.span.until;
            }
            if !is_plain {
                continue;
            }
            let days = [shown.date().yesterday().unwrap(), shown.date()];
            let inside = (1..).zip(&timetable.0.intervals).find(|(_, interval)| {
                days.iter().any(|date| {
                    let on = interval.on(*date).filter(|_| interval.begins_on(*date));
                    on.is_some_and(|[from, until]| (from..until).contains(&shown))
                })
            });
            let place = inside.map_or(0, |(place, _)| place);
            assert_eq!(stretch.place, place, "{shown} {zone}");
        }
    }
}

#[test]
fn every_moment_has_a_stretch() {
    let nights = timetable("Europe/Berlin", &["22:00-06:00"]);
    for now in [0, 1, 1 << 53, (1 << 63) + 1, u64::MAX - 1].map(Micros::new) {
        assert!(nights.at(now).span.contains(now), "{now:?}");
    }
}

#[test]
fn an_interval_of_dates_comes_no_more_when_they_are_over() {
    let dates = timetable("Europe/Berlin", &["2026-12-24", "sunday"]);
    for (moment, comes) in [
        ("2026-11-01T00:00:00Z", true),
        ("2026-12-24T12:00:00Z", true),
        ("2027-01-01T00:00:00Z", false),
    ] {
        assert_eq!(dates.recurs_from(1, at(moment)), comes, "{moment}");
        assert!(dates.recurs_from(2, at(moment)));
        assert!(dates.recurs_from(0, at(moment)));
    }
    assert_eq!(
        dates.ends(at("2027-01-01T00:00:00Z")),
        Some(at("2027-01-02T23:00:00Z"))
    );
}

#[test]
fn packed_values_are_unpacked() {
    let nights = timetable("Europe/Berlin", &["22:00-06:00"]);
    let mut now = at("2026-01-01T00:00:00Z");
    for _ in 0..1_000 {
        let stretch = nights.stretch(now);
        assert_eq!(packed(stretch).map(unpacked), Some(stretch));
        now = stretch.span.until;
    }
}

#[test]
fn a_walk_meets_each_stretch_and_ends_after_its_steps() {
    let hours = timetable("Europe/Berlin", &["22:00-06:00", "sunday 06:00-22:00"]);
    let from = at("2026-03-20T12:34:56Z");
    let walked: Vec<_> = hours.walk(from, 4_096).collect();
    assert!((2_000..4_096).contains(&walked.len()), "{}", walked.len());
    assert!(walked[0].span.contains(from));
    for (stretch, next) in walked.iter().zip(&walked[1..]) {
        assert_eq!(stretch.span.until, next.span.from);
        assert_eq!(*next, hours.stretch(next.span.from));
    }
    // A single date does not bound the stretches of a block, and blocks are counted.
    let date = timetable("Europe/Berlin", &["2026-12-24"]);
    let walked = date.walk(from, 4_096).count();
    assert!((120..130).contains(&walked), "{walked}");
    assert_eq!(date.walk(from, 0).count(), 0);
    // After the last block comes the rest of all time.
    let end = Micros::new(u64::MAX - 1);
    assert_eq!(date.walk(end, 4_096).count(), 1);
}
