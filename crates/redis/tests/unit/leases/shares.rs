//! Nodes lease units of limits that are divided among tenants, in virtual time: the code of the nodes is that of the store, and the
//! scripts run on a real server.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use super::*;
use crate::RedisStore;
use crate::calls::Calls;
use crate::lease_options::Lease;
use crate::pairs::Heard;
use crate::reply::ScriptReply;
use tower_ratelimit_core::algorithm::{Algorithm, TokenBucket};
use tower_ratelimit_core::clock::{Clock, ManualClock};
use tower_ratelimit_core::key::{IntoKey, Key};
use tower_ratelimit_core::policy::{Fair, Policy};
use tower_ratelimit_core::store::{Amendment, Store};
use tower_ratelimit_testing::servers::redis::Server;

const SECOND: u64 = 1_000;
/// How long an answer takes.
const TRIP: Micros = Micros::new(700);

/// A shared limit, the nodes that ask for it, and the plain bucket that all admitted requests have to fit in.
struct World<'a> {
    server: &'a Server,
    runtime: Runtime,
    clock: ManualClock,
    policy: Policy,
    life: Duration,
    nodes: Vec<Arc<Calls>>,
    answers: VecDeque<Answer>,
    waiting: Vec<(usize, Charge, oneshot::Receiver<Heard>)>,
    /// The plain bucket: what drains in a microsecond, the most, the level, and when that was.
    bucket: (f64, f64, f64, Micros),
    weights: Vec<u8>,
    admitted: Vec<u64>,
    asked: u64,
    calls: u64,
    refused_here: u64,
    /// The wait of the last request that the server has refused.
    told: Option<Micros>,
    millis: u64,
}

/// An answer on its way to a node.
struct Answer {
    due: Micros,
    node: usize,
    questions: LeaseRequests,
    reply: ScriptReply,
}

impl<'a> World<'a> {
    fn new(
        server: &'a Server,
        bucket: TokenBucket,
        fair: Fair,
        nodes: usize,
        weights: &[u8],
    ) -> Self {
        Self::of(
            server,
            bucket.into(),
            fair,
            Duration::from_secs(1),
            nodes,
            weights,
        )
    }

    fn of(
        server: &'a Server,
        algorithm: Algorithm,
        fair: Fair,
        life: Duration,
        nodes: usize,
        weights: &[u8],
    ) -> Self {
        server.ask(&["FLUSHALL"]);
        let clock = ManualClock::new();
        clock.set_micros(Micros::new(1_790_000_000_000_000));
        let limit = f64::from(algorithm.limit().unwrap());
        let period = algorithm.period().unwrap().as_secs_f64() * 1e6;
        let mut world = Self {
            server,
            runtime: Builder::new_current_thread().enable_all().build().unwrap(),
            bucket: (limit / period, limit, 0.0, clock.now()),
            policy: Policy::new("upstream", algorithm).fair(fair),
            clock,
            life,
            nodes: Vec::new(),
            answers: VecDeque::new(),
            waiting: Vec::new(),
            weights: weights.to_vec(),
            admitted: vec![0; weights.len()],
            asked: 0,
            calls: 0,
            refused_here: 0,
            told: None,
            millis: 0,
        };
        for _ in 0..nodes {
            let node = world.node();
            world.nodes.push(node);
        }
        world
    }

    fn node(&self) -> Arc<Calls> {
        let builder = RedisStore::builder().deadline(Duration::from_secs(30));
        let builder = builder.lease(Lease::up_to(self.life));
        let store = builder
            .open(self.server.url())
            .unwrap()
            .clock(self.clock.clone());
        let backend = store.open(std::slice::from_ref(&self.policy)).unwrap();
        Arc::clone(backend.calls())
    }

    fn charge(&self, tenant: usize, cost: u32) -> Charge {
        let key = Key::branch(Key::GLOBAL, &[(tenant as u64).into_key()]);
        Charge {
            weight: self.weights[tenant],
            ..Charge::new(0, key, cost)
        }
    }

