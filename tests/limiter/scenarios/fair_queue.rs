//! Fair shares of a queue: who gets a place, and who goes on next.
//!
//! Time is that of a test, and who asks when is drawn from a seed.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "times and counts are small"
)]

mod laws;
mod nodes;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tokio::runtime::Runtime;
use tower::{Layer, Service, service_fn};
use tower_ratelimit::clock::Clock as _;
use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::policy::Fair;
use tower_ratelimit::{
    FixedWindow, LeakyQueue, LimitLayer, Limiter, ManualClock, MemoryStore, Policy, SharedStore,
};

use super::draw::Draw;
use super::{HOUR, MILLISECOND, SECOND};
use crate::support::driver::now;
use crate::support::items::{Map, OneByOne};

fn tenant(name: impl IntoKey) -> Key {
    Key::branch(Key::GLOBAL, &[name.into_key()])
}

fn queue(places: u32) -> Policy {
    Policy::new("upstream", LeakyQueue::per_second(100).places(places)).fair(Fair::new())
}

fn plans() -> Plans {
    Plans::new([Plan::new("free"), Plan::new("pro")])
}

/// A request of a tenant at a node, and the number of its client.
#[derive(Clone, Copy)]
struct Job {
    node: usize,
    of: u64,
    cost: u32,
    plan: &'static str,
    number: usize,
}

fn job(of: u64, number: usize) -> Job {
    Job {
        node: 0,
        of,
        cost: 1,
        plan: "free",
        number,
    }
}

/// How a request ended, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ended {
    WentOn(Duration),
    Refused(Option<Duration>),
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Clients before the nodes of a queue, in a runtime that polls what is woken.
struct Scene {
    clock: ManualClock,
    nodes: Vec<Limiter>,
    /// Whose paused timers requests wait by, if they do not wait by the clock.
    timers: Option<Rc<Runtime>>,
    tasks: Vec<Option<Task>>,
    woken: Arc<Mutex<Vec<usize>>>,
    /// How each request ended, by the number of its client.
    ended: Arc<Mutex<Vec<(usize, Ended)>>>,
    now: Duration,
}

struct Wakes(usize, Arc<Mutex<Vec<usize>>>);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(self.0);
    }
}

impl Scene {
    fn new(policy: Policy) -> Self {
        Self::of(Limiter::builder().policy(policy).plans_by_name(plans()))
    }

    fn of(builder: LimiterBuilder) -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::new().clock(clock.clone());
        let limiter = builder.store(store).build().unwrap();
        Self::at(clock, vec![limiter], None)
    }

    fn at(clock: ManualClock, nodes: Vec<Limiter>, timers: Option<Rc<Runtime>>) -> Self {
        Self {
            clock,
            nodes,
            timers,
            tasks: Vec::new(),
            woken: Arc::default(),
            ended: Arc::default(),
            now: Duration::ZERO,
        }
    }

    /// Sends a request, and lets it reach its place. Returns the number of its task.
    fn send(&mut self, job: Job) -> usize {
        let layer = LimitLayer::new(
            self.nodes[job.node].clone(),
            |job: &Job| tenant(job.of),
            |refused| Ok::<_, Infallible>(Ended::Refused(refused.retry_after())),
        );
        let layer = layer.cost(|job: &Job| job.cost).plan(|job| Some(job.plan));
        let (clock, start) = (
            self.clock.clone(),
            self.clock_now().saturating_sub(self.now),
        );
        let went_on = move |_: Job| {
            let now = clock.now().to_duration().saturating_sub(start);
            std::future::ready(Ok::<_, Infallible>(Ended::WentOn(now)))
        };
        let ended = Arc::clone(&self.ended);
        let call = layer.layer(service_fn(went_on)).call(job);
        self.tasks.push(Some(Box::pin(async move {
            let Ok(how) = call.await;
            ended.lock().unwrap().push((job.number, how));
        })));
        let number = self.tasks.len() - 1;
        self.woken.lock().unwrap().push(number);
        self.run();
        number
    }

    fn clock_now(&self) -> Duration {
        self.clock.now().to_duration()
    }

    fn run(&mut self) {
        while let Some(number) = { self.woken.lock().unwrap().pop() } {
            let waker = Waker::from(Arc::new(Wakes(number, Arc::clone(&self.woken))));
            if let Some(task) = &mut self.tasks[number]
                && task
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_ready()
            {
                self.tasks[number] = None;
            }
        }
    }

    /// Lets the client of this task go away. Returns whether it has waited until now.
    fn drop_one(&mut self, task: usize) -> bool {
        let has_waited = self.tasks[task].take().is_some();
        self.run();
        has_waited
    }

    fn step_to(&mut self, then: Duration) {
        while self.now < then {
            let step = then.saturating_sub(self.now).min(MILLISECOND);
            self.clock.advance(step);
            if let Some(timers) = &self.timers {
                timers.block_on(tokio::time::advance(step));
            }
            self.now += step;
            self.run();
        }
    }

    fn step(&mut self, by: Duration) {
        self.step_to(self.now + by);
    }

    /// Returns the numbers of the requests that have gone on since the last call, in their order.
    fn went_on(&self) -> Vec<usize> {
        let ended = std::mem::take(&mut *self.ended.lock().unwrap());
        let went_on = ended
            .into_iter()
            .filter(|(_, how)| matches!(how, Ended::WentOn(_)));
        went_on.map(|(number, _)| number).collect()
    }

    /// Takes how requests have ended since the last call, of which each is of one of these tenants.
    fn take_ended(&self, tenants: &[usize]) -> Vec<Step> {
        let ended = std::mem::take(&mut *self.ended.lock().unwrap());
        let step = |(number, how): (usize, Ended)| Step {
            at: match how {
                Ended::WentOn(at) => at,
                Ended::Refused(_) => self.now,
            },
            place: tenants[number],
            number,
            what: What::Ends(how),
        };
        ended.into_iter().map(step).collect()
    }

    fn last(&self) -> Ended {
        self.ended.lock().unwrap().last().unwrap().1
    }
}

