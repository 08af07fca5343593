//! Guarantees in Redis and in items: one call keeps what a level has of the level above, as a store in memory does.

use std::cell::Cell;
use std::fmt::Debug;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tower_ratelimit::algorithm::Limit;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::policy::{Fair, Penalty, Rule};
use tower_ratelimit::store::{
    Amendment, Backend, Charge, Lease, MemoryBackend, SharedStore, Store, Taken,
};
use tower_ratelimit::{
    Algorithm, AnchoredWindow, Decision, FixedWindow, Gcra, LeakyBucket, Limiter, ManualClock,
    MemoryStore, Micros, Policy, Quota, RedisStore, StoreError, TokenBucket,
};

use crate::scene::{
    PATIENCE, ask, calls, cluster_store, daily, patient, shown, store, without_a_standby,
};
use crate::support::items::Contested;
use crate::support::redis::{Cluster, Server};
use crate::without::lose;

#[test]
fn a_server_keeps_guarantees_as_memory_does() {
    let server = Server::start(&[]);
    let counts = compare(&over_redis(&store(&server)), 150, ALL);
    println!("guarantees, on a server: {counts:?}");
}

#[test]
fn a_cluster_keeps_guarantees_as_memory_does() {
    let cluster = Cluster::start();
    let without_aliens = Drawn {
        has_aliens: false,
        ..ALL
    };
    let counts = compare(&over_redis(&cluster_store(&cluster)), 150, without_aliens);
    println!("guarantees, on a cluster of three primaries: {counts:?}");
}

/// Each change of the items loses once, and is applied again.
#[test]
fn items_keep_guarantees_as_memory_does() {
    let counts = compare(
        &|policies, clock| {
            let store = SharedStore::new(Contested::new(clock));
            Box::new(store.open(policies).unwrap())
        },
        500,
        Drawn {
            is_forgotten: true,
            ..ALL
        },
    );
    println!("guarantees, in items: {counts:?}");
}

/// What is drawn beside requests.
#[derive(Clone, Copy)]
struct Drawn {
    /// Teams of other roots.
    has_aliens: bool,
    /// Whether what says nothing is forgotten with the next write, as in items: a state that is as good as new under the limit of its last
    /// charge, and tenants of which none is active. A store in memory still has them where a request has a lower limit, or only looks.
    is_forgotten: bool,
}

const ALL: Drawn = Drawn {
    has_aliens: true,
    is_forgotten: false,
};

/// Opens a store with this clock.
type Open<'a> = &'a dyn Fn(&[Rule], &ManualClock) -> Box<dyn Backend>;

fn over_redis(store: &RedisStore) -> impl Fn(&[Rule], &ManualClock) -> Box<dyn Backend> {
    move |policies, clock| {
        let store = store.clone().clock(clock.clone());
        Box::new(store.open(policies).unwrap())
    }
}

/// A tree, and what is asked of it.
#[derive(Clone, Debug)]
struct Case {
    period: Duration,
    /// From the root down.
    levels: Vec<Level>,
    /// A policy that is charged with the tree.
    beside: Option<Beside>,
    start: u64,
    steps: Vec<(Gap, Verb)>,
}

#[derive(Clone, Debug)]
struct Level {
    algorithm: Algorithm,
    /// What it has of the level above.
    guaranteed: u32,
    is_soft: bool,
    penalty: Option<Extended>,
}

/// Whether refusals extend the blocks of a penalty.
type Extended = bool;

#[derive(Clone, Copy, Debug)]
enum Beside {
    Divided,
    Window(u32),
}

#[derive(Clone, Copy, Debug)]
enum Gap {
    Micros(u64),
    /// In thousandths of the period.
    OfPeriod(u64),
}

#[derive(Clone, Debug)]
enum Verb {
    Check(Asker, Cost),
    Peek(Asker, Cost),
    TakeUpTo(Asker, Cost),
    /// Concurrent requests, which share calls and are decided in this order.
    Together(Vec<(Asker, Cost)>),
    Refund(Asker, Cost),
    Settle(Asker, Cost),
    /// Takes back the last charge that was made, or adds to it.
    TakeBack(Cost),
    Add(Cost),
    Reset(Asker, usize),
    Block(Asker, usize, u64),
    Unblock(Asker, usize),
    Override(Asker, usize, Portion),
    EndOverride(Asker, usize),
}

