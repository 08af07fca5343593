//! Requests, changes, failures and invalidations in any order: each decision names its true plan.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::{Instant, sleep};
use tower_ratelimit::decision::{Resolution, Unresolved};
use tower_ratelimit::plan::{Plan, Resolved, Resolver};
use tower_ratelimit::{FixedWindow, Limiter, Policy};

use crate::resolver::scene::MILLIS;

const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const FRESH: Duration = Duration::from_millis(500);
const PLACES: usize = 4;
const TIMEOUT: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
enum Op {
    Ask(usize),
    /// Changes the key to its next version, or to none.
    Change(usize, bool),
    /// Makes lookups of the key fail, or succeed again.
    Fail(usize, bool),
    /// Sets the time that lookups take from now on.
    Slow(u64),
    Invalidate(usize),
    InvalidateAll,
    Advance(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = 0..KEYS.len();
    let op = prop_oneof![
        8 => key.clone().prop_map(Op::Ask),
        2 => (key.clone(), prop::bool::weighted(0.8)).prop_map(|(key, is)| Op::Change(key, is)),
        1 => (key.clone(), any::<bool>()).prop_map(|(key, fails)| Op::Fail(key, fails)),
        2 => prop_oneof![1..10_u64, 30..120_u64].prop_map(Op::Slow),
        2 => key.prop_map(Op::Invalidate),
        1 => Just(Op::InvalidateAll),
        5 => prop_oneof![1..60_u64, 300..1_500_u64].prop_map(Op::Advance),
    ];
    prop::collection::vec(op, 1..80)
}

/// The data of the source, and the events in order.
#[derive(Default)]
struct World {
    /// The number of events.
    moment: u64,
    versions: HashMap<&'static str, u64>,
    version: u64,
    failing: HashMap<&'static str, bool>,
    delay: Duration,
    /// The last invalidation of each key.
    invalidated: HashMap<&'static str, u64>,
    in_flight: HashMap<&'static str, usize>,
    landed: Vec<Landed>,
}

#[derive(Clone, Copy)]
struct Landed {
    key: &'static str,
    /// `None` for a key that the source does not know.
    version: Option<u64>,
    began: u64,
    at: Instant,
}

impl World {
    fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    fn last(&self, key: &str) -> Option<&Landed> {
        let mut landed = self.landed.iter().rev();
        landed.find(|landed| landed.key == key)
    }
}

type Shared = Arc<Mutex<World>>;

/// Reads the data at its beginning and answers later, as a slow database does.
async fn look_up(world: Shared, key: &'static str) -> io::Result<Resolved> {
    let (version, began, delay, fails) = {
        let mut world = world.lock().unwrap();
        let in_flight = world.in_flight.entry(key).or_default();
        *in_flight += 1;
        assert_eq!(*in_flight, 1, "two lookups of {key}");
        let all: usize = world.in_flight.values().sum();
        assert!(all <= PLACES, "{all} lookups in flight");
        let version = world.versions.get(key).copied();
        let fails = world.failing.get(key).copied().unwrap_or_default();
        (version, world.tick(), world.delay, fails)
    };
    sleep(delay).await;
    let mut world = world.lock().unwrap();
    world.tick();
    *world.in_flight.entry(key).or_default() -= 1;
    if fails {
        return Err(io::Error::other("away"));
    }
    let at = Instant::now();
    world.landed.push(Landed {
        key,
        version,
        began,
        at,
    });
    Ok(match version {
        None => Resolved::NotFound,
        Some(version) => {
            let plan = Plan::new(format!("v{version}"));
            Resolved::Limits(plan.limit("minute", FixedWindow::per_minute(5)))
        }
    })
}

async fn ask(limiter: Limiter, world: Shared, key: &'static str) {
    let asked = world.lock().unwrap().tick();
    let start = Instant::now();
    let invalidated = world.lock().unwrap().invalidated.get(key).copied();
    let decision = limiter.check(key, 0).await.unwrap();
    let took = start.elapsed();
    assert!(took <= TIMEOUT + MILLIS, "{key}: {took:?}");

    let rule = decision.rule().unwrap().to_string();
    let version = rule
        .strip_prefix("resolver v")
        .map(|it| it.parse::<u64>().unwrap());
    let world = world.lock().unwrap();
    let last = world.last(key).map(|landed| landed.version);
    match decision.resolution().unwrap() {
        told @ (Resolution::Fresh | Resolution::Default(Unresolved::NotFound)) => {
            assert_eq!(version.is_some(), told == Resolution::Fresh);
            // An answer that is no longer fresh may still be that the key is unknown.
            let is_old = told != Resolution::Fresh;
            let is_true = |landed: &Landed| {
                let is_after = invalidated.is_none_or(|moment| landed.began > moment);
                let is_fresh = landed.at.elapsed() <= FRESH + FRESH / 10 + took + MILLIS;
                let is_it = landed.key == key && landed.version == version;
                is_it && (is_old || (is_after && is_fresh))
            };
            let is_true = world.landed.iter().any(is_true);
            assert!(
                is_true,
                "{key} at {asked}: {rule}, {told}, invalidated {invalidated:?}"
            );
        }
        Resolution::Stale(why) => assert_eq!(last, Some(version), "{key}: {rule}, stale: {why}"),
        Resolution::Default(why) => {
            assert_eq!(version, None);
            assert_eq!(last.flatten(), None, "{key}: default: {why}");
        }
        other => panic!("{other}"),
    }
}

async fn run(ops: Vec<Op>) {
    let world = Shared::default();
    world.lock().unwrap().delay = 5 * MILLIS;
    let source = Arc::clone(&world);
    let resolver = Resolver::builder(move |key: &'static str| look_up(Arc::clone(&source), key))
        .fresh_for(FRESH)
        .not_found_for(FRESH)
        .stale_for(FRESH)
        .retry_after(20 * MILLIS)
        .timeout(TIMEOUT)
        .in_flight(PLACES)
        .build()
        .unwrap();
    let of_key = |key: &tower_ratelimit::key::Key| {
        let text = key.to_text()?;
        KEYS.into_iter().find(|key| *key == text)
    };
    let limiter = Limiter::builder()
        .policy(Policy::new("minute", FixedWindow::per_minute(10)))
        .resolver(resolver.clone(), of_key)
        .build()
        .unwrap();
    let mut asked = Vec::new();
    for op in ops {
        match op {
            Op::Ask(key) => {
                let asking = ask(limiter.clone(), Arc::clone(&world), KEYS[key]);
                asked.push(tokio::spawn(asking));
            }
            Op::Change(key, is) => {
                let mut world = world.lock().unwrap();
                world.version += 1;
                let version = world.version;
                if is {
                    world.versions.insert(KEYS[key], version)
                } else {
                    world.versions.remove(KEYS[key])
                };
            }
            Op::Fail(key, fails) => {
                world.lock().unwrap().failing.insert(KEYS[key], fails);
            }
            Op::Slow(millis) => world.lock().unwrap().delay = Duration::from_millis(millis),
            Op::Invalidate(key) => {
                resolver.invalidate(&KEYS[key]);
                let mut world = world.lock().unwrap();
                let moment = world.tick();
                world.invalidated.insert(KEYS[key], moment);
            }
            Op::InvalidateAll => {
                resolver.invalidate_all();
                let mut world = world.lock().unwrap();
                let moment = world.tick();
                let all = KEYS.map(|key| (key, moment));
                world.invalidated.extend(all);
            }
            // Lookups that end in the meantime end at their time.
            Op::Advance(millis) => sleep(Duration::from_millis(millis)).await,
        }
    }
    for asked in asked {
        asked.await.unwrap();
    }
}

proptest! {
    #[test]
    fn a_decision_names_its_true_plan(ops in ops()) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(run(ops));
    }
}
