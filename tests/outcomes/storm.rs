//! Twenty thousand requests that end in every way, at random, of a few clients at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tower_ratelimit::policy::{Ending, Settle, Unsettled};
use tower_ratelimit::store::Store;
use tower_ratelimit::{MemoryStore, Policy, RateLimitLayer, key};

use crate::endings::policy;
use crate::script::{Script, WAYS, Way, send, service};

const REQUESTS: u32 = 20_000;
const CLIENTS: u32 = 40;
const USERS: u32 = 12;
const PLENTY: u32 = 1_000_000_000;
const UNSETTLED: u32 = 7;

/// So long that a test which reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Numbers that look random, the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 >> 32).unwrap() % most
    }
}

/// What all requests of each user cost, under `units` and under `successes`.
type Model = HashMap<String, [u32; 2]>;

fn user(number: u32) -> String {
    format!("user-{number}")
}

fn layer<S: Store>(store: S) -> RateLimitLayer {
    let units = policy(PLENTY)
        .settle(Settle::from_header("x-cost"))
        .unless_settled(Unsettled::Units(UNSETTLED));
    let successes = Policy::new("successes", tower_ratelimit::SlidingWindow::per_day(PLENTY))
        .key(key::header("x-user"))
        .charge_when(|ending: &Ending<'_>| ending.is_complete())
        .unless_settled(Unsettled::Nothing);
    let builder = RateLimitLayer::builder().policy(units).policy(successes);
    builder.store(store).build().unwrap()
}

/// Sends all requests, and returns what they cost.
async fn storm(layer: &RateLimitLayer, is_charged_unpolled: bool) -> Model {
    let model: Arc<Mutex<Model>> = Arc::default();
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let (layer, model) = (layer.clone(), Arc::clone(&model));
        clients.push(tokio::spawn(async move {
            let service = service(&layer);
            let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ u64::from(client + 1) << 20);
            for _ in 0..REQUESTS / CLIENTS {
                let way = WAYS[dice.below(17) as usize];
                let (estimate, cost) = (dice.below(100), dice.below(200));
                let user = user(dice.below(USERS));
                send(&service, &user, estimate, &Script::new(way, cost)).await;
                let is_charged = way != Way::NeverPolled || is_charged_unpolled;
                let units = match way {
                    _ if way.has_an_answer() => cost,
                    _ if is_charged => UNSETTLED,
                    _ => 0,
                };
                let mut model = model.lock().unwrap();
                let [all, successes] = model.entry(user).or_default();
                *all += units;
                *successes += u32::from(way.is_complete());
            }
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    Arc::try_unwrap(model).unwrap().into_inner().unwrap()
}

async fn used(layer: &RateLimitLayer) -> Model {
    let limiter = layer.limiter();
    let mut all = Model::new();
    for user in (0..USERS).map(user) {
        let key = key::header("x-user").key_of(&user).unwrap();
        let decision = limiter.peek(key, 0).await.unwrap();
        let numbers: Vec<u32> = decision.policies().map(|(_, told)| told.used()).collect();
        all.insert(user, numbers.try_into().unwrap());
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_request_is_settled_once_in_process() {
    let layer = layer(MemoryStore::new());
    let model = storm(&layer, true).await;
    assert_eq!(used(&layer).await, model);
    assert_eq!(layer.limiter().lost_settlements(), 0);
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_request_is_settled_once_over_redis() {
    let server = crate::support::redis::Server::start(&[]);
    let store = tower_ratelimit::RedisStore::builder().deadline(PATIENCE);
    let layer = layer(store.open(server.url()).unwrap());
    let model = storm(&layer, false).await;
    let started = Instant::now();
    // Settlements are under way yet. Those that are missing never come.
    while used(&layer).await != model {
        if started.elapsed() > PATIENCE {
            assert_eq!(used(&layer).await, model);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // One that is settled twice would change it again.
    let tasks = tokio::runtime::Handle::current().metrics();
    while tasks.num_alive_tasks() > 4 && started.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(used(&layer).await, model);
    assert_eq!(layer.limiter().lost_settlements(), 0);
}
