//! Windows of a calendar: a model that reads the wall clock, and laws about a change of zone.

use std::fmt;

use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::FileFailurePersistence;
use tower_ratelimit::calendar::{TimeOfDay, Weekday, Zone};
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::store::Store;
use tower_ratelimit::{
    Algorithm, FixedWindow, Limiter, ManualClock, MemoryStore, Micros, Policy, SharedStore,
};

use crate::case::{CaseRequest, Numbers};
use crate::hours::{AtOnce, Several};
use crate::laws::{remaining_is_tight, reset_is_tight, retry_is_tight};
use crate::property::{check_at, seeds};
use crate::subject::Subject;
use crate::support::driver::{Driver, Seen, Step, now};
use crate::support::items::Map;
use crate::support::model::{Admitted, Rule, clamp, count, sum};

const HOUR: i128 = 3_600_000_000;

#[derive(Clone, Copy, Debug)]
enum Unit {
    Day,
    Week,
    Month,
    Year,
}

/// A window as a clock on the wall shows it: all moments of the same date, week, month or year. If the clock
/// is set back over the end of a window, the window that has begun goes on.
#[derive(Clone)]
struct OnTheWall {
    limit: u32,
    unit: Unit,
    zone: TimeZone,
    start: Time,
}

impl OnTheWall {
    /// Returns the first date of the window that the clock shows.
    fn shows(&self, at: i128) -> Date {
        let shown = self.zone.to_datetime(timestamp(at));
        let date = if shown.time() < self.start {
            shown.date().yesterday().unwrap()
        } else {
            shown.date()
        };
        match self.unit {
            Unit::Day => date,
            Unit::Week => {
                let since_monday = date.weekday().to_monday_zero_offset();
                date.checked_sub(i64::from(since_monday).days()).unwrap()
            }
            Unit::Month => date.first_of_month(),
            Unit::Year => date.first_of_year(),
        }
    }

    /// Returns the first date of the window of this moment.
    fn window(&self, at: i128) -> Date {
        let just_after = timestamp(at + 1);
        let changes = self.zone.preceding(just_after);
        let changes = changes.map(|change| i128::from(change.timestamp().as_microsecond()));
        let shown_before = changes
            .take_while(|change| at - change < 3 * HOUR)
            .map(|change| self.shows(change - 1));
        shown_before.fold(self.shows(at), Date::max)
    }

    /// Returns the first moment after this one that is in another window.
    fn end(&self, at: i128) -> i128 {
        let window = self.window(at);
        let (mut inside, mut outside) = (at, at + 400 * 24 * HOUR);
        while outside - inside > 1 {
            let middle = i128::midpoint(inside, outside);
            if self.window(middle) == window {
                inside = middle;
            } else {
                outside = middle;
            }
        }
        outside
    }

    fn used(&self, admitted: &[Admitted], at: i128) -> i128 {
        let window = self.window(at);
        sum(admitted
            .iter()
            .filter(|request| self.window(request.at) == window))
    }
}

impl fmt::Debug for OnTheWall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.zone.iana_name();
        write!(
            f,
            "{} a {:?} in {name:?} from {}",
            self.limit, self.unit, self.start
        )
    }
}

impl Rule for OnTheWall {
    fn limit(&self) -> i128 {
        self.limit.into()
    }

    fn allows(&self, admitted: &[Admitted], at: i128, cost: i128) -> bool {
        self.used(admitted, at) + cost <= self.limit()
    }

    fn is_new(&self, admitted: &[Admitted], at: i128) -> bool {
        self.used(admitted, at) == 0
    }

    fn settle(&self, admitted: &mut Vec<Admitted>, at: i128, units: i128) {
        let counted = self.used(admitted, at);
        count(admitted, at, units, counted);
    }

    fn step_back(&self, admitted: &mut Vec<Admitted>, at: i128) {
        clamp(admitted, at);
    }

    fn forget(&self, admitted: &mut Vec<Admitted>, at: i128) {
        let window = self.window(at);
        admitted.retain(|request| self.window(request.at) == window);
    }

    /// The clocks of these zones are set forward by two hours at most.
    fn most_within(&self, span: i128) -> i128 {
        let days = match self.unit {
            Unit::Day => 1,
            Unit::Week => 7,
            Unit::Month => 28,
            Unit::Year => 365,
        };
        let shortest = days * 24 * HOUR - 3 * HOUR;
        self.limit() * ((span + shortest - 1) / shortest + 1)
    }

    fn longest_wait_is_a_bound(&self) -> bool {
        true
    }
}

fn timestamp(at: i128) -> Timestamp {
    Timestamp::from_microsecond(at.max(0).try_into().unwrap()).unwrap()
}

