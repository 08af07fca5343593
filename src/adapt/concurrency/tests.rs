//! The limit by itself, and in a loop with a service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::AdaptiveConcurrency;
use super::learning::{Bounds, Learning, Window};
use super::plant::{Plant, Second, Weather, best_static, capacity, goodput, run};
use super::shared::Ended;
use crate::factor::{Factor, FactorCell};

const BOUNDS: Bounds = Bounds {
    start: 20,
    least: 1,
    most: 1_000,
    healthy: None,
};

const SERVERS: u32 = 8;

/// Three times what the service can do.
fn overload(servers: u32) -> Weather {
    Weather::demand(3.0 * capacity(servers))
}

/// A disturbance from the 60th to the 90th second of steady overload.
fn disturbed(servers: u32, disturb: impl Fn(&mut Weather)) -> Vec<Weather> {
    let mut weather = vec![overload(servers); 160];
    weather[60..90].iter_mut().for_each(disturb);
    weather
}

/// Under steady load, and from ten seconds after a disturbance, at least nine tenths of what the best limit serves that
/// never changes.
fn keeps_its_goodput(servers: u32, disturb: impl Fn(&mut Weather)) {
    for seed in 0..10 {
        let best = best_static(seed, servers, overload(servers));
        assert!(best > 0.9 * capacity(servers), "{best}");
        let seconds = run(seed, servers, BOUNDS, disturbed(servers, &disturb));
        for (when, seconds) in [("steady", &seconds[20..60]), ("after", &seconds[100..])] {
            let served = goodput(seconds);
            assert!(
                served >= 0.9 * best,
                "{servers} servers, seed {seed}, {when}: {served} of {best}"
            );
        }
        assert!(seconds.iter().all(|second| second.limit >= BOUNDS.least));
    }
}

#[test]
fn without_a_limit_an_overloaded_service_serves_little() {
    let all = Bounds {
        start: 100_000,
        least: 100_000,
        most: 100_000,
        healthy: None,
    };
    let seconds = run(1, SERVERS, all, vec![overload(SERVERS); 60]);
    let best = best_static(1, SERVERS, overload(SERVERS));
    assert!(goodput(&seconds[20..]) < 0.5 * best);
}

/// F83.
#[test]
fn ten_times_the_latency_for_30_seconds_is_survived() {
    for servers in [2, SERVERS, 32] {
        keeps_its_goodput(servers, |weather| weather.slowness = 10.0);
    }
}

/// F82: what fails fast is no sign of health.
#[test]
fn fast_failures_do_not_raise_the_limit() {
    keeps_its_goodput(SERVERS, |weather| weather.failing = 0.5);
    let seconds = run(
        1,
        SERVERS,
        BOUNDS,
        disturbed(SERVERS, |it| it.failing = 0.5),
    );
    let most = |seconds: &[Second]| seconds.iter().map(|second| second.limit).max();
    // Half of the slots are free again at once, so that more are needed; but not several times as many.
    assert!(most(&seconds[60..90]) <= most(&seconds[20..60]).map(|most| most * 2));
}

#[test]
fn failures_of_overload_make_the_limit_fall_and_it_comes_back() {
    let tells = |weather: &mut Weather| {
        weather.failing = 0.5;
        weather.tells_overload = true;
    };
    keeps_its_goodput(SERVERS, tells);
    let seconds = run(1, SERVERS, BOUNDS, disturbed(SERVERS, tells));
    let (before, during) = (seconds[59].limit, seconds[89].limit);
    assert!(during < before / 2, "{before}, then {during}");
}

/// F82: one lucky sample must not make all others look slow.
#[test]
fn one_lucky_sample_does_not_move_the_limit() {
    keeps_its_goodput(SERVERS, |weather| weather.is_lucky = true);
    let run = |is_lucky| {
        let mut weather = vec![overload(SERVERS); 90];
        weather[45].is_lucky = is_lucky;
        let seconds = run(1, SERVERS, BOUNDS, weather);
        seconds[60..].iter().map(|second| second.limit).sum::<u32>() / 30
    };
    let (with, without) = (run(true), run(false));
    assert!(
        with * 2 > without && with < without * 2,
        "{with}, {without}"
    );
}

#[test]
fn a_limit_does_not_grow_without_end_under_an_overload_that_lasts() {
    for seed in 0..5 {
        let seconds = run(seed, SERVERS, BOUNDS, vec![overload(SERVERS); 1_800]);
        let most = seconds.iter().map(|second| second.limit).max();
        assert!(most <= Some(6 * SERVERS), "seed {seed}: {most:?}");
    }
}

