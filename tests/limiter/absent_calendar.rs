//! A program without feature `calendar`.

use tower_ratelimit::{Algorithm, Hours};

#[test]
fn a_limit_with_a_calendar_is_an_error_that_names_the_feature() {
    let window = "calendar-day 5 zone UTC".parse::<Algorithm>();
    let hours = Hours::in_zone("UTC").map(|_| ());
    for error in [window.map(|_| ()).unwrap_err(), hours.unwrap_err()] {
        assert_eq!((error.field(), error.value()), ("zone", "\"UTC\""));
        assert!(error.remedy().contains("feature `calendar`"), "{error}");
    }
}