/// What happens to a request of one of the tenants, and when.
#[derive(Clone, Copy, Debug)]
struct Step {
    at: Duration,
    place: usize,
    number: usize,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// It has come, and is not refused.
    Joins,
    Ends(Ended),
    /// Its client has gone while it waited.
    GoesAway,
}

impl Step {
    /// Returns whether a request has come, which has a place or is refused.
    fn comes(&self) -> bool {
        matches!(self.what, What::Joins | What::Ends(Ended::Refused(_)))
    }

    fn goes_on(&self) -> bool {
        matches!(self.what, What::Ends(Ended::WentOn(_)))
    }
}

/// A tenant that asks so often in a second, from one second to another.
#[derive(Clone, Copy, Debug)]
struct Asker {
    per_second: f64,
    cost: u32,
    plan: &'static str,
    from: f64,
    to: f64,
    /// It asks at this node, or at all in turn.
    node: Option<usize>,
    /// How long its clients wait for an answer.
    patience: f64,
}

fn asker(per_second: f64) -> Asker {
    Asker {
        per_second,
        cost: 1,
        plan: "free",
        from: 0.0,
        to: f64::MAX,
        node: Some(0),
        patience: f64::MAX,
    }
}

/// What a tenant had.
#[derive(Clone, Debug, Default)]
struct Had {
    /// The units that went on, a second.
    rate: f64,
    refused: usize,
    /// The longest wait of a request that went on, in seconds.
    longest: f64,
}

fn micros(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}

/// Lets the tenants ask at gaps of half to one and a half of the mean, until so many seconds, with numbers from this seed. Returns what happens
/// to their requests, in that order. The requests are numbered as they come.
fn send_all(scene: &mut Scene, askers: &[Asker], until: f64, seed: u64) -> Vec<Step> {
    let mut draw = Draw::seeded(seed);
    let mut next = BinaryHeap::new();
    for (place, asker) in askers.iter().enumerate() {
        let at = micros(asker.from + draw.next() / asker.per_second);
        next.push(Reverse((at, place, None)));
    }
    let (mut tenants, mut steps) = (Vec::<usize>::new(), Vec::<Step>::new());
    while let Some(Reverse((at, place, gives_up))) = next.pop() {
        if at >= micros(until) {
            break;
        }
        scene.step_to(Duration::from_micros(at));
        steps.extend(scene.take_ended(&tenants));
        let step = |number, what| Step {
            at: Duration::from_micros(at),
            place,
            number,
            what,
        };
        if let Some((number, task)) = gives_up {
            let has_waited = scene.drop_one(task);
            steps.extend(has_waited.then(|| step(number, What::GoesAway)));
            continue;
        }
        let (asker, number) = (askers[place], tenants.len());
        let task = scene.send(Job {
            node: asker.node.unwrap_or(number % scene.nodes.len()),
            of: place as u64,
            cost: asker.cost,
            plan: asker.plan,
            number,
        });
        tenants.push(place);
        let ended = scene.take_ended(&tenants);
        let is_refused = |step: &Step| matches!(step.what, What::Ends(Ended::Refused(_)));
        let joins = !ended.iter().any(is_refused);
        steps.extend(joins.then(|| step(number, What::Joins)));
        steps.extend(ended);
        if asker.patience < f64::MAX {
            let gives_up = Some((number, task));
            next.push(Reverse((at + micros(asker.patience), place, gives_up)));
        }
        let gap = micros((0.5 + draw.next()) / asker.per_second).max(1);
        if ((at + gap) as f64) < asker.to * 1e6 {
            next.push(Reverse((at + gap, place, None)));
        }
    }
    steps
}

