//! Debts that take years to drain, under limits that change twice a day and more often.

use std::time::Duration;

use tower_ratelimit::{
    Algorithm, Gcra, Hours, Limiter, LocalLimiter, ManualClock, MemoryStore, Micros, Policy,
    TokenBucket,
};

use crate::scenarios::{DAY, START, quota};

const YEAR: Duration = Duration::from_secs(366 * 86_400);

/// Returns a bucket of this rate, and twice as many at night and at noon.
fn by_hours(of: impl Fn(u32) -> Algorithm) -> Algorithm {
    let hours = Hours::in_zone("Europe/Berlin").unwrap();
    let hours = hours.at("22:00-06:00", of(2)).unwrap();
    hours.at("12:00-13:00", of(2)).unwrap().over(of(1)).unwrap()
}

fn limiter(algorithm: Algorithm) -> (LocalLimiter, ManualClock) {
    let clock = ManualClock::new();
    clock.set_micros(Micros::new(START));
    let limiter = Limiter::builder()
        .policy(Policy::new("slow", algorithm))
        .store(MemoryStore::new().clock(clock.clone()))
        .build_local()
        .unwrap();
    (limiter, clock)
}

/// The debt lasts for longer than the switches that a step looks at. The wait is then not the shortest, but each
/// client that waits passes, whenever it has asked.
#[test]
fn a_wait_of_many_years_is_never_told_too_short() {
    let buckets: [fn(u32) -> Algorithm; 2] = [
        |rate| Gcra::of(quota(rate, YEAR)).burst(20).into(),
        |rate| {
            let bucket = TokenBucket::of(quota(rate, YEAR));
            bucket.burst(20).by_interval().into()
        },
    ];
    for of in buckets {
        let algorithm = by_hours(of);
        let (limiter, clock) = limiter(algorithm);
        assert!(limiter.check("ann", 20).now().is_allowed(), "{algorithm}");
        let mut passed = Duration::ZERO;
        let mut told = Vec::new();
        for years in [0, 1, 2, 5, 7, 9] {
            clock.advance((YEAR * years).saturating_sub(passed));
            passed = YEAR * years;
            let wait = limiter.peek("ann", 20).now().retry_after();
            told.push(passed + wait.expect("it passes once"));
        }
        // At the higher rate alone it would take ten years, at the lower twenty.
        assert!(
            told.iter()
                .all(|at| (10..=20).contains(&(at.as_secs() / YEAR.as_secs())))
        );
        told.sort();
        for at in told {
            clock.advance(at.saturating_sub(passed));
            passed = at;
            assert!(
                limiter.peek("ann", 20).now().is_allowed(),
                "{algorithm} {at:?}"
            );
        }
    }
}

/// A step looks at the switches of some years one by one.
#[test]
fn a_wait_of_three_years_is_told_exactly() {
    let (limiter, clock) = limiter(by_hours(|rate| {
        Gcra::of(quota(rate, YEAR)).burst(20).into()
    }));
    assert!(limiter.check("ann", 20).now().is_allowed());
    let wait = limiter.check("ann", 3).now().retry_after().unwrap();
    assert!(wait > 2 * YEAR, "{wait:?}");
    clock.advance(wait.saturating_sub(Duration::from_micros(1)));
    assert!(!limiter.peek("ann", 3).now().is_allowed());
    clock.advance(Duration::from_micros(1));
    assert!(limiter.peek("ann", 3).now().is_allowed());
}

/// 96 switches a day: a step looks at those of a month and a half.
#[test]
fn a_wait_through_a_switch_every_quarter_of_an_hour_is_never_told_too_short() {
    let of = |rate| Algorithm::from(Gcra::of(quota(rate, 30 * DAY)).burst(5));
    let mut hours = Hours::in_zone("America/Sao_Paulo").unwrap();
    for hour in 0..24 {
        for (from, to) in [("00", "15"), ("30", "45")] {
            let interval = format!("{hour:02}:{from}-{hour:02}:{to}");
            hours = hours.at(&interval, of(2)).unwrap();
        }
    }
    let (limiter, clock) = limiter(hours.over(of(1)).unwrap());
    assert!(limiter.check("ann", 5).now().is_allowed());
    let wait = limiter.check("ann", 5).now().retry_after().unwrap();
    assert!(wait > 75 * DAY && wait <= 150 * DAY, "{wait:?}");
    clock.advance(wait);
    assert!(limiter.check("ann", 5).now().is_allowed());
}
