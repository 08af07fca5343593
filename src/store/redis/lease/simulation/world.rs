//! A server, nodes, and the network between them, in virtual time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::check::Check;
use super::faults::Fault;
use super::random::Random;
use super::report::Report;
use super::scene::{Map, Scene};
use super::server::Server;
use super::workload::{Request, Workload};
use crate::algorithm::Step;
use crate::clock::Micros;
use crate::store::redis::lease::{Ask, LeaseReply, Pair, Terms, Way};

/// What is to happen, at a moment and in an order.
type Event = Reverse<(u64, u64, What)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Arrival { stream: u64 },
    AtServer { message: usize },
    Served { message: usize },
    Answered { message: usize },
    Failed { message: usize },
    Look { node: usize, key: u64 },
    Fault,
}

/// A question on its way, and its answer.
#[derive(Debug)]
struct Message {
    node: usize,
    /// Which life of the node: what was asked before a crash is not answered.
    life: u32,
    key: u64,
    ask: Ask,
    /// By the clock of the node.
    put: Micros,
    sent: u64,
    answer: Option<LeaseReply>,
}

/// A request that waits for the answer to another.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    cost: u32,
    since: u64,
    /// How often it has waited.
    waits: usize,
}

struct Node {
    life: u32,
    /// How many parts in a million its clock runs faster.
    drift: i64,
    /// Until when it hears nothing and sees no request.
    away: u64,
    /// Until when it reaches no server.
    cut: u64,
}

/// What was done last, to be printed when it was wrong.
#[derive(Clone, Debug)]
pub(super) struct Trace {
    at: u64,
    node: usize,
    key: u64,
    what: String,
}

pub(super) struct World<S: Step> {
    rule: S,
    scene: Scene,
    terms: Terms,
    random: Random,
    now: u64,
    order: u64,
    events: BinaryHeap<Event>,
    nodes: Vec<Node>,
    pairs: Map<(usize, u64), Pair>,
    /// The requests of each pair that wait for the answer to another.
    waiting: Map<(usize, u64), Vec<Waiting>>,
    messages: Vec<Message>,
    free: Vec<usize>,
    server: Server<S>,
    checks: Map<u64, Check<S>>,
    /// The plain algorithm, asked for everything at once.
    twins: Map<u64, S::Kept>,
    workload: Workload,
    trace: Option<VecDeque<Trace>>,
    report: Report,
}

/// The first moment. The clocks of the nodes begin at 1 s.
pub(super) const START: u64 = 1_790_000_000_000_000;

/// As in the store.
const DEADLINE: u64 = 100_000;

/// As in the store: how often a request waits for the answer to another.
const MOST_WAITS: usize = 2;