const ZONES: [&str; 8] = [
    "UTC",
    "Africa/Casablanca",
    "America/Havana",
    "America/New_York",
    "Antarctica/Troll",
    "Australia/Lord_Howe",
    "Europe/London",
    "Pacific/Apia",
];

/// Creates a calendar from numbers that all limits of a case share.
pub(crate) fn subject(numbers: &Numbers) -> Subject {
    let pick = usize::try_from(numbers.period).unwrap();
    let unit = [Unit::Day, Unit::Week, Unit::Month, Unit::Year][pick % 4];
    let (hour, minute) = [(0, 0), (0, 30), (6, 0)][pick % 3];
    let zone = ZONES[numbers.slots as usize % ZONES.len()];
    window(numbers.limit, unit, zone, (hour, minute))
}

fn window(limit: u32, unit: Unit, zone: &str, (hour, minute): (u8, u8)) -> Subject {
    let window = match unit {
        Unit::Day => FixedWindow::per_calendar_day(limit),
        Unit::Week => FixedWindow::per_calendar_week(limit, Weekday::Monday),
        Unit::Month => FixedWindow::per_calendar_month(limit),
        Unit::Year => FixedWindow::per_calendar_year(limit),
    };
    let window = window
        .zone(Zone::named(zone).unwrap())
        .starting_at(TimeOfDay::new(hour, minute).unwrap());
    Subject::new(window, on_the_wall(limit, unit, zone, (hour, minute)))
}

fn on_the_wall(limit: u32, unit: Unit, zone: &str, (hour, minute): (u8, u8)) -> OnTheWall {
    OnTheWall {
        limit,
        unit,
        zone: TimeZone::get(zone).unwrap(),
        start: Time::constant(hour.cast_signed(), minute.cast_signed(), 0, 0),
    }
}

/// A request from a customer whose present zone is this one.
#[derive(Clone, Copy, Debug)]
struct Moved {
    zone: &'static str,
    after_minutes: i32,
    cost: u32,
}

fn moved() -> impl Strategy<Value = Vec<Moved>> {
    moved_after(0..700)
}

/// Returns such requests under a clock that steps back now and then.
fn moved_while_the_clock_steps() -> impl Strategy<Value = Vec<Moved>> {
    moved_after(prop_oneof![6 => 0..700, 1 => -700..0, 1 => -5_000..0])
}

fn moved_after(minutes: impl Strategy<Value = i32>) -> impl Strategy<Value = Vec<Moved>> {
    let zones = vec![
        "Pacific/Kiritimati",
        "Pacific/Niue",
        "Europe/London",
        "America/Sao_Paulo",
    ];
    let one = (select(zones), minutes, 0..5_u32).prop_map(|(zone, after_minutes, cost)| Moved {
        zone,
        after_minutes,
        cost,
    });
    vec(one, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(crate::property::seeds!(calendars)))),
        ..ProptestConfig::default()
    })]

    /// Law 11, for calendars: usage counts until both windows have ended, that of the charge and that of the
    /// calendar which reads it. And laws 2 to 4 hold under the calendar that reads it.
    #[test]
    fn a_change_of_zone_ends_no_window_early(
        asks in moved(),
        limit in 1..6_u32,
        months in any::<bool>(),
        start in 1_704_067_200_000_000..2_000_000_000_000_000_u64,
    ) {
        let unit = if months { Unit::Month } else { Unit::Day };
        let mut driver = Step::new(Algorithm::Unlimited);
        // The charges, and the end of the window that had begun at each, since the key was last new.
        let mut charged: Vec<(i128, i128, u32)> = Vec::new();
        let mut at = start;
        for Moved { zone, after_minutes, cost } in asks {
            let minutes = u64::from(after_minutes.unsigned_abs()) * if months { 31 } else { 1 };
            at += minutes * 60_000_000;
            let wall = on_the_wall(limit, unit, zone, (0, 0));
            let now = i128::from(at);
            let counts = charged.iter().any(|&(since, until, _)| {
                now < until || wall.window(since) == wall.window(now)
            });
            let mut used: u32 = charged.iter().map(|(.., cost)| cost).sum();
            used = if counts { used } else { 0 };

            driver.algorithm = window(limit, unit, zone, (0, 0)).algorithm;
            let seen = driver.decide(at, cost);
            prop_assert_eq!(seen.allowed, used + cost <= limit, "{} used in {}", used, zone);
            let asked = CaseRequest { at, cost };
            retry_is_tight(&driver, asked, seen)?;
            remaining_is_tight(&driver, asked, seen)?;
            reset_is_tight(&driver, asked, seen)?;
            if seen.allowed && cost > 0 {
                // Charges are forgotten at the next charge only.
                charged.retain(|_| counts);
                charged.push((now, wall.end(now), cost));
                used += cost;
            }
            prop_assert_eq!(seen.remaining, limit - used, "in {} at {}", zone, at);
        }
    }
}

