//! A table at its bound: which keys go, and which stay.

use super::*;
use crate::algorithm::{AnyRule, FixedWindow};
use crate::clock::ManualClock;
use crate::store::memory::cell::{Word, Words};

type Minutes = Table<FixedWindow, Word>;

const LIMIT: u32 = 5;

fn table(bound: usize) -> Minutes {
    Table::new(FixedWindow::per_minute(LIMIT), Micros::LONGEST, bound)
}

/// Pseudo-random numbers, the same in each run.
fn fingerprint(number: u64) -> u64 {
    let mixed = (number + 2).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
}

fn allows(table: &Minutes, clock: &ManualClock, fingerprint: u64, cost: u32) -> bool {
    let probe = Probe { fingerprint, cost };
    let now = clock_of(clock);
    let at_once = table.decide_at_once(None, probe, now, None);
    let decided = at_once.or_else(|| {
        let new = table.decide_new_at_once_by(&table.rule, probe, now, None);
        let counted = match new {
            Ok(allowed) => return Some(allowed),
            Err(counted) => counted,
        };
        table.decide_in_the_end((probe, counted), None, clock, now, None)
    });
    decided.unwrap()
}

fn stands(table: &Minutes, fingerprint: u64) -> bool {
    table
        .pages
        .find(fingerprint)
        .unwrap()
        .page
        .find(fingerprint)
        .is_some()
}

fn soonest(
    table: &Minutes,
    page: &Page<Word>,
    now: Micros,
    wait: impl Fn(&<FixedWindow as Step>::Form) -> Micros,
) -> Option<Micros> {
    let times = page.keys().map(|place| {
        let state = Keeps::<FixedWindow>::see(&place.slot().cell, &table.rule, page.latest());
        now.saturating_add(wait(&state))
    });
    times.min()
}

/// Asserts that a search by the times of pages overlooks no key.
fn assert_no_time_is_too_late(table: &Minutes, now: Micros) {
    for index in 0..table.pages.len() {
        let page = table.pages.page(index);
        let resets = |state: &_| table.rule.reset_after(state, now);
        let retries = |state: &_| {
            if table.rule.allows(state, now, 1) {
                return Micros::ZERO;
            }
            table.rule.retry_after(state, now, 1)
        };
        for (times, first) in [
            (&table.idle, soonest(table, page, now, resets)),
            (&table.admitting, soonest(table, page, now, retries)),
        ] {
            let Some(first) = first else { continue };
            assert!(times.of(index) <= first, "page {index}");
            assert!(times.due(first, index).is_some(), "page {index}");
        }
    }
}

#[test]
fn no_page_is_thought_to_have_something_later_than_it_has() {
    for bound in [50, 1_000, 3_000] {
        let (table, clock) = (table(bound), ManualClock::new());
        for number in 0..6 * bound as u64 {
            let random = fingerprint(number);
            let cost = u32::try_from(random % 6).unwrap();
            let key = fingerprint(1_000_000 + random / 6 % (2 * bound as u64));
            allows(&table, &clock, key, cost);
            if number % 31 == 0 {
                let seconds = random % 7;
                clock.advance(std::time::Duration::from_secs(seconds));
            }
            if number % 97 == 0 {
                assert_no_time_is_too_late(&table, clock_of(&clock));
            }
            assert!(table.fill().keys <= bound);
        }
    }
}

#[test]
fn a_page_that_was_split_off_is_known_to_have_what_was_moved_there() {
    let (table, clock) = (table(3_000), ManualClock::new());
    for number in 0..3_000 {
        assert!(allows(&table, &clock, fingerprint(number), LIMIT));
        let now = clock_of(&clock);
        if number > 1_000 {
            assert_no_time_is_too_late(&table, now);
        }
    }
}

