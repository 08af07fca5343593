//! Slots that are divided among tenants: one call, or one change of items, divides them as a store in memory does.
//!
//! A store in memory knows no end of a slot. It is told of each at the moment at which the other store forgets it. The clock never steps
//! back: after that, stores need not agree.

use std::cell::Cell;
use std::fmt::Debug;
use std::mem::take;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tokio::runtime::{Builder, Runtime};

use tower_ratelimit::clock::Clock;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::policy::{Fair, Rule as Policy};
use tower_ratelimit::store::{
    Amendment, Backend, Charge, MemoryBackend, MemoryStore, RedisBackend, RedisStoreBuilder,
    SharedStore, Slot, Store,
};
use tower_ratelimit::{AnchoredWindow, Concurrency, ManualClock, Micros, RedisStore, StoreError};

use crate::scene::shown;
use crate::support::items::Contested;
use crate::support::redis::{Cluster, Server};

/// For how long a slot lasts.
const LIFE: Duration = Duration::from_secs(60);

#[test]
fn a_server_divides_slots_as_memory_does() {
    let server = Server::start(&[]);
    let store = patient().open(server.url()).unwrap();
    println!("slots, on a server: {:?}", compare(&over(&store), 300));
}

#[test]
fn a_cluster_divides_slots_as_memory_does() {
    let cluster = Cluster::start();
    let urls = cluster.urls();
    let store = patient().open_cluster(urls.iter().map(String::as_str));
    let counts = compare(&over(&store.unwrap()), 150);
    println!("slots, on a cluster of three primaries: {counts:?}");
}

/// Each change loses against the one before it, and is applied again.
#[test]
fn items_divide_slots_as_memory_does() {
    let open = |case: &Case, clock: &ManualClock| {
        let store = SharedStore::new(Contested::new(clock)).slot_ttl(LIFE);
        // More tenants than ask are told apart in either store.
        let most_tenants = case.most_tenants.min(64);
        let case = Case {
            most_tenants,
            ..case.clone()
        };
        (store.open(&case.policies()).unwrap(), Ends::OfRequests)
    };
    println!("slots, in items: {:?}", compare(&open, 500));
}

/// Opens a backend over Redis.
fn over(store: &RedisStore) -> impl Fn(&Case, &ManualClock) -> (RedisBackend, Ends) {
    move |case: &Case, clock: &ManualClock| {
        let store = store.clone().clock(clock.clone());
        (store.open(&case.policies()).unwrap(), Ends::OfSlots)
    }
}

/// It has gone on beside the share that had no room for it.
#[test]
fn a_slot_that_is_held_beside_a_soft_share_is_given_back() {
    let case = Case {
        most_tenants: 2,
        is_soft: true,
        beside: Some(Beside::Slots(2)),
        ..divided(1, Duration::from_secs(1))
    };
    let counts = play(
        &case,
        &[
            (0, Verb::Acquire(ANN, 1)),
            (0, Verb::Acquire(ANN, 1)),
            (0, Verb::GiveBack(2)),
            (0, Verb::Acquire(ANN, 1)),
            (0, Verb::Acquire(ANN, 1)),
        ],
    );
    assert_eq!((counts.decisions, counts.denied), (4, 1));
}

/// Each tenant is visited in its turn, also behind one that stays.
#[test]
fn a_tenant_that_is_gone_wants_no_slots() {
    let counts = play(
        &divided(4, Duration::from_secs(1)),
        &[
            (0, Verb::Acquire(ANN, 1)),
            (0, Verb::Acquire(BEN, 2)),
            (0, Verb::GiveBack(1)),
            (1_500_000, Verb::Acquire(CLEO, 1)),
            (0, Verb::Acquire(CLEO, 2)),
        ],
    );
    assert_eq!((counts.decisions, counts.denied), (4, 0));
}

