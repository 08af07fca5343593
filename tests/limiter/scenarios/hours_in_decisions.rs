//! Hours in decisions and inspections.

use std::time::{Duration, SystemTime};

use tower_ratelimit::{FixedWindow, Hours, Limiter, ManualClock, MemoryStore, Micros, Policy};

use crate::scenarios::{DAY, HOUR, START};

fn at(time: Duration) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(START) + time
}

#[test]
fn a_decision_and_an_inspection_tell_the_interval_and_when_it_ends() {
    let hours = Hours::in_zone("UTC").unwrap();
    let hours = hours.at("22:00-06:00", FixedWindow::per_day(2)).unwrap();
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .policy(Policy::new("plain", FixedWindow::per_day(9)))
        .policy(
            Policy::new("by hours", FixedWindow::per_day(1))
                .hours(&hours)
                .unwrap(),
        )
        .store(MemoryStore::new().clock(clock.clone()))
        .build_local()
        .unwrap();
    for (time, interval, ends) in [
        (5 * HOUR, Some("22:00-06:00"), 6 * HOUR),
        (6 * HOUR, None, 22 * HOUR),
        (22 * HOUR, Some("22:00-06:00"), DAY + 6 * HOUR),
        (2 * DAY + 21 * HOUR, None, 2 * DAY + 22 * HOUR),
    ] {
        clock.set_micros(Micros::new(
            START + u64::try_from(time.as_micros()).unwrap(),
        ));
        let expected = [("by hours", interval, Some(at(ends)), "UTC")];
        // The last request is denied, and its decision has the hours too.
        for _ in 0..3 {
            let decision = limiter.check("ann", 1).now();
            let told = decision.hours();
            let told: Vec<_> = told
                .map(|(name, hours)| (name, hours.interval(), hours.ends(), hours.zone()))
                .collect();
            assert_eq!(told, expected, "{time:?}");
        }
        let inspection = limiter.inspect("ann").now();
        let told = inspection.hours();
        let told: Vec<_> = told
            .map(|(name, hours)| (name, hours.interval(), hours.ends(), hours.zone()))
            .collect();
        assert_eq!(told, expected, "{time:?}");
        let text = inspection.to_string();
        let shown = match interval {
            Some(interval) => format!("in the hours {interval} of UTC, for "),
            None => "outside its hours of UTC, for ".to_owned(),
        };
        assert!(text.contains(&shown), "{text}");
    }
}

/// An override holds at all hours, so there is no interval.
#[test]
fn no_interval_is_told_of_a_key_with_an_override() {
    let hours = Hours::in_zone("UTC").unwrap();
    let hours = hours.at("00:00-24:00", FixedWindow::per_day(2)).unwrap();
    let policy = Policy::new("by hours", FixedWindow::per_day(1));
    let limiter = Limiter::builder().policy(policy.hours(&hours).unwrap());
    let limiter = limiter.build_local().unwrap();
    limiter
        .override_limit("by hours", "ann", FixedWindow::per_day(7), HOUR)
        .unwrap()
        .now()
        .unwrap();
    assert_eq!(limiter.check("ann", 1).now().hours().count(), 0);
    assert_eq!(limiter.check("bob", 1).now().hours().count(), 1);
}

/// More than the count of a calendar window that fits one word beside its day.
#[test]
fn limits_of_hundreds_of_millions_depend_on_the_hour_as_smaller_ones_do() {
    let hours = Hours::in_zone("UTC").unwrap();
    let day = FixedWindow::per_calendar_day;
    let hours = hours.at("22:00-06:00", day(400_000_000)).unwrap();
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .policy(
            Policy::new("by hours", day(300_000_000))
                .hours(&hours)
                .unwrap(),
        )
        .store(MemoryStore::new().clock(clock.clone()))
        .build_local()
        .unwrap();
    for (time, cost, remaining) in [
        (5 * HOUR, 290_000_000, 110_000_000),
        (6 * HOUR, 9_000_000, 1_000_000),
    ] {
        clock.set_micros(Micros::new(
            START + u64::try_from(time.as_micros()).unwrap(),
        ));
        let decision = limiter.check("ann", cost).now();
        assert!(decision.is_allowed());
        assert_eq!(decision.binding().unwrap().1.remaining(), remaining);
    }
}
