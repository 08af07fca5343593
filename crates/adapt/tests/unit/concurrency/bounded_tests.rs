//! The limit in a loop with a service.

use std::time::Duration;

use super::bounded::{Bounded, Second, best_static, fixed, goodput, run};
use super::learning::Bounds;
use super::shared::Ended;
use crate::plant::{Conditions, Distribution, capacity};

const BOUNDS: Bounds = Bounds {
    start: 20,
    least: 1,
    most: 1_000,
    healthy: None,
};

const SERVERS: u32 = 8;

/// Several seeds, because one run may be lucky. The last are of an M/M/c queue.
fn seeds() -> impl Iterator<Item = (u64, Distribution)> {
    let log_normal = (0..8).map(of);
    log_normal.chain((0..4).map(|seed| (seed, Distribution::Exponential)))
}

const fn of(seed: u64) -> (u64, Distribution) {
    (seed, Distribution::LogNormal)
}

/// Three times the capacity of the service.
fn overload(servers: u32) -> Conditions {
    Conditions::demand(3.0 * capacity(servers))
}

/// Returns a steady overload with a disturbance from the 60th to the 90th second.
fn disturbed(servers: u32, disturb: impl Fn(&mut Conditions)) -> Vec<Conditions> {
    let mut conditions = vec![overload(servers); 160];
    conditions[60..90].iter_mut().for_each(disturb);
    conditions
}

/// Asserts at least nine tenths of the goodput of the best constant limit, under steady load and again from
/// ten seconds after a disturbance. During the disturbance the limit is not below the least.
fn keeps_its_goodput(servers: u32, disturb: impl Fn(&mut Conditions)) {
    let conditions = disturbed(servers, &disturb);
    for seed in seeds() {
        let best = best_static(seed, servers, overload(servers));
        assert!(best > 0.9 * capacity(servers), "{best}");
        let seconds = run(seed, servers, BOUNDS, conditions.clone());
        for (from, to) in [(20, 60), (100, 160)] {
            let served = goodput(&seconds[from..to]);
            assert!(
                served >= 0.9 * best,
                "{servers} servers, {seed:?}, from {from} s: {served} of {best}"
            );
        }
        assert!(seconds.iter().all(|second| second.limit >= BOUNDS.least));
    }
}

#[test]
fn without_a_limit_an_overloaded_service_serves_little() {
    let seconds = run(of(1), SERVERS, fixed(100_000), vec![overload(SERVERS); 60]);
    let best = best_static(of(1), SERVERS, overload(SERVERS));
    assert!(goodput(&seconds[20..]) < 0.5 * best);
}

#[test]
fn ten_times_the_latency_for_30_seconds_is_survived() {
    for servers in [2, SERVERS, 32] {
        keeps_its_goodput(servers, |conditions| conditions.slowness = 10.0);
    }
}

/// A fast failure is not a sign of health. With 95 in a hundred, the 90th percentile is that of the failures.
#[test]
fn fast_failures_do_not_raise_the_limit() {
    for failing in [0.5, 0.95] {
        let fails = |conditions: &mut Conditions| conditions.failing = failing;
        keeps_its_goodput(SERVERS, fails);
        let seconds = run(of(1), SERVERS, BOUNDS, disturbed(SERVERS, fails));
        let most = |seconds: &[Second]| seconds.iter().map(|second| second.limit).max();
        // Half of the slots are free again at once, so more are needed; but not several times as many.
        assert!(most(&seconds[60..90]) <= most(&seconds[20..60]).map(|most| most * 2));
    }
}

#[test]
fn failures_of_overload_make_the_limit_fall_and_it_comes_back() {
    let tells = |conditions: &mut Conditions| {
        conditions.failing = 0.5;
        conditions.tells_overload = true;
    };
    keeps_its_goodput(SERVERS, tells);
    let seconds = run(of(1), SERVERS, BOUNDS, disturbed(SERVERS, tells));
    let (before, during) = (seconds[59].limit, seconds[89].limit);
    assert!(during < before / 2, "{before}, then {during}");
}