#[test]
fn a_steady_load_does_not_make_the_limit_flap() {
    for seed in 0..5 {
        let seconds = run(seed, SERVERS, BOUNDS, vec![overload(SERVERS); 600]);
        let mut limits: Vec<_> = seconds[60..].iter().map(|second| second.limit).collect();
        limits.sort_unstable();
        // But for the probes, one second in thirty.
        let (low, high) = (limits[limits.len() / 20], limits[limits.len() * 19 / 20]);
        assert!(high <= 2 * low, "seed {seed}: from {low} to {high}");
    }
}

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
fn below_capacity_next_to_nothing_is_shed() {
    for seed in 0..10 {
        let weather = vec![Weather::demand(0.7 * capacity(SERVERS)); 300];
        let seconds = run(seed, SERVERS, BOUNDS, weather);
        let refused: u32 = seconds.iter().map(|second| second.refused).sum();
        let good: u32 = seconds.iter().map(|second| second.good).sum();
        assert!(refused * 1_000 <= good, "seed {seed}: {refused} and {good}");
    }
}

/// A tenth of the requests, with a share of the slots of their own.
#[test]
fn a_critical_class_is_served_while_the_rest_is_cut() {
    for seed in 0..10 {
        let weather = Weather {
            critical: 0.1,
            ..overload(SERVERS)
        };
        let seconds = run(seed, SERVERS, BOUNDS, vec![weather; 120]);
        let sum = |of: fn(&Second) -> u32| seconds[20..].iter().map(of).sum::<u32>();
        let good = sum(|second| second.critical_good);
        let refused = sum(|second| second.critical_refused);
        assert!(
            good > 1_000 && refused * 99 <= good,
            "seed {seed}: {refused} and {good}"
        );
        let (all, cut) = (sum(|second| second.good), sum(|second| second.refused));
        assert!(
            cut > all,
            "seed {seed}: {cut} of the rest are cut, {all} are served"
        );
    }
}

#[test]
fn a_service_that_was_idle_for_hours_is_protected_at_once() {
    let mut weather = vec![overload(SERVERS); 60];
    weather.extend(vec![Weather::demand(0.0); 2 * 3_600]);
    weather.extend(vec![overload(SERVERS); 60]);
    let seconds = run(3, SERVERS, BOUNDS, weather);
    let best = best_static(3, SERVERS, overload(SERVERS));
    // The limit of before holds: nothing is known that speaks against it.
    assert_eq!(seconds[61].limit, seconds[7_250].limit);
    let served = goodput(&seconds[7_261..]);
    assert!(served >= 0.9 * best, "{served} of {best}");
}

#[test]
fn a_service_that_is_slower_for_good_is_learnt() {
    let mut weather = vec![overload(32); 60];
    weather.extend(vec![
        Weather {
            slowness: 3.0,
            ..overload(32)
        };
        300
    ]);
    for seed in 0..5 {
        let seconds = run(seed, 32, BOUNDS, weather.clone());
        let served = goodput(&seconds[90..]);
        assert!(served >= 0.9 * capacity(32) / 3.0, "seed {seed}: {served}");
    }
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

#[test]
fn a_request_of_an_earlier_epoch_is_no_sample_of_a_probe() {
    let mut plant = Plant::new(1, SERVERS, BOUNDS);
    let mut epochs = Vec::new();
    for _ in 0..120 {
        plant.second(overload(SERVERS));
        epochs.push(plant.shared.epoch());
    }
    let last = epochs.last().copied().unwrap_or_default();
    // One probe in half a minute is two epochs; the first are sooner.
    assert!((6..=16).contains(&last), "{last}");

    // Sixty of another epoch are no window; sixty of this one are.
    let shared = Plant::new(1, SERVERS, BOUNDS).shared;
    for (epoch, second, is_known) in [(1, 2, false), (0, 4, true)] {
        for number in 0..60 {
            let ended = Ended::Answered(Duration::from_millis(10));
            let now = Duration::from_secs(second) + Duration::from_millis(10 * number);
            shared.note(ended, epoch, now);
        }
        assert_eq!(shared.baseline().is_some(), is_known, "epoch {epoch}");
    }
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

    // What others hold beyond their share they do not get again.
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
