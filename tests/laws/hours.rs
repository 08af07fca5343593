//! Limits by the hour: laws 2, 9 and 11 through the switches of a timetable.
//!
//! The model looks at the clock on the wall, minute by minute, for each edge of an interval. It lets a debt drain from
//! edge to edge, and tries every stretch between two edges for the first moment at which a request passes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::select;
use tower_ratelimit::algorithm::HourlyLimit;
use tower_ratelimit::factor::Factor;
use tower_ratelimit::store::Store;
use tower_ratelimit::{
    Algorithm, Decision, Hours, Limiter, ManualClock, MemoryStore, Micros, Policy, SharedStore,
};

use crate::case::Numbers;
use crate::laws::{Holds, remaining_is_tight, retry_is_tight};
use crate::property;
use crate::subject::Subject;
use crate::support::debt::{Debt, Pace};
use crate::support::driver::{Driver, Memory, Seen, Shared, Step, micros, now};
use crate::support::items::Map;
use crate::support::model::Model;

const MINUTE: i128 = 60_000_000;
const SECOND: u64 = 1_000_000;

/// A timetable, the limits in it, and requests.
#[derive(Clone, Debug)]
struct Case {
    which: usize,
    own: Numbers,
    zone: &'static str,
    intervals: Vec<Interval>,
    start: u64,
    asks: Vec<Ask>,
}

/// From a minute of the day on, for so many minutes, on these days of the week.
#[derive(Clone, Debug)]
struct Interval {
    from: u16,
    length: u16,
    weekdays: u8,
    change: Change,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    /// A limit and a size.
    Limit(u32, u32),
    Share(u32),
}

#[derive(Clone, Copy, Debug)]
struct Ask {
    gap: Gap,
    cost: Cost,
}

#[derive(Clone, Copy, Debug)]
enum Gap {
    None,
    Micros(u64),
    /// In 2^12ths of a period.
    Periods(u64),
    Retry,
    JustBeforeRetry,
    Reset,
    JustBeforeReset,
    ToNextEdge,
    JustBeforeNextEdge,
}

#[derive(Clone, Copy, Debug)]
enum Cost {
    This(u32),
    Remaining,
    Limit,
}

const DAYS: [&str; 7] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];

fn cases() -> impl Strategy<Value = Case> {
    let period = prop_oneof![
        3 => select(vec![1, 60, 600, 3_600, 86_400]).prop_map(|seconds: u64| seconds * SECOND),
        1 => 1_000..200_000 * SECOND,
    ];
    let own = (1..12_u32, 1..16_u32, period, 1..6_u32).prop_map(|(limit, size, period, slots)| {
        let slots = (1..=slots)
            .rev()
            .find(|slots| period.is_multiple_of(u64::from(*slots)));
        Numbers {
            limit,
            size,
            period,
            slots: slots.unwrap_or(1),
        }
    });
    // About the days on which clocks change in Berlin, Troll and Havana, and others.
    let start = (
        select(vec![
            1_774_569_600,
            1_792_713_600,
            1_793_404_800,
            1_767_225_600_u64,
        ]),
        0..345_600_000_000_u64,
    );
    (
        (
            0..crate::MOUNTED.len(),
            own,
            start.prop_map(|(day, micros)| day * SECOND + micros),
        ),
        select(vec![
            "UTC",
            "Europe/Berlin",
            "Antarctica/Troll",
            "America/Havana",
            "Asia/Kathmandu",
        ]),
        intervals(),
        vec(ask(), 1..14),
    )
        .prop_map(|((which, own, start), zone, intervals, asks)| Case {
            which,
            own,
            zone,
            intervals,
            start,
            asks,
        })
}

/// One to three intervals between marks of a day, the last of which may go on to the first mark.
fn intervals() -> impl Strategy<Value = Vec<Interval>> {
    let change = prop_oneof![
        3 => (0..20_u32, 1..24_u32).prop_map(|(limit, size)| Change::Limit(limit, size)),
        2 => select(vec![1_u32, 250, 500, 1_500, 2_000, 7_000]).prop_map(Change::Share),
    ];
    let weekdays = prop_oneof![3 => Just(0x7f_u8), 1 => 1..0x80_u8];
    (
        btree_set(0..1_440_u16, 2..=6),
        any::<bool>(),
        vec((change, weekdays), 6),
    )
        .prop_map(|(marks, touch, rest)| {
            let marks: Vec<u16> = marks.into_iter().collect();
            let step = if touch { 1 } else { 2 };
            let nth = (0..marks.len()).step_by(step);
            let made = nth.zip(rest).filter_map(|(first, (change, weekdays))| {
                let from = marks[first];
                let until = marks.get(first + 1).copied().unwrap_or(marks[0] + 1_440);
                (until - from <= 1_440).then_some(Interval {
                    from,
                    length: until - from,
                    weekdays,
                    change,
                })
            });
            made.collect()
        })
}