#[derive(Clone, Copy, Debug)]
struct Asker {
    /// No team, or one of these.
    team: Option<u8>,
    user: u8,
    /// Whether the team is one of another root.
    is_alien: bool,
    /// The limit of the root for this request, if it is not that of the policy.
    limit: Option<Portion>,
}

#[derive(Clone, Copy, Debug)]
enum Cost {
    Units(u32),
    OfLimit(Portion),
}

/// Thousandths.
type Portion = u32;

fn part_of(limit: u32, portion: Portion) -> u32 {
    u32::try_from(u64::from(limit) * u64::from(portion) / 1_000).unwrap()
}

fn cases(drawn: Drawn) -> impl Strategy<Value = Case> {
    let start = 1_704_067_200_000_000..7_258_118_400_000_000_u64;
    let period = prop_oneof![
        4 => Just(1),
        2 => Just(60),
        1 => Just(86_400),
        1 => Just(365 * 86_400),
        1 => 1..100_000_u64,
    ];
    let beside = option::of(prop_oneof![
        Just(Beside::Divided),
        (1..200_u32).prop_map(Beside::Window),
    ]);
    let gap = prop_oneof![
        3 => Just(Gap::Micros(0)),
        4 => (0..30_000_u64).prop_map(Gap::Micros),
        6 => (0..100_u64).prop_map(Gap::OfPeriod),
        1 => (0..3_000_u64).prop_map(Gap::OfPeriod),
    ];
    let steps = vec((gap, verb(drawn)), 20..=120);
    let of_period = (period, 2..=3_usize).prop_flat_map(|(seconds, depth)| {
        let period = Duration::from_secs(seconds);
        (Just(period), levels(period, depth))
    });
    (of_period, beside, start, steps).prop_map(|((period, levels), beside, start, steps)| Case {
        period,
        levels,
        beside,
        start,
        steps,
    })
}

/// Draws levels of which each has a guarantee of the one above that it can keep.
fn levels(period: Duration, depth: usize) -> impl Strategy<Value = Vec<Level>> {
    let limit = prop_oneof![4 => 1..=60_u32, 1 => 1..=4_000_000_000_u32];
    let level = (
        0..4_usize,
        prop_oneof![1 => Just(1_000), 3 => 1..=1_000_u32],
        prop_oneof![1 => Just(1_000), 2 => 1..=3_000_u32],
        prop_oneof![
            6 => Just((false, None)),
            1 => Just((true, None)),
            1 => any::<bool>().prop_map(|extended| (false, Some(extended))),
        ],
    );
    (limit, vec(level, depth)).prop_map(move |(limit, drawn)| {
        let mut quota = limit;
        // The limits of levels further up are larger; each guarantees a part of its own.
        let mut levels: Vec<Level> = Vec::new();
        let mut guarantees: Vec<u32> = drawn
            .iter()
            .map(|(_, portion, ..)| {
                let guaranteed = part_of(quota, *portion).max(1);
                // The next level has a limit between its guarantee and that of the level above.
                quota = guaranteed + (quota - guaranteed) / 2;
                guaranteed
            })
            .collect();
        guarantees.pop();
        guarantees.insert(0, 0);
        let mut quota = limit;
        for (place, (kind, _, burst, (is_soft, penalty))) in drawn.iter().enumerate() {
            if place > 0 {
                quota = guarantees[place] + (quota - guarantees[place]) / 2;
            }
            let below = guarantees.get(place + 1).copied().unwrap_or(quota);
            let burst = u64::from(quota) * u64::from(*burst) / 1_000;
            let burst = u32::try_from(burst.min(4_000_000_000)).unwrap();
            let burst = burst.max(quota.div_ceil(below));
            levels.push(Level {
                algorithm: algorithm(*kind, Quota::new(quota, period).unwrap(), burst),
                guaranteed: guarantees[place],
                is_soft: *is_soft,
                penalty: *penalty,
            });
        }
        levels
    })
}

fn algorithm(kind: usize, quota: Quota, burst: u32) -> Algorithm {
    match kind {
        0 => FixedWindow::of(quota).into(),
        1 => TokenBucket::of(quota).burst(burst).into(),
        2 => Gcra::of(quota).burst(burst).into(),
        _ => LeakyBucket::of(quota).capacity(burst).into(),
    }
}

