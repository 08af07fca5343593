//! Every store settles as the store in this process does, whatever becomes of a key between the decision and the end:
//! resets, overrides, and windows that end.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tokio::runtime::{Builder, Runtime};
use tower_ratelimit::limiter::Reservation;
use tower_ratelimit::policy::OnAbandoned;
use tower_ratelimit::store::SharedStore;
use tower_ratelimit::{
    Algorithm, Decision, Limiter, ManualClock, MemoryStore, OnStoreFailure, Policy, RedisStore,
};

use crate::outcomes::reservations::{HOUR, hourly};
use crate::support::items::Map;
use crate::support::redis::Server;
use crate::support::tasks::Tasks;

const LIMIT: u32 = 1_000;

/// The limit of an override, and how much a key can be charged in all: some counts in memory hold only twice the limit.
const OVERRIDDEN: u32 = 500;
const MOST: u32 = 2 * OVERRIDDEN - 1;

const KEYS: usize = 2;

/// The time after which a test has failed.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Debug)]
enum Step {
    /// In 2^12ths of an hour.
    Waits(u32),
    Reserves(u64, u32),
    /// Ends one of the open reservations at this cost, or drops it.
    Ends(Index, Option<u32>),
    Resets(u64),
    Overrides(u64),
    EndsOverride(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..KEYS as u64;
    let step = prop_oneof![
        2 => (0..6_000_u32).prop_map(Step::Waits),
        // Debts of several requests overlap.
        2 => (0..300_u32).prop_map(Step::Waits),
        6 => (key(), 1..90_u32).prop_map(|(key, estimate)| Step::Reserves(key, estimate)),
        5 => (any::<Index>(), proptest::option::weighted(0.8, 0..150_u32))
            .prop_map(|(which, cost)| Step::Ends(which, cost)),
        1 => key().prop_map(Step::Resets),
        1 => key().prop_map(Step::Overrides),
        1 => key().prop_map(Step::EndsOverride),
    ];
    vec(step, 1..24)
}

/// A limiter over a store, and the reservations of requests under way.
struct Side {
    limiter: Limiter,
    open: Vec<Reservation>,
}

impl Side {
    fn new(limiter: Limiter) -> Self {
        Self {
            limiter,
            open: Vec::new(),
        }
    }
}

/// The same limit in three stores, with one clock.
struct Sides<'a> {
    clock: ManualClock,
    algorithm: Algorithm,
    stores: [Side; 3],
    /// The key and the estimate of each open reservation.
    open: Vec<(u64, u32)>,
    /// What each key was charged in all.
    charged: [u32; KEYS],
    runtime: &'a Runtime,
    case: u64,
}