/// Lets the tenants ask until so many seconds. Returns what each had from `since` on, and the moments at which requests went on, in
/// seconds.
fn play(scene: &mut Scene, askers: &[Asker], (since, until): (f64, f64)) -> (Vec<Had>, Vec<f64>) {
    let mut had = vec![Had::default(); askers.len()];
    let (mut came, mut went_on) = (Vec::new(), Vec::new());
    for step in send_all(scene, askers, until, 0x9e37_79b9_7f4a_7c15) {
        let (at, had) = (step.at.as_secs_f64(), &mut had[step.place]);
        if step.comes() {
            came.push(at);
        }
        match step.what {
            What::Ends(Ended::Refused(_)) if at >= since => had.refused += 1,
            What::Ends(Ended::WentOn(_)) => {
                went_on.push(at);
                if at >= since {
                    had.rate += f64::from(askers[step.place].cost) / (until - since);
                    had.longest = had.longest.max(at - came[step.number]);
                }
            }
            What::Joins | What::Ends(Ended::Refused(_)) | What::GoesAway => {}
        }
    }
    (had, went_on)
}

fn play_under(policy: Policy, askers: &[Asker], span: (f64, f64)) -> Vec<Had> {
    play(&mut Scene::new(policy), askers, span).0
}

fn rates(had: &[Had]) -> Vec<f64> {
    had.iter().map(|had| had.rate).collect()
}

/// Jain's index: 1 if all have the same, 1/n if one of n has all.
fn jain(had: &[Had]) -> f64 {
    let rates = rates(had);
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|one| one * one).sum();
    sum * sum / (rates.len() as f64 * squares)
}

#[test]
fn who_asks_a_hundred_times_as_often_has_no_more() {
    for places in [4, 19, 99] {
        for hog_comes_at in [0.0, 3.0] {
            let mut askers = vec![asker(20.0); 10];
            askers[0] = Asker {
                from: hog_comes_at,
                ..asker(2_000.0)
            };
            let had = play_under(queue(places), &askers, (5.0, 25.0));
            let of = format!("{places} places, from {hog_comes_at} s: {had:?}");
            let all: f64 = rates(&had).iter().sum();
            assert!(jain(&had) >= 0.98, "{of}");
            let least = 0.95 / 10.0 * all - 1.0 / 20.0;
            assert!(had.iter().all(|had| had.rate >= least), "{of}");
            assert!((98.0..=100.5).contains(&all), "{all}, {of}");
        }
    }
}

/// When what it had in the line before the others came has gone on.
#[test]
fn a_hog_among_hundreds_has_no_more() {
    let mut askers = vec![asker(2.0); 200];
    askers[0] = asker(400.0);
    let had = play_under(queue(19), &askers, (45.0, 105.0));
    assert!(jain(&had) >= 0.98, "{}", jain(&had));
    // Its share is a half a second.
    assert!(had[0].rate <= 0.55, "{:?}", had[0]);
}

/// A tenant that asks for less than its share finds a place each time, and goes on after the hog's next one, while the hog fills the queue.
#[test]
fn a_hog_waits_behind_itself() {
    for places in [19, 99] {
        let askers = [asker(2_000.0), asker(5.0), asker(20.0)];
        let had = play_under(queue(places), &askers, (5.0, 25.0));
        for other in &had[1..] {
            assert_eq!(other.refused, 0, "{had:?}");
            // Three turns of ten milliseconds, and the step of the clock.
            assert!(other.longest <= 0.032, "{had:?}");
        }
        // It has at least its share of the places.
        assert!(had[0].longest >= f64::from(places) / 300.0, "{had:?}");
        assert!((74.0..=76.0).contains(&had[0].rate), "{had:?}");
    }
}