/// Laws 8 and 9 when the zone changes, as it does when zone data is new: each store answers as the step does,
/// under any calendar. The clock may step back; even then no wait is longer than the longest window, and laws
/// 2 to 4 hold.
///
/// A table in memory moves states back by the calendar with which its policy was declared, under any calendar
/// of the request. So it is compared with the step while the clock goes forward.
fn a_store_agrees_with_the_step_about_calendars<S: Several>(moves: BoxedStrategy<Vec<Moved>>) {
    let units = select(vec![Unit::Day, Unit::Week, Unit::Month]);
    let start = 1_704_067_200_000_000..2_000_000_000_000_000_u64;
    let cases = (moves, 1..6_u32, units, start);
    check_at(seeds!(calendars), S::PRICE, cases, &|(
        asks,
        limit,
        unit,
        start,
    )| {
        let of = |zone: &str| window(*limit, *unit, zone, (0, 0)).algorithm;
        let policies = |zone: &str| vec![Policy::new("calendar", of(zone))];
        let first = S::new(policies("Europe/London"));
        let mut by_zone: Vec<(&str, S)> = Vec::new();
        let mut step = Step::new(of("Europe/London"));
        let mut at = *start;
        for &Moved {
            zone,
            after_minutes,
            cost,
        } in asks
        {
            at = at.saturating_add_signed(i64::from(after_minutes) * 60_000_000);
            if !by_zone.iter().any(|(known, _)| *known == zone) {
                by_zone.push((zone, first.reopened(policies(zone))));
            }
            let asked = by_zone.iter().find(|(known, _)| *known == zone);
            step.algorithm = of(zone);
            let decision = asked.expect("it was opened").1.decide(at, cost);
            let (_, outcome) = decision.binding().expect("one policy was asked");
            let seen = Seen::from(outcome);
            prop_assert_eq!(seen, step.decide(at, cost), "in {} at {}", zone, at);
            let longest = step.algorithm.longest_wait().expect("a window ends");
            let wait = seen.retry_after.unwrap_or(0).max(seen.reset_after);
            prop_assert!(u128::from(wait) <= longest.as_micros(), "{}", wait);
            // A request that costs nothing writes nothing, and so moves nothing back.
            if cost > 0 {
                let asked = CaseRequest { at, cost };
                retry_is_tight(&step, asked, seen)?;
                remaining_is_tight(&step, asked, seen)?;
                reset_is_tight(&step, asked, seen)?;
            }
        }
        Ok(())
    });
}

/// The day of the one zone begins an hour before that of the other: +14 and −11 hours.
fn alternation_between_zones_gains_nothing<S: Several>() {
    let by = |zone: &str| {
        let day = window(10, Unit::Day, zone, (0, 0)).algorithm;
        vec![Policy::new("day", day)]
    };
    let east = S::new(by("Pacific/Kiritimati"));
    let west = east.reopened(by("Pacific/Niue"));
    let mut admitted = 0;
    // Ten days, in steps of twenty minutes.
    for step in 0..720 {
        let at = 1_767_225_600_000_000 + step * 1_200_000_000;
        let zone = if step % 2 == 0 { &east } else { &west };
        admitted += u32::from(zone.decide(at, 1).is_allowed());
    }
    assert!((100..=110).contains(&admitted), "{admitted} in ten days");
}