fn verb(drawn: Drawn) -> impl Strategy<Value = Verb> {
    let asker = move || {
        let team = prop_oneof![8 => (0..4_u8).prop_map(Some), 2 => (0..70_u8).prop_map(Some), 1 => Just(None)];
        let user = prop_oneof![3 => 0..2_u8, 1 => 0..9_u8];
        let is_alien = prop_oneof![15 => Just(false), 1 => Just(drawn.has_aliens)];
        let limit = prop_oneof![12 => Just(None), u32::from(!drawn.is_forgotten) => select(vec![100, 500, 1_500]).prop_map(Some)];
        (team, user, is_alien, limit).prop_map(|(team, user, is_alien, limit)| Asker {
            team,
            user,
            is_alien,
            limit,
        })
    };
    let cost = || {
        prop_oneof![
            1 => Just(Cost::Units(0)),
            8 => Just(Cost::Units(1)),
            3 => (1..=8_u32).prop_map(Cost::Units),
            6 => (0..=300_u32).prop_map(Cost::OfLimit),
            1 => (0..=2_000_u32).prop_map(Cost::OfLimit),
        ]
    };
    let level = || 0..3_usize;
    prop_oneof![
        30 => (asker(), cost()).prop_map(|(asker, cost)| Verb::Check(asker, cost)),
        4 => (asker(), cost()).prop_map(|(asker, cost)| Verb::Peek(asker, cost)),
        4 => (asker(), cost()).prop_map(|(asker, cost)| Verb::TakeUpTo(asker, cost)),
        3 => vec((asker(), cost()), 2..30).prop_map(Verb::Together),
        2 => (asker(), cost()).prop_map(|(asker, cost)| Verb::Refund(asker, cost)),
        2 => (asker(), cost()).prop_map(|(asker, cost)| Verb::Settle(asker, cost)),
        6 => cost().prop_map(Verb::TakeBack),
        3 => cost().prop_map(Verb::Add),
        1 => (asker(), level()).prop_map(|(asker, level)| Verb::Reset(asker, level)),
        1 => (asker(), level(), 1..3_000_000_u64).prop_map(|(asker, level, time)| Verb::Block(asker, level, time)),
        1 => (asker(), level()).prop_map(|(asker, level)| Verb::Unblock(asker, level)),
        1 => (asker(), level(), 100..2_000_u32).prop_map(|(asker, level, portion)| Verb::Override(asker, level, portion)),
        1 => (asker(), level()).prop_map(|(asker, level)| Verb::EndOverride(asker, level)),
    ]
}

impl Case {
    fn policies(&self) -> Vec<Rule> {
        let names = ["org", "team", "user"];
        let levels = self.levels.iter().enumerate();
        let levels = levels.map(|(place, level)| {
            let mut policy: Policy = Policy::new(names[place], level.algorithm);
            if place > 0 {
                let guaranteed = Quota::new(level.guaranteed, self.period).unwrap();
                policy = policy.below(names[place - 1]).guaranteed(guaranteed);
            }
            if let Some(is_extended) = level.penalty {
                let penalty = Penalty::after(8, self.period / 10).block(self.period / 2);
                policy = policy.penalty(if is_extended {
                    penalty.extended_by_refusals()
                } else {
                    penalty
                });
            }
            Rule::from(policy)
        });
        let beside = self.beside.map(|beside| match beside {
            Beside::Divided => {
                let bucket = TokenBucket::per_second(20);
                Policy::new("beside", bucket).fair(Fair::new())
            }
            Beside::Window(limit) => Policy::new("beside", AnchoredWindow::per_minute(limit)),
        });
        let beside = beside.map(|policy: Policy| Rule::from(policy));
        levels.chain(beside).collect()
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    decisions: u64,
    denied: u64,
}

fn compare(open: Open<'_>, cases: u32, drawn: Drawn) -> Counts {
    let config = Config {
        cases,
        max_shrink_iters: 300,
        failure_persistence: None,
        ..Config::default()
    };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (counts, number) = (Cell::new(Counts::default()), Cell::new(0));
    let cases = self::cases(drawn);
    let played = TestRunner::new_with_rng(config, random).run(&cases, |case| {
        number.set(number.get() + 1);
        let mut pair = Pair::new(open, &runtime, &case, number.get());
        pair.counts = counts.get();
        for (gap, verb) in &case.steps {
            pair.advance(*gap);
            if drawn.is_forgotten {
                pair.ask_for_a_tenant()?;
            }
            let played = pair.play(verb);
            played.map_err(|error| TestCaseError::fail(format!("at {verb:?}: {error}")))?;
        }
        counts.set(pair.counts);
        Ok(())
    });
    played.unwrap_or_else(|failure| panic!("{failure}"));
    let counts = counts.get();
    assert!(
        counts.denied > 1_000 && counts.decisions > counts.denied + 1_000,
        "{counts:?}"
    );
    counts
}

/// The same policies in both stores, with one clock.
struct Pair<'a> {
    store: Box<dyn Backend>,
    memory: MemoryBackend,
    clock: ManualClock,
    runtime: &'a Runtime,
    case: &'a Case,
    number: u64,
    last: Option<(Vec<Charge>, Outcomes)>,
    counts: Counts,
}

