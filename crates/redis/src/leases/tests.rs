//! The pairs of a node by themselves, with answers that the tests make up.

use redis::Value;

use super::*;
use crate::not_leased;
use crate::reply::ScriptReply;
use tower_ratelimit_core::__internal::Charges;
use tower_ratelimit_core::algorithm::{Algorithm, AnchoredWindow};
use tower_ratelimit_core::clock::ManualClock;
use tower_ratelimit_core::key::IntoKey;
use tower_ratelimit_core::policy::Policy;

struct Scene {
    leases: Leases,
    changes: Arc<KeyEpochs>,
    policies: [OpenedPolicy; 1],
}

impl Scene {
    fn new() -> Self {
        let policies = [Policy::new("a", AnchoredWindow::per_day(100_000))];
        let changes = Arc::new(KeyEpochs::default());
        let clock = ManualClock::new();
        clock.set_micros(Micros::new(1_000_000));
        let clock = NodeClock::new(Some(Arc::new(clock)));
        let terms = not_leased::terms(&policies, Micros::new(1_000_000));
        let small = SmallLimits::new(&policies);
        let algorithm: Algorithm = *policies[0].algorithm();
        let counted = OpenedPolicy::of(algorithm);
        Self {
            leases: Leases::new(clock, (terms, small), Arc::clone(&changes)),
            changes,
            policies: [counted],
        }
    }

    /// Returns whether a request is decided without a question.
    fn decides(&self, charge: Charge) -> Option<bool> {
        let mut outcomes = Outcomes::new(Micros::ZERO);
        let local = self.leases.decide(&[charge], &self.policies, &mut outcomes);
        local.map(|local| local.is_allowed)
    }

    /// Asks about a key, of which nothing is granted.
    fn asks_three_times(&self, key: u64) {
        for _ in 0..3 {
            assert_eq!(self.decides(charge(key)), None);
            let questions = self.leases.ask(&[charge(key)]);
            self.answer(questions, &GRANTED.replace(";20;", ";0;"));
        }
    }

    /// Answers a question with this text.
    fn answer(&self, questions: LeaseRequests, text: &str) {
        let charges: Charges = questions.iter().map(|question| question.charge).collect();
        let value = Value::BulkString(text.as_bytes().to_vec());
        let answer = ScriptReply::of_granting(value, &charges).unwrap();
        let mut outcomes = Outcomes::new(Micros::ZERO);
        self.leases
            .answered(questions, &answer, &self.policies, &mut outcomes);
    }
}

fn charge(key: u64) -> Charge {
    Charge::new(0, key.into_key(), 1)
}

/// What the server says: when, whether it fits, how long the key is blocked, the units, and the state.
const DENIED: &str = "1790000000000000;0;0;0;0;0;1790000000000000 100000 0";
const GRANTED: &str = "1790000000000000;1;0;20;1790000001000000;1000000;1790000000000000 1 0";

/// Otherwise a node would refuse requests of a key that it has just reset.
#[test]
fn an_answer_about_the_time_before_a_change_is_not_believed() {
    for (text, spends) in [(DENIED, Some(false)), (GRANTED, Some(true))] {
        for is_changed in [false, true] {
            let scene = Scene::new();
            // A denial is remembered of a key that is asked for often.
            scene.asks_three_times(1);
            assert_eq!(scene.decides(charge(1)), None);
            let questions = scene.leases.ask(&[charge(1)]);
            if is_changed {
                scene.changes.advance(&[charge(1)]);
                scene.asks_three_times(1);
            }
            scene.answer(questions, text);
            let expected = if is_changed { None } else { spends };
            assert_eq!(scene.decides(charge(1)), expected, "{text}");
            let returned = scene.leases.all();
            let tells = returned.iter().flat_map(|returned| &returned.ask.tells);
            let units: u32 = tells.map(|tell| tell.spent + tell.unspent).sum();
            assert_eq!(units, if text == GRANTED { 20 } else { 0 });
        }
    }
}

/// The pair of the time after the change has a question of its own, for which requests wait.
#[test]
fn an_answer_about_the_time_before_a_change_wakes_no_request() {
    let scene = Scene::new();
    assert_eq!(scene.decides(charge(1)), None);
    let before = scene.leases.ask(&[charge(1)]);
    scene.changes.advance(&[charge(1)]);
    assert_eq!(scene.decides(charge(1)), None);
    let after = scene.leases.ask(&[charge(1)]);
    let again = || {
        let mut outcomes = Outcomes::new(Micros::ZERO);
        let charges = [charge(1)];
        scene.leases.again(&charges, &scene.policies, &mut outcomes)
    };
    let Again::Wait(mut hears) = again() else {
        panic!("a question is on its way");
    };
    scene.answer(before, DENIED);
    assert!(hears.try_recv().is_err());
    assert!(matches!(again(), Again::Wait(_)));
    scene.answer(after, GRANTED);
    assert!(matches!(hears.try_recv(), Ok(Ok(()))));
}

/// However many keys clients invent.
#[test]
fn a_node_keeps_a_bounded_number_of_pairs() {
    let scene = Scene::new();
    for key in 0..100_000 {
        assert_eq!(scene.decides(charge(key)), None);
        let questions = scene.leases.ask(&[charge(key)]);
        scene.answer(questions, &GRANTED.replace(";20;", ";0;"));
    }
    let shards = scene.leases.shards.iter();
    let kept: usize = shards
        .map(|shard| {
            let shard = locked(shard);
            shard.young.len() + shard.old.len()
        })
        .sum();
    assert!((MOST / 2..=MOST).contains(&kept), "{kept} pairs");
    assert!(scene.leases.returns().is_empty());
}

/// A hash says nothing about whose units they are.
#[test]
fn a_pair_whose_place_another_one_has_is_none() {
    let scene = Scene::new();
    let mut shard = Shard::default();
    let now = Micros::ZERO;
    let mut is_there = |of: &Charge| scene.leases.live(&mut shard, 7, of, now).is_some();
    assert!(is_there(&charge(1)));
    assert!(is_there(&charge(1)));
    let limited = Charge {
        limit: Some(Limit::new(5, 5)),
        ..charge(1)
    };
    for other in [charge(2), limited, Charge::new(1, 1_u64.into_key(), 1)] {
        assert!(!is_there(&other), "{other:?}");
    }
}

/// As long as it does, its task looks for units to give back.
#[test]
fn a_node_holds_units_until_they_are_given_back() {
    let scene = Scene::new();
    scene.asks_three_times(1);
    assert!(!scene.leases.holds_any());
    scene.answer(scene.leases.ask(&[charge(1)]), GRANTED);
    assert!(scene.leases.holds_any());
    assert_eq!(scene.leases.all().len(), 1);
    assert!(!scene.leases.holds_any());
}
