//! The headers under windows of a calendar.

use http::StatusCode;
use tower_ratelimit::algorithm::CalendarWindow;
use tower_ratelimit::calendar::Zone;
use tower_ratelimit::response::Dialect;
use tower_ratelimit::{FixedWindow, ManualClock, MemoryStore, Micros, RateLimitLayer};

use crate::exchange::{Behind, Hello, ask, get, global};

fn layer(window: CalendarWindow, dialect: Dialect) -> (ManualClock, RateLimitLayer) {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::builder()
        .policy(global("a", window))
        .dialects([dialect])
        .store(MemoryStore::new().clock(clock.clone()))
        .build();
    (clock, layer.unwrap())
}

/// São Paulo: noon of a day of 23 hours, of one of 24 and of one of 25.
#[test]
fn the_length_of_the_present_day_is_told_and_the_time_to_its_end() {
    let zone = Zone::named("America/Sao_Paulo").unwrap();
    let (clock, layer) = layer(
        FixedWindow::per_calendar_day(1).zone(zone),
        Dialect::Draft11,
    );
    let service = Hello::behind(&layer);
    for (noon, length, left) in [
        (1_445_176_800, 82_800, 43_200),
        (1_445_263_200, 86_400, 43_200),
        (1_455_976_800, 90_000, 46_800),
    ] {
        clock.set_micros(Micros::new(noon * 1_000_000));
        let answer = ask(&service, get());
        assert_eq!(answer.status, StatusCode::OK);
        let policy = format!(r#""a";q=1;w={length}"#);
        assert_eq!(answer.field("ratelimit-policy"), Some(policy.as_str()));
        let told = format!(r#""a";r=0;t={left}"#);
        assert_eq!(answer.field("ratelimit"), Some(told.as_str()));

        let answer = ask(&service, get());
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.field("ratelimit-policy"), Some(policy.as_str()));
        let left = left.to_string();
        assert_eq!(answer.field("retry-after"), Some(left.as_str()));
    }
}

#[test]
fn months_and_years_fit_into_retry_after_in_every_dialect() {
    for dialect in [
        Dialect::Draft11,
        Dialect::Draft07,
        Dialect::Draft03,
        Dialect::GitHub,
    ] {
        for (window, wait) in [
            (FixedWindow::per_calendar_month(1), "2678400"),
            (FixedWindow::per_calendar_year(1), "31622400"),
        ] {
            let (clock, layer) = layer(window, dialect);
            // 2024-01-01, in a leap year.
            clock.set_micros(Micros::new(1_704_067_200_000_000));
            let service = Hello::behind(&layer);
            assert_eq!(ask(&service, get()).status, StatusCode::OK);
            let refused = ask(&service, get());
            assert_eq!(refused.field("retry-after"), Some(wait), "{dialect:?}");
        }
    }
}

#[test]
fn older_dialects_tell_the_length_of_the_present_month() {
    let (clock, layer) = layer(FixedWindow::per_calendar_month(5), Dialect::Draft07);
    let service = Hello::behind(&layer);
    for (day, days) in [
        (1_704_067_200, 31),
        (1_706_745_600, 29),
        (1_711_929_600, 30),
    ] {
        clock.set_micros(Micros::new(day * 1_000_000));
        let answer = ask(&service, get());
        let policy = format!("5;w={}", days * 86_400);
        assert_eq!(answer.field("ratelimit-policy"), Some(policy.as_str()));
    }
}

#[test]
fn a_policy_that_admits_nothing_has_no_window() {
    let (_, layer) = layer(FixedWindow::per_calendar_day(0), Dialect::Draft11);
    let answer = ask(&Hello::behind(&layer), get());
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.field("ratelimit-policy"), Some(r#""a";q=0"#));
    assert_eq!(answer.field("retry-after"), None);
}
