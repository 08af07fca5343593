//! The text forms of limits, hours and amounts of money: what is printed is read back as the same.

#![no_main]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use libfuzzer_sys::fuzz_target;
use tower_ratelimit::algorithm::{CalendarWindow, Concurrency};
use tower_ratelimit::calendar::{TimeOfDay, Weekday, Zone};
use tower_ratelimit::usage::Money;
use tower_ratelimit::{Algorithm, Quota};

fuzz_target!(|text: &str| {
    read::<Algorithm>(text);
    read::<Quota>(text);
    read::<Concurrency>(text);
    read::<CalendarWindow>(text);
    read::<TimeOfDay>(text);
    read::<Weekday>(text);
    read::<Zone>(text);
    read::<Money>(text);
});

fn read<T>(text: &str)
where
    T: FromStr<Err: Display> + Display + Debug + PartialEq,
{
    match text.parse::<T>() {
        Ok(read) => {
            let printed = read.to_string();
            let again = printed.parse::<T>();
            assert!(
                again.as_ref().is_ok_and(|again| *again == read),
                "{text:?} is printed as {printed:?}"
            );
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