fn ask() -> impl Strategy<Value = Ask> {
    let gap = prop_oneof![
        4 => Just(Gap::None),
        1 => (0..64_u64).prop_map(Gap::Micros),
        2 => (0..12_288_u64).prop_map(Gap::Periods),
        3 => Just(Gap::Retry),
        1 => Just(Gap::JustBeforeRetry),
        1 => Just(Gap::Reset),
        1 => Just(Gap::JustBeforeReset),
        2 => Just(Gap::ToNextEdge),
        2 => Just(Gap::JustBeforeNextEdge),
    ];
    let cost = prop_oneof![
        4 => Just(Cost::This(1)),
        2 => (0..24_u32).prop_map(Cost::This),
        2 => Just(Cost::Remaining),
        1 => Just(Cost::Limit),
    ];
    (gap, cost).prop_map(|(gap, cost)| Ask { gap, cost })
}

impl Case {
    fn subject(&self, numbers: &Numbers) -> Subject {
        crate::MOUNTED[self.which](numbers)
    }

    /// The numbers outside all intervals, and in each.
    fn numbers(&self) -> Vec<Numbers> {
        // A calendar window of this period is a day.
        let period = self.own.period.next_multiple_of(12);
        let slots = if self.own.period == period {
            self.own.slots
        } else {
            1
        };
        let own = Numbers {
            period,
            slots,
            ..self.own
        };
        let changed = self.intervals.iter().map(|interval| match interval.change {
            Change::Limit(limit, size) => Numbers { limit, size, ..own },
            Change::Share(share) => Numbers {
                limit: (own.limit * share).div_ceil(1_000),
                size: (own.size * share).div_ceil(1_000),
                ..own
            },
        });
        [own].into_iter().chain(changed).collect()
    }

    fn algorithm(&self) -> Algorithm {
        let numbers = self.numbers();
        let mut hours = Hours::in_zone(self.zone).unwrap();
        for (interval, numbers) in self.intervals.iter().zip(&numbers[1..]) {
            let time = |minutes: u16| format!("{:02}:{:02}", minutes / 60 % 24, minutes % 60);
            let days: Vec<_> = (0..7)
                .filter(|day| interval.weekdays >> day & 1 == 1)
                .map(|day| DAYS[day])
                .collect();
            let until = match interval.from + interval.length {
                1_440 => "24:00".to_owned(),
                until => time(until),
            };
            let times = match interval.length {
                1_440 if interval.from > 0 => None,
                _ => Some(format!("{}-{until}", time(interval.from))),
            };
            let text = format!("{} {}", days.join(","), times.unwrap_or_default());
            let limit: HourlyLimit = match interval.change {
                Change::Limit(..) => self.subject(numbers).algorithm.into(),
                Change::Share(share) => Factor::thousandths(share).into(),
            };
            hours = hours.at(&text, limit).unwrap();
        }
        hours.over(self.subject(&numbers[0]).algorithm).unwrap()
    }
}

/// The clock on the wall.
struct Wall {
    zone: TimeZone,
    intervals: Vec<Interval>,
    edges: RefCell<HashMap<DateTime, i128>>,
}

impl Wall {
    fn shows(&self, at: i128) -> DateTime {
        let at = Timestamp::from_microsecond(at.try_into().unwrap()).unwrap();
        self.zone.to_datetime(at)
    }

    /// The first minute at which the clock shows this time, or a later one.
    fn first(&self, shown: DateTime) -> i128 {
        let known = self.edges.borrow().get(&shown).copied();
        known.unwrap_or_else(|| {
            let utc = shown.to_zoned(TimeZone::UTC).unwrap().timestamp();
            let mut at = i128::from(utc.as_microsecond()) - 15 * 60 * MINUTE;
            while self.shows(at) < shown {
                at += MINUTE;
            }
            self.edges.borrow_mut().insert(shown, at);
            at
        })
    }

