//! Twenty thousand requests of a few concurrent clients, with random endings.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::StatusCode;
use tower_ratelimit::{MemoryStore, RateLimitLayer};

use crate::outcomes::script::{Enter, WAYS, send, service};
use crate::outcomes::weather::{Dice, Drawn, layer, used, user};

const REQUESTS: u32 = 20_000;
const CLIENTS: u32 = 40;
const USERS: u32 = 12;
const TEAMS: u32 = 3;

/// The time after which a test has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The cost of all requests of each user, under `units` and under `successes`.
type Model = HashMap<u32, [u32; 2]>;

/// What the requests of a storm cost, and how they ended.
#[derive(Default)]
struct Account {
    used: Model,
    /// How many settlements change a charge, under `units` and under `successes`.
    settlements: [u64; 2],
    ways: BTreeMap<String, u32>,
}

impl Account {
    fn note(&mut self, drawn: &Drawn, is_charged_unpolled: bool) {
        let all = self.used.entry(drawn.user).or_default();
        for (all, one) in all.iter_mut().zip(drawn.costs(is_charged_unpolled)) {
            *all += one;
        }
        let settlements = drawn.settlements(is_charged_unpolled);
        for (all, one) in self.settlements.iter_mut().zip(settlements) {
            *all += one;
        }
        *self.ways.entry(format!("{:?}", drawn.way)).or_default() += 1;
    }
}

/// The view of the service behind the layer on each team.
#[derive(Default)]
struct Seen {
    inside: [AtomicU32; TEAMS as usize],
    most: AtomicU32,
    refused: AtomicU32,
}

struct Guest(Arc<Seen>, usize);

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.inside[self.1].fetch_sub(1, Ordering::SeqCst);
    }
}

fn enter(seen: &Arc<Seen>, team: u32) -> Arc<Enter> {
    let (seen, team) = (Arc::clone(seen), team as usize);
    Arc::new(move || {
        let inside = seen.inside[team].fetch_add(1, Ordering::SeqCst) + 1;
        seen.most.fetch_max(inside, Ordering::SeqCst);
        Box::new(Guest(Arc::clone(&seen), team))
    })
}

fn not_seen() -> Arc<Enter> {
    Arc::new(|| Box::new(()))
}

/// Sends requests until enough were admitted, and returns their costs.
async fn storm(layer: &RateLimitLayer, is_charged_unpolled: bool) -> (Account, Arc<Seen>) {
    let account: Arc<Mutex<Account>> = Arc::default();
    let seen: Arc<Seen> = Arc::default();
    let began = Instant::now();
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let (layer, account, seen) = (layer.clone(), Arc::clone(&account), Arc::clone(&seen));
        clients.push(tokio::spawn(async move {
            let service = service(&layer);
            let mut dice = Dice::new(client);
            let mut left = REQUESTS / CLIENTS;
            let mut refused = None;
            while left > 0 {
                // A refused request comes again, so that all ways are as frequent.
                let drawn = refused
                    .take()
                    .unwrap_or_else(|| Drawn::by(&mut dice, USERS));
                let team = dice.below(TEAMS);
                let (name, enter) = if drawn.is_alone() {
                    (alone(client, left), not_seen())
                } else {
                    (format!("team-{team}"), enter(&seen, team))
                };
                let script = drawn.script().of_team(name, dice.below(3), enter);
                let status = send(&service, &user(drawn.user), drawn.estimate, &script).await;
                if status == Some(StatusCode::TOO_MANY_REQUESTS) {
                    let refusals = seen.refused.fetch_add(1, Ordering::Relaxed);
                    let is_late = began.elapsed() > 3 * PATIENCE;
                    assert!(!is_late, "{left} are left after {refusals} refusals");
                    refused = Some(drawn);
                    tokio::task::yield_now().await;
                    continue;
                }
                left -= 1;
                account.lock().unwrap().note(&drawn, is_charged_unpolled);
            }
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    let account = Arc::try_unwrap(account).ok().unwrap();
    (account.into_inner().unwrap(), seen)
}

/// Returns the usage of each user, and the number of held slots.
async fn state(layer: &RateLimitLayer) -> (Model, u32) {
    let mut all = Model::new();
    for number in 0..USERS {
        let [units, successes, _] = used(layer, "x-user", &user(number)).await;
        all.insert(number, [units, successes]);
    }
    let mut held = 0;
    for team in 0..TEAMS {
        held += used(layer, "x-team", &format!("team-{team}")).await[2];
    }
    (all, held)
}

fn alone(client: u32, left: u32) -> String {
    format!("alone-{client}-{left}")
}

/// Returns the number of slots that requests in teams of their own hold.
async fn held_alone(layer: &RateLimitLayer) -> u32 {
    let mut held = 0;
    for client in 0..CLIENTS {
        let teams: Vec<_> = (1..=REQUESTS / CLIENTS)
            .map(|left| alone(client, left))
            .collect();
        let each = join_all(teams.iter().map(|team| used(layer, "x-team", team))).await;
        held += each.iter().map(|used| used[2]).sum::<u32>();
    }
    held
}

/// Tells how the requests ended, and compares the counts of the layer with those of the model.
fn tell(layer: &RateLimitLayer, account: &Account, seen: &Seen, at_once: u32) {
    let most = seen.most.load(Ordering::SeqCst);
    let refused = seen.refused.load(Ordering::SeqCst);
    let snapshot = layer.limiter().snapshot();
    let settled = ["units", "successes"].map(|name| snapshot.policy(name).unwrap().settled);
    println!(
        "{REQUESTS} requests, {refused} more refused, {most} of {at_once} at once, {settled:?} settlements; {:?}",
        account.ways
    );
    assert_eq!(most, at_once);
    assert_eq!(settled, account.settlements);
    assert_eq!(account.ways.len(), WAYS.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_request_is_settled_once_in_process() {
    const AT_ONCE: u32 = 3;
    let layer = layer(AT_ONCE, MemoryStore::new());
    let (account, seen) = storm(&layer, true).await;
    assert_eq!(state(&layer).await, (account.used.clone(), 0));
    assert_eq!(held_alone(&layer).await, 0);
    assert_eq!(layer.limiter().lost_settlements(), 0);
    tell(&layer, &account, &seen, AT_ONCE);
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_request_is_settled_once_over_redis() {
    const AT_ONCE: u32 = 5;
    let server = crate::support::redis::Server::start(&[]);
    let store = tower_ratelimit::RedisStore::builder().deadline(PATIENCE);
    let layer = layer(AT_ONCE, store.open(server.url()).unwrap());
    let (account, seen) = storm(&layer, false).await;
    let expected = (account.used.clone(), 0);
    let started = Instant::now();
    // Settlements are still under way. Missing ones never come.
    while state(&layer).await != expected {
        if started.elapsed() > PATIENCE {
            assert_eq!(state(&layer).await, expected);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // A double settlement would change the state again.
    let tasks = tokio::runtime::Handle::current().metrics();
    while tasks.num_alive_tasks() > 4 && started.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(state(&layer).await, expected);
    assert_eq!(held_alone(&layer).await, 0);
    assert_eq!(layer.limiter().lost_settlements(), 0);
    tell(&layer, &account, &seen, AT_ONCE);
}