/// Ann has kept two of three slots idle for a second, of which her share would have been idle for a third of a second longer.
#[test]
fn a_tenant_that_has_kept_slots_idle_rests_to_the_microsecond() {
    let case = divided(3, Duration::from_secs(60));
    let until_rested = [
        (0, Verb::Acquire(BEN, 1)),
        (0, Verb::Acquire(ANN, 3)),
        (0, Verb::Acquire(BEN, 3)),
        (1_000_000, Verb::Acquire(ANN, 1)),
    ];
    for (rest, denied) in [(333_332, 3), (333_333, 4)] {
        // While she rests, no slots are kept for her.
        let then = [(rest, Verb::Acquire(ANN, 3)), (0, Verb::Acquire(BEN, 1))];
        let steps = [&until_rested[..], &then].concat();
        assert_eq!(play(&case, &steps).denied, denied, "after {rest}");
    }
}

/// Ann holds the only slot for 40 seconds, while ben waits. She had 50 seconds without it before, so she is not late.
#[test]
fn time_without_a_slot_counts_for_a_tenant() {
    let second = 1_000_000;
    let counts = play(
        &divided(1, Duration::from_secs(60)),
        &[
            (0, Verb::Acquire(ANN, 1)),
            (0, Verb::GiveBack(0)),
            (50 * second, Verb::Acquire(ANN, 1)),
            (0, Verb::Acquire(Asker { weight: 4, ..BEN }, 1)),
            (40 * second, Verb::GiveBack(0)),
            (0, Verb::Acquire(ANN, 1)),
        ],
    );
    assert_eq!((counts.decisions, counts.denied), (4, 1));
}

const ANN: Asker = Asker {
    tenant: 0,
    weight: 1,
};
const BEN: Asker = Asker { tenant: 1, ..ANN };
const CLEO: Asker = Asker { tenant: 2, ..ANN };

fn divided(limit: u32, active_for: Duration) -> Case {
    Case {
        limit,
        most_tenants: 1_024,
        active_for,
        is_soft: false,
        beside: None,
        start: 1_704_067_200_000_000,
        steps: Vec::new(),
    }
}

/// Plays these steps on a server and in memory.
fn play(case: &Case, steps: &[(u64, Verb)]) -> Counts {
    let server = Server::start(&[]);
    let store = patient().open(server.url()).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let mut pair = Pair::new(&over(&store), &runtime, case, 1);
    for (gap, verb) in steps {
        pair.advance(*gap);
        pair.play(verb).unwrap();
    }
    pair.counts
}

fn patient() -> RedisStoreBuilder {
    RedisStore::builder()
        .deadline(Duration::from_secs(60))
        .remember_denials_for(Duration::ZERO)
        .slot_ttl(LIFE)
}

#[derive(Clone, Debug)]
struct Case {
    limit: u32,
    most_tenants: u32,
    active_for: Duration,
    is_soft: bool,
    beside: Option<Beside>,
    start: u64,
    steps: Vec<(u64, Verb)>,
}

/// A policy that is charged with the divided one.
#[derive(Clone, Copy, Debug)]
enum Beside {
    Window(u32),
    /// Slots that are not divided.
    Slots(u32),
}

#[derive(Clone, Debug)]
enum Verb {
    Acquire(Asker, u32),
    /// Requests at once, which share calls and are decided in this order.
    Together(Vec<(Asker, u32)>),
    /// A request that takes no slots.
    Check(Asker, u32),
    Peek(Asker, u32),
    /// Gives back what the request at this place holds, if so many hold any.
    GiveBack(usize),
    Reset(Asker),
    Block(Asker, u64),
    Unblock(Asker),
}

#[derive(Clone, Copy, Debug)]
struct Asker {
    tenant: u8,
    weight: u8,
}

fn cases() -> impl Strategy<Value = Case> {
    let gap = prop_oneof![
        3 => Just(0),
        6 => 0..30_000_u64,
        4 => 0..400_000_u64,
        3 => 0..5_000_000_u64,
        1 => 0..100_000_000_u64,
        // Virtual time is counted anew.
        1 => 0..3_000_000_000_u64,
    ];
    let beside = option::of(prop_oneof![
        (1..200_u32).prop_map(Beside::Window),
        (1..30_u32).prop_map(Beside::Slots),
    ]);
    let settings = (
        prop_oneof![6 => 1..=20_u32, 1 => 1..=200_u32],
        select(vec![2, 3, 5, 1_024]),
        select(vec![1, 100, 1_000, 60_000]),
        prop_oneof![6 => Just(false), 1 => Just(true)],
    );
    let start = 1_704_067_200_000_000..7_258_118_400_000_000_u64;
    let steps = vec((gap, verb()), 20..=150);
    (settings, beside, start, steps).prop_map(|(settings, beside, start, steps)| {
        let (limit, most_tenants, active, is_soft) = settings;
        Case {
            limit,
            most_tenants,
            active_for: Duration::from_millis(active),
            is_soft,
            beside,
            start,
            steps,
        }
    })
}

