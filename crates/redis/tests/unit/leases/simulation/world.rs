//! A server, nodes, and the network between them, in virtual time.

mod calls;
mod trouble;

use std::collections::VecDeque;

use super::check::Check;
use super::pairs::{Pairs, Waiting};
use super::queue::{Queue, What};
use super::random::Random;
use super::report::Report;
use super::scene::{Map, Scene};
use super::server::Server;
use super::workload::{Request, Workload};
use crate::lease::{LeaseReply, Terms, UnitsRequest, Way};
use tower_ratelimit_core::__internal::Step;
use tower_ratelimit_core::clock::Micros;

/// A question on its way, and its answer.
#[derive(Debug)]
struct Message {
    /// The pair that asks.
    pair: usize,
    /// The life of the node: a question from before a crash gets no answer.
    life: u32,
    ask: UnitsRequest,
    /// When it was sent, by the clock of the node.
    put: Micros,
    sent: u64,
    /// Until when the request that asks waits for the answer.
    until: u64,
    answer: Option<LeaseReply>,
}

struct Node {
    life: u32,
    /// How many parts in a million its clock runs faster.
    drift: i64,
    /// Until when it is suspended.
    away: u64,
    /// Until when it does not reach the server.
    cut: u64,
}

/// The last actions, which are printed after a failure.
#[derive(Clone, Debug)]
struct Trace {
    at: u64,
    node: usize,
    key: u64,
    what: String,
}

/// A key, as its requests would be decided at one place.
struct Compared<S: Step> {
    /// The plain algorithm, which decides everything at once.
    twin: S::Form,
    /// The plain algorithm, which is charged what was spent.
    check: Check<S>,
}

pub(super) struct World<S: Step> {
    rule: S,
    scene: Scene,
    terms: Terms,
    random: Random,
    now: u64,
    queue: Queue,
    nodes: Vec<Node>,
    pairs: Pairs,
    messages: Vec<Message>,
    free: Vec<usize>,
    server: Server<S>,
    compared: Map<u64, Compared<S>>,
    workload: Workload,
    trace: Option<VecDeque<Trace>>,
    report: Report,
}

/// The first moment. The clocks of the nodes begin at 1 s.
pub(super) const START: u64 = 1_790_000_000_000_000;

/// The deadline of a call, as in the store.
const DEADLINE: u64 = 100_000;

const MOST_TRACED: usize = 200_000;

impl<S: Step> World<S> {
    pub(super) fn new(rule: S, scene: Scene, traces: bool) -> Self {
        let mut random = Random::new(scene.seed);
        let drift = |random: &mut Random| i64::try_from(random.below(1_001)).unwrap_or(0) - 500;
        let nodes = (0..scene.nodes).map(|_| Node {
            life: 0,
            drift: drift(&mut random),
            away: 0,
            cut: 0,
        });
        let terms = Terms::of(&scene.algorithm, scene.life).expect("it can be leased");
        let mut world = Self {
            terms,
            nodes: nodes.collect(),
            random: random.clone(),
            now: START,
            queue: Queue::default(),
            pairs: Pairs::new(scene.nodes, scene.shape.has_one_key()),
            messages: Vec::new(),
            free: Vec::new(),
            server: Server::new(rule.clone(), terms, &scene),
            rule,
            compared: Map::default(),
            workload: Workload::new(scene.shape, scene.nodes, scene.rate),
            trace: traces.then(VecDeque::new),
            report: Report::new(scene.nodes),
            scene,
        };
        for stream in 0..world.workload.streams() {
            let first = world.next_arrival(stream);
            world.queue.arrives(first, stream);
        }
        world.next_fault();
        world
    }

    /// Plays the run to its end, or to the first wrong spend.
    pub(super) fn play(mut self) -> Report {
        let end = START + self.scene.lasts;
        while let Some((at, what)) = self.queue.next() {
            if at >= end || self.report.is_wrong() {
                break;
            }
            self.now = at;
            match what {
                What::Arrival { stream } => self.arrive(stream),
                What::AtServer { message } => self.reach(message),
                What::Served { message } => self.serve(message),
                What::Answered { message } => self.answer(message),
                What::Failed { message } => self.fail(message),
                What::Look { pair } => self.look(pair),
                What::Fault => self.fault(),
            }
        }
        self.report.trace = self.of_the_wrong_key();
        self.report.server_busy = self.server.busy;
        self.report.lasted = self.now - START;
        self.report
    }