    fn leases(calls: &Calls) -> &Leases {
        calls.leases.as_ref().unwrap()
    }

    /// Counts a request that has passed, in the plain bucket too.
    fn passes(&mut self, charge: &Charge) {
        let now = self.clock.now();
        let (drains, most, level, at) = &mut self.bucket;
        *level = (*level - real(now.saturating_sub(*at).get()) * *drains).max(0.0)
            + f64::from(charge.cost);
        *at = now;
        assert!(
            *level <= *most + 0.01,
            "the limit is passed: {level} of {most}"
        );
        let is_of = |tenant: &usize| self.charge(*tenant, 0).key == charge.key;
        let tenant = (0..self.weights.len()).find(is_of).unwrap();
        self.admitted[tenant] += u64::from(charge.cost);
    }

    /// A tenant has requests at a node.
    fn ask(&mut self, node: usize, tenant: usize, requests: usize) {
        for _ in 0..requests {
            let _ = self.ask_once(node, self.charge(tenant, 1));
        }
    }

    /// Returns the wait of a request that is refused at once.
    fn ask_once(&mut self, node: usize, charge: Charge) -> Option<Micros> {
        self.asked += 1;
        let calls = Arc::clone(&self.nodes[node]);
        let mut outcomes = Outcomes::new(Micros::ZERO);
        match Self::leases(&calls).decide(&[charge], &calls.policies, &mut outcomes) {
            Some(local) => self.decided(node, &charge, (&local, &outcomes)),
            None => self.again(node, charge),
        }
    }

    fn decided(
        &mut self,
        node: usize,
        charge: &Charge,
        (local, outcomes): (&Local, &Outcomes),
    ) -> Option<Micros> {
        if local.low != 0 {
            let _ = self.question(node, &[charge.at_no_cost()]);
        }
        if local.is_allowed {
            self.passes(charge);
            return None;
        }
        self.refused_here += 1;
        Some(wait_of(outcomes))
    }

    /// Decides a request that was not decided before, or that has waited, as `lending.rs` does.
    fn again(&mut self, node: usize, charge: Charge) -> Option<Micros> {
        let calls = Arc::clone(&self.nodes[node]);
        let mut outcomes = Outcomes::new(Micros::ZERO);
        match Self::leases(&calls).again(&[charge], &calls.policies, &mut outcomes) {
            Again::Decided(local) => self.decided(node, &charge, (&local, &outcomes)),
            Again::Wait(hears) => {
                self.waiting.push((node, charge, hears));
                None
            }
            Again::Ask => {
                let wait = self.question(node, &[charge]);
                if wait.is_none() {
                    self.passes(&charge);
                }
                wait
            }
        }
    }

    /// Asks the server now. Returns the wait of a request that is refused.
    fn question(&mut self, node: usize, charges: &[Charge]) -> Option<Micros> {
        let calls = Arc::clone(&self.nodes[node]);
        let questions = Self::leases(&calls).ask(charges);
        let answer = self.call(&calls, &questions);
        let outcomes = answer.outcomes(&calls.policies);
        let is_allowed = answer.is_allowed();
        self.answers.push_back(Answer {
            due: self.clock.now().saturating_add(TRIP),
            node,
            questions,
            reply: answer,
        });
        (!is_allowed).then(|| wait_of(&outcomes))
    }

    fn call(&mut self, calls: &Calls, questions: &[LeaseRequest]) -> ScriptReply {
        self.calls += 1;
        let asking = async { calls.lease(questions, calls.link.deadline()).await };
        self.runtime.block_on(asking).unwrap()
    }

    fn report(&mut self, node: usize, reports: Vec<LeaseRequest>) {
        let calls = Arc::clone(&self.nodes[node]);
        for report in reports {
            self.call(&calls, &[report]);
        }
    }

