//! A tree in Redis: all levels of a root are decided on in one call.

use std::collections::HashSet;
use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::key::{self, IntoKey, Key};
use tower_ratelimit::policy::Http;
use tower_ratelimit::store::{Lease, RedisStore, RedisStoreBuilder};
use tower_ratelimit::{FixedWindow, OnStoreFailure, Policy, RateLimitLayer};

use crate::scene::{ask, calls, cluster_store, keys, over, patient, store};
use crate::support::redis::{Cluster, Server};

const PATH: [&str; 3] = ["x-org", "x-team", "x-user"];
const LONG: &str = "3f2504e0-4f89-11d3-9a0c-0305e82c3301";

fn tree(limits: [u32; 3]) -> Vec<Policy<Http>> {
    let levels = PATH.into_iter().zip(limits).enumerate();
    let tree = levels.fold(Policy::tree("spend"), |tree, (level, (header, limit))| {
        let key = key::header(header);
        tree.level(&level.to_string(), key, FixedWindow::per_day(limit))
    });
    tree.each(|level| level.on_store_failure(OnStoreFailure::Refuse))
        .build()
        .unwrap()
}

fn layer(store: &RedisStore, limits: [u32; 3]) -> RateLimitLayer {
    let layer = RateLimitLayer::builder().policies(tree(limits));
    layer.store(store.clone()).build().unwrap()
}

async fn status(layer: &RateLimitLayer, path: [&str; 3]) -> StatusCode {
    let mut request = Request::new(());
    for (name, value) in PATH.into_iter().zip(path) {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let hello =
        service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())));
    let response = layer.layer(hello).oneshot(request).await.unwrap();
    response.status()
}

fn key_of(path: &[&str]) -> Key {
    let below: Vec<Key> = path[1..].iter().map(|part| part.into_key()).collect();
    Key::branch(path[0], &below)
}

#[tokio::test]
async fn all_levels_of_a_root_are_in_one_slot_and_decided_on_in_one_call() {
    let cluster = Cluster::start();
    let store = cluster_store(&cluster);
    let layer = layer(&store, [3, 2, 1]);
    let policies = tree([3, 2, 1]);
    let mut slots = HashSet::new();
    for org in ["acme", "other", LONG, "", "é{}é{}é{}"] {
        for path in [[org, "blue", "ann"], [org, LONG, LONG]] {
            let calls = || {
                cluster
                    .nodes
                    .iter()
                    .map(|node| calls(node, "evalsha"))
                    .sum::<u64>()
            };
            let before = calls();
            assert_eq!(status(&layer, path).await, StatusCode::OK);
            assert_eq!(calls(), before + 1);
            let of_root: HashSet<u64> = (0..3)
                .map(|level| store.store_key(&policies[level], key_of(&path[..=level])))
                .map(|name| ask(&cluster.nodes[0], &["CLUSTER", "KEYSLOT", &name]))
                .collect();
            assert_eq!(of_root.len(), 1, "{path:?}");
            slots.extend(of_root);
            assert_eq!(status(&layer, path).await, StatusCode::TOO_MANY_REQUESTS);
        }
    }
    assert_eq!(slots.len(), 5);
}

#[tokio::test]
async fn the_states_of_a_tree_are_where_the_store_says() {
    let server = Server::start(&[]);
    let store = store(&server);
    assert_eq!(
        status(&layer(&store, [3, 2, 1]), ["acme", "blue", "ann"]).await,
        StatusCode::OK
    );
    assert_eq!(
        keys(&server),
        [
            "ratelimit:1:{t:acme}:spend.0:fixed-window/day",
            "ratelimit:1:{t:acme};t:blue,t:ann;spend.2:fixed-window/day",
            "ratelimit:1:{t:acme};t:blue;spend.1:fixed-window/day",
        ]
    );
    let policies = tree([3, 2, 1]);
    let told: HashSet<String> = (0..3)
        .map(|level| store.store_key(&policies[level], key_of(&["acme", "blue", "ann"][..=level])))
        .collect();
    assert_eq!(told, keys(&server).into_iter().collect());
}