macro_rules! mount {
    ($($(#[$when:meta])* $store:ident: $several:ty, $moves:ident;)+) => {$(
        $(#[$when])*
        mod $store {
            use super::*;

            #[test]
            fn laws_8_and_9_hold_through_changes_of_zone() {
                a_store_agrees_with_the_step_about_calendars::<$several>($moves().boxed());
            }

            #[test]
            fn a_client_that_alternates_between_zones_gains_nothing() {
                alternation_between_zones_gains_nothing::<$several>();
            }
        }
    )+};
}
mount! {
    memory: AtOnce<MemoryStore>, moved;
    shared: AtOnce<SharedStore<Map>>, moved_while_the_clock_steps;
    #[cfg(feature = "redis")]
    redis: crate::redis::SeveralInRedis, moved_while_the_clock_steps;
}

#[test]
fn a_client_that_alternates_between_zones_gains_nothing() {
    let [east, west] = ["Pacific/Kiritimati", "Pacific/Niue"]
        .map(|zone| window(10, Unit::Day, zone, (0, 0)).algorithm);
    let mut driver = Step::new(east);
    let mut admitted = 0;
    // Ten days, in steps of five minutes.
    for step in 0..2_880 {
        driver.algorithm = if step % 2 == 0 { east } else { west };
        let at = 1_767_225_600_000_000 + step * 300_000_000;
        admitted += u32::from(driver.decide(at, 1).allowed);
    }
    assert!((100..=110).contains(&admitted), "{admitted} in ten days");
}

#[test]
fn ten_a_day_are_ten_on_days_of_23_and_of_25_hours() {
    let day = window(10, Unit::Day, "America/Sao_Paulo", (0, 0)).algorithm;
    for (begins, hours) in [
        // 2015-10-18, where there is no midnight, and 2016-02-20.
        (1_445_137_200_000_000_u64, 23_u64),
        (1_455_933_600_000_000, 25),
    ] {
        let mut driver = Step::new(day);
        let before = driver.decide(begins - 1, 10);
        assert_eq!((before.allowed, before.reset_after), (true, 1));
        let admitted = (0..hours * 60).filter(|minute| {
            let at = begins + minute * 60_000_000;
            driver.decide(at, 1).allowed
        });
        assert_eq!(admitted.count(), 10);
        let end = begins + hours * 3_600_000_000;
        let denied = driver.decide(end - 1, 1);
        assert_eq!((denied.allowed, denied.retry_after), (false, Some(1)));
        assert!(driver.decide(end, 10).allowed);
    }
}

#[test]
fn a_plan_may_have_another_zone_and_what_was_used_counts_until_both_windows_have_ended() {
    let clock = ManualClock::new();
    a_plan_may_have_another_zone(&clock, SharedStore::new(Map::new(&clock)));
    a_plan_may_have_another_zone(&clock, MemoryStore::new().clock(clock.clone()));
}

fn a_plan_may_have_another_zone<S: Store>(clock: &ManualClock, store: S) {
    let east = Zone::named("Pacific/Kiritimati").unwrap();
    let west = Zone::named("Pacific/Niue").unwrap();
    let day = FixedWindow::per_calendar_day(3);
    let plans = Plans::new([
        Plan::new("east").limit("day", day.zone(east)),
        Plan::new("west").limit("day", day.zone(west)),
    ]);
    let limiter = Limiter::builder()
        .policy(Policy::new("day", day))
        .plans(plans, |_| None::<&str>)
        .store(store)
        .build()
        .unwrap();
    // The times are those of 2026-01-01, in UTC. The day ends at 10:00 in the east, and at 11:00 in the west.
    let ask = |plan: &str, hour: u64, minute: u64| {
        let minutes = 60 * hour + minute;
        clock.set_micros(Micros::new((1_767_225_600 + 60 * minutes) * 1_000_000));
        let decision = now(limiter.plan(plan).check("ann", 1)).unwrap();
        let wait = decision.retry_after().map(|wait| wait.as_secs() / 60);
        (decision.is_allowed(), wait)
    };
    for _ in 0..3 {
        assert_eq!(ask("east", 9, 0), (true, None));
    }
    assert_eq!(ask("east", 9, 0), (false, Some(60)));
    assert_eq!(ask("west", 9, 30), (false, Some(90)));
    assert_eq!(ask("west", 10, 30), (false, Some(30)));
    assert_eq!(ask("west", 11, 0), (true, None));
}

/// The resets in these logs are worked out by hand: the day of 2015-10-18 begins at 01:00 and has 23 hours, and that of
/// 2016-02-20 has 25. `replay` reads the same logs.
#[test]
fn each_line_of_a_log_over_a_change_of_clocks_resets_when_it_should() {
    for log in [
        include_str!("logs/sao-paulo-2015-10-18.jsonl"),
        include_str!("logs/sao-paulo-2016-02-21.jsonl"),
    ] {
        let mut driver = Step::new(window(3, Unit::Day, "America/Sao_Paulo", (0, 0)).algorithm);
        for line in log.lines() {
            let field = |name: &str| {
                let (_, rest) = line
                    .split_once(&format!("\"{name}\":"))
                    .expect("the field is there");
                rest.split([',', '}']).next().expect("it has a value")
            };
            let at: u64 = field("t_us").parse().unwrap();
            let seen = driver.decide(at, 1);
            assert_eq!(seen.allowed.to_string(), field("allowed"), "{line}");
            assert_eq!(
                (at + seen.reset_after).to_string(),
                field("reset_at_us"),
                "{line}"
            );
            let retry = seen.retry_after.map(|wait| at + wait);
            assert!(
                seen.allowed || retry == Some(at + seen.reset_after),
                "{line}"
            );
        }
    }
}
