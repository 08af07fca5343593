//! Windows of a calendar over Redis, by the server's clock.

use std::time::{SystemTime, UNIX_EPOCH};

use tower_ratelimit::algorithm::CalendarWindow;
use tower_ratelimit::calendar::Zone;
use tower_ratelimit::key::Key;
use tower_ratelimit::{Decision, FixedWindow, Policy};

use crate::scene::{ask, limiter, store};
use crate::support::redis::Server;

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// Two zones without changes of their clocks, and their distance from UTC in hours.
const EAST: (&str, i64) = ("Pacific/Kiritimati", 14);
const WEST: (&str, i64) = ("Pacific/Niue", -11);

fn day_in(zone: &str) -> CalendarWindow {
    FixedWindow::per_calendar_day(3).zone(Zone::named(zone).unwrap())
}

/// In milliseconds since the epoch.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_millis().try_into().unwrap()
}

/// Returns when the day ends in which this moment is.
fn midnight(at: i64, hours_ahead: i64) -> i64 {
    let shown = at + hours_ahead * HOUR;
    shown - shown.rem_euclid(DAY) + DAY - hours_ahead * HOUR
}

/// Asserts that the key expires at the end of the window that contains the moment of the request.
#[track_caller]
fn dies_at(ends: impl Fn(i64) -> i64, asked: i64, ttl: impl Fn() -> i64) {
    let (before, ttl, after) = (now(), ttl(), now());
    // The server rounds a time to live up, and the clock of this process may be read a moment sooner.
    let dies = before + ttl - 2..=after + ttl + 2;
    assert!(
        dies.contains(&ends(asked)) || dies.contains(&ends(after)),
        "{dies:?}, not {}",
        ends(asked)
    );
}

fn used(decision: &Decision) -> (bool, u32) {
    let (_, outcome) = decision.binding().unwrap();
    (decision.is_allowed(), outcome.used())
}

#[tokio::test]
async fn a_state_dies_with_the_later_of_both_windows_if_the_zone_changes() {
    let server = Server::start(&[]);
    let store = store(&server);
    let policy = |(zone, _)| Policy::new("day", day_in(zone));
    let [east, west] = [EAST, WEST].map(|zone| limiter(&store, [policy(zone)]));
    for (key, zones) in [("ann", [EAST, WEST]), ("bob", [WEST, EAST])] {
        let state = store.store_key(&policy(EAST), key);
        let ttl = || ask::<i64>(&server, &["PTTL", &state]);
        let limiters = zones.map(|zone| if zone == EAST { &east } else { &west });
        let asked = now();
        let first = limiters[0].check(key, 1).await.unwrap();
        assert_eq!(used(&first), (true, 1));
        dies_at(|at| midnight(at, zones[0].1), asked, ttl);
        let second = limiters[1].check(key, 2).await.unwrap();
        assert_eq!(used(&second), (true, 3));
        let later = |at| midnight(at, EAST.1).max(midnight(at, WEST.1));
        dies_at(later, asked, ttl);
        for limiter in limiters {
            assert!(!limiter.check(key, 1).await.unwrap().is_allowed());
        }
        dies_at(later, asked, ttl);
    }
}

#[tokio::test]
async fn each_customer_has_the_days_of_its_own_zone() {
    let server = Server::start(&[]);
    let store = store(&server);
    let zone_of = |key: &Key| {
        let zone = if key.starts_with("west-") { WEST } else { EAST };
        Some(day_in(zone.0))
    };
    let policy = Policy::new("day", FixedWindow::per_calendar_day(3)).limit_by(zone_of);
    let limiter = limiter(&store, [policy.clone()]);
    for (key, (_, hours_ahead)) in [("west-ann", WEST), ("east-ann", EAST)] {
        let asked = now();
        let decision = limiter.check(key, 1).await.unwrap();
        assert_eq!(used(&decision), (true, 1));
        let state = store.store_key(&policy, key);
        let ttl = || ask::<i64>(&server, &["PTTL", &state]);
        dies_at(|at| midnight(at, hours_ahead), asked, ttl);
    }
}