/// Requests go on at the rate of the queue, whoever waits, comes and goes away.
#[test]
fn the_queue_keeps_its_rate_and_never_passes_it() {
    let impatient = Asker {
        patience: 0.05,
        ..asker(100.0)
    };
    let large = Asker {
        cost: 3,
        ..asker(40.0)
    };
    for askers in [
        vec![asker(2_000.0), impatient, asker(30.0)],
        vec![asker(300.0), large, impatient],
    ] {
        let mut scene = Scene::new(queue(30));
        let (had, went_on) = play(&mut scene, &askers, (2.0, 22.0));
        let all: f64 = rates(&had).iter().sum();
        assert!((98.0..=100.5).contains(&all), "{all}: {had:?}");
        // The step of the clock may let one be a millisecond late.
        for pair in went_on.windows(2) {
            assert!(pair[1] - pair[0] >= 0.01 - 0.001_1, "{pair:?}");
        }
    }
}

/// Returns the table of `docs/fair.md`: what tenants get in seconds 5 to 20, and how long those wait that are no hog.
fn table() -> String {
    let hog = asker(2_000.0);
    let hog_and = |count: usize, per_second: f64| {
        let mut askers = vec![asker(per_second); count];
        askers.insert(0, hog);
        askers
    };
    let pro = Asker {
        plan: "pro",
        ..asker(200.0)
    };
    let gone = Asker {
        to: 3.0,
        ..asker(200.0)
    };
    let late = Asker {
        from: 10.0,
        ..asker(100.0)
    };
    let rows = [
        ("one alone, which asks for 200", vec![asker(200.0)]),
        (
            "two, one of which asks 20 times as often",
            hog_and(1, 100.0),
        ),
        (
            "ten, one of which asks 100 times as often",
            hog_and(9, 20.0),
        ),
        (
            "1,000, one of which asks 1,000 times as often",
            hog_and(999, 2.0),
        ),
        (
            "a hog, one that asks for 40, one that asks for 5",
            vec![hog, asker(40.0), asker(5.0)],
        ),
        (
            "a hog, and one of weight 4 that asks for 200",
            vec![hog, pro],
        ),
        (
            "a hog, and from second 10 on one that asks for 100",
            vec![hog, late],
        ),
        ("a hog, and nine that have gone", {
            let mut askers = vec![gone; 9];
            askers.insert(0, hog);
            askers
        }),
    ];
    let mut table =
        "| tenants | all | the first | each of the others | longest wait of these |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for (name, askers) in rows {
        let queue = queue(99).fair(Fair::new().weight("pro", 4));
        let had = play_under(queue, &askers, (5.0, 20.0));
        let all: f64 = rates(&had).iter().sum();
        let others = &had[1..];
        let least = others
            .iter()
            .map(|it| it.rate)
            .fold(f64::INFINITY, f64::min);
        let most = others.iter().map(|it| it.rate).fold(0.0, f64::max);
        let longest = others.iter().map(|it| it.longest).fold(0.0, f64::max);
        let (rate, wait) = match others.len() {
            0 => (String::new(), String::new()),
            _ if most == 0.0 => ("0".to_owned(), String::new()),
            1 => (format!("{most:.1}"), format!("{longest:.2} s")),
            _ => (
                format!("{least:.2} to {most:.2}"),
                format!("{longest:.2} s"),
            ),
        };
        writeln!(
            table,
            "| {name} | {all:.1} | {:.2} | {rate} | {wait} |",
            had[0].rate
        )
        .unwrap();
    }
    table
}

#[test]
fn the_page_has_the_table_of_this_simulation() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/fair.md");
    let (page, table) = (std::fs::read_to_string(page).unwrap(), table());
    assert!(page.contains(&table), "{table}");
}

#[test]
fn what_one_leaves_goes_to_those_that_ask_for_more() {
    let askers = [asker(2_000.0), asker(40.0), asker(5.0)];
    let had = rates(&play_under(queue(19), &askers, (5.0, 25.0)));
    assert!((54.0..57.0).contains(&had[0]), "{had:?}");
    assert!((39.0..41.0).contains(&had[1]), "{had:?}");
    assert!((4.7..5.3).contains(&had[2]), "{had:?}");
}

