//! The limit by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::AdaptiveConcurrency;
use super::learning::{Bounds, Learning, Window};
use super::partitions::Partitions;
use super::shared::{Ended, SharedCounts};
use tower_ratelimit::factor::{Factor, FactorCell};

const BOUNDS: Bounds = Bounds {
    start: 20,
    least: 1,
    most: 1_000,
    healthy: None,
};

#[test]
fn few_requests_at_once_prove_nothing_of_a_limit() {
    let mut learning = Learning::new(BOUNDS);
    let mut limits = Vec::new();
    for second in 0..600_u64 {
        // Noise of a sixth around 100 ms.
        let noise = second * 7_919 % 17;
        let window = Window {
            now: Duration::from_secs(second),
            latency: Some(92_000 + noise * 1_000),
            peak: learning.held().limit / 3,
            has_refused: false,
            is_overloaded: false,
        };
        limits.push(learning.step(&window, false).limit);
    }
    limits.dedup();
    assert_eq!(limits, [20]);
}

#[test]
fn a_baseline_is_capped_and_learns_nothing_while_it_is_frozen() {
    let window = |second: u64, latency| Window {
        now: Duration::from_secs(second),
        latency: Some(latency),
        peak: 5,
        has_refused: false,
        is_overloaded: false,
    };
    let capped = Bounds {
        healthy: Some(80_000),
        ..BOUNDS
    };
    let [mut capped, mut frozen, mut plain] = [capped, BOUNDS, BOUNDS].map(Learning::new);
    for second in 0..200 {
        let is_slow = second >= 60;
        let window = window(second, if is_slow { 300_000 } else { 50_000 });
        capped.step(&window, false);
        frozen.step(&window, is_slow);
        plain.step(&window, false);
    }
    assert_eq!(capped.baseline(), Some(80_000));
    assert_eq!(frozen.baseline(), Some(50_000));
    assert_eq!(plain.baseline(), Some(300_000));
}

/// Returns the limits under busy windows of a service with this latency, after three calm windows of 10 ms.
fn limits_under(latency: u64) -> Vec<u32> {
    let mut learning = Learning::new(Bounds {
        start: 100,
        ..BOUNDS
    });
    let mut window = Window {
        now: Duration::ZERO,
        latency: Some(10_000),
        peak: 10,
        has_refused: false,
        is_overloaded: false,
    };
    for _ in 0..3 {
        learning.step(&window, false);
    }
    window.latency = Some(latency);
    (1..=10)
        .map(|second| {
            window.now = Duration::from_secs(second);
            window.peak = learning.held().limit;
            learning.step(&window, false).limit
        })
        .collect()
}

#[test]
fn a_limit_falls_while_requests_wait_for_each_other_and_only_then() {
    let waiting = limits_under(40_000);
    assert!(waiting.iter().any(|limit| *limit < 50), "{waiting:?}");
    let served = limits_under(10_000);
    assert!(served.iter().all(|limit| *limit >= 100), "{served:?}");
}

#[test]
fn one_calm_reading_makes_no_baseline_as_long_as_there_are_older_ones() {
    let mut learning = Learning::new(BOUNDS);
    let baselines = [0, 1, 100, 101, 102].map(|second| {
        let window = Window {
            now: Duration::from_secs(second),
            latency: Some(if second < 60 { 10_000 } else { 50_000 }),
            peak: 5,
            has_refused: false,
            is_overloaded: false,
        };
        learning.step(&window, false);
        learning.baseline().unwrap()
    });
    assert_eq!(baselines, [10_000, 10_000, 10_000, 10_000, 50_000]);
}

#[test]
fn a_window_is_as_slow_as_its_slowest_tenth() {
    let shared = SharedCounts::new(BOUNDS, Partitions::new(Vec::new()), Vec::new());
    for request in 0..100 {
        let took = Duration::from_millis(if request % 5 == 0 { 100 } else { 10 });
        shared.note(
            Ended::Answered(took),
            0,
            Duration::from_millis(10 * request),
        );
    }
    shared.note(
        Ended::Answered(Duration::from_millis(10)),
        0,
        Duration::from_secs(1),
    );
    let baseline = shared.baseline().unwrap().as_millis();
    assert!((85..=115).contains(&baseline), "{baseline} ms");
}

#[test]
fn a_slot_is_free_again_however_a_request_ends() {
    let limit = AdaptiveConcurrency::builder().start(3).build().unwrap();
    let mut answered = limit.try_enter().unwrap();
    let mut overloaded = limit.try_enter().unwrap();
    let cancelled = limit.try_enter().unwrap();
    assert_eq!(limit.try_enter().unwrap_err().limit(), 3);
    assert_eq!((limit.in_flight(), limit.refused()), (3, 1));
    answered.answered();
    overloaded.overloaded();
    // The body is still on its way.
    assert!(limit.try_enter().is_err());
    drop((answered, overloaded, cancelled));
    assert_eq!(limit.in_flight(), 0);
}

#[test]
fn an_idle_share_is_lent_and_is_there_when_it_is_wanted() {
    let limit = AdaptiveConcurrency::builder()
        .start(10)
        .partition("checkout", 30)
        .build()
        .unwrap();
    let others: Vec<_> = (0..10).map(|_| limit.try_enter().unwrap()).collect();
    assert!(limit.try_enter().is_err());
    // The share of three, and no more while all slots are taken.
    let mut own: Vec<_> = (0..3)
        .map(|_| limit.try_enter_in("checkout").unwrap())
        .collect();
    assert!(limit.try_enter_in("checkout").is_err());
    assert_eq!(
        limit.partitions().collect::<Vec<_>>(),
        [("checkout", 3), ("", 10)]
    );

    // Slots that other requests hold beyond their share do not come back to them.
    drop(others);
    own.extend((0..7).map(|_| limit.try_enter_in("checkout").unwrap()));
    let rest: Vec<_> = (0..7)
        .map(|_| limit.try_enter_in("unknown").unwrap())
        .collect();
    assert!(limit.try_enter().is_err());
    drop((own, rest));
    assert!(limit.partitions().all(|(_, in_flight)| in_flight == 0));
}

#[test]
fn threads_never_have_more_slots_than_there_are() {
    let limit = AdaptiveConcurrency::builder()
        .start(5)
        .most(5)
        .build()
        .unwrap();
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    thread::scope(|scope| {
        for _ in 0..8 {
            let (limit, now, most) = (limit.clone(), Arc::clone(&now), Arc::clone(&most));
            scope.spawn(move || {
                for _ in 0..5_000 {
                    if let Ok(mut permit) = limit.try_enter() {
                        let at_once = now.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(at_once, Ordering::SeqCst);
                        permit.answered();
                        now.fetch_sub(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    assert!(most.load(Ordering::SeqCst) <= 5);
    assert_eq!(limit.in_flight(), 0);
}

#[test]
fn numbers_that_cannot_be_are_refused_by_name() {
    let builder = AdaptiveConcurrency::builder;
    let wrong = [
        (builder().name("naïve"), "name"),
        (builder().least(0), "least"),
        (builder().least(30), "start"),
        (builder().most(10), "most"),
        (builder().partition("a", 0), "partition"),
        (builder().partition("a", 60).partition("b", 41), "partition"),
        (builder().partition("a", 10).partition("a", 10), "partition"),
        (builder().partition("", 10), "partition"),
    ];
    for (builder, field) in wrong {
        assert_eq!(builder.build().unwrap_err().field(), field);
    }
    let frozen = FactorCell::new();
    frozen.set(Factor::thousandths(500), "cpu 80 %");
    assert!(builder().frozen_below_one(&frozen).build().is_ok());
}