fn verb() -> impl Strategy<Value = Verb> {
    let asker = || {
        let tenant = prop_oneof![3 => Just(0_u8), 3 => 0..4_u8, 1 => 0..12_u8];
        let weight = select(vec![1, 1, 4]);
        (tenant, weight).prop_map(|(tenant, weight)| Asker { tenant, weight })
    };
    let cost = || prop_oneof![1 => Just(0_u32), 12 => Just(1), 4 => 1..=6_u32, 1 => 1..=40_u32];
    prop_oneof![
        30 => (asker(), cost()).prop_map(|(asker, cost)| Verb::Acquire(asker, cost)),
        2 => vec((asker(), cost()), 2..30).prop_map(Verb::Together),
        2 => (asker(), cost()).prop_map(|(asker, cost)| Verb::Check(asker, cost)),
        4 => (asker(), cost()).prop_map(|(asker, cost)| Verb::Peek(asker, cost)),
        24 => (0..60_usize).prop_map(Verb::GiveBack),
        1 => asker().prop_map(Verb::Reset),
        1 => (asker(), 1..3_000_000_u64).prop_map(|(asker, time)| Verb::Block(asker, time)),
        1 => asker().prop_map(Verb::Unblock),
    ]
}

impl Case {
    fn policies(&self) -> Vec<Policy> {
        let fair = Fair::new()
            .most_tenants(self.most_tenants)
            .active_for(self.active_for);
        let divided = Policy::new("divided", Concurrency::of(self.limit)).fair(fair);
        let beside = self.beside.map(|beside| match beside {
            Beside::Window(limit) => Policy::new("beside", AnchoredWindow::per_minute(limit)),
            Beside::Slots(limit) => Policy::new("beside", Concurrency::of(limit)),
        });
        [divided].into_iter().chain(beside).collect()
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    decisions: u64,
    denied: u64,
    ended: u64,
}

fn compare<B: Backend>(open: &impl Fn(&Case, &ManualClock) -> (B, Ends), cases: u32) -> Counts {
    let config = Config {
        cases,
        max_shrink_iters: 2_000,
        failure_persistence: None,
        ..Config::default()
    };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (counts, number) = (Cell::new(Counts::default()), Cell::new(0));
    let played = TestRunner::new_with_rng(config, random).run(&self::cases(), |case| {
        number.set(number.get() + 1);
        let mut pair = Pair::new(open, &runtime, &case, number.get());
        pair.counts = counts.get();
        for (gap, verb) in &case.steps {
            pair.advance(*gap);
            pair.play(verb)?;
        }
        counts.set(pair.counts);
        Ok(())
    });
    played.unwrap_or_else(|failure| panic!("{failure}"));
    let counts = counts.get();
    let passed = counts.decisions - counts.denied;
    assert!(counts.denied > 1_000 && passed > 1_000, "{counts:?}");
    assert!(counts.ended > 100, "{counts:?}");
    counts
}

/// The same policies in both stores, with one clock.
struct Pair<'a, B> {
    shared: B,
    ends: Ends,
    memory: MemoryBackend,
    clock: ManualClock,
    runtime: &'a Runtime,
    case: &'a Case,
    number: u64,
    /// The charges that hold slots, in the order in which they were made, with the members of the set and their ends.
    held: Vec<Held>,
    counts: Counts,
}

/// In which order slots end that end at the same moment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// One by one, by the name of each.
    OfSlots,
    /// Together with the others of their request, by its number.
    OfRequests,
}

struct Held {
    charge: Charge,
    /// The end of each, or the last number if it has ended.
    ends: Vec<u64>,
}