    fn of_the_wrong_key(&self) -> Vec<String> {
        let trace = self.trace.iter().flatten();
        let of_the_key = trace.filter(|line| Some(line.key) == self.report.wrong_key());
        of_the_key
            .map(|line| {
                format!(
                    "{:>9} µs  node {:<3} {}",
                    line.at - START,
                    line.node,
                    line.what
                )
            })
            .collect()
    }

    fn after(&mut self, delay: u64, what: What) {
        self.queue.at(self.now + delay, what);
    }

    fn note(&mut self, node: usize, key: u64, what: impl FnOnce() -> String) {
        let at = self.now;
        if let Some(trace) = &mut self.trace {
            if trace.len() == MOST_TRACED {
                trace.pop_front();
            }
            trace.push_back(Trace {
                at,
                node,
                key,
                what: what(),
            });
        }
    }

    /// Returns the time by the clock of a node, which goes on while the node sleeps.
    fn node_time(&self, node: usize) -> Micros {
        let elapsed = self.now - START + 1_000_000;
        let drift = i64::try_from(elapsed).unwrap_or(0) * self.nodes[node].drift / 1_000_000;
        Micros::new(elapsed.saturating_add_signed(drift))
    }

    fn next_arrival(&mut self, stream: usize) -> u64 {
        self.workload.next(stream, self.now, &mut self.random)
    }

    fn arrive(&mut self, stream: usize) {
        let next = self.next_arrival(stream);
        self.queue.arrives_again(next);
        let Request { node, key, cost } = self.workload.request(stream, &mut self.random);
        if self.now < self.nodes[node].away {
            return;
        }
        let (rule, at) = (self.rule.clone(), Micros::new(self.now));
        self.report.demanded(node, cost);
        let twin = &mut self.compared(key).twin;
        if rule.allows(twin, at, cost) {
            rule.charge(twin, at, cost);
            self.report.twin_admits(node, cost);
        }
        let now = self.node_time(node);
        let place = self.pairs.place(node, key);
        let way = self.pairs.at(place).pair.request(now, cost);
        let request = Waiting {
            cost,
            since: self.now,
            until: self.now + DEADLINE,
            has_waited: false,
        };
        self.follow(place, request, way);
    }

    /// Continues a request.
    fn follow(&mut self, place: usize, request: Waiting, way: Way) {
        let (cost, server_time) = (request.cost, self.server.time(self.now));
        let at_node = self.pairs.at(place);
        let (node, key) = (at_node.node, at_node.key);
        match way {
            Way::Spent { is_low } => {
                self.report.is_local(node, cost);
                self.has_waited(request);
                self.note(node, key, || format!("spends {cost}"));
                self.spend(node, key, server_time, cost);
                if is_low {
                    self.send(place, 0, self.now);
                }
            }
            Way::Refused(_) => {
                let is_false = self.has_room(key, server_time, cost);
                self.report.local += 1;
                self.has_waited(request);
                self.report.refused(is_false);
            }
            Way::Wait => {
                at_node.pair.wait(cost);
                at_node.waiting.push(Waiting {
                    has_waited: true,
                    ..request
                });
            }
            Way::Ask => self.send(place, cost, request.until),
        }
    }

    fn has_waited(&mut self, request: Waiting) {
        if request.has_waited {
            self.report.waited(self.now - request.since);
        }
    }

    fn compared(&mut self, key: u64) -> &mut Compared<S> {
        let (by_interval, forgets_late) = (self.server.by_interval, self.server.forgets_late);
        self.compared.entry(key).or_insert_with(|| Compared {
            twin: S::Form::default(),
            check: Check::new(by_interval, forgets_late),
        })
    }

    fn check(&mut self, key: u64, at: Micros) -> &mut Check<S> {
        let refilled = self.server.refilled(key);
        let check = &mut self.compared(key).check;
        if let Some((anchor, refill)) = refilled {
            check.refill(at.get(), anchor, refill);
        }
        check
    }

    fn has_room(&mut self, key: u64, at: Micros, cost: u32) -> bool {
        let rule = self.rule.clone();
        self.check(key, at).has_room(&rule, at, cost)
    }

    fn spend(&mut self, node: usize, key: u64, at: Micros, cost: u32) {
        let rule = self.rule.clone();
        let check = self.check(key, at);
        let before = check.excess;
        let is_right = check.spend(&rule, at, cost);
        let in_excess = before - check.excess;
        self.report.in_excess += in_excess;
        if !is_right {
            self.note(node, key, || "which is too much".to_owned());
            self.report.wrong(key);
        }
    }
}