impl<'a> Pair<'a> {
    fn new(open: Open<'_>, runtime: &'a Runtime, case: &'a Case, number: u64) -> Self {
        let clock = ManualClock::new();
        clock.set_micros(Micros::new(case.start));
        let policies = case.policies();
        let builder = Limiter::builder().policies(case.policies());
        if let Err(error) = builder.build_local() {
            // A penalty may block a client that waits as told, which is no matter here.
            assert_eq!(error.field(), "refusals");
        }
        let memory = MemoryStore::new().clock(clock.clone());
        let memory = memory.open(&policies).unwrap();
        let pair = Self {
            store: open(&policies, &clock),
            memory,
            clock,
            runtime,
            case,
            number,
            last: None,
            counts: Counts::default(),
        };
        // The server learns the script, so that simultaneous calls are decided in their order.
        let asker = Asker {
            team: None,
            user: 0,
            is_alien: false,
            limit: None,
        };
        let charges = pair.charges(asker, Cost::Units(0));
        let _ = pair.wait_for(pair.store.peek(&charges).wait());
        pair
    }

    fn advance(&self, gap: Gap) {
        let period = u64::try_from(self.case.period.as_micros()).unwrap();
        match gap {
            Gap::Micros(micros) => self.clock.advance(Duration::from_micros(micros)),
            Gap::OfPeriod(part) => {
                let micros = u128::from(period) * u128::from(part) / 1_000;
                let micros = u64::try_from(micros).unwrap() + part;
                self.clock.advance(Duration::from_micros(micros));
            }
        }
    }

    fn root(&self, is_alien: bool) -> Key {
        if is_alien {
            format!("alien of {}", self.number).as_str().into_key()
        } else {
            self.number.into_key()
        }
    }

    /// Returns the key of each level that has one.
    fn keys(&self, asker: Asker) -> Vec<Key> {
        let mut keys = vec![self.root(false)];
        if let Some(team) = asker.team {
            let team = u64::from(team).into_key();
            let root = self.root(asker.is_alien);
            keys.push(Key::branch(root, &[team]));
            keys.push(Key::branch(root, &[team, u64::from(asker.user).into_key()]));
        }
        keys.truncate(self.case.levels.len());
        keys
    }

    fn units(&self, cost: Cost) -> u32 {
        match cost {
            Cost::Units(units) => units,
            Cost::OfLimit(portion) => {
                part_of(self.case.levels[0].algorithm.limit().unwrap() / 2, portion)
            }
        }
    }

    fn limit(&self, level: usize, portion: Portion) -> Limit {
        let limits = self.case.levels[level].algorithm.limits().unwrap();
        let of = |number| part_of(number / 2, portion).max(1);
        if limits.quota() == limits.size() {
            Limit::new(of(limits.quota()), of(limits.quota()))
        } else {
            Limit::new(of(limits.quota()), of(limits.size()))
        }
    }

    fn charges(&self, asker: Asker, cost: Cost) -> Vec<Charge> {
        let units = self.units(cost);
        let keys = self.keys(asker);
        let levels = keys.iter().enumerate().map(|(level, key)| {
            let charge = Charge::new(level, *key, units);
            let charge = match asker.limit.filter(|_| level == 0) {
                Some(portion) => charge.under(self.limit(0, portion)),
                None => charge,
            };
            if self.case.levels[level].is_soft {
                charge.soft()
            } else {
                charge
            }
        });
        let place = self.case.levels.len();
        let beside = self.case.beside.map(|beside| match beside {
            Beside::Divided => {
                let tenant = u64::from(asker.user).into_key();
                Charge::new(
                    place,
                    Key::branch(self.root(false), &[tenant]),
                    units.min(20),
                )
            }
            Beside::Window(_) => Charge::new(place, self.root(false), units.min(1)),
        });
        levels.chain(beside).collect()
    }

