//! The headers are true, whatever the configuration: a request that waits as told passes,
//! fields agree with each other, and what remains is there to be used.

use std::time::Duration;

use proptest::prelude::*;

use crate::scene::{self, NAMES, Rule, Scene, arrivals, rules, shaped};

fn config() -> ProptestConfig {
    scene::config(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/http/proptest-regressions/truth.txt"
    ))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_client_that_waits_what_retry_after_said_passes_and_a_second_earlier_does_not(
        rules in rules(),
        start in 0_u64..10_000_000_000,
        arrivals in arrivals(),
    ) {
        let scene = Scene::new(rules, start);
        for (pause, cost) in arrivals {
            scene.pause(pause);
            let told = scene.ask(cost);
            let Some(seconds) = told.retry_after else {
                continue;
            };
            prop_assert!(!told.passed);
            prop_assert!(seconds >= 1);
            scene.clock.advance(Duration::from_secs(seconds - 1));
            prop_assert!(!scene.passes(cost), "a second less is enough: {told:?}");
            scene.clock.advance(Duration::from_secs(1));
            prop_assert!(scene.passes(cost), "the wait was too short: {told:?}");
        }
    }

    #[test]
    fn retry_after_is_absent_only_when_no_wait_can_help(
        rules in rules(),
        start in 0_u64..10_000_000_000,
        arrivals in arrivals(),
    ) {
        let scene = Scene::new(rules, start);
        for (pause, cost) in arrivals {
            scene.pause(pause);
            let told = scene.ask(cost);
            let hopeless = scene.rules.iter().any(|rule| {
                rule.limit() == 0 || cost * rule.weight > rule.limit()
            });
            let waits = !told.passed && !hopeless;
            prop_assert_eq!(told.retry_after.is_some(), waits, "{:?}", told);
        }
    }

    #[test]
    fn the_fields_of_one_answer_agree(
        rules in rules(),
        start in 0_u64..10_000_000_000,
        arrivals in arrivals(),
    ) {
        let scene = Scene::new(rules, start);
        for (pause, cost) in arrivals {
            scene.pause(pause);
            let told = scene.ask(cost);
            let asked: Vec<_> = told.policies.iter().map(|(name, ..)| name.as_str()).collect();
            prop_assert_eq!(&asked, &NAMES[..scene.rules.len()]);
            for (name, q, w) in &told.policies {
                let limit = scene.rule(name).limit();
                prop_assert_eq!(*q, u64::from(limit));
                prop_assert_eq!(*w, (limit > 0).then_some(scene.rule(name).window));
            }
            // One policy that can never pass makes the waits of the others useless.
            let helps = told.limits.iter().all(|(name, ..)| {
                let rule = scene.rule(name);
                (1..=rule.limit()).contains(&(cost * rule.weight))
            });
            for (name, r, t) in &told.limits {
                let rule = scene.rule(name);
                let cost = u64::from(cost * rule.weight);
                let limit = u64::from(rule.limit());
                let longest = rule.longest_wait().map(|wait| wait.div_ceil(1_000_000));
                prop_assert!(*r <= limit);
                prop_assert_ne!(*t, Some(0));
                prop_assert!(*t <= longest, "{name}: {told:?}");
                if told.passed {
                    prop_assert_eq!(t.is_some(), limit > 0);
                } else {
                    prop_assert!(*r < cost.max(1), "{name} has enough: {told:?}");
                    prop_assert_eq!(t.is_some(), helps);
                }
            }
            if told.passed {
                prop_assert_eq!(told.limits.len(), told.policies.len());
                prop_assert_eq!(told.retry_after, None);
            } else {
                prop_assert!(!told.limits.is_empty());
                let waits: Option<Vec<u64>> = told.limits.iter().map(|(.., t)| *t).collect();
                let longest = waits.map(|waits| waits.into_iter().max().unwrap());
                prop_assert_eq!(told.retry_after, longest);
            }
        }
    }

    #[test]
    fn exactly_as_many_more_pass_at_once_as_remain(
        rules in rules(),
        start in 0_u64..10_000_000_000,
        arrivals in arrivals(),
    ) {
        let scene = Scene::new(rules, start);
        let Some(told) = scene.after(&arrivals) else {
            return Ok(());
        };
        let Some(room) = told.room(&scene) else {
            return Ok(());
        };
        for _ in 0..room {
            prop_assert!(scene.passes(1), "{told:?}");
        }
        prop_assert!(!scene.passes(1), "{told:?}");
    }

    #[test]
    fn the_remaining_units_can_be_spread_evenly_until_the_reset(
        rules in rules(),
        start in 0_u64..10_000_000_000,
        arrivals in arrivals(),
    ) {
        let scene = Scene::new(rules, start);
        let Some(told) = scene.after(&arrivals) else {
            return Ok(());
        };
        let Some(room @ 1..) = told.room(&scene) else {
            return Ok(());
        };
        let shortest = told.limits.iter().filter_map(|(.., t)| *t).min().unwrap();
        for _ in 0..room {
            scene.clock.advance(Duration::from_micros(shortest * 1_000_000 / room));
            prop_assert!(scene.passes(1), "{told:?}");
        }
    }

    #[test]
    fn a_client_that_paces_itself_by_the_fields_is_never_refused(
        rules in rules(),
        start in 0_u64..10_000_000_000,
        arrivals in arrivals(),
    ) {
        let each_takes_one = |rule: Rule| Rule { weight: 1, ..rule };
        let scene = Scene::new(rules.into_iter().map(each_takes_one).collect(), start);
        let Some(mut told) = scene.after(&arrivals) else {
            return Ok(());
        };
        for _ in 0..50 {
            // With r requests for t seconds it sends one each t / r; with none it waits t.
            let pauses = told.limits.iter().filter_map(|(_, r, t)| {
                Some((t.as_ref()? * 1_000_000).div_ceil(*r.max(&1)))
            });
            let pause = pauses.max().unwrap_or(0);
            scene.clock.advance(Duration::from_micros(pause));
            let next = scene.ask(1);
            prop_assert!(next.passed, "{told:?}, then {next:?}");
            told = next;
        }
    }

    #[test]
    fn a_client_that_keeps_the_pace_of_one_answer_of_a_bucket_is_never_refused(
        rule in shaped(6..9),
        arrivals in arrivals(),
    ) {
        let scene = Scene::new(vec![rule], 0);
        let Some(told) = scene.after(&arrivals) else {
            return Ok(());
        };
        let [(_, r @ 1.., Some(t))] = told.limits[..] else {
            return Ok(());
        };
        for _ in 0..50 {
            scene.clock.advance(Duration::from_micros((t * 1_000_000).div_ceil(r)));
            prop_assert!(scene.passes(1), "{told:?}");
        }
    }
}