    /// A millisecond passes: answers come, and requests that have waited for them go on.
    fn pass(&mut self) {
        self.clock.advance(Duration::from_millis(1));
        self.millis += 1;
        self.deliver();
        if self.millis.is_multiple_of(10) {
            for node in 0..self.nodes.len() {
                let idle = Self::leases(&self.nodes[node]).idle();
                self.report(node, idle);
            }
        }
    }

    fn deliver(&mut self) {
        while self
            .answers
            .front()
            .is_some_and(|answer| answer.due <= self.clock.now())
        {
            let Answer {
                node,
                questions,
                reply,
                ..
            } = self.answers.pop_front().unwrap();
            let calls = Arc::clone(&self.nodes[node]);
            let mut outcomes = reply.outcomes(&calls.policies);
            Self::leases(&calls).answered(questions, &reply, &calls.policies, &mut outcomes);
            self.told = (!reply.is_allowed()).then(|| wait_of(&outcomes));
        }
        for (node, charge, mut hears) in mem::take(&mut self.waiting) {
            match hears.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => {
                    self.waiting.push((node, charge, hears));
                }
                _ => {
                    let _ = self.again(node, charge);
                }
            }
        }
    }

    /// Plays these demands for so many milliseconds: node, tenant, and requests in a second, evenly. Returns what was admitted of each tenant.
    fn play(&mut self, millis: u64, demands: &[(usize, usize, u64)]) -> Vec<u64> {
        let before = self.admitted.clone();
        for _ in 0..millis {
            self.pass();
            for &(node, tenant, requests) in demands {
                let until = |millis: u64| millis * requests / SECOND;
                let due = until(self.millis + 1) - until(self.millis);
                self.ask(node, tenant, usize::try_from(due).unwrap());
            }
        }
        let each = self.admitted.iter().zip(&before);
        each.map(|(now, before)| now - before).collect()
    }

    /// How many units a node holds.
    fn held(&self, node: usize) -> u64 {
        Self::leases(&self.nodes[node]).stats().held
    }

    /// A node stops.
    fn stop(&mut self, node: usize) {
        let all = Self::leases(&self.nodes[node]).all();
        self.report(node, all);
    }

    /// A node dies, and another one takes its place.
    fn kill(&mut self, node: usize) {
        self.answers.retain(|answer| answer.node != node);
        self.waiting.retain(|(at, ..)| *at != node);
        self.nodes[node] = self.node();
    }

    /// How many units the server knows to be held.
    fn known_to_be_held(&self) -> u64 {
        let (calls, charge) = (&self.nodes[0], self.charge(0, 0));
        let told = self.runtime.block_on(async { calls.leased(&charge).await });
        told.unwrap().into()
    }

    /// How many units a tenant claims.
    fn claim(&self, tenant: usize) -> u64 {
        let (calls, charge) = (&self.nodes[0], self.charge(tenant, 0));
        let told = self.runtime.block_on(async { calls.peek(&[charge]).await });
        let told = format!("{:?}", told.unwrap());
        let (_, claim) = told.split_once(" claim: ").unwrap();
        claim.split(',').next().unwrap().parse().unwrap()
    }

    /// How many other tenants are active.
    fn active_beside(&self, tenant: usize) -> u32 {
        let (calls, charge) = (&self.nodes[0], self.charge(tenant, 0));
        let told = self
            .runtime
            .block_on(async { calls.tenant_share(&charge).await });
        told.unwrap().tenants() - 1
    }

    /// Takes all that a tenant may have at once.
    fn take(&mut self, tenant: usize) -> u32 {
        let charge = self.charge(tenant, 10_000);
        let calls = Arc::clone(&self.nodes[0]);
        let taken = self.runtime.block_on(async { calls.take(&[charge]).await });
        let (units, _) = taken.unwrap();
        self.passes(&Charge {
            cost: units,
            ..charge
        });
        units
    }
}

fn wait_of(outcomes: &Outcomes) -> Micros {
    let waits = outcomes.iter().map(|(_, outcome)| outcome.retry_micros());
    waits.max().flatten().expect("it is refused for a time")
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a time of some seconds, or some units"
)]
fn real(number: u64) -> f64 {
    number as f64
}

