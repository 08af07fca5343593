//! A node denies from memory, while other nodes charge the same key, hold units of it and give them back, in virtual time.

use std::cell::Cell;
use std::fmt::Write;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use redis::Value;

use super::*;
use crate::lease::{Leased, LeasedRequest};
use crate::not_leased;
use crate::reply::ScriptReply;
use tower_ratelimit_core::__internal::Charges;
use tower_ratelimit_core::__internal::{Fixed, Step, WithRule};
use tower_ratelimit_core::algorithm::{Algorithm, State};
use tower_ratelimit_core::clock::ManualClock;
use tower_ratelimit_core::decision::Outcome;
use tower_ratelimit_core::key::IntoKey;
use tower_ratelimit_core::policy::Policy;

#[derive(Clone, Copy, Debug)]
enum Act {
    /// The node that remembers has so many requests of this cost.
    Ask(u32, u32),
    /// Another node charges, is granted, spends or gives back so many units, as far as it can.
    Charge(u32),
    Hold(u32),
    Spend(u32),
    GiveBack(u32),
    /// Another node settles above the estimate.
    Settle(u32),
    /// So many microseconds pass.
    Pass(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => (1..4_u32, 1..4_u32).prop_map(|(cost, times)| Act::Ask(cost, times)),
        3 => (1..20_u32).prop_map(Act::Charge),
        3 => (1..20_u32).prop_map(Act::Hold),
        1 => (1..20_u32).prop_map(Act::Spend),
        1 => (1..20_u32).prop_map(Act::GiveBack),
        1 => (1..6_u32).prop_map(Act::Settle),
        4 => prop_oneof![0..2_000_u64, 0..40_000_u64, 0..2_000_000_u64].prop_map(Act::Pass),
    ];
    vec(act, 1..120)
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    let shapes = proptest::sample::select(vec![
        "fixed-window N/Ps",
        "anchored-window N/Ps",
        "sliding-window N/Ps",
        "sliding-log N/Ps",
        "sliding-slots N/Ps slots 5",
        "token-bucket N/Ps",
        "token-bucket-interval N/Ps burst 12",
        "gcra N/Ps burst 9",
    ]);
    let sizes = proptest::sample::select(vec![(8, 1), (20, 1), (20, 60), (1_000, 1), (5_000, 1)]);
    (shapes, sizes).prop_map(|(shape, (limit, period)): (&str, (u32, u32))| {
        let text = shape.replace('N', &limit.to_string());
        let text = text.replace('P', &period.to_string());
        text.parse().expect("it is an algorithm")
    })
}

/// Returns until when units last that are granted now.
struct BinEnd(State, Micros);

impl BinEnd {
    fn under<S: Step>(self, rule: &S) -> Micros {
        let Self(state, now) = self;
        rule.bin_end(&rule.read(state), now)
    }
}

impl WithRule for BinEnd {
    type Result = Micros;

    fn fixed(self, rule: impl Fixed) -> Micros {
        self.under(&rule)
    }

    fn long(self, rule: impl Step<Form = State>) -> Micros {
        self.under(&rule)
    }
}

const LIFE: Micros = Micros::new(1_000_000);

/// The server, and the units that other nodes hold.
struct World {
    algorithm: Algorithm,
    state: State,
    /// By their ends.
    classes: Vec<(Micros, u32)>,
    clock: ManualClock,
    leases: Leases,
    policies: [OpenedPolicy; 1],
}

impl World {
    fn new(algorithm: Algorithm) -> Self {
        let policies = [Policy::new("a", algorithm)];
        let clock = ManualClock::new();
        let node = NodeClock::new(Some(Arc::new(clock.clone())));
        let terms = not_leased::terms(&policies, LIFE);
        let small = SmallLimits::new(&policies);
        Self {
            leases: Leases::new(node, (terms, small), Arc::new(KeyEpochs::default())),
            policies: [OpenedPolicy::of(algorithm)],
            state: State::NEW,
            classes: Vec::new(),
            algorithm,
            clock,
        }
    }

    fn now(&self) -> Micros {
        use tower_ratelimit_core::clock::Clock;
        self.clock.now()
    }

    fn pass(&mut self, micros: u64) {
        self.clock.advance(Duration::from_micros(micros));
        let now = self.now();
        for (end, units) in self.classes.extract_if(.., |(end, _)| *end <= now) {
            let before = end.saturating_sub(Micros::new(1));
            self.state = self.algorithm.settle(self.state.clone(), before, units);
        }
    }

    /// Returns the numbers of the mark.
    fn mark(&self) -> Vec<u64> {
        let classes = self.classes.iter();
        let classes = classes.flat_map(|(end, units)| [end.get(), u64::from(*units)]);
        [LIFE.get(), 0, 0, 0, 0]
            .into_iter()
            .chain(classes)
            .collect()
    }

    /// Returns the outcome of a request that is not charged.
    fn outcome(&self, cost: u32) -> Outcome {
        let request = LeasedRequest {
            state: self.state.clone(),
            now: self.now(),
            cost,
            fits: false,
        };
        let leased = Leased::read(&self.mark()).expect("it is a mark");
        leased.outcome(&self.algorithm, request)
    }