impl Sides<'_> {
    /// Returns what each store tells of a decision.
    fn told(decision: &Decision) -> (bool, u32, u32, Duration, Option<Duration>) {
        let (_, told) = decision.binding().unwrap();
        (
            told.is_allowed(),
            told.limit(),
            told.remaining(),
            told.reset_after(),
            told.retry_after(),
        )
    }

    fn play(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let (case, runtime) = (self.case, self.runtime);
        match *step {
            Step::Waits(parts) => self.clock.advance(HOUR / 4_096 * parts),
            Step::Reserves(key, estimate) => {
                let place = usize::try_from(key).unwrap();
                if self.charged[place] + estimate > MOST {
                    return Ok(());
                }
                let asked = self.stores.each_mut().map(|side| {
                    let asked = side.limiter.reserve((case, key), estimate).into_future();
                    (side, runtime.block_on(asked).unwrap())
                });
                let told = asked.each_ref().map(|(_, it)| Self::told(it.decision()));
                prop_assert_eq!(told, [told[0]; 3]);
                if told[0].0 {
                    self.charged[place] += estimate;
                    self.open.push((key, estimate));
                    for (side, reservation) in asked {
                        side.open.push(reservation);
                    }
                }
            }
            Step::Ends(which, cost) => {
                if self.open.is_empty() {
                    return Ok(());
                }
                let which = which.index(self.open.len());
                let (key, estimate) = self.open.swap_remove(which);
                let charged = &mut self.charged[usize::try_from(key).unwrap()];
                let cost = cost.map(|cost| cost.min(estimate + MOST - *charged));
                *charged += cost.unwrap_or(0).saturating_sub(estimate);
                for side in &mut self.stores {
                    let reservation = side.open.swap_remove(which);
                    let _guard = runtime.enter();
                    match cost {
                        Some(cost) => reservation.settle(cost),
                        None => drop(reservation),
                    }
                }
            }
            Step::Resets(key) => {
                for side in &self.stores {
                    let reset = side.limiter.reset((case, key));
                    runtime.block_on(reset.into_future()).unwrap();
                }
            }
            Step::Overrides(key) => {
                let lower = hourly(OVERRIDDEN).into_iter();
                let mut lower = lower.filter(|it| it.name() == self.algorithm.name());
                let lower = lower.next().unwrap();
                for side in &self.stores {
                    let given = side
                        .limiter
                        .override_limit("units", (case, key), lower, HOUR);
                    runtime.block_on(given.unwrap().into_future()).unwrap();
                }
            }
            Step::EndsOverride(key) => {
                for side in &self.stores {
                    let ended = side.limiter.end_override("units", (case, key));
                    runtime.block_on(ended.unwrap().into_future()).unwrap();
                }
            }
        }
        Ok(())
    }

    fn agree(&self) -> Result<(), TestCaseError> {
        for key in 0..KEYS as u64 {
            let told = self.stores.each_ref().map(|side| {
                let peeked = side.limiter.peek((self.case, key), 1);
                Self::told(&self.runtime.block_on(peeked.into_future()).unwrap())
            });
            prop_assert_eq!(told, [told[0]; 3], "key {}", key);
        }
        Ok(())
    }
}

#[test]
fn a_settlement_does_the_same_in_every_store_whatever_becomes_of_the_key() {
    let server = Server::start(&[]);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let clock = ManualClock::new();
    let store = RedisStore::builder().deadline(PATIENCE);
    let store = store.open(server.url()).unwrap().clock(clock.clone());
    let sides = hourly(LIMIT).map(|algorithm| {
        let policy = Policy::new("units", algorithm)
            .on_abandoned(OnAbandoned::Units(3))
            .on_store_failure(OnStoreFailure::Refuse);
        let builder = Limiter::builder().policy(policy);
        let clock = clock.clone();
        move |store: &RedisStore| {
            // In a store of its own for each case: an override moves a table to the general path for good.
            let memory = MemoryStore::new().clock(clock.clone());
            let shared = SharedStore::new(Map::new(&clock));
            [
                Side::new(builder.clone().store(memory).build().unwrap()),
                Side::new(builder.clone().store(shared).build().unwrap()),
                Side::new(builder.clone().store(store.clone()).build().unwrap()),
            ]
        }
    });
    // The first call connects.
    let [.., first] = sides[0](&store);
    let _ = runtime
        .block_on(first.limiter.peek(0_u64, 0).into_future())
        .unwrap();
    let tasks = runtime.block_on(Tasks::beside(&store));

    let config = Config {
        cases: 200,
        failure_persistence: None,
        ..Config::default()
    };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let number = std::cell::Cell::new(0);
    let cases = (0..sides.len(), steps());
    let played = TestRunner::new_with_rng(config, random).run(&cases, |(kind, steps)| {
        number.set(number.get() + 1);
        let mut all = Sides {
            clock: clock.clone(),
            algorithm: hourly(LIMIT)[kind],
            stores: sides[kind](&store),
            open: Vec::new(),
            charged: [0; KEYS],
            runtime: &runtime,
            case: number.get(),
        };
        for step in &steps {
            all.play(step)?;
            runtime.block_on(tasks.end(0));
            all.agree()?;
        }
        let lost = all
            .stores
            .each_ref()
            .map(|side| side.limiter.lost_settlements());
        prop_assert_eq!(lost, [0; 3]);
        Ok(())
    });
    played.unwrap_or_else(|failure| panic!("{failure}"));
}