impl<'a, B: Backend> Pair<'a, B> {
    fn new(
        open: &impl Fn(&Case, &ManualClock) -> (B, Ends),
        runtime: &'a Runtime,
        case: &'a Case,
        number: u64,
    ) -> Self {
        let clock = ManualClock::new();
        clock.set_micros(Micros::new(case.start));
        let policies = case.policies();
        let memory = MemoryStore::new().clock(clock.clone());
        let (shared, ends) = open(case, &clock);
        let pair = Self {
            shared,
            ends,
            memory: memory.open(&policies).unwrap(),
            clock,
            runtime,
            case,
            number,
            held: Vec::new(),
            counts: Counts::default(),
        };
        // The server learns the script, so that simultaneous calls are decided in their order.
        let nobody = Asker {
            tenant: 0,
            weight: 1,
        };
        let _ = pair.wait_for(pair.shared.peek(&pair.charges(nobody, 0, false)).wait());
        pair
    }

    fn now(&self) -> u64 {
        self.clock.now().get()
    }

    fn advance(&mut self, gap: u64) {
        let then = self.now() + gap;
        self.end_slots(then);
        self.clock.set_micros(Micros::new(then));
    }

    /// Tells the store in memory of the slots that end until then, each at its end.
    fn end_slots(&mut self, then: u64) {
        let mut ended: Vec<(u64, String, Charge)> = Vec::new();
        for held in &mut self.held {
            let number = held.charge.slot.unwrap().number();
            let name = |index: usize| match (self.ends, index) {
                (Ends::OfRequests, _) => format!("{number:020}"),
                (Ends::OfSlots, 0) => number.to_string(),
                (Ends::OfSlots, _) => format!("{number}.{}", index + 1),
            };
            let names = (0..held.charge.cost as usize).map(name);
            for (name, end) in names.zip(&mut held.ends) {
                if *end <= then {
                    // A tenant stands behind the name.
                    ended.push((take(end), name + " ", held.charge));
                }
            }
            held.ends
                .iter_mut()
                .filter(|end| **end == 0)
                .for_each(|end| *end = u64::MAX);
        }
        ended.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
        self.counts.ended += ended.len() as u64;
        let is_together = |one: &(u64, String, Charge), other: &(u64, String, Charge)| {
            let is_of_one = self.ends == Ends::OfSlots || one.1 == other.1;
            is_of_one
                && one.0 == other.0
                && one.2.policy == other.2.policy
                && one.2.key == other.2.key
        };
        // Each policy has slots of its own.
        for policy in [0, 1] {
            let of_policy = ended.iter().filter(|(.., charge)| charge.policy == policy);
            let of_policy: Vec<_> = of_policy.cloned().collect();
            for together in of_policy.chunk_by(is_together) {
                let (end, _, charge) = &together[0];
                self.clock.set_micros(Micros::new(*end));
                let released = Charge {
                    cost: u32::try_from(together.len()).unwrap(),
                    ..*charge
                };
                self.memory
                    .amend_now(&[released], Amendment::Release)
                    .unwrap();
            }
        }
        let lasts = |held: &Held| held.ends.iter().any(|end| *end < u64::MAX);
        self.held.retain(lasts);
    }

    fn charges(&self, asker: Asker, cost: u32, holds: bool) -> Vec<Charge> {
        let root = self.number.into_key();
        let key = match asker.tenant {
            // It has no tenant, which is one as well.
            11 => root,
            tenant => Key::branch(root, &[u64::from(tenant).into_key()]),
        };
        let mut divided = Charge::new(0, key, cost);
        divided.weight = asker.weight;
        if self.case.is_soft {
            divided = divided.soft();
        }
        let beside = self.case.beside.map(|_| Charge::new(1, root, cost.min(1)));
        let all = [divided].into_iter().chain(beside);
        let all = all.map(|charge| {
            let is_of_slots =
                charge.policy == 0 || matches!(self.case.beside, Some(Beside::Slots(_)));
            if holds && is_of_slots {
                charge.holding(Slot::unique())
            } else {
                charge
            }
        });
        all.collect()
    }

