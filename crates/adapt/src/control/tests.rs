//! Controllers by themselves.

use std::time::Duration;

use proptest::prelude::*;

use super::{Aimd, Controller, Gradient, Steps, Worst};
use crate::plant::Random;
use crate::{Load, Loads};
use tower_ratelimit::factor::Factor;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn cpu(load: Load) -> Loads {
    Loads::new().with("cpu", load)
}

fn both(cpu: u32, memory: u32) -> Loads {
    Loads::new()
        .with("cpu", Load::millionths(cpu))
        .with("memory", Load::millionths(memory))
}

/// Returns the written rule, for limits: base 100, least 10.
fn written(cpu: u32, memory: u32) -> u32 {
    if cpu > 900_000 || memory > 900_000 {
        100
    } else if cpu > 700_000 || memory > 700_000 {
        500
    } else if cpu > 500_000 {
        750
    } else {
        1_000
    }
}

#[test]
fn the_table_is_exact_at_its_edges() {
    let mut steps = Steps::standard().immediate();
    for (cpu, memory, factor) in [
        (0, 0, 1_000),
        (500_000, 0, 1_000),
        (500_001, 0, 750),
        (700_000, 0, 750),
        (700_001, 0, 500),
        (900_000, 0, 500),
        (900_001, 0, 100),
        (0, 500_001, 1_000),
        (0, 700_000, 1_000),
        (0, 700_001, 500),
        (0, 900_000, 500),
        (0, 900_001, 100),
        (u32::MAX, 0, 100),
    ] {
        let target = steps.step(Duration::ZERO, &both(cpu, memory));
        assert_eq!(target.factor().get(), factor, "cpu {cpu}, memory {memory}");
    }
}

proptest! {
    #[test]
    fn the_immediate_table_is_the_rule_whatever_was_before(
        loads in proptest::collection::vec((0_u32..1_200_000, 0_u32..1_200_000, any::<u32>()), 1..50),
    ) {
        let mut steps = Steps::standard().immediate();
        for (cpu, memory, moment) in loads {
            let target = steps.step(secs(moment.into()), &both(cpu, memory));
            prop_assert_eq!(target.factor().get(), written(cpu, memory));
            prop_assert_eq!(target.cause().is_some(), target.factor() < Factor::ONE);
        }
    }

    /// Rises are bounded by the hold, and falls by the rises, whatever the loads do.
    #[test]
    fn a_factor_rises_once_each_hold_at_most(
        loads in proptest::collection::vec((0_u32..1_100_000, 0_u64..4_000, any::<bool>(), any::<bool>()), 1..200),
        hold in 1_u64..20,
    ) {
        let mut steps = Steps::standard()
            .hold(secs(hold))
            .grow(Factor::thousandths(250), Factor::thousandths(5_000));
        let (mut now, mut last, mut rises, mut risen) = (Duration::ZERO, Factor::ONE, 0, None);
        for (load, gap, is_wanted, is_there) in loads {
            now += Duration::from_millis(gap);
            let load = is_there.then(|| Load::millionths(load));
            let loads = Loads::new().with("cpu", load).wanted(is_wanted);
            let factor = steps.step(now, &loads).factor();
            prop_assert!((100..=5_000).contains(&factor.get()));
            if factor > last && factor != Factor::ONE {
                rises += 1;
                if let Some(before) = risen.replace(now) {
                    prop_assert!(now >= before + secs(hold));
                }
            }
            last = factor;
        }
        prop_assert!(rises <= 1 + now.as_secs() / hold);
    }

    #[test]
    fn no_load_and_no_time_makes_a_controller_leave_its_bounds(
        steps in proptest::collection::vec((proptest::option::of(any::<u32>()), any::<u32>(), any::<bool>()), 1..60),
    ) {
        let growing = Factor::thousandths(5_000);
        let mut controllers: [Box<dyn Controller>; 4] = [
            Box::new(Steps::standard().grow(Factor::ONE, growing)),
            Box::new(Aimd::on("cpu", Load::percent(80)).grow(growing)),
            Box::new(Gradient::on("cpu").grow(growing)),
            Box::new(Worst::of(Steps::standard()).and(Aimd::on("cpu", Load::percent(80)))),
        ];
        for (load, moment, is_wanted) in steps {
            let loads = Loads::new().with("cpu", load.map(Load::millionths)).wanted(is_wanted);
            for controller in &mut controllers {
                // Moments go back as well as forward.
                let factor = controller.step(secs(moment.into()), &loads).factor();
                prop_assert!(factor.get() >= 100 && factor <= controller.most());
            }
        }
    }
}