/// A hog asks at all nodes for five times the limit, and three others for 0.7 of it, at two nodes each. Returns what was admitted of each in three
/// seconds, and how many calls there were for a hundred requests.
fn shares_beside_a_hog(server: &Server, burst: u32, weights: [u8; 4]) -> (Vec<u64>, u64) {
    let bucket = TokenBucket::per_second(1_000).burst(burst);
    let mut world = World::new(server, bucket, Fair::new(), 4, &weights);
    let mut demands = vec![];
    for node in 0..4 {
        demands.push((node, 0, 1_250));
        let here = (1..4).filter(|tenant| (node + tenant) % 2 == 0);
        demands.extend(here.map(|tenant| (node, tenant, 350)));
    }
    // The burst is used up first.
    world.play(2 * SECOND, &demands);
    let (asked, calls) = (world.asked, world.calls);
    let admitted = world.play(3 * SECOND, &demands);
    let calls = 100 * (world.calls - calls) / (world.asked - asked);
    (admitted, calls)
}

#[test]
fn each_tenant_that_always_asks_has_its_share_whatever_nodes_hold() {
    let server = Server::start(&[]);
    for (burst, weights, most) in [
        (1_000, [1, 1, 1, 1], 30),
        (1_000, [1, 1, 4, 2], 30),
        (40, [1, 1, 1, 1], 40),
    ] {
        let (admitted, calls) = shares_beside_a_hog(&server, burst, weights);
        let all: u64 = admitted.iter().sum();
        let told = format!("{burst} {weights:?}: {admitted:?}, {calls} %");
        assert!((2_850..=3_100).contains(&all), "{told}");
        let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        for (units, weight) in admitted.iter().zip(weights) {
            // It may ask for less.
            let share = (all * u64::from(weight) / sum).min(2_100);
            assert!(10 * units >= 9 * share, "{told}");
        }
        assert!(calls <= most, "{told}");
    }
}

/// What it holds drains later, but the limit loses nothing of its rate. Beyond the limit, a node asks for what drains, bit by bit.
#[test]
fn one_tenant_alone_has_the_limit() {
    let server = Server::start(&[]);
    for (rate, burst, each, most) in [
        (1_000, 1_000, 700, 40),
        (1_000, 1_000, 200, 25),
        (200, 50, 140, 100),
    ] {
        let bucket = TokenBucket::per_second(rate).burst(burst);
        let mut world = World::new(&server, bucket, Fair::new(), 3, &[1]);
        let demands = [(0, 0, each), (1, 0, each), (2, 0, each)];
        world.play(2 * SECOND, &demands);
        let (asked, calls) = (world.asked, world.calls);
        let admitted = world.play(2 * SECOND, &demands)[0];
        let (asked, calls) = (world.asked - asked, world.calls - calls);
        let told = format!("{rate}: {admitted} of {asked}, {calls} calls");
        let due = 2 * u64::from(rate).min(3 * each);
        assert!(100 * admitted >= 95 * due, "{told}");
        assert!(100 * calls <= most * asked, "{told}");
    }
}

/// What nobody claims is not leased, and there may be room all the same.
#[test]
fn a_burst_of_a_tenant_that_has_just_come_passes_as_without_leases() {
    let server = Server::start(&[]);
    let mut world = World::new(&server, TokenBucket::per_second(100), Fair::new(), 1, &[1]);
    world.play(100, &[(0, 0, 1_000)]);
    world.play(5, &[]);
    assert_eq!((world.admitted[0], world.refused_here), (100, 0));
}

/// The hog has taken all, and holds some of it at each node.
#[test]
fn a_newcomer_has_its_share_within_a_second() {
    let server = Server::start(&[]);
    let bucket = TokenBucket::per_second(1_000).burst(100);
    let mut world = World::new(&server, bucket, Fair::new(), 4, &[1, 1]);
    let hog: Vec<_> = (0..4).map(|node| (node, 0, 2_500)).collect();
    world.play(SECOND, &hog);
    let both: Vec<_> = hog.into_iter().chain([(1, 1, 700)]).collect();
    let admitted = world.play(SECOND, &both);
    assert!(admitted[1] >= 450, "{admitted:?}");
}

