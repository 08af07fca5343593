//! One node remembers what it was told, while another charges the same keys, in virtual time.

use std::cell::Cell;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use redis::Value;

use super::*;
use crate::opened::Charges;
use tower_ratelimit_core::__internal::KeyEpochs;
use tower_ratelimit_core::algorithm::{Algorithm, State};
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::key::IntoKey;

#[derive(Clone, Copy, Debug)]
enum Act {
    /// The node that remembers asks about a request of these costs.
    Ask(u32, u32),
    /// Another node asks about a request of these costs; a cost of 0 leaves the policy out.
    Elsewhere(u32, u32),
    /// Another node settles a request above its estimate, under the first or the second policy.
    Settle(usize, u32),
    /// Another node gives back.
    Refund(usize, u32),
    /// So many milliseconds pass.
    Pass(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => (0..4_u32, 0..4_u32).prop_map(|(one, two)| Act::Ask(one, two)),
        6 => (0..4_u32, 0..4_u32).prop_map(|(one, two)| Act::Elsewhere(one, two)),
        1 => (0..2_usize, 1..6_u32).prop_map(|(policy, units)| Act::Settle(policy, units)),
        1 => (0..2_usize, 1..6_u32).prop_map(|(policy, units)| Act::Refund(policy, units)),
        3 => (0..3_000_u64).prop_map(Act::Pass),
    ];
    vec(act, 1..80)
}

fn policy() -> impl Strategy<Value = Algorithm> {
    let shapes = proptest::sample::select(vec![
        "fixed-window N/Ps",
        "anchored-window N/Ps",
        "sliding-window N/Ps",
        "sliding-log N/Ps",
        "sliding-slots N/Ps slots 5",
        "token-bucket N/Ps",
        "token-bucket-interval N/Ps burst 6",
        "leaky-bucket N/Ps capacity 3",
        "gcra N/Ps burst 4",
        #[cfg(feature = "calendar")]
        "calendar-day N zone Europe/London",
    ]);
    let sizes = (1..6_u32, proptest::sample::select(vec![1_u32, 3, 10, 60]));
    (shapes, sizes).prop_map(|(shape, (limit, period))| {
        let text = shape
            .replace('N', &limit.to_string())
            .replace('P', &period.to_string());
        text.parse().expect("it is an algorithm")
    })
}

struct World {
    policies: Vec<OpenedPolicy>,
    states: Vec<State>,
    start: Instant,
    passed: Duration,
}

impl World {
    fn at(&self) -> Micros {
        Micros::new(1_704_067_200_123_456).saturating_add(self.passed.into())
    }

    fn now(&self) -> Instant {
        self.start + self.passed
    }

    fn charges(&self, costs: [u32; 2]) -> Vec<Charge> {
        let costs = costs.into_iter().take(self.policies.len()).enumerate();
        let charges = costs.filter(|(_, cost)| *cost > 0);
        charges
            .map(|(policy, cost)| Charge::new(policy, "ann".into_key(), cost))
            .collect()
    }

    /// Decides as the script does.
    fn decide(&mut self, charges: &[Charge]) -> ScriptReply {
        let at = self.at();
        let step = |charge: &Charge| {
            let algorithm = self.policies[charge.policy].algorithm;
            algorithm.step(self.states[charge.policy].clone(), at, charge.cost)
        };
        let steps: Vec<_> = charges.iter().map(step).collect();
        if steps.iter().all(|(outcome, _)| outcome.is_allowed()) {
            for (charge, (_, state)) in charges.iter().zip(&steps) {
                self.states[charge.policy] = state.clone();
            }
        }
        let mut text = at.get().to_string();
        for (charge, (outcome, _)) in charges.iter().zip(&steps) {
            let words = self.states[charge.policy].words();
            let words: Vec<_> = words.iter().map(u64::to_string).collect();
            let fits = u8::from(outcome.is_allowed());
            write!(text, ";{fits};0;{}", words.join(" ")).expect("a string takes it");
        }
        let charges = Charges::from_slice(charges);
        ScriptReply::read(Value::BulkString(text.into_bytes()), &charges).expect("it is an answer")
    }

    /// Returns the wait that the store tells now; none is the longest.
    fn wait(&self, charges: &[Charge]) -> Micros {
        let waits = charges.iter().map(|charge| {
            let algorithm = self.policies[charge.policy].algorithm;
            let state = self.states[charge.policy].clone();
            wait_of(&algorithm.step(state, self.at(), charge.cost).0)
        });
        waits.max().unwrap_or_default()
    }

    fn change(&mut self, policy: usize, change: impl Fn(&Algorithm, State, Micros) -> State) {
        let at = self.at();
        if let Some(state) = self.states.get_mut(policy) {
            *state = change(&self.policies[policy].algorithm, state.clone(), at);
        }
    }
}

fn wait_of(outcome: &tower_ratelimit_core::decision::Outcome) -> Micros {
    if outcome.is_allowed() {
        return Micros::ZERO;
    }
    outcome.retry_micros().unwrap_or(Micros::LONGEST)
}

#[test]
fn no_wait_told_from_memory_is_shorter_than_that_of_the_store_at_that_moment() {
    let replayed = Cell::new(0_u32);
    let cases = (vec(policy(), 1..=2), any::<bool>(), acts());
    proptest!(|((algorithms, are_settled, acts) in cases)| {
        let mut world = World {
            states: vec![State::NEW; algorithms.len()],
            policies: algorithms.iter().map(|it| OpenedPolicy::of(*it)).collect(),
            start: Instant::now(),
            passed: Duration::ZERO,
        };
        if are_settled {
            world.policies.iter().for_each(OpenedPolicy::note_settled);
        }
        let epochs = Arc::new(KeyEpochs::default());
        let denials = DenialCache::new(Duration::from_secs(3_600), epochs);
        for act in acts {
            match act {
                Act::Pass(millis) => world.passed += Duration::from_millis(millis),
                Act::Settle(policy, units) if are_settled => {
                    world.change(policy, |rule, state, at| rule.settle(state, at, units));
                }
                Act::Refund(policy, units) if are_settled => {
                    world.change(policy, |rule, state, at| rule.refund(state, at, units));
                }
                Act::Settle(..) | Act::Refund(..) => {}
                Act::Elsewhere(one, two) => {
                    let charges = world.charges([one, two]);
                    world.decide(&charges);
                }
                Act::Ask(one, two) => {
                    let charges = world.charges([one, two]);
                    let mut outcomes = Outcomes::new(Micros::ZERO);
                    let question = (&*charges, &*world.policies);
                    if denials.replay(question, world.now(), false, &mut outcomes) {
                        let wait = outcomes.iter().map(|(_, outcome)| wait_of(outcome)).max();
                        let (wait, exact) = (wait.unwrap_or_default(), world.wait(&charges));
                        prop_assert!(wait >= exact, "{wait:?} was announced, and it is {exact:?}");
                        replayed.set(replayed.get() + 1);
                        continue;
                    }
                    let sent = denials.send(&charges, world.now());
                    let answer = world.decide(&charges);
                    let outcomes = answer.outcomes(&world.policies);
                    let question = (&*charges, &*world.policies);
                    remember(&denials, question, (sent, world.now()), (&answer, &outcomes));
                }
            }
        }
    });
    assert!(
        replayed.get() > 100,
        "only {} were told from memory",
        replayed.get()
    );
}