/// One lucky sample must not make all others look slow.
#[test]
fn one_lucky_sample_does_not_move_the_limit() {
    keeps_its_goodput(SERVERS, |conditions| conditions.is_lucky = true);
    let run = |is_lucky| {
        let mut conditions = vec![overload(SERVERS); 90];
        conditions[45].is_lucky = is_lucky;
        let seconds = run(of(1), SERVERS, BOUNDS, conditions);
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
        let seconds = run(of(seed), SERVERS, BOUNDS, vec![overload(SERVERS); 1_800]);
        let most = seconds.iter().map(|second| second.limit).max();
        assert!(most <= Some(6 * SERVERS), "seed {seed}: {most:?}");
    }
}

#[test]
fn a_steady_load_does_not_make_the_limit_flap() {
    for seed in 0..5 {
        let seconds = run(of(seed), SERVERS, BOUNDS, vec![overload(SERVERS); 600]);
        let mut limits: Vec<_> = seconds[60..].iter().map(|second| second.limit).collect();
        limits.sort_unstable();
        // Except for the probes, one second in thirty.
        let (low, high) = (limits[limits.len() / 20], limits[limits.len() * 19 / 20]);
        assert!(high <= 2 * low, "seed {seed}: from {low} to {high}");
    }
}

#[test]
fn below_capacity_next_to_nothing_is_shed() {
    for seed in 0..10 {
        let conditions = vec![Conditions::demand(0.7 * capacity(SERVERS)); 300];
        let seconds = run(of(seed), SERVERS, BOUNDS, conditions);
        let refused: u32 = seconds.iter().map(|second| second.refused).sum();
        let good: u32 = seconds.iter().map(|second| second.good).sum();
        assert!(refused * 1_000 <= good, "seed {seed}: {refused} and {good}");
    }
}

/// A tenth of the requests, with a share of the slots of their own.
#[test]
fn a_critical_class_is_served_while_the_rest_is_cut() {
    for seed in 0..10 {
        let conditions = Conditions {
            critical: 0.1,
            ..overload(SERVERS)
        };
        let seconds = run(of(seed), SERVERS, BOUNDS, vec![conditions; 120]);
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
    let mut conditions = vec![overload(SERVERS); 60];
    conditions.extend(vec![Conditions::demand(0.0); 2 * 3_600]);
    conditions.extend(vec![overload(SERVERS); 60]);
    let seconds = run(of(3), SERVERS, BOUNDS, conditions);
    let best = best_static(of(3), SERVERS, overload(SERVERS));
    // The previous limit holds: nothing is known against it.
    assert_eq!(seconds[61].limit, seconds[7_250].limit);
    let served = goodput(&seconds[7_261..]);
    assert!(served >= 0.9 * best, "{served} of {best}");
}

#[test]
fn a_service_that_is_slower_for_good_is_learnt() {
    let mut conditions = vec![overload(32); 60];
    conditions.extend(vec![
        Conditions {
            slowness: 3.0,
            ..overload(32)
        };
        300
    ]);
    for seed in 0..5 {
        let seconds = run(of(seed), 32, BOUNDS, conditions.clone());
        let served = goodput(&seconds[90..]);
        assert!(served >= 0.9 * capacity(32) / 3.0, "seed {seed}: {served}");
    }
}

#[test]
fn a_request_of_an_earlier_epoch_is_no_sample_of_a_probe() {
    let mut bounded = Bounded::new(of(1), SERVERS, BOUNDS);
    let mut epochs = Vec::new();
    for _ in 0..120 {
        bounded.second(overload(SERVERS));
        epochs.push(bounded.slots.shared.epoch());
    }
    let last = epochs.last().copied().unwrap_or_default();
    // One probe in half a minute is two epochs; the first probes come sooner.
    assert!((6..=16).contains(&last), "{last}");

    // Sixty requests of another epoch are no window; sixty of this one are.
    let shared = Bounded::new(of(1), SERVERS, BOUNDS).slots.shared;
    for (epoch, second, is_known) in [(1, 2, false), (0, 4, true)] {
        for number in 0..60 {
            let ended = Ended::Answered(Duration::from_millis(10));
            let now = Duration::from_secs(second) + Duration::from_millis(10 * number);
            shared.note(ended, epoch, now);
        }
        assert_eq!(shared.baseline().is_some(), is_known, "epoch {epoch}");
    }
}