    /// When each interval begins and ends that begins within two days of these moments.
    fn edges(&self, from: i128, until: i128) -> Vec<(i128, i128, usize)> {
        let mut date = self.shows(from).date().checked_sub(2.days()).unwrap();
        let last = self.shows(until).date().checked_add(2.days()).unwrap();
        let mut edges = Vec::new();
        while date <= last {
            for (place, interval) in (1..).zip(&self.intervals) {
                if interval.weekdays >> date.weekday().to_monday_zero_offset() & 1 == 1 {
                    let midnight = date.at(0, 0, 0, 0);
                    let at = |minutes: u16| midnight.checked_add(i64::from(minutes).minutes());
                    let begins = self.first(at(interval.from).unwrap());
                    let ends = self.first(at(interval.from + interval.length).unwrap());
                    edges.push((begins, ends, place));
                }
            }
            date = date.tomorrow().unwrap();
        }
        edges
    }

    fn place(&self, at: i128) -> usize {
        let edges = self.edges(at, at);
        let inside = edges
            .iter()
            .find(|(begins, ends, _)| (*begins..*ends).contains(&at));
        inside.map_or(0, |(.., place)| *place)
    }

    /// The moments after the first and up to the second at which the limit may change.
    fn switches(&self, after: i128, until: i128) -> Vec<i128> {
        let edges = self.edges(after, until);
        let all = edges.iter().flat_map(|(begins, ends, _)| [*begins, *ends]);
        let mut all: Vec<_> = all.filter(|at| (after + 1..=until).contains(at)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// What a key has used: a count, or a debt.
#[derive(Clone)]
enum Past {
    Counted(Model),
    Owed(Debt),
}

struct Slow {
    wall: Wall,
    subjects: Vec<Subject>,
    past: Past,
    at: i128,
}

/// How far the model looks.
const HORIZON: i128 = 16 * 24 * 60 * MINUTE;
/// What it tells of a moment that is further away.
const BEYOND: u64 = u64::MAX;

impl Slow {
    fn new(case: &Case) -> Self {
        let numbers = case.numbers();
        let subjects: Vec<_> = numbers
            .iter()
            .map(|numbers| case.subject(numbers))
            .collect();
        let past = match subjects[0].rule.pace() {
            Some(_) => Past::Owed(Debt::default()),
            None => Past::Counted(subjects[0].model()),
        };
        Self {
            wall: Wall {
                zone: TimeZone::get(case.zone).unwrap(),
                intervals: case.intervals.clone(),
                edges: RefCell::default(),
            },
            subjects,
            past,
            at: case.start.into(),
        }
    }

    /// A debt drains under a limit of 0 too: in each step, by the least that there is.
    fn pace(&self, place: usize) -> Pace {
        let its = self.subjects[place].rule.pace().expect("a bucket");
        Pace {
            rate: its.rate.max(1),
            ..its
        }
    }

    /// The past as of a later moment.
    fn passed(&self, mut past: Past, from: i128, until: i128) -> Past {
        if let Past::Owed(debt) = &mut past {
            for switch in self.wall.switches(from, until) {
                *debt = self.pace(self.wall.place(switch - 1)).pass(*debt, switch);
            }
        }
        past
    }

    fn allows(&self, past: &Past, at: i128, cost: i128) -> bool {
        let subject = &self.subjects[self.wall.place(at)];
        match past {
            Past::Counted(model) => model
                .clone()
                .under(Arc::clone(&subject.rule))
                .allows(at, cost),
            Past::Owed(debt) => self.pace(self.wall.place(at)).allows(*debt, at, cost),
        }
    }

    fn decide(&mut self, at: u64, cost: u32) -> Seen {
        let now = i128::from(at);
        self.past = self.passed(self.past.clone(), self.at, now);
        self.at = now;
        let place = self.wall.place(now);
        let drained = self.subjects[place].rule.pace().map(|_| self.pace(place));
        let rule = Arc::clone(&self.subjects[place].rule);
        let seen = match &mut self.past {
            Past::Counted(model) => {
                *model = model.clone().under(rule);
                model.decide(at, cost)
            }
            Past::Owed(debt) => debt.decide(drained.expect("a bucket"), at, cost),
        };
        let reset_after = match &self.past {
            Past::Counted(_) => seen.reset_after,
            Past::Owed(_) => {
                let is_new = |past: &Past, place: usize, at| match past {
                    Past::Owed(debt) => self.pace(place).pass(*debt, at).is_none_owed(),
                    Past::Counted(_) => false,
                };
                self.first(now, is_new).unwrap_or(BEYOND)
            }
        };
        let retry_after = (!seen.allowed)
            .then(|| self.first(now, |past, _, at| self.allows(past, at, cost.into())));
        Seen {
            reset_after,
            retry_after: retry_after.flatten(),
            ..seen
        }
    }

    /// How long until something holds first that then holds to the next switch.
    fn first(&self, now: i128, holds: impl Fn(&Past, usize, i128) -> bool) -> Option<u64> {
        let mut edges = self.wall.switches(now, now + HORIZON);
        edges.push(now + HORIZON);
        let (mut past, mut from) = (self.past.clone(), now);
        for until in edges {
            let place = self.wall.place(from);
            if holds(&past, place, until - 1) {
                let (mut low, mut high) = (from, until - 1);
                while low < high {
                    let middle = i128::midpoint(low, high);
                    if holds(&past, place, middle) {
                        high = middle;
                    } else {
                        low = middle + 1;
                    }
                }
                return Some(u64::try_from(low - now).unwrap());
            }
            past = self.passed(past, from, until);
            from = until;
        }
        None
    }
}

/// Every number that is told is the model's, and what was told to wait passes.
fn the_outcome_is_the_models<D: Driver>(case: &Case) -> Holds {
    let algorithm = case.algorithm();
    let mut driver = D::new(algorithm);
    let mut slow = Slow::new(case);
    let mut at = case.start;
    let mut last: Option<Seen> = None;
    for Ask { gap, cost } in &case.asks {
        let retry = last.and_then(|seen| seen.retry_after).unwrap_or(0);
        let reset = last.map_or(0, |seen| seen.reset_after);
        let edge = || {
            let now = i128::from(at);
            let edges = slow.wall.switches(now, now + HORIZON);
            edges
                .first()
                .map_or(0, |edge| u64::try_from(edge - now).unwrap())
        };
        at += match gap {
            Gap::None => 0,
            Gap::Micros(micros) => *micros,
            Gap::Periods(parts) => case.own.period / 4_096 * parts,
            Gap::Retry => retry,
            Gap::JustBeforeRetry => retry.saturating_sub(1),
            Gap::Reset => reset,
            Gap::JustBeforeReset => reset.saturating_sub(1),
            Gap::ToNextEdge => edge(),
            Gap::JustBeforeNextEdge => edge().saturating_sub(1),
        };
        if at > case.start + 40 * 86_400 * SECOND {
            break;
        }
        let limit = last.map_or(case.own.limit, |seen| seen.limit);
        let cost = match cost {
            Cost::This(cost) => *cost,
            Cost::Remaining => last.map_or(1, |seen| seen.remaining),
            Cost::Limit => limit,
        };
        let peeked = driver.peek(at, cost);
        let seen = driver.decide(at, cost);
        prop_assert_eq!(peeked, seen);
        let expected = slow.decide(at, cost);
        let is_beyond = |wait: u64| i128::from(wait) >= HORIZON;
        if seen.retry_after.is_some_and(is_beyond) {
            prop_assert_eq!(expected.retry_after, None);
            break;
        }
        if is_beyond(seen.reset_after) {
            prop_assert_eq!(expected.reset_after, BEYOND);
            break;
        }
        prop_assert_eq!(seen, expected, "at {} under {:?}", at, algorithm);
        remaining_is_tight(&driver, crate::case::Asked { at, cost }, seen)?;
        if let Some(wait) = seen.retry_after {
            prop_assert!(driver.fork().decide(at + wait, cost).allowed);
        }
        last = Some(seen);
    }
    Ok(())
}

fn check<D: Driver>(price: u32) {
    property::check_at(property::seeds!(hours), price, cases(), &|case| {
        if !D::takes(&case.algorithm()) {
            return Ok(());
        }
        the_outcome_is_the_models::<D>(case)
    });
}

#[test]
fn the_step_tells_what_the_model_does() {
    check::<Step>(10);
}

#[test]
fn the_store_in_memory_tells_what_the_model_does() {
    check::<Memory>(10);
}

#[test]
fn a_shared_store_tells_what_the_model_does() {
    check::<Shared>(10);
}

#[cfg(all(feature = "redis", feature = "testing"))]
#[test]
fn redis_tells_what_the_model_does() {
    check::<crate::redis::Redis>(50);
}

/// Several policies about a key that no other case asks about.
pub(crate) trait Several {
    const PRICE: u32;

    fn new(policies: Vec<Policy>) -> Self;

    /// Other policies about the same key, over the same store.
    fn reopened(&self, policies: Vec<Policy>) -> Self;

    fn decide(&self, at: u64, cost: u32) -> Decision;

    fn peek(&self, at: u64, cost: u32) -> Decision;
}

/// A limiter whose store answers at once.
pub(crate) struct AtOnce<S: Store> {
    limiter: Limiter<S::Ledger>,
    store: S,
    clock: ManualClock,
}

impl<S: Store + Clone> AtOnce<S> {
    fn over(store: S, clock: ManualClock, policies: Vec<Policy>) -> Self {
        let limiter = Limiter::builder().policies(policies).store(store.clone());
        let limiter = limiter.build().expect("the policies are good");
        Self {
            limiter,
            store,
            clock,
        }
    }

    fn decide(&self, at: u64, cost: u32) -> Decision {
        self.clock.set_micros(Micros::new(at));
        now(self.limiter.check("key", cost)).expect("it decides")
    }

    fn peek(&self, at: u64, cost: u32) -> Decision {
        self.clock.set_micros(Micros::new(at));
        now(self.limiter.peek("key", cost)).expect("it tells")
    }
}

macro_rules! at_once {
    ($kind:ty, $clock:ident => $store:expr) => {
        impl Several for AtOnce<$kind> {
            const PRICE: u32 = 10;

            fn new(policies: Vec<Policy>) -> Self {
                let $clock = ManualClock::new();
                Self::over($store, $clock, policies)
            }

            fn reopened(&self, policies: Vec<Policy>) -> Self {
                Self::over(self.store.clone(), self.clock.clone(), policies)
            }

            fn decide(&self, at: u64, cost: u32) -> Decision {
                self.decide(at, cost)
            }

            fn peek(&self, at: u64, cost: u32) -> Decision {
                self.peek(at, cost)
            }
        }
    };
}
at_once!(MemoryStore, clock => MemoryStore::new().clock(clock.clone()));
at_once!(SharedStore<Map>, clock => SharedStore::new(Map::new(&clock)));

/// Law 10, through switches: the wait of several policies ends at the first moment at which all of them have room. A peek
/// writes nothing, so that each moment can be tried.
fn a_wait_for_several_policies_is_true_and_the_shortest<S: Several>() {
    let cases = (cases(), cases(), cases(), btree_set(0..1_000_u64, 24));
    property::check_at(property::seeds!(hours), S::PRICE, cases, &|(
        first,
        second,
        third,
        tried,
    )| {
        let policies: Vec<_> = [first, second, third]
            .iter()
            .zip(["first", "second", "third"])
            // Of two queues, one would be missed.
            .filter(|(case, _)| case.which != QUEUE)
            .map(|(case, name)| Policy::new(name, case.algorithm()))
            .collect();
        if policies.is_empty() || !policies.iter().all(|policy| is_small(policy.algorithm())) {
            return Ok(());
        }
        let several = S::new(policies);
        let mut at = first.start;
        for Ask { gap, cost } in &first.asks {
            at += match gap {
                Gap::Periods(parts) => first.own.period / 4_096 * parts,
                Gap::Micros(micros) => *micros,
                _ => 0,
            };
            let cost = match cost {
                Cost::This(cost) => *cost % 6,
                _ => 1,
            };
            let decision = several.decide(at, cost);
            let Some(wait) = decision.retry_after().map(micros) else {
                continue;
            };
            // In order: a store may forget what is as good as new by then.
            for part in tried {
                let earlier = wait / 1_000 * part;
                prop_assert!(
                    !several.peek(at + earlier, cost).is_allowed(),
                    "{}",
                    earlier
                );
            }
            prop_assert!(!several.peek(at + wait - 1, cost).is_allowed());
            prop_assert!(
                several.peek(at + wait, cost).is_allowed(),
                "after {} µs",
                wait
            );
        }
        Ok(())
    });
}

/// The place of the leaky queue in the list of all algorithms.
const QUEUE: usize = 9;

/// Whether its debt drains within a few days.
fn is_small(algorithm: &Algorithm) -> bool {
    let longest = algorithm.longest_wait();
    longest.is_none_or(|longest| longest < Duration::from_secs(3 * 86_400))
}

#[test]
fn the_queue_is_where_it_is_left_out() {
    let numbers = Numbers {
        limit: 1,
        period: SECOND,
        size: 1,
        slots: 1,
    };
    let queue = crate::MOUNTED[QUEUE](&numbers).algorithm;
    assert!(matches!(queue, Algorithm::LeakyQueue(_)), "{queue}");
}

#[test]
fn a_wait_for_several_policies_in_memory() {
    a_wait_for_several_policies_is_true_and_the_shortest::<AtOnce<MemoryStore>>();
}

#[test]
fn a_wait_for_several_policies_in_a_shared_store() {
    a_wait_for_several_policies_is_true_and_the_shortest::<AtOnce<SharedStore<Map>>>();
}

#[cfg(all(feature = "redis", feature = "testing"))]
#[test]
fn a_wait_for_several_policies_in_redis() {
    a_wait_for_several_policies_is_true_and_the_shortest::<crate::redis::SeveralInRedis>();
}

/// One request: by the old zone data or by the new, so long after the one before it, or before it, and its cost.
#[derive(Clone, Copy, Debug)]
struct Reloaded {
    is_new: bool,
    gap: i64,
    cost: u32,
}

fn reloaded() -> impl Strategy<Value = Reloaded> {
    const HOUR: i64 = 3_600_000_000;
    let gap = prop_oneof![
        1 => Just(0),
        3 => 0..HOUR,
        2 => 0..30 * HOUR,
        1 => -HOUR..0,
        1 => -30 * HOUR..0,
    ];
    (any::<bool>(), gap, 0..6_u32).prop_map(|(is_new, gap, cost)| Reloaded { is_new, gap, cost })
}

/// Laws 8 and 9 when zone data is new, from one request to the next and back: the new data moves the hours, as another
/// zone does. Each store tells what the step tells, the clock may step back, and laws 2 to 4 hold under the hours that
/// ask.
fn new_zone_data_keeps_what_was_used<S: Several>() {
    let zones = select(vec![
        "UTC",
        "Pacific/Kiritimati",
        "Pacific/Niue",
        "Europe/Lisbon",
    ]);
    let cases = (cases(), zones, vec(reloaded(), 1..20));
    property::check_at(property::seeds!(hours), S::PRICE, cases, &|(
        case,
        zone,
        steps,
    )| {
        let moved = Case {
            zone,
            ..case.clone()
        };
        let [old, new] = [case, &moved].map(Case::algorithm);
        if !is_small(&old) {
            return Ok(());
        }
        let policies = |algorithm: Algorithm| vec![Policy::new("hours", algorithm)];
        let by_old = S::new(policies(old));
        let by_new = by_old.reopened(policies(new));
        let mut step = Step::new(old);
        // Far enough from the epoch for every step back.
        let mut at = case.start;
        for &Reloaded { is_new, gap, cost } in steps {
            at = at.saturating_add_signed(gap);
            let (several, algorithm) = if is_new {
                (&by_new, new)
            } else {
                (&by_old, old)
            };
            step.algorithm = algorithm;
            let decision = several.decide(at, cost);
            let (_, outcome) = decision.binding().expect("one policy was asked");
            let seen = Seen::from(outcome);
            prop_assert_eq!(
                seen,
                step.decide(at, cost),
                "at {} under {:?}",
                at,
                algorithm
            );
            let waits = [seen.reset_after, seen.retry_after.unwrap_or(0)];
            if cost == 0 || seen.limit == 0 || waits.iter().any(|wait| i128::from(*wait) >= HORIZON)
            {
                continue;
            }
            let asked = crate::case::Asked { at, cost };
            retry_is_tight(&step, asked, seen)?;
            remaining_is_tight(&step, asked, seen)?;
        }
        Ok(())
    });
}

#[test]
fn new_zone_data_keeps_what_was_used_in_memory() {
    new_zone_data_keeps_what_was_used::<AtOnce<MemoryStore>>();
}

#[test]
fn new_zone_data_keeps_what_was_used_in_a_shared_store() {
    new_zone_data_keeps_what_was_used::<AtOnce<SharedStore<Map>>>();
}

#[cfg(all(feature = "redis", feature = "testing"))]
#[test]
fn new_zone_data_keeps_what_was_used_in_redis() {
    new_zone_data_keeps_what_was_used::<crate::redis::SeveralInRedis>();
}