/// How often a node looks for units that no request asks for.
const LOOKS_EVERY: u64 = 10_000;

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
            order: 0,
            events: BinaryHeap::new(),
            pairs: Map::default(),
            waiting: Map::default(),
            messages: Vec::new(),
            free: Vec::new(),
            server: Server::new(rule.clone(), terms, &scene),
            rule,
            checks: Map::default(),
            twins: Map::default(),
            workload: Workload::new(scene.shape, scene.nodes, scene.rate),
            trace: traces.then(VecDeque::new),
            report: Report::new(scene.nodes),
            scene,
        };
        for stream in 0..world.workload.streams() {
            world.next_arrival(stream);
        }
        world.next_fault();
        world
    }

    /// Plays it to its end, or to the first wrong spend.
    pub(super) fn play(mut self) -> Report {
        while let Some(Reverse((at, _, what))) = self.events.pop() {
            if at >= START + self.scene.lasts || self.report.is_wrong() {
                break;
            }
            self.now = at;
            match what {
                What::Arrival { stream } => self.arrive(stream),
                What::AtServer { message } => self.reach(message),
                What::Served { message } => self.serve(message),
                What::Answered { message } => self.answer(message),
                What::Failed { message } => self.fail(message),
                What::Look { node, key } => self.look(node, key),
                What::Fault => self.fault(),
            }
        }
        if let Some(trace) = self.trace {
            let of_the_key = trace
                .iter()
                .filter(|line| Some(line.key) == self.report.wrong_key());
            self.report.trace = of_the_key
                .map(|line| {
                    format!(
                        "{:>9} µs  node {:<3} {}",
                        line.at - START,
                        line.node,
                        line.what
                    )
                })
                .collect();
        }
        self.report.server_busy = self.server.busy;
        self.report.lasted = self.now - START;
        self.report
    }

    fn after(&mut self, delay: u64, what: What) {
        self.at(self.now + delay, what);
    }

    fn at(&mut self, at: u64, what: What) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, what)));
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

    /// What time it is by the clock of a node, which goes on while the node sleeps.
    fn node_time(&self, node: usize) -> Micros {
        let elapsed = i128::from(self.now - START + 1_000_000);
        let drift = i128::from(self.nodes[node].drift);
        let elapsed = elapsed + elapsed * drift / 1_000_000;
        Micros::new(u64::try_from(elapsed).unwrap_or(0))
    }

    fn next_arrival(&mut self, stream: u64) {
        let next = self.workload.next(stream, self.now, &mut self.random);
        self.at(next, What::Arrival { stream });
    }

    fn arrive(&mut self, stream: u64) {
        self.next_arrival(stream);
        let Request { node, key, cost } = self.workload.request(stream, &mut self.random);
        if self.now < self.nodes[node].away {
            return;
        }
        self.report.asked();
        let at = Micros::new(self.now);
        let twin = self.twins.entry(key).or_default();
        if self.rule.allows(twin, at, cost) {
            self.rule.charge(twin, at, cost);
            self.report.twin_admits(node, cost);
        }
        let now = self.node_time(node);
        let pair = self.pairs.entry((node, key)).or_default();
        let way = pair.request(now, cost);
        let request = Waiting {
            cost,
            since: self.now,
            waits: 0,
        };
        self.follow(node, key, request, way);
    }

    /// What becomes of a request.
    fn follow(&mut self, node: usize, key: u64, request: Waiting, way: Way) {
        let (cost, server_time) = (request.cost, self.server.time(self.now));
        match way {
            Way::Spent { is_low } => {
                self.report.is_local(node, cost);
                self.has_waited(request);
                self.note(node, key, || format!("spends {cost}"));
                self.spend(node, key, server_time, cost);
                if is_low {
                    self.send(node, key, 0);
                }
            }
            Way::Refused(_) => {
                let is_false = self.has_room(key, server_time, cost);
                self.report.local += 1;
                self.has_waited(request);
                self.report.refused(is_false);
            }
            Way::Wait if request.waits < MOST_WAITS => {
                if let Some(pair) = self.pairs.get_mut(&(node, key)) {
                    pair.wait(cost);
                }
                self.waiting.entry((node, key)).or_default().push(Waiting {
                    waits: request.waits + 1,
                    ..request
                });
            }
            Way::Wait | Way::Ask => self.send(node, key, cost),
        }
    }

    fn has_waited(&mut self, request: Waiting) {
        if request.waits > 0 {
            self.report.waited(self.now - request.since);
        }
    }

    /// The answer has come, or is lost: those that wait for it come again. If it is lost and half of their time is over, they
    /// have failed too.
    fn wake(&mut self, node: usize, key: u64, ask: &Ask, is_answered: bool) {
        if ask.units == 0 {
            return;
        }
        for request in self.waiting.remove(&(node, key)).unwrap_or_default() {
            let now = self.node_time(node);
            let latest = if is_answered { DEADLINE } else { DEADLINE / 2 };
            if self.now > request.since + latest {
                self.report.failed += 1;
            } else if let Some(pair) = self.pairs.get_mut(&(node, key)) {
                let way = pair.again(now, request.cost);
                self.follow(node, key, request, way);
            }
        }
    }

    fn check(&mut self, key: u64, at: Micros) -> &mut Check<S> {
        let by_interval = self.server.by_interval;
        let check = self
            .checks
            .entry(key)
            .or_insert_with(|| Check::new(by_interval));
        if let Some((anchor, refill)) = self.server.refilled(key) {
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

    fn send(&mut self, node: usize, key: u64, cost: u32) {
        let put = self.node_time(node);
        let Some(pair) = self.pairs.get_mut(&(node, key)) else {
            return;
        };
        let ask = pair.ask(put, cost, self.terms);
        self.post(node, key, ask, put);
    }

    fn post(&mut self, node: usize, key: u64, ask: Ask, put: Micros) {
        self.note(node, key, || format!("asks {ask:?}"));
        self.report.calls += 1;
        let message = Message {
            node,
            life: self.nodes[node].life,
            key,
            ask,
            put,
            sent: self.now,
            answer: None,
        };
        let place = if let Some(place) = self.free.pop() {
            self.messages[place] = message;
            place
        } else {
            self.messages.push(message);
            self.messages.len() - 1
        };
        let faults = self.scene.faults;
        let is_cut = self.now < self.nodes[node].cut;
        if is_cut || self.random.happens(faults.lost) {
            self.after(DEADLINE, What::Failed { message: place });
            return;
        }
        let late = if self.random.happens(faults.late) {
            self.random.below(2 * DEADLINE)
        } else {
            0
        };
        let trip = self.random.trip();
        self.after(trip + late, What::AtServer { message: place });
    }

    /// A question reaches the server, and waits for those before it.
    fn reach(&mut self, place: usize) {
        if self.server.is_away(self.now) {
            let left = (self.messages[place].sent + DEADLINE).saturating_sub(self.now);
            self.after(left, What::Failed { message: place });
            return;
        }
        let begins = self.server.begin(self.now);
        self.at(begins, What::Served { message: place });
    }

    fn serve(&mut self, place: usize) {
        let message = &self.messages[place];
        let (node, key, ask) = (message.node, message.key, message.ask.clone());
        let at = self.server.time(self.now);
        let answer = self.server.answer(key, at, &ask);
        self.note(node, key, || format!("is answered {answer:?}"));
        if ask.cost > 0 && answer.denied.is_none() {
            self.spend(node, key, at, ask.cost);
        }
        let is_false = answer.denied.is_some() && self.has_room(key, at, ask.cost);
        let message = &mut self.messages[place];
        message.answer = Some(answer);
        let answered = self.now + self.random.trip();
        let until = message.sent + DEADLINE;
        let is_lost = self.random.happens(self.scene.faults.lost);
        if is_lost || answered > until {
            self.at(until.max(self.now), What::Failed { message: place });
            return;
        }
        if ask.cost > 0 {
            self.report.waited(answered - message.sent);
            match answer.denied {
                Some(_) => self.report.refused(is_false),
                None => self.report.admitted(node, ask.cost),
            }
        }
        self.at(answered, What::Answered { message: place });
    }

    fn answer(&mut self, place: usize) {
        let Message {
            node,
            life,
            key,
            put,
            ref ask,
            answer,
            ..
        } = self.messages[place];
        let (ask, now) = (ask.clone(), self.node_time(node));
        if self.now < self.nodes[node].away {
            let away = self.nodes[node].away;
            self.at(away, What::Answered { message: place });
            return;
        }
        self.free.push(place);
        let Some(answer) = answer else { return };
        if self.nodes[node].life != life {
            return;
        }
        if let Some(pair) = self.pairs.get_mut(&(node, key)) {
            pair.answered(put, now, (&ask, answer), self.terms);
            if answer.grant.is_some() {
                self.after(LOOKS_EVERY, What::Look { node, key });
            }
            self.wake(node, key, &ask, true);
        }
    }

    fn fail(&mut self, place: usize) {
        self.free.push(place);
        let Message {
            node,
            life,
            key,
            ref ask,
            ..
        } = self.messages[place];
        let ask = ask.clone();
        self.report.failed += 1;
        if self.nodes[node].life == life
            && let Some(pair) = self.pairs.get_mut(&(node, key))
        {
            pair.failed(&ask);
            self.wake(node, key, &ask, false);
        }
    }

    fn look(&mut self, node: usize, key: u64) {
        let now = self.node_time(node);
        if self.now < self.nodes[node].away {
            let away = self.nodes[node].away;
            self.at(away, What::Look { node, key });
            return;
        }
        let Some(pair) = self.pairs.get_mut(&(node, key)) else {
            return;
        };
        match pair.idle(now, self.terms) {
            Some(ask) => self.post(node, key, ask, now),
            None if pair.left(now) > 0 => {
                self.after(LOOKS_EVERY, What::Look { node, key });
            }
            None => {}
        }
    }

    fn next_fault(&mut self) {
        let mut every = self.scene.faults.every;
        if self.workload.replaces_nodes() {
            every = 10_000_000 / self.scene.nodes as u64;
        }
        if every > 0 {
            let gap = 1 + self.random.below(2 * every);
            self.after(gap, What::Fault);
        }
    }

    fn fault(&mut self) {
        self.next_fault();
        let random = &mut self.random;
        let node = random.place(self.nodes.len());
        let fault = self.scene.faults.draw(random);
        self.report.faults += 1;
        self.note(node, 0, || format!("{fault:?}"));
        match fault {
            Fault::Crash => {
                self.nodes[node].life += 1;
                self.pairs.retain(|(of, _), _| *of != node);
                self.waiting.retain(|(of, _), _| *of != node);
            }
            Fault::Suspension(length) => self.nodes[node].away = self.now + length,
            Fault::Partition(length) => {
                let first = node;
                let cut = self.now + length;
                let some = self.nodes.len().div_ceil(2);
                for place in 0..some {
                    let place = (first + place) % self.nodes.len();
                    self.nodes[place].cut = cut;
                }
            }
            fault => {
                let before = self.server.time(self.now);
                let excesses = self.server.suffers(fault, self.now);
                let at = self.server.time(self.now);
                if at < before {
                    let checks = self.checks.values_mut();
                    checks.for_each(|check| check.step_back(&self.rule, before, at));
                }
                for (key, excess) in excesses {
                    self.check(key, at).excess += excess;
                }
            }
        }
    }
}