/// The classic problem of load shedding: a load at a threshold.
#[test]
fn noise_at_a_threshold_does_not_make_the_factor_flap() {
    let mut random = Random::new(7);
    let mut steps = Steps::standard();
    let (mut changes, mut last) = (0, Factor::ONE);
    for second in 0..600 {
        let noise = u32::try_from(random.next() % 60_000).unwrap();
        let factor = steps
            .step(secs(second), &cpu(Load::millionths(670_000 + noise)))
            .factor();
        changes += u32::from(factor != last);
        last = factor;
    }
    // Down to three quarters, and to a half at most once a hold; without smoothing and dead band there are
    // hundreds.
    assert!(changes <= 3, "{changes} changes in ten minutes");
}

#[test]
fn a_jump_takes_the_factor_to_its_floor_at_once_and_back_step_by_step() {
    let mut steps = Steps::standard();
    let mut factors = Vec::new();
    for second in 0..60 {
        let load = if (5..10).contains(&second) { 100 } else { 20 };
        let factor = steps
            .step(secs(second), &cpu(Load::percent(load)))
            .factor()
            .get();
        if factors.last().is_none_or(|(_, last)| *last != factor) {
            factors.push((second, factor));
        }
    }
    // The average passes 50 % in the second of the jump, 70 % in the next, and 90 % four seconds after it.
    assert_eq!(
        factors,
        [
            (0, 1_000),
            (5, 750),
            (6, 500),
            (9, 100),
            (19, 500),
            (29, 750),
            (39, 1_000)
        ],
    );
}

#[test]
fn a_rise_above_the_base_is_wanted_and_calm() {
    let grow = || {
        Steps::standard()
            .hold(secs(1))
            .grow(Factor::thousandths(1_000), Factor::thousandths(3_000))
    };
    let calm = || both(300_000, 300_000);
    let factors = |steps: &mut Steps, loads: Loads| -> Vec<u32> {
        (0..5)
            .map(|second| steps.step(secs(second), &loads).factor().get())
            .collect()
    };
    // An idle service proves nothing.
    assert_eq!(factors(&mut grow(), calm()), [1_000; 5]);
    let wanted = calm().wanted(true);
    assert_eq!(
        factors(&mut grow(), wanted),
        [1_000, 2_000, 3_000, 3_000, 3_000]
    );
    // Not calm: within the dead band below a threshold.
    let near = both(460_000, 300_000).wanted(true);
    assert_eq!(factors(&mut grow(), near), [1_000; 5]);

    let mut grown = grow();
    factors(&mut grown, calm().wanted(true));
    // A hot signal takes back at once what has grown, and more.
    let hot = grown.step(secs(60), &both(950_000, 300_000).wanted(true));
    assert_eq!(hot.factor().get(), 100);
}

#[test]
fn an_absent_signal_counts_for_a_hold_and_then_not_at_all() {
    let absent = Loads::new().with("cpu", None);
    let mut steps = Steps::standard();
    steps.step(secs(0), &cpu(Load::percent(95)));
    let factors: Vec<_> = (1..14)
        .map(|second| steps.step(secs(second), &absent).factor().get())
        .collect();
    assert_eq!(factors[..9], [100; 9]);
    assert_eq!(factors[9..], [1_000; 4]);

    let mut aimd = Aimd::on("cpu", Load::percent(80));
    aimd.step(secs(0), &cpu(Load::percent(95)));
    assert!(aimd.step(secs(9), &absent).factor() < Factor::ONE);
    assert_eq!(aimd.step(secs(11), &absent).factor(), Factor::ONE);

    let mut never = Steps::standard();
    assert_eq!(never.step(secs(1), &absent), super::Target::of(Factor::ONE));
}