#[test]
fn one_alone_has_all_of_it() {
    let alone = &play_under(queue(19), &[asker(400.0)], (5.0, 25.0))[0];
    assert!((98.0..=100.5).contains(&alone.rate), "{alone:?}");
    // As long as the queue is.
    assert!((0.18..=0.2).contains(&alone.longest), "{alone:?}");
    let mut askers = vec![
        Asker {
            to: 3.0,
            ..asker(2.0)
        };
        300
    ];
    askers[0] = asker(400.0);
    let had = play_under(queue(19), &askers, (6.0, 16.0));
    assert!((98.0..=100.5).contains(&had[0].rate), "{:?}", had[0]);
}

#[test]
fn plans_have_weights() {
    let policy = queue(19).fair(Fair::new().weight("pro", 4));
    let pro = Asker {
        plan: "pro",
        ..asker(200.0)
    };
    let had = rates(&play_under(policy, &[asker(2_000.0), pro], (5.0, 25.0)));
    assert!((19.0..21.0).contains(&had[0]), "{had:?}");
    assert!((79.0..81.0).contains(&had[1]), "{had:?}");
}

#[test]
fn large_requests_have_their_share_beside_small_ones() {
    for cost in [5, 20] {
        let mut askers = vec![asker(100.0); 5];
        askers[0].cost = cost;
        let had = play_under(queue(39), &askers, (10.0, 60.0));
        let all: f64 = rates(&had).iter().sum();
        let least = 0.95 / 5.0 * all - f64::from(cost) / 50.0;
        assert!(had[0].rate >= least, "{cost}: {had:?}");
        assert!(jain(&had) >= 0.98, "{cost}: {had:?}");
    }
}

/// What is told is enough if nobody else asks: whoever is refused comes again after its wait, and finds a place.
#[test]
fn who_waits_as_told_finds_a_place() {
    let mut draw = Draw::seeded(7);
    let mut tried = 0;
    for _ in 0..60 {
        let mut scene = Scene::new(queue(9));
        for _ in 0..200 {
            scene.step(Duration::from_micros((draw.next() * 9_000.0) as u64));
            scene.send(job((draw.next() * draw.next() * 4.0) as u64, 0));
        }
        let of = (draw.next() * 4.0) as u64;
        let wait = loop {
            scene.ended.lock().unwrap().clear();
            scene.send(job(of, 0));
            if let Some((_, Ended::Refused(wait))) = scene.ended.lock().unwrap().last() {
                break wait.unwrap();
            }
        };
        scene.step(wait);
        scene.ended.lock().unwrap().clear();
        scene.send(job(of, 1));
        let ended = scene.ended.lock().unwrap().clone();
        let is_refused = |(_, how): &(usize, Ended)| matches!(how, Ended::Refused(_));
        assert!(!ended.iter().any(is_refused), "{of} after {wait:?}");
        tried += usize::from(wait > MILLISECOND);
    }
    assert!(tried > 50, "{tried}");
}

/// Two requests that wait change places, and those of one tenant do not.
#[test]
fn tenants_are_served_in_turn() {
    let mut scene = Scene::new(queue(99));
    for number in 0..6 {
        scene.send(job(0, number));
    }
    for number in 6..8 {
        scene.send(job(1, number));
    }
    let large = Job {
        cost: 2,
        ..job(2, 8)
    };
    scene.send(large);
    assert_eq!(scene.went_on(), [0]);
    // Each visit is of two units now, and that of the first tenant had begun with one.
    scene.step(11 * Duration::from_millis(10));
    assert_eq!(scene.went_on(), [1, 6, 7, 8, 2, 3, 4, 5]);
}

/// Clients that go away leave their turns to the others, and their places.
#[test]
fn who_goes_away_leaves_its_turns() {
    let mut scene = Scene::new(queue(9));
    let hog: Vec<_> = (0..10).map(|number| scene.send(job(0, number))).collect();
    scene.send(job(1, 10));
    let full = Duration::from_millis(10);
    let of_share = 2 * full + Duration::from_micros(1);
    assert_eq!(scene.last(), Ended::Refused(Some(of_share)));
    scene.step(of_share);
    scene.send(job(1, 11));
    assert_eq!(scene.went_on(), [0, 1, 2]);
    for task in &hog[3..] {
        scene.drop_one(*task);
    }
    // Eight places are free, and none of them is held against the hog.
    for number in 12..20 {
        scene.send(job(0, number));
    }
    let is_refused = |(_, how): &(usize, Ended)| matches!(how, Ended::Refused(_));
    let refused = scene
        .ended
        .lock()
        .unwrap()
        .iter()
        .filter(|it| is_refused(it))
        .count();
    assert!(refused <= 1, "{refused}");
    scene.step(full);
    scene.step(full);
    assert_eq!(scene.went_on(), [11, 12]);
}