#[test]
fn no_part_of_a_key_runs_into_the_name_of_a_policy() {
    let store = RedisStore::new("redis://127.0.0.1:1/").unwrap();
    let name = |policy: &str, team: &str| {
        let policy: Policy = Policy::new(policy, FixedWindow::per_day(1));
        store.store_key(&policy, key_of(&["acme", team]))
    };
    assert_ne!(name("spend.team", "blue:eu"), name("eu:spend.team", "blue"));
    assert_ne!(name("spend.team", "blue;eu"), name("eu;spend.team", "blue"));
    assert_ne!(
        name("spend.team", "blue,t:eu"),
        name("t:eu;spend.team", "blue")
    );
}

/// Lets organisations ask until a node has saved calls, of which it saves fewer while the machine is busy.
async fn leased_levels_are_not_passed(open: impl Fn(RedisStoreBuilder) -> RedisStore) {
    let mut saved = 0;
    for org in 0..20 {
        saved += leased_levels_of_one_are_not_passed(&open, &format!("acme {org}")).await;
        if saved > 100 {
            return;
        }
    }
    panic!("{saved} calls are saved");
}

/// Sends requests of two users of two teams to three nodes in turn. Returns how many calls they have saved.
async fn leased_levels_of_one_are_not_passed(
    open: impl Fn(RedisStoreBuilder) -> RedisStore,
    org: &str,
) -> u64 {
    let nodes: Vec<RateLimitLayer> = (0..3)
        .map(|_| {
            let lease = Lease::up_to(Duration::from_secs(30));
            layer(&open(patient().lease(lease)), [300, 200, 120])
        })
        .collect();
    let mut admitted = [[0; 2]; 2];
    for round in 0..900 {
        let (team, user) = (round % 2, round / 2 % 2);
        let path = [org, ["blue", "red"][team], ["ann", "bob"][user]];
        if status(&nodes[round % 3], path).await == StatusCode::OK {
            admitted[team][user] += 1;
        }
    }
    let teams = admitted.map(|users: [u32; 2]| users.iter().sum::<u32>());
    assert!(
        admitted.iter().flatten().all(|user| *user <= 120),
        "{admitted:?}"
    );
    assert!(teams.iter().all(|team| *team <= 200), "{admitted:?}");
    let all: u32 = teams.iter().sum();
    assert!((150..=300).contains(&all), "{admitted:?}");
    let saved = nodes.iter().map(|node| {
        let snapshot = node.limiter().snapshot();
        snapshot.store.leases.unwrap().calls_saved
    });
    saved.sum()
}

#[tokio::test]
async fn a_node_that_holds_units_of_a_user_holds_those_of_team_and_organisation_too() {
    let server = Server::start(&[]);
    let path = ["acme", "blue", "ann"];
    let lease = Lease::up_to(Duration::from_secs(60));
    let store = patient().lease(lease).open(server.url()).unwrap();
    let layer = layer(&store, [300_000, 200_000, 100_000]);
    let leased = async |level: usize| {
        let inspection = layer.limiter().inspect(key_of(&path[..=level])).await;
        let inspection = inspection.unwrap();
        inspection.leased().map(|(_, units)| units).sum::<u32>()
    };
    for _ in 0..5_000 {
        assert_eq!(status(&layer, path).await, StatusCode::OK);
        if leased(2).await > 0 {
            assert!(leased(1).await > 0 && leased(0).await > 0);
            return;
        }
    }
    panic!("no unit of a user was leased");
}

#[tokio::test]
async fn leases_never_pass_a_level() {
    let server = Server::start(&[]);
    leased_levels_are_not_passed(|store| store.open(server.url()).unwrap()).await;
}

#[tokio::test]
async fn leases_never_pass_a_level_in_a_cluster() {
    let cluster = Cluster::start();
    leased_levels_are_not_passed(|store| over(store, &cluster)).await;
}