    fn play(&mut self, verb: &Verb) -> Result<(), TestCaseError> {
        match *verb {
            Verb::Acquire(asker, cost) => {
                let charges = self.charges(asker, cost, true);
                let told = self.wait_for(self.shared.decide(&charges).wait());
                self.same_decision(&charges, &told)
            }
            Verb::Together(ref asked) => {
                let asked = asked
                    .iter()
                    .map(|&(asker, cost)| self.charges(asker, cost, true));
                let asked: Vec<_> = asked.collect();
                let told: Vec<Outcomes> = self.runtime.block_on(async {
                    let replies = asked.iter().map(|charges| {
                        let reply = self.shared.decide(charges);
                        tokio::spawn(reply.wait())
                    });
                    let replies: Vec<_> = replies.collect();
                    let mut told = Vec::new();
                    for reply in replies {
                        told.push(reply.await.unwrap().unwrap());
                    }
                    told
                });
                for (charges, told) in asked.iter().zip(told) {
                    self.same_decision(charges, &told)?;
                }
                Ok(())
            }
            Verb::Check(asker, cost) => {
                let charges = self.charges(asker, cost, false);
                let told = self.wait_for(self.shared.decide(&charges).wait());
                self.same_decision(&charges, &told)
            }
            Verb::Peek(asker, cost) => {
                let charges = self.charges(asker, cost, false);
                let told = self.wait_for(self.shared.peek(&charges).wait());
                let expected = self.memory.peek_now(&charges);
                self.same(&told, &expected)
            }
            Verb::GiveBack(place) => {
                if place < self.held.len() {
                    let Held { charge, ends } = self.held.remove(place);
                    let left = ends.iter().filter(|end| **end < u64::MAX).count();
                    let released = self.shared.amend(&[charge], Amendment::Release);
                    self.wait_for(released.wait());
                    let left = Charge {
                        cost: u32::try_from(left).unwrap(),
                        ..charge
                    };
                    self.memory.amend_now(&[left], Amendment::Release).unwrap();
                }
                Ok(())
            }
            Verb::Reset(asker) => self.amend(asker, Amendment::Reset),
            Verb::Block(asker, time) => self.amend(asker, Amendment::Block(Micros::new(time))),
            Verb::Unblock(asker) => self.amend(asker, Amendment::Unblock),
        }
    }

    fn amend(&self, asker: Asker, amendment: Amendment) -> Result<(), TestCaseError> {
        let charges = &self.charges(asker, 0, false)[..1];
        let told = self.wait_for(self.shared.amend(charges, amendment).wait());
        let expected = self.memory.amend_now(charges, amendment).unwrap();
        if amendment != Amendment::Reset {
            prop_assert_eq!(told, expected);
        }
        Ok(())
    }

    fn wait_for<T: Debug>(&self, answer: impl Future<Output = Result<T, StoreError>>) -> T {
        let answer = self.runtime.block_on(answer);
        answer.unwrap_or_else(|error| panic!("{error:?}"))
    }

    fn same_decision(&mut self, charges: &[Charge], told: &Outcomes) -> Result<(), TestCaseError> {
        let expected = self.memory.charge_now(charges);
        self.same(told, &expected)?;
        let ends = self.now() + Micros::from(LIFE).get();
        for charge in charges.iter().filter(|charge| charge.slot.is_some()) {
            let mut outcomes = expected.iter();
            let outcome = outcomes.find(|(policy, _)| *policy == charge.policy);
            let takes = expected.is_allowed() && outcome.unwrap().1.is_allowed();
            if takes && charge.cost > 0 {
                self.held.push(Held {
                    charge: *charge,
                    ends: vec![ends; charge.cost as usize],
                });
            }
        }
        Ok(())
    }

    /// Compares two decisions by their debug forms, which show every number and the time.
    fn same(&mut self, shared: &Outcomes, in_memory: &Outcomes) -> Result<(), TestCaseError> {
        prop_assert_eq!(shown(shared), shown(in_memory));
        self.counts.decisions += 1;
        self.counts.denied += u64::from(!in_memory.is_allowed());
        Ok(())
    }
}