#[test]
fn more_tenants_than_are_told_apart_share_one_place() {
    let policy = queue(19).fair(Fair::new().most_tenants(2));
    let had = rates(&play_under(policy, &[asker(200.0); 6], (5.0, 25.0)));
    let all: f64 = had.iter().sum();
    assert!((98.0..=100.5).contains(&all), "{all}");
    let own = had.iter().filter(|one| **one > 30.0).count();
    assert_eq!(own, 2, "{had:?}");
    assert!(had.iter().all(|one| *one > 3.0), "{had:?}");
}

/// An attacker that invents a tenant for each request passes no limit, and its requests leave nothing behind.
#[test]
fn invented_tenants_end_no_limit() {
    let mut scene = Scene::new(queue(19));
    for number in 0..3_000_u64 {
        scene.step(MILLISECOND);
        let task = scene.send(job(number, 0));
        if number % 3 == 0 {
            scene.drop_one(task);
        }
    }
    let passed = scene.went_on().len();
    // Some places are kept for those that were told to come.
    assert!((285..=301).contains(&passed), "{passed} in 3 s");
    // Those that asked last count for a second, and have places kept for them.
    scene.step(2 * SECOND);
    assert!(scene.tasks.iter().all(Option::is_none));
    scene.went_on();
    for number in 0..20 {
        scene.send(job(1, number));
    }
    scene.step(SECOND);
    assert_eq!(scene.went_on().len(), 20, "the queue is whole");
}

/// A verb holds nothing: it tells the turn behind all others.
#[test]
fn a_verb_tells_the_last_turn() {
    let mut scene = Scene::new(queue(99));
    for number in 0..6 {
        scene.send(job(0, number));
    }
    let decision = now(scene.nodes[0].check(tenant(1), 1)).unwrap();
    let told = decision.binding().unwrap().1.delay();
    assert_eq!(told, Duration::from_millis(60));
    scene.send(job(2, 6));
    scene.step(Duration::from_millis(20));
    assert_eq!(scene.went_on(), [0, 1, 6]);
    // Its turn is taken by nobody else.
    scene.step(Duration::from_millis(39));
    assert_eq!(scene.went_on(), [2, 3, 4]);
    scene.step(Duration::from_millis(10));
    assert!(scene.went_on().is_empty());
    scene.step(MILLISECOND);
    assert_eq!(scene.went_on(), [5]);
}

#[test]
fn a_block_is_of_one_tenant_and_another_policy_counts_beside_it() {
    let builder = Limiter::builder()
        .policy(queue(9))
        .policy(Policy::new("own", FixedWindow::per_hour(3)))
        .plans_by_name(plans());
    let mut scene = Scene::of(builder);
    now(scene.nodes[0].block(tenant(1), HOUR)).unwrap();
    scene.send(job(1, 0));
    assert!(matches!(scene.last(), Ended::Refused(_)));
    for number in 1..5 {
        scene.send(job(0, number));
    }
    assert!(
        matches!(scene.last(), Ended::Refused(_)),
        "of its own three"
    );
    scene.step(SECOND);
    assert_eq!(scene.went_on(), [1, 2, 3]);
}

#[test]
fn what_does_not_go_with_it_is_refused_with_a_remedy() {
    let errors = [
        (
            Limiter::builder().policy(queue(3)).build(),
            "at least 4 places",
        ),
        (
            Limiter::builder()
                .policy(queue(9).wait_up_to(SECOND))
                .build(),
            "wait_up_to",
        ),
        (
            Limiter::builder()
                .policy(queue(9))
                .store(SharedStore::new(OneByOne(Map::new(&ManualClock::new()))))
                .build(),
            "several can change at once",
        ),
    ];
    for (built, remedy) in errors {
        let error = built.unwrap_err().to_string();
        assert!(error.contains(remedy), "{remedy}: {error}");
    }
}