#[test]
fn a_newcomer_that_was_not_charged_can_go_at_once() {
    let (table, clock) = (table(100), ManualClock::new());
    let now = clock_of(&clock);
    let probe = Probe {
        fingerprint: fingerprint(7),
        cost: 1,
    };
    let snapshot = table.look_at(probe, None, Counted::Own, &clock).unwrap();
    let mut lock = table.lock(&snapshot).ok().unwrap();
    let placed = table.place_key(&snapshot, probe, &mut lock, now);
    assert!(matches!(placed, Ok(true)));
    table.note_evictable(&snapshot, now);
    drop(lock);
    assert_no_time_is_too_late(&table, now);
    // The key is charged when it comes again, and is not a newcomer then.
    assert!(allows(&table, &clock, probe.fingerprint, 1));
    assert_no_time_is_too_late(&table, now);
}

/// Returns the time of a clock that stands still.
fn clock_of(clock: &ManualClock) -> Micros {
    use crate::clock::Clock;
    clock.now()
}

/// Returns keys of the first page, whatever the size of the table.
fn of_one_page(numbers: std::ops::Range<u64>) -> impl Iterator<Item = u64> {
    numbers.map(|number| (number % 64) << 26 | (number / 64) << 20 | 2)
}

#[test]
fn a_page_drops_the_key_closest_to_new_first_and_a_refused_one_never() {
    let (table, clock) = (table(10), ManualClock::new());
    let keys: Vec<u64> = of_one_page(0..10).collect();
    let pages = keys.iter().map(|key| table.pages.find(*key).unwrap().index);
    assert!(pages.clone().all(|index| index == 0));
    // Two keys for each number of requests from 1 to 5.
    for (key, cost) in keys.iter().zip((1..=LIMIT).cycle()) {
        assert!(allows(&table, &clock, *key, cost));
    }
    let newcomers: Vec<u64> = of_one_page(10..19).collect();
    for (count, newcomer) in newcomers.iter().enumerate() {
        assert!(allows(&table, &clock, *newcomer, LIMIT));
        let left = |cost: u32| {
            let keys = keys.iter().zip((1..=LIMIT).cycle());
            let mut alike = keys.filter(|(_, other)| *other == cost);
            let left = alike.by_ref().filter(|(key, _)| stands(&table, **key));
            left.count()
        };
        let gone = (count + 1).min(8);
        for cost in 1..LIMIT {
            let expected = (2 * cost as usize).saturating_sub(gone).min(2);
            assert_eq!(left(cost), expected, "{cost} used, {gone} gone");
        }
        assert_eq!(left(LIMIT), 2);
    }
    let fill = table.fill();
    assert_eq!((fill.keys, fill.evicted, fill.overflowed), (10, 8, 1));
}

#[test]
fn a_key_that_is_as_good_as_new_goes_before_the_closest_to_new() {
    let (table, clock) = (table(10), ManualClock::new());
    let keys: Vec<u64> = of_one_page(0..10).collect();
    for key in &keys[..3] {
        assert!(allows(&table, &clock, *key, LIMIT));
    }
    clock.advance(std::time::Duration::from_secs(60));
    for key in &keys[3..] {
        assert!(allows(&table, &clock, *key, 1));
    }
    for newcomer in of_one_page(10..13) {
        assert!(allows(&table, &clock, newcomer, 1));
    }
    assert!(keys[..3].iter().all(|key| !stands(&table, *key)));
    assert!(keys[3..].iter().all(|key| stands(&table, *key)));
    assert_eq!(table.fill().evicted, 0);
}

/// A request removes 16 overrides that have ended, and no more.
#[test]
fn an_override_that_has_ended_keeps_no_key_before_it_is_removed_either() {
    let of = |limit| FixedWindow::per_minute(limit).into();
    let table = Table::<_, Words>::new(AnyRule::new(of(5)), Micros::LONGEST, 100);
    let (clock, minute) = (ManualClock::new(), Micros::from_secs(60));
    let keys = (0..17).map(fingerprint);
    for key in keys.clone() {
        assert!(table.override_limit(key, of(9), minute, &clock).is_ok());
    }
    // Of those that end together, that of the largest fingerprint is removed last.
    let last = keys.max().unwrap();
    let stays = || table.stays_overridden(last, clock_of(&clock));
    assert_eq!(stays(), Some(minute));
    clock.advance(minute.to_duration());
    assert_eq!(stays(), None);
    assert!(table.overrides.get(last).is_some());
}