    /// Returns the charge of a level, or of the lowest one that has a key.
    fn at_level(&self, asker: Asker, level: usize) -> Vec<Charge> {
        let keys = self.keys(asker);
        let level = level.min(keys.len() - 1);
        vec![Charge::new(level, keys[level], 0)]
    }

    /// Asks for nothing, so that the tenants of this moment are the same in both stores.
    fn ask_for_a_tenant(&mut self) -> Result<(), TestCaseError> {
        if !matches!(self.case.beside, Some(Beside::Divided)) {
            return Ok(());
        }
        let tenant = Key::branch(self.root(false), &[0_u64.into_key()]);
        let charges = [Charge::new(self.case.levels.len(), tenant, 0)];
        let told = self.wait_for(self.store.decide(&charges).wait());
        let expected = self.memory.charge_now(&charges);
        self.same(&told, &expected)
    }

    fn play(&mut self, verb: &Verb) -> Result<(), TestCaseError> {
        match *verb {
            Verb::Check(asker, cost) => {
                let charges = self.charges(asker, cost);
                let told = self.wait_for(self.store.decide(&charges).wait());
                self.same_decision(&charges, &told)
            }
            Verb::Peek(asker, cost) => {
                let charges = self.charges(asker, cost);
                let told = self.wait_for(self.store.peek(&charges).wait());
                let expected = self.memory.peek_now(&charges);
                self.same(&told, &expected)
            }
            Verb::TakeUpTo(asker, cost) => {
                let charges = self.charges(asker, cost);
                let (taken, told) = self.wait_for(self.store.acquire_up_to(&charges).wait());
                let expected = self.memory.acquire_up_to(&charges).wait();
                let (expected, in_memory) = self.wait_for(expected);
                prop_assert_eq!(taken, expected);
                self.same(&told, &in_memory)
            }
            Verb::Together(ref asked) => {
                let asked = asked
                    .iter()
                    .map(|&(asker, cost)| self.charges(asker, cost))
                    .collect::<Vec<_>>();
                let told: Vec<Outcomes> = self.runtime.block_on(async {
                    let replies = asked.iter().map(|charges| {
                        let reply = self.store.decide(charges);
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
            Verb::Refund(asker, cost) => {
                self.amend(&self.charges(asker, cost), |_| Amendment::Refund)
            }
            Verb::Settle(asker, cost) => {
                self.amend(&self.charges(asker, cost), |_| Amendment::Settle)
            }
            Verb::TakeBack(cost) => self.amend_last(cost, Amendment::TakeBack),
            Verb::Add(cost) => self.amend_last(cost, Amendment::Add),
            Verb::Reset(asker, level) => {
                self.amend(&self.at_level(asker, level), |_| Amendment::Reset)
            }
            Verb::Block(asker, level, time) => {
                let charges = self.at_level(asker, level);
                self.amend(&charges, |_| Amendment::Block(Micros::new(time)))
            }
            Verb::Unblock(asker, level) => {
                self.amend(&self.at_level(asker, level), |_| Amendment::Unblock)
            }
            Verb::Override(asker, level, portion) => {
                let charges = self.at_level(asker, level);
                let limit = self.limit(charges[0].policy(), portion);
                let time = Micros::from(self.case.period * 3);
                self.amend(&charges, |_| Amendment::Override(limit, time))
            }
            Verb::EndOverride(asker, level) => {
                self.amend(&self.at_level(asker, level), |_| Amendment::EndOverride)
            }
        }
    }

    /// Changes what was charged last, each policy by itself, beside the keys to which it guarantees something.
    fn amend_last(
        &mut self,
        cost: Cost,
        amendment: impl Fn(Taken) -> Amendment,
    ) -> Result<(), TestCaseError> {
        let Some((charges, outcomes)) = self.last.take() else {
            return Ok(());
        };
        for (place, charge) in charges.iter().enumerate() {
            let Some(level) = self.case.levels.get(charge.policy()) else {
                continue;
            };
            let taken = Taken::of(charge, &level.algorithm, &outcomes);
            let units = self.units(cost).min(charge.cost());
            let mut amended = vec![Charge::new(charge.policy(), charge.key(), units)];
            if let Some(limit) = charge.limit() {
                amended[0] = amended[0].under(limit);
            }
            amended.extend(charges.get(place + 1).map(|child| child.at_no_cost()));
            self.amend(&amended, |_| amendment(taken))?;
        }
        Ok(())
    }

    fn amend(
        &self,
        charges: &[Charge],
        amendment: impl Fn(&Charge) -> Amendment,
    ) -> Result<(), TestCaseError> {
        let amendment = amendment(&charges[0]);
        let told = self.wait_for(self.store.amend(charges, amendment).wait());
        let expected = self.wait_for(self.memory.amend(charges, amendment).wait());
        prop_assert_eq!(told, expected);
        Ok(())
    }

    fn wait_for<T: Debug>(&self, answer: impl Future<Output = Result<T, StoreError>>) -> T {
        let answer = self.runtime.block_on(answer);
        answer.unwrap_or_else(|error| panic!("{error:?}"))
    }

    fn same_decision(&mut self, charges: &[Charge], told: &Outcomes) -> Result<(), TestCaseError> {
        let expected = self.memory.charge_now(charges);
        if expected.is_allowed() {
            self.last = Some((charges.to_vec(), expected.clone()));
        }
        self.same(told, &expected)
    }

    /// Compares two decisions by their debug forms, which show every number and the time.
    fn same(&mut self, told: &Outcomes, in_memory: &Outcomes) -> Result<(), TestCaseError> {
        prop_assert_eq!(shown(told), shown(in_memory));
        self.counts.decisions += 1;
        self.counts.denied += u64::from(!in_memory.is_allowed());
        Ok(())
    }
}

fn team(name: &str) -> Key {
    Key::branch("acme", &[name.into_key()])
}

fn plain_tree(org: u32) -> [Policy; 2] {
    let level = |name| without_a_standby(Policy::new(name, FixedWindow::per_day(org)));
    [level("org"), level("team").below("org")]
}

fn tree(org: u32, guaranteed: u32) -> [Policy; 2] {
    let [org, low] = plain_tree(org);
    [org, low.guaranteed(Quota::per_day(guaranteed))]
}

fn over(store: &RedisStore, policies: [Policy; 2]) -> Limiter {
    let builder = Limiter::builder().policies(policies);
    builder.store(store.clone()).build().unwrap()
}

async fn check(limiter: &Limiter, key: Key, cost: u32) -> Decision {
    let request = limiter.named([("org", key.root(), cost), ("team", key, cost)]);
    request.unwrap().check().await.unwrap()
}

async fn passes(limiter: &Limiter, key: Key, cost: u32) -> bool {
    check(limiter, key, cost).await.is_allowed()
}

async fn take(limiter: &Limiter, key: Key) -> u32 {
    let mut taken = 0;
    while passes(limiter, key, 1).await {
        taken += 1;
    }
    taken
}

#[tokio::test]
async fn one_call_keeps_the_guarantees_of_all_nodes() {
    let server = Server::start(&[]);
    let nodes = [(); 2].map(|()| over(&store(&server), tree(20, 8)));
    let before = calls(&server, "evalsha") + calls(&server, "eval");
    assert!(passes(&nodes[0], team("blue"), 1).await);
    assert_eq!(take(&nodes[1], team("red")).await, 12, "7 are kept");
    assert_eq!(take(&nodes[0], team("blue")).await, 7);
    let calls = calls(&server, "evalsha") + calls(&server, "eval");
    // One for each request, and one that the server did not know.
    assert_eq!(calls, before + 1 + 13 + 8 + 1);
}

/// As after a reload of limits.
#[tokio::test]
async fn a_guarantee_that_comes_or_goes_keeps_what_was_used() {
    let server = Server::start(&[]);
    let store = store(&server);
    let guaranteed = over(&store, tree(10, 3));
    let without = over(&store, plain_tree(10));
    assert!(passes(&without, team("blue"), 1).await);
    // From now on the guarantee counts what is used of it: two of its three units are kept.
    assert!(passes(&guaranteed, team("blue"), 1).await);
    assert_eq!(take(&guaranteed, team("red")).await, 6);
    assert_eq!(take(&without, team("red")).await, 2);
    assert!(!passes(&without, team("blue"), 1).await);
}

#[tokio::test]
async fn every_root_has_children_of_its_own_in_its_slot() {
    let cluster = Cluster::start();
    let store = cluster_store(&cluster);
    let limiter = over(&store, tree(10, 4));
    let policies = tree(10, 4);
    // Nodes that are slower to tell their slots than they have time fail a request, and are asked again by the next.
    let told = async || {
        let blue = [("org", team("blue").root(), 0), ("team", team("blue"), 0)];
        limiter.named(blue).unwrap().peek().await.is_ok()
    };
    let all_told = timeout(PATIENCE, async { while !told().await {} }).await;
    all_told.expect("the cluster answers");
    for org in ["acme", "other", "third", "fourth"] {
        let key = |name: &str| Key::branch(org, &[name.into_key()]);
        assert!(passes(&limiter, key("blue"), 1).await, "{org}");
        assert_eq!(take(&limiter, key("red")).await, 6, "{org}");
        let state = store.store_key(&policies[0], key("red").root());
        let slots = [state.clone(), format!("{state}:children")]
            .map(|name| ask::<u64>(&cluster.nodes[0], &["CLUSTER", "KEYSLOT", &name]));
        assert_eq!(slots[0], slots[1], "{org}");
        limiter.reset(key("red").root()).await.unwrap();
        assert_eq!(
            take(&limiter, key("green")).await,
            10,
            "{org}: nobody else is active"
        );
    }
}

/// What a request settles at its end is its team's.
#[tokio::test]
async fn what_is_settled_is_of_the_key_that_has_asked() {
    let server = Server::start(&[]);
    let store = store(&server);
    let limiter = over(&store, tree(10, 4));
    let charges = |name: &str, cost| [("org", team(name).root(), cost), ("team", team(name), cost)];
    let left_for_red = async || {
        let peeked = limiter.named(charges("red", 0)).unwrap().peek().await;
        let decision = peeked.unwrap();
        decision.policies().next().unwrap().1.remaining()
    };
    let reserved = limiter.named(charges("blue", 4)).unwrap().reserve().await;
    assert_eq!(left_for_red().await, 6);
    reserved.unwrap().settle(1);
    // It waits for what has begun.
    store.give_leases_back().await;
    assert_eq!(left_for_red().await, 9 - 3);
    limiter
        .named(charges("blue", 2))
        .unwrap()
        .settle()
        .await
        .unwrap();
    assert_eq!(left_for_red().await, 7 - 1);
    limiter
        .named(charges("blue", 2))
        .unwrap()
        .refund()
        .await
        .unwrap();
    assert_eq!(left_for_red().await, 9 - 3);
}

/// What a thousand keys leave at a server is gone when it makes no difference any more.
#[tokio::test]
async fn children_are_bounded_and_expire() {
    let server = Server::start(&[]);
    let store = store(&server);
    let level = |name| Policy::new(name, FixedWindow::per_second(300));
    let org = without_a_standby(level("org"));
    let low = without_a_standby(level("team")).below("org");
    let low = low.guaranteed(Quota::per_second(1));
    let limiter = over(&store, [org.clone(), low]);
    for number in 0..400 {
        let _ = check(&limiter, team(&format!("t{number}")), 0).await;
    }
    let children = format!("{}:children", store.store_key(&org, "acme"));
    let text: String = ask(&server, &["GET", &children]);
    assert!((2..=257).contains(&text.split(';').count()), "{text}");
    let left: i64 = ask(&server, &["PTTL", &children]);
    assert!((1..1_100).contains(&left), "{left}");
}

/// A key that is refused has to be heard of: it is active, and room is kept for it.
#[tokio::test]
async fn no_refusal_of_a_key_is_remembered() {
    let server = Server::start(&[]);
    let remembering = patient().remember_denials_for(Duration::from_secs(1));
    let limiter = over(&remembering.open(server.url()).unwrap(), tree(5, 2));
    assert_eq!(take(&limiter, team("red")).await, 5);
    let before = calls(&server, "evalsha");
    for _ in 0..3 {
        assert!(!passes(&limiter, team("red"), 1).await);
    }
    assert_eq!(calls(&server, "evalsha"), before + 3);
}

#[tokio::test]
async fn data_that_no_rule_can_read_are_told_and_reset() {
    let server = Server::start(&[]);
    let store = store(&server);
    let limiter = over(&store, tree(10, 4));
    let [org, _] = tree(10, 4);
    let children = format!("{}:children", store.store_key(&org, "acme"));
    for damage in [
        &["SET", children.as_str(), "1 2 3"][..],
        &["SET", &children, "1;=t:blue 1 2 3"],
        &["SET", &children, "1;=t:blue 1 2 3 4 5 6 7;"],
        &["HSET", &children, "a", "1"],
    ] {
        server.ask(&["DEL", &children]);
        server.ask(damage);
        let key = team("blue");
        let request = limiter.named([("org", key.root(), 1), ("team", key, 1)]);
        let failed = request.unwrap().check().await;
        assert!(failed.is_err(), "{damage:?}: {failed:?}");
        limiter.reset(key.root()).await.unwrap();
        assert!(passes(&limiter, key, 1).await, "{damage:?}");
    }
}

/// Over a store that leases units, those of a level that guarantees something, and of the level below, are asked for one by one.
#[tokio::test]
async fn units_of_which_a_part_is_guaranteed_are_not_leased() {
    let server = Server::start(&[]);
    let leasing = patient().lease(Lease::up_to(Duration::from_secs(1)));
    let store = leasing.open(server.url()).unwrap();
    let nodes = [(); 2].map(|()| over(&store, tree(40, 16)));
    assert!(passes(&nodes[0], team("blue"), 1).await);
    let before = calls(&server, "evalsha");
    let red = take(&nodes[1], team("red")).await;
    assert_eq!(red, 24);
    assert_eq!(calls(&server, "evalsha"), before + 25);
    assert_eq!(take(&nodes[0], team("blue")).await, 15);
    // Requests of one level alone hold nothing, either.
    let user = nodes[0].named([("team", team("green"), 1)]).unwrap();
    assert!(user.check().await.unwrap().is_allowed());
    let green = nodes[1].named([("team", team("green"), 39)]).unwrap();
    assert!(green.check().await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_request_that_another_policy_denies_uses_no_guarantee() {
    let server = Server::start(&[]);
    let [org, low] = tree(20, 8);
    let limiter = Limiter::builder()
        .policies([org, low, without_a_standby(daily("own", 1))])
        .store(store(&server))
        .build()
        .unwrap();
    let with_own = async |name: &str| {
        let key = team(name);
        let charges = [("org", key.root(), 1), ("team", key, 1), ("own", key, 1)];
        limiter.named(charges).unwrap().check().await.unwrap()
    };
    assert!(with_own("blue").await.is_allowed());
    for _ in 0..5 {
        assert_eq!(with_own("blue").await.binding().unwrap().0, "own");
    }
    let red = check(&limiter, team("red"), 1).await;
    let (_, of_org) = red.policies().next().unwrap();
    assert_eq!(of_org.remaining(), 20 - 2 - 7);
}

/// It waited for the end of the window, as if what it asks for was kept for its siblings.
#[tokio::test]
async fn a_request_that_lengthens_a_block_waits_for_that_alone() {
    let (server, clock) = (Server::start(&[]), ManualClock::new());
    clock.set_micros(Micros::new(1_704_067_200_000_000));
    let second = Duration::from_secs(1);
    let penalty = Penalty::after(1, second).block(second);
    let [org, low] = tree(10, 4);
    let org = org.penalty(penalty.extended_by_refusals());
    let store = store(&server).clock(clock.clone());
    let backend = store.open(&[org.into(), low.into()]).unwrap();
    let wait = async |name: &str, cost| {
        let (org, team) = (team(name).root(), team(name));
        let charges = [Charge::new(0, org, cost), Charge::new(1, team, cost)];
        let outcomes = backend.decide(&charges).wait().await.unwrap();
        let (_, of_org) = outcomes.iter().next().unwrap();
        of_org.retry_after()
    };
    assert_eq!(wait("red", 1).await, None);
    assert_eq!(wait("blue", 11).await, Some(second), "it begins");
    clock.advance(second / 2);
    assert_eq!(wait("blue", 1).await, Some(second));
    clock.advance(second / 2);
    let of_the_day = Some(86_399 * second);
    assert_eq!(wait("blue", 9).await, of_the_day, "3 are kept for red");
}

/// In an outage, a node keeps its part of the guarantees by itself.
#[tokio::test]
async fn without_the_server_a_node_keeps_its_part() {
    let server = Server::start(&[]);
    let store = patient().nodes(2).open(server.url()).unwrap();
    let level = |name| Policy::new(name, FixedWindow::per_day(40));
    let low = level("team").below("org").guaranteed(Quota::per_day(16));
    let limiter = over(&store, [level("org"), low]);
    assert!(passes(&limiter, team("blue"), 1).await);
    lose(&server, &store).await;
    let decision = check(&limiter, team("blue"), 1).await;
    assert!(decision.is_allowed() && decision.is_degraded());
    assert_eq!(take(&limiter, team("red")).await, 12, "7 of 8 are kept");
    assert_eq!(take(&limiter, team("blue")).await, 7);
}