/// Of a tenant that asks for less than its share, requests pass, though another takes whatever is left.
#[test]
fn a_tenant_that_asks_for_less_than_its_share_has_all_that_it_asks_for() {
    let server = Server::start(&[]);
    let mut world = World::new(
        &server,
        TokenBucket::per_second(1_000),
        Fair::new(),
        3,
        &[1, 1, 1],
    );
    let mut demands = vec![(0, 1, 100), (1, 1, 100), (2, 2, 60)];
    demands.extend((0..3).map(|node| (node, 0, 2_000)));
    world.play(2 * SECOND, &demands);
    let admitted = world.play(2 * SECOND, &demands);
    assert!(admitted[1] >= 398 && admitted[2] >= 119, "{admitted:?}");
    assert!(admitted.iter().sum::<u64>() >= 1_900, "{admitted:?}");
}

/// A node that stops gives back what it holds, and one that dies holds it to its end.
#[test]
fn the_account_of_units_is_exact_after_a_stop_and_a_killed_node_costs_what_it_held() {
    let server = Server::start(&[]);
    let mut world = World::new(
        &server,
        TokenBucket::per_second(1_000),
        Fair::new(),
        3,
        &[1, 1],
    );
    let demands = [(0, 0, 400), (1, 0, 100), (1, 1, 300), (2, 1, 90)];
    world.play(2 * SECOND, &demands);
    let holds = |world: &World<'_>| (0..3).all(|node| world.held(node) > 0);
    for _ in 0..500 {
        world.pass();
        if holds(&world) {
            break;
        }
        world.play(1, &demands);
    }
    assert!(holds(&world));
    let held: Vec<u64> = (0..3).map(|node| world.held(node)).collect();
    world.kill(0);
    for node in 1..3 {
        world.stop(node);
        let stats = World::leases(&world.nodes[node]).stats();
        assert_eq!((stats.held, stats.lapsed), (0, 0), "{stats:?}");
        assert_eq!(stats.granted, stats.spent + stats.given_back, "{stats:?}");
    }
    // What the killed node has spent and has not told is held, too.
    let lost = world.known_to_be_held();
    assert!(
        (held[0]..held[0] + 60).contains(&lost),
        "{lost} of {held:?}"
    );
    let (_, most, level, _) = world.bucket;
    let taken = u64::from(world.take(0)) + u64::from(world.take(1));
    let left = most - level;
    assert!(
        real(taken + lost) >= left - 100.0,
        "{taken} and {lost} of {left}"
    );
    world.clock.advance(Duration::from_secs(3));
    assert_eq!(world.known_to_be_held(), 0);
    assert_eq!(world.take(1), 1_000);
}

#[test]
fn what_a_tenant_has_not_spent_is_claimed_again() {
    // The second one is not told apart.
    for (fair, tenant) in [(Fair::new(), 0), (Fair::new().most_tenants(1), 1)] {
        let server = Server::start(&[]);
        let bucket = TokenBucket::per_second(400);
        let mut world = World::new(&server, bucket, fair, 2, &[1, 1]);
        world.play(2 * SECOND, &[(0, 0, 180), (1, 1, 180)]);
        let mut compared = 0;
        for _ in 0..50 {
            world.play(7, &[(0, 0, 180), (1, 1, 180)]);
            // As much as its share of the burst is claimed at most.
            let (held, claimed) = (world.held(tenant), world.claim(tenant));
            if held > 0 && claimed + held < 200 && world.answers.is_empty() {
                world.stop(tenant);
                assert_eq!(world.claim(tenant), claimed + held);
                compared += 1;
            }
        }
        assert!(compared > 3, "{compared}");
    }
}