#[test]
fn a_gap_of_an_hour_and_a_late_step_count_as_the_time_they_are() {
    let mut steps = Steps::standard();
    steps.step(secs(0), &cpu(Load::percent(100)));
    // The average is that of the hour, and one step up is one step.
    let after = steps.step(secs(3_600), &cpu(Load::percent(10)));
    assert_eq!(after.factor().get(), 500);

    // Five seconds late is as far as five steps in time.
    let (mut late, mut often) = (Steps::standard(), Steps::standard());
    for second in [0, 5] {
        late.step(
            secs(second),
            &cpu(Load::percent(100 * u32::from(second > 0))),
        );
    }
    for second in 0..=5 {
        often.step(
            secs(second),
            &cpu(Load::percent(100 * u32::from(second > 0))),
        );
    }
    let loads = cpu(Load::percent(100));
    assert_eq!(
        late.step(secs(6), &loads).factor(),
        often.step(secs(6), &loads).factor()
    );
    // A step back changes nothing.
    let factor = late.step(secs(2), &loads).factor();
    assert_eq!(factor, late.step(secs(6), &loads).factor());
}

/// One lucky sample must not make all others look slow.
#[test]
fn one_lucky_sample_does_not_move_a_gradient() {
    let mut gradient = Gradient::on("latency");
    for second in 0..100 {
        let millionths = if second == 50 { 1 } else { 500_000 };
        let loads = Loads::new().with("latency", Load::millionths(millionths));
        let factor = gradient.step(secs(second), &loads).factor();
        assert_eq!(factor, Factor::ONE, "second {second}");
    }
    assert_eq!(gradient.baseline(), Some(Load::percent(50)));
}

#[test]
fn a_baseline_is_capped_and_learns_nothing_while_another_signal_is_hot() {
    let slow = |cpu| {
        Loads::new()
            .with("latency", Load::percent(300))
            .with("cpu", Load::percent(cpu))
    };
    let fast = Loads::new()
        .with("latency", Load::percent(50))
        .with("cpu", Load::percent(30));
    let mut capped = Gradient::on("latency").healthy(Load::percent(80));
    let mut frozen = Gradient::on("latency").frozen_above("cpu", Load::percent(90));
    let mut plain = Gradient::on("latency");
    for second in 0..200 {
        let loads = if second < 60 { fast.clone() } else { slow(95) };
        for gradient in [&mut capped, &mut frozen, &mut plain] {
            gradient.step(secs(second), &loads);
        }
    }
    assert_eq!(capped.baseline(), Some(Load::percent(80)));
    assert_eq!(frozen.baseline(), Some(Load::percent(50)));
    assert_eq!(plain.baseline(), Some(Load::percent(300)));
    assert_eq!(frozen.step(secs(201), &slow(95)).factor().get(), 100);
}

/// Once, a log told "latency 2184.5 %" for each step of the rise after it.
#[test]
fn a_factor_that_rises_does_not_tell_the_load_that_lowered_it() {
    let controllers: [Box<dyn Controller>; 3] = [
        Box::new(Steps::standard()),
        Box::new(Aimd::on("cpu", Load::percent(70))),
        Box::new(Gradient::on("cpu")),
    ];
    for (number, mut controller) in controllers.into_iter().enumerate() {
        let (mut before, mut rises, mut falls) = (Factor::ONE, 0, 0);
        for second in 0..400 {
            let is_hot = (60..90).contains(&second);
            let load = Load::percent(if is_hot { 99 } else { 20 });
            let target = controller.step(secs(second), &cpu(load));
            let (factor, cause) = (target.factor(), target.cause());
            if factor < before {
                falls += 1;
                assert!(
                    cause.is_some_and(|cause| cause.starts_with("cpu ")),
                    "{number}: {cause:?}"
                );
            } else if factor > before && factor < Factor::ONE {
                rises += 1;
                assert_eq!(cause, Some(super::RISES), "{number}");
            }
            assert_eq!(cause.is_some(), factor < Factor::ONE, "{number}: {cause:?}");
            before = factor;
        }
        assert!(
            rises > 1 && falls > 0,
            "{number}: {rises} rises, {falls} falls"
        );
    }
}
