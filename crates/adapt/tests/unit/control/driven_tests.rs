//! Controllers in a loop with a service.

use std::time::Duration;

use super::driven::{BASE, CAPACITY, Driven, OVERLOAD, Second, best_static, goodput, run, seeds};
use super::{Aimd, Controller, Gradient, Steps, Worst};
use crate::Load;
use crate::plant::{Conditions, Distribution};
use tower_ratelimit::factor::Factor;

const FLOOR: Factor = Factor::thousandths(100);

fn aimd() -> Aimd {
    Aimd::on("latency", Load::FULL)
}

fn gradient() -> Gradient {
    Gradient::on("latency").healthy(Load::percent(60))
}

fn controllers() -> [(&'static str, Box<dyn Controller>); 3] {
    let both = Worst::of(aimd()).and(Aimd::on("in flight", Load::FULL));
    [
        ("aimd", Box::new(aimd())),
        ("gradient", Box::new(gradient())),
        ("worst", Box::new(both)),
    ]
}

/// Returns a steady overload with a disturbance from the 60th to the 90th second.
fn disturbed(disturb: impl Fn(usize, &mut Conditions)) -> Vec<Conditions> {
    let mut conditions = vec![Conditions::demand(OVERLOAD); 160];
    let during = conditions.iter_mut().enumerate().skip(60).take(30);
    during.for_each(|(second, conditions)| disturb(second, conditions));
    conditions
}

fn served(seconds: &[Second], from: usize, to: usize) -> f64 {
    goodput(&seconds[from..to])
}

/// The goodput of each controller as a share of that of the best limit, by run.
#[derive(Default)]
struct Shares([Vec<f64>; 3]);

impl Shares {
    fn note(&mut self, controller: usize, good: f64, best: f64) {
        self.0[controller].push(good / best);
    }

    /// Asserts at least nine tenths of the goodput of the best constant limit over all runs, and 85 in a
    /// hundred in each.
    fn are_good(&self) {
        for ((name, _), shares) in controllers().iter().zip(&self.0) {
            #[expect(clippy::cast_precision_loss, reason = "a few runs")]
            let mean = shares.iter().sum::<f64>() / shares.len() as f64;
            assert!(mean >= 0.9, "{name}: {mean} of the best, {shares:?}");
            let least = shares.iter().copied().fold(1.0, f64::min);
            assert!(least >= 0.85, "{name}: {least} of the best, {shares:?}");
        }
    }
}

/// Asserts the goodput of a good limit under steady load, and again from ten seconds after a disturbance.
/// During the disturbance the factor is not below its floor. A factor below 1 always has a cause.
fn keeps_its_goodput(disturb: impl Fn(usize, &mut Conditions)) {
    let conditions = disturbed(disturb);
    let (mut steady, mut after) = (Shares::default(), Shares::default());
    for seed in seeds() {
        let best = best_static(seed);
        assert!(best > 0.9 * CAPACITY, "the best limit serves {best}");
        for (place, (name, mut controller)) in controllers().into_iter().enumerate() {
            let seconds = run(&mut controller, seed, BASE, conditions.clone());
            steady.note(place, served(&seconds, 20, 60), best);
            after.note(place, served(&seconds, 100, 160), best);
            for second in &seconds {
                assert!(second.factor >= FLOOR, "{name}: below the floor");
                let is_told = second.cause.is_some();
                assert_eq!(second.factor < Factor::ONE, is_told, "{name}: {second:?}");
            }
        }
    }
    steady.are_good();
    after.are_good();
}

#[test]
fn without_a_controller_an_overloaded_service_serves_little() {
    let seed = (1, Distribution::LogNormal);
    let mut none = Steps::new();
    let seconds = run(
        &mut none,
        seed,
        BASE,
        vec![Conditions::demand(OVERLOAD); 60],
    );
    let best = best_static(seed);
    assert!(goodput(&seconds[20..]) < 0.5 * best);
}

#[test]
fn a_steady_overload_is_served_as_by_the_best_limit() {
    keeps_its_goodput(|_, _| {});
}

#[test]
fn ten_times_the_latency_for_30_seconds_is_survived() {
    keeps_its_goodput(|_, conditions| conditions.slowness = 10.0);
    let conditions = disturbed(|_, conditions| conditions.slowness = 10.0);
    for (name, mut controller) in controllers() {
        let seconds = run(
            &mut controller,
            (1, Distribution::LogNormal),
            BASE,
            conditions.clone(),
        );
        assert!(seconds[85].factor.get() < 200, "{name}: {:?}", seconds[85]);
    }
}

/// A fast failure is not a sign of health. With 95 in a hundred, the 90th percentile is that of the failures.
#[test]
fn fast_failures_do_not_raise_the_factor() {
    for failing in [0.5, 0.95] {
        keeps_its_goodput(|_, conditions| conditions.failing = failing);
    }
}

/// One lucky sample must not make all others look slow.
#[test]
fn one_lucky_sample_a_second_does_not_move_a_controller() {
    keeps_its_goodput(|_, conditions| conditions.is_lucky = true);
}

#[test]
fn a_burst_of_ten_times_the_demand_is_survived() {
    keeps_its_goodput(|_, conditions| conditions.demand *= 10.0);
}

#[test]
fn late_ticks_are_survived() {
    keeps_its_goodput(|second, conditions| conditions.ticks = second % 7 == 0);
}

#[test]
fn a_gap_without_any_tick_is_survived() {
    keeps_its_goodput(|_, conditions| conditions.ticks = false);
}

#[test]
fn a_gap_of_an_hour_is_survived() {
    let seed = (2, Distribution::LogNormal);
    let best = best_static(seed);
    for (name, mut controller) in controllers() {
        let mut conditions = vec![Conditions::demand(OVERLOAD); 60 + 3_600 + 60];
        conditions[60..3_660]
            .iter_mut()
            .for_each(|it| it.ticks = false);
        let seconds = run(&mut controller, seed, BASE, conditions);
        let good = goodput(&seconds[3_670..]);
        assert!(good >= 0.9 * best, "{name}: {good} of {best}");
    }
}

/// A signal without a number is absent: the factor holds for ten seconds, and is 1 then, since nothing is
/// known.
#[test]
fn signals_that_tell_no_number_do_not_keep_a_factor_down_and_are_followed_again() {
    let conditions = disturbed(|_, conditions| conditions.tells = false);
    let mut after = Shares::default();
    for seed in seeds() {
        let best = best_static(seed);
        for (place, (name, mut controller)) in controllers().into_iter().enumerate() {
            let seconds = run(&mut controller, seed, BASE, conditions.clone());
            assert_eq!(seconds[89].factor, Factor::ONE, "{name}");
            assert!(seconds[68].factor < Factor::ONE, "{name}");
            after.note(place, served(&seconds, 105, 160), best);
        }
    }
    after.are_good();
}

#[test]
fn a_service_that_was_idle_for_hours_is_protected_at_once() {
    let seed = (3, Distribution::LogNormal);
    for (name, mut controller) in controllers() {
        let mut conditions = vec![Conditions::demand(OVERLOAD); 60];
        conditions.extend(vec![Conditions::demand(0.0); 2 * 3_600]);
        conditions.extend(vec![Conditions::demand(OVERLOAD); 60]);
        let seconds = run(&mut controller, seed, BASE, conditions);
        let best = best_static(seed);
        assert_eq!(seconds[7_000].factor, Factor::ONE, "{name}");
        let good = goodput(&seconds[7_270..]);
        assert!(good >= 0.9 * best, "{name}: {good} of {best}");
    }
}

/// Two nodes before one service, each with half of the demand and a controller of its own, half a second
/// apart.
#[test]
fn two_controllers_out_of_phase_do_not_swing() {
    let seed = (5, Distribution::LogNormal);
    let alone = run(
        &mut aimd(),
        seed,
        BASE,
        vec![Conditions::demand(OVERLOAD); 120],
    );
    let alone: Vec<u32> = alone[40..]
        .iter()
        .map(|second| second.factor.get())
        .collect();
    let mut nodes = [aimd(), aimd()];
    let mut driven = Driven::new(seed.0, BASE, seed.1);
    let mut factors = [Factor::ONE; 2];
    let (mut good, mut mixed) = (0, Vec::new());
    for half_second in 0..240_u64 {
        // Both admit their share of the demand of this second.
        let mean = Factor::thousandths(factors.iter().map(|factor| factor.get()).sum::<u32>() / 2);
        if half_second % 2 == 0 {
            let answered = driven.second(mean, Conditions::demand(OVERLOAD));
            if half_second >= 80 {
                good += answered;
                mixed.push(mean.get());
            }
        }
        let node = usize::from(half_second % 2 == 1);
        let moment = Duration::from_millis(half_second * 500);
        factors[node] = nodes[node].step(moment, driven.loads()).factor();
    }
    let best = best_static(seed);
    assert!(f64::from(good) / 80.0 >= 0.9 * best, "{good}");
    let swing = |seen: &[u32]| seen.iter().max().unwrap() - seen.iter().min().unwrap();
    let (both, alone) = (swing(&mixed), swing(&alone));
    assert!(both <= alone + 100, "{both} together, {alone} alone");
}

/// The table falls at once and rises once a hold, which bounds how fast its own loop can oscillate.
#[test]
fn steps_that_act_on_their_own_load_rise_no_more_often_than_the_hold_allows() {
    for seed in seeds() {
        let conditions = vec![Conditions::demand(OVERLOAD); 600];
        let seconds = run(&mut Steps::standard(), seed, BASE, conditions);
        let pairs = seconds.windows(2);
        let rises = pairs.filter(|pair| pair[1].factor > pair[0].factor);
        let rises = rises.count();
        assert!(
            (1..=1 + 600 / 10).contains(&rises),
            "{rises} in ten minutes"
        );
    }
}

#[test]
fn below_capacity_nothing_is_shed() {
    for (name, mut controller) in controllers() {
        let conditions = vec![Conditions::demand(0.7 * CAPACITY); 300];
        let seconds = run(
            &mut controller,
            (6, Distribution::LogNormal),
            BASE,
            conditions,
        );
        let below = seconds
            .iter()
            .filter(|second| second.factor < Factor::ONE)
            .count();
        assert!(below <= 15, "{name}: below 1 in {below} of 300 seconds");
        let good = goodput(&seconds);
        assert!(good >= 0.68 * CAPACITY, "{name}: {good}");
    }
}