/// It asks often, and then so seldom that its node has units for seconds. The server hears of it before it would lapse.
#[test]
fn a_tenant_that_spends_what_its_node_holds_is_active() {
    let server = Server::start(&[]);
    let (bucket, life) = (
        TokenBucket::per_second(1_000).into(),
        Duration::from_secs(10),
    );
    let mut world = World::of(&server, bucket, Fair::new(), life, 2, &[1, 1]);
    world.play(SECOND, &[(0, 0, 400), (1, 1, 300)]);
    assert!(world.held(0) > 0);
    for _ in 0..300 {
        world.play(10, &[(0, 0, 12), (1, 1, 300)]);
        assert_eq!(world.active_beside(1), 1);
    }
    world.play(2 * SECOND, &[(1, 1, 300)]);
    assert_eq!(world.active_beside(1), 0);
}

/// Its node asks for units before it has none, and the server decides on none of its requests.
#[test]
fn a_tenant_whose_node_only_renews_units_is_active() {
    let server = Server::start(&[]);
    let bucket = TokenBucket::per_second(10_000);
    let mut world = World::new(&server, bucket, Fair::new(), 2, &[1, 1]);
    world.play(SECOND, &[(0, 0, 400)]);
    let saved = |world: &World<'_>| World::leases(&world.nodes[0]).stats().calls_saved;
    let (before, mut passed) = (saved(&world), 0);
    for _ in 0..300 {
        passed += world.play(10, &[(0, 0, 400), (1, 1, 300)])[0];
        assert_eq!(world.active_beside(1), 1);
    }
    assert_eq!(saved(&world) - before, passed);
}

/// A report tells of the requests that its node has had since it last asked.
#[test]
fn a_tenant_whose_node_has_only_reported_is_active() {
    let server = Server::start(&[]);
    let bucket = TokenBucket::per_second(10_000);
    let mut world = World::new(&server, bucket, Fair::new(), 2, &[1, 1]);
    world.play(SECOND, &[(0, 0, 400)]);
    let (asked_at, calls) = (world.millis, world.calls);
    let passed = world.play(100, &[(0, 0, 40)]);
    assert_eq!((passed[0], world.calls), (4, calls));
    world.play(60, &[]);
    assert_eq!((world.held(0), world.calls), (0, calls + 1));
    world.play(asked_at + SECOND + 100 - world.millis, &[(1, 1, 300)]);
    assert_eq!(world.active_beside(1), 1);
    world.play(300, &[(1, 1, 300)]);
    assert_eq!(world.active_beside(1), 0);
}

/// It waits, and claims more than its share of the burst.
#[test]
fn a_large_request_passes_though_another_tenant_takes_whatever_is_left() {
    let server = Server::start(&[]);
    let bucket = TokenBucket::per_second(100);
    let mut world = World::new(&server, bucket, Fair::new(), 2, &[1, 1]);
    let hog = [(0, 0, 300)];
    world.play(SECOND, &hog);
    for _ in 0..200 {
        world.play(10, &hog);
        if world.admitted[1] > 0 {
            return;
        }
        let _ = world.ask_once(1, world.charge(1, 75));
    }
    panic!("it is refused for two seconds");
}