    fn charge(&mut self, units: u32) {
        self.state = self.algorithm.settle(self.state.clone(), self.now(), units);
    }

    /// Takes units of those that nodes hold. Returns how many these are.
    fn take(&mut self, units: u32) -> u32 {
        let Some((_, left)) = self.classes.first_mut() else {
            return 0;
        };
        let taken = units.min(*left);
        *left -= taken;
        self.classes.retain(|(_, left)| *left > 0);
        taken
    }

    fn hold(&mut self, units: u32) {
        let now = self.now();
        let units = units.min(self.outcome(0).remaining());
        let end = self.algorithm.with_rule(BinEnd(self.state.clone(), now));
        let end = now.saturating_add(LIFE).min(end);
        if units > 0 && end > now {
            self.classes.push((end, units));
            self.classes.sort_unstable();
        }
    }

    /// Asks as the node does. Returns the wait that was told from memory.
    fn ask(&mut self, cost: u32) -> Option<Micros> {
        let charge = Charge::new(0, "ann".into_key(), cost);
        let mut outcomes = Outcomes::new(Micros::ZERO);
        let local = self.leases.decide(&[charge], &self.policies, &mut outcomes);
        if local.is_some() {
            let (_, denied) = outcomes.iter().next().expect("it is told");
            return Some(wait_of(denied));
        }
        let questions = self.leases.ask(&[charge]);
        let fits = self.outcome(cost).is_allowed();
        if fits {
            self.charge(cost);
        }
        let mut text = format!("{};{};0;0;0;0;", self.now().get(), u8::from(fits));
        let words = |words: &[u64]| {
            words
                .iter()
                .map(u64::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        };
        if !self.classes.is_empty() {
            write!(text, "~{}|", words(&self.mark())).expect("a string takes it");
        }
        text.push_str(&words(self.state.words()));
        let charges: Charges = questions.iter().map(|question| question.charge).collect();
        let value = Value::BulkString(text.into_bytes());
        let answer = ScriptReply::of_granting(value, &charges).expect("it is an answer");
        let mut outcomes = answer.outcomes(&self.policies);
        self.leases
            .answered(questions, &answer, &self.policies, &mut outcomes);
        None
    }
}

fn wait_of(outcome: &Outcome) -> Micros {
    if outcome.is_allowed() {
        return Micros::ZERO;
    }
    outcome.retry_micros().unwrap_or(Micros::LONGEST)
}

#[test]
fn no_wait_that_a_node_tells_of_a_leased_key_is_shorter_than_that_of_the_server() {
    let (announced, sent) = (Cell::new(0_u32), Cell::new(0_u32));
    proptest!(|(algorithm in algorithm(), is_settled in prop::bool::weighted(0.2), acts in acts())| {
        let mut world = World::new(algorithm);
        if is_settled {
            world.policies[0].note_settled();
        }
        for act in acts {
            match act {
                Act::Pass(micros) => world.pass(micros),
                Act::Charge(units) => {
                    let units = units.min(world.outcome(0).remaining());
                    world.charge(units);
                }
                Act::Hold(units) => world.hold(units),
                Act::Spend(units) => {
                    let taken = world.take(units);
                    world.charge(taken);
                }
                Act::GiveBack(units) => {
                    world.take(units);
                }
                Act::Settle(units) if is_settled => world.charge(units),
                Act::Settle(_) => {}
                Act::Ask(cost, times) => for _ in 0..times {
                    let exact = wait_of(&world.outcome(cost));
                    match world.ask(cost) {
                        Some(wait) => {
                            prop_assert!(wait >= exact, "{wait:?} was announced, and it is {exact:?}");
                            announced.set(announced.get() + 1);
                        }
                        None => sent.set(sent.get() + 1),
                    }
                }
            }
        }
    });
    assert!(
        announced.get() > 100,
        "only {} from memory, {} sent",
        announced.get(),
        sent.get()
    );
}

/// Ten times as many requests of cost 1 as the limit lets pass, for a second, while another node holds units. Returns how
/// many of 10,000 ask the server.
fn sent_under_a_flood(text: &str, is_settled: bool) -> usize {
    let mut world = World::new(text.parse().expect("it is an algorithm"));
    if is_settled {
        world.policies[0].note_settled();
    }
    world.hold(20);
    world.charge(world.outcome(0).remaining());
    let asks = |_: &u32| {
        world.pass(100);
        world.ask(1).is_none()
    };
    (0..10_000).filter(asks).count()
}

#[test]
fn a_node_asks_seldom_under_a_flood_unless_requests_are_settled() {
    for text in [
        "fixed-window 1000/1s",
        "sliding-window 1000/1s",
        "sliding-log 1000/1s",
        "sliding-slots 1000/1s slots 5",
        "token-bucket 60/60s",
        "token-bucket-interval 1000/1s",
        "gcra 1000/1s",
    ] {
        let sent = sent_under_a_flood(text, false);
        assert!(sent < 300, "{sent} under {text}");
    }
    assert!(sent_under_a_flood("fixed-window 1000/1s", true) < 300);
    assert_eq!(sent_under_a_flood("gcra 1000/1s", true), 10_000);
}