#[test]
fn small_limits_are_not_leased() {
    let server = Server::start(&[]);
    let bucket = TokenBucket::per_second(1_000).burst(7);
    let world = World::new(&server, bucket, Fair::new(), 1, &[1]);
    assert!(!World::leases(&world.nodes[0]).leases(0));
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Ask(usize, usize, usize, u32),
    /// Some requests in each of so many milliseconds.
    Play(usize, usize, u64, u64),
    Pass(u64),
    Kill(usize),
    Stop(usize),
    Settle(usize, u32),
    Take(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let (node, tenant) = (0..3_usize, 0..4_usize);
    let cost = prop_oneof![6 => Just(1_u32), 1 => 1..5_u32];
    let act = prop_oneof![
        20 => (node.clone(), tenant.clone(), 1..12_usize, cost)
            .prop_map(|(node, tenant, requests, cost)| Act::Ask(node, tenant, requests, cost)),
        8 => (node.clone(), tenant.clone(), 500..4_000_u64, 5..80_u64)
            .prop_map(|(node, tenant, rate, millis)| Act::Play(node, tenant, rate, millis)),
        20 => prop_oneof![6 => Just(1), 3 => 1..20_u64, 1 => 1..400_u64].prop_map(Act::Pass),
        1 => node.clone().prop_map(Act::Kill),
        1 => node.prop_map(Act::Stop),
        1 => (tenant.clone(), 1..4_u32).prop_map(|(tenant, units)| Act::Settle(tenant, units)),
        1 => tenant.prop_map(Act::Take),
    ];
    vec(act, 20..100)
}

/// What is settled is used, and passes the limit without leases, too.
fn settle(world: &mut World<'_>, tenant: usize, units: u32) {
    let charge = world.charge(tenant, units);
    let calls = Arc::clone(&world.nodes[0]);
    let settling = async {
        calls
            .change_each(&[charge], &[charge], Amendment::Settle)
            .await
    };
    world.runtime.block_on(settling).unwrap();
}

/// The plain bucket in `World::passes` holds each request that passes. What is settled only takes from it.
#[test]
fn the_limit_is_never_passed_and_no_wait_is_too_short() {
    let server = Server::start(&[]);
    let buckets = [
        "token-bucket 100/1s burst 20",
        "gcra 1000/1s burst 300",
        "token-bucket 40/1s burst 8",
    ];
    let case = (
        select(buckets.to_vec()),
        select(vec![100_u64, 1_000]),
        select(vec![30_u64, 1_000]),
        acts(),
    );
    let config = Config {
        cases: 30,
        failure_persistence: None,
        ..Config::default()
    };
    let counts = Cell::new((0_u64, 0_u64, 0_u64));
    let played = TestRunner::new(config).run(&case, |(bucket, life, active_for, acts)| {
        let algorithm: Algorithm = bucket.parse().unwrap();
        let fair = Fair::new().active_for(Duration::from_millis(active_for));
        let life = Duration::from_millis(life);
        let mut world = World::of(&server, algorithm, fair, life, 3, &[1, 1, 3, 1]);
        for act in acts {
            match act {
                Act::Ask(node, tenant, requests, cost) => {
                    for _ in 0..requests {
                        let _ = world.ask_once(node, world.charge(tenant, cost));
                    }
                }
                Act::Play(node, tenant, rate, millis) => {
                    world.play(millis, &[(node, tenant, rate)]);
                }
                Act::Pass(millis) => {
                    world.play(millis, &[]);
                }
                Act::Kill(node) => world.kill(node),
                Act::Stop(node) => world.stop(node),
                Act::Settle(tenant, units) => settle(&mut world, tenant, units),
                Act::Take(tenant) => {
                    world.take(tenant);
                }
            }
        }
        // Nobody else asks from now on.
        world.play(5, &[]);
        for _ in 0..400 {
            if let Some(told_here) = world.ask_once(1, world.charge(0, 1)) {
                // Unless there is an answer on its way.
                world.told = None;
                world.clock.advance(TRIP.to_duration());
                world.deliver();
                let wait = world.told.unwrap_or(told_here);
                world.clock.advance(wait.to_duration());
                world.deliver();
                let before = world.admitted[0];
                let again = world.ask_once(1, world.charge(0, 1));
                prop_assert_eq!(again, None, "after {:?}", wait);
                world.play(5, &[]);
                prop_assert!(world.admitted[0] > before, "after {:?}", wait);
                break;
            }
            world.pass();
        }
        let (asked, calls, here) = counts.get();
        counts.set((
            asked + world.asked,
            calls + world.calls,
            here + world.refused_here,
        ));
        Ok(())
    });
    played.unwrap_or_else(|failure| panic!("{failure}"));
    let (asked, calls, here) = counts.get();
    assert!(
        4 * calls < 3 * asked && here > 1_000,
        "{asked} {calls} {here}"
    );
}
