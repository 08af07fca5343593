//! Either–or in Redis: one call chooses who pays, and charges it together with the policies that are always charged.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use tower_ratelimit::__internal::AnyKey;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::key::{self, IntoKey, Key};
use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::plan::{Operations, Plan, Plans};
use tower_ratelimit::policy::{Http, OnMissingKey};
use tower_ratelimit::store::{Lease, Store};
use tower_ratelimit::{
    Decision, FixedWindow, Limiter, ManualClock, Micros, OnStoreFailure, Policy, RateLimitLayer,
    RedisStore, TokenBucket,
};

use crate::scene::{
    PATIENCE, calls, cluster_store, daily, patient, scripts_run, store, story, until_told,
    without_a_standby,
};
use crate::support::redis::{Cluster, Server};
use crate::without::lose;

/// A plan of 2, credits of 3 and a pool of 1, and all requests are counted.
fn groups() -> LimiterBuilder {
    let policies = [
        daily("plan", 2),
        daily("credits", 3),
        daily("pool", 1),
        daily("all", 100),
    ];
    Limiter::builder()
        .policies(policies.map(without_a_standby))
        .first_of("spend", ["plan", "credits", "pool"])
}

fn over<S: Store>(store: S) -> Limiter {
    groups().store(store).build().unwrap()
}

fn payer(decision: &Decision) -> Option<String> {
    assert_eq!(decision.is_allowed(), decision.payer("spend").is_some());
    decision.payer("spend").map(str::to_owned)
}

async fn left(limiter: &Limiter, key: impl IntoKey) -> Vec<u32> {
    let inspection = limiter.inspect(key).await.unwrap();
    let each = inspection.policies();
    each.map(|(_, outcome)| outcome.remaining()).collect()
}

#[tokio::test]
async fn one_call_chooses_who_pays_and_charges_nobody_else() {
    let server = Server::start(&[]);
    let limiter = over(store(&server));
    let mut payers = Vec::new();
    for _ in 0..7 {
        let before = calls(&server, "evalsha");
        payers.push(payer(&limiter.check("ann", 1).await.unwrap()));
        assert_eq!(calls(&server, "evalsha"), before + 1);
    }
    let payers: Vec<_> = payers.iter().map(Option::as_deref).collect();
    let expected = ["plan", "plan", "credits", "credits", "credits", "pool"].map(Some);
    assert_eq!(payers[..6], expected);
    assert_eq!(payers[6], None);
    assert_eq!(left(&limiter, "ann").await, [0, 0, 0, 94]);
    assert_eq!(left(&limiter, "bob").await, [2, 3, 1, 100]);
}

#[tokio::test]
async fn requests_that_share_a_call_each_have_a_payer_of_their_own() {
    let server = Server::start(&[]);
    let limiter = over(store(&server));
    let alone = daily("all", 100);
    let beside = Limiter::builder()
        .policy(alone)
        .store(store(&server))
        .build()
        .unwrap();
    let asks = (0..400_u32).map(|number| {
        let (limiter, beside) = (limiter.clone(), beside.clone());
        tokio::spawn(async move {
            let key = format!("k{}", number % 40);
            assert!(
                beside
                    .check(format!("other{number}"), 1)
                    .await
                    .unwrap()
                    .is_allowed()
            );
            let costs = [
                ("plan", 1),
                ("credits", 1 + number % 2),
                ("pool", 1),
                ("all", 1),
            ];
            let each = costs.map(|(name, cost)| (name, key.as_str(), cost));
            payer(&limiter.named(each).unwrap().check().await.unwrap())
        })
    });
    let asks: Vec<_> = asks.collect();
    let mut paid = [0; 3];
    for ask in asks {
        let names = ["plan", "credits", "pool"];
        let payer = ask.await.unwrap();
        if let Some(place) = names.iter().position(|name| payer.as_deref() == Some(name)) {
            paid[place] += 1;
        }
    }
    assert_eq!((paid[0], paid[2]), (80, 40));
    assert!((40..=120).contains(&paid[1]), "{paid:?}");
    for key in 0..40 {
        let left = left(&limiter, &format!("k{key}")).await;
        assert_eq!([left[0], left[2]], [0, 0], "{key}");
    }
}

#[tokio::test]
async fn a_bucket_pays_again_in_the_microsecond_in_which_it_has_a_unit() {
    let (server, clock) = (Server::start(&[]), ManualClock::new());
    clock.set_micros(Micros::new(1_704_067_200_000_000));
    let bucket = Policy::new("bucket", TokenBucket::per_minute(6).burst(2));
    let limiter = Limiter::builder()
        .policies([bucket, daily("pool", 1)].map(without_a_standby))
        .first_of("spend", ["bucket", "pool"])
        .store(store(&server).clock(clock.clone()));
    let limiter = limiter.build().unwrap();
    for (micros_later, expected) in [
        (0, Some("bucket")),
        (0, Some("bucket")),
        (0, Some("pool")),
        (9_999_999, None),
        (1, Some("bucket")),
    ] {
        clock.advance(Duration::from_micros(micros_later));
        let decision = limiter.check("ann", 1).await.unwrap();
        assert_eq!(payer(&decision).as_deref(), expected, "{micros_later}");
    }
}

#[tokio::test]
async fn units_are_taken_from_the_first_that_has_any() {
    let server = Server::start(&[]);
    let limiter = over(store(&server));
    let mut taken = Vec::new();
    for _ in 0..4 {
        let (units, decision) = limiter.acquire_up_to("ann", 10).await.unwrap();
        taken.push((units, payer(&decision)));
    }
    let taken: Vec<_> = taken
        .iter()
        .map(|(units, payer)| (*units, payer.as_deref()))
        .collect();
    let expected = [
        (2, Some("plan")),
        (3, Some("credits")),
        (1, Some("pool")),
        (0, None),
    ];
    assert_eq!(taken, expected);
    assert_eq!(left(&limiter, "ann").await, [0, 0, 0, 94]);
}

#[tokio::test]
async fn the_one_that_pays_is_settled() {
    let server = Server::start(&[]);
    let limiter = over(store(&server));
    assert_eq!(
        payer(&limiter.check("ann", 2).await.unwrap()).as_deref(),
        Some("plan")
    );
    let reservation = limiter.reserve("ann", 3).await.unwrap();
    assert_eq!(reservation.decision().payer("spend"), Some("credits"));
    reservation.settle(1);
    let settled = until_told(async || {
        let left = left(&limiter, "ann").await;
        // Each policy is settled on its own.
        (left[1] > 0 && left[3] > 95).then_some(left)
    });
    assert_eq!(settled.await, [0, 2, 1, 97]);
}

#[tokio::test]
async fn what_an_answer_costs_beyond_one_member_goes_to_the_next() {
    let server = Server::start(&[]);
    let limiter = groups().spill("spend").store(store(&server));
    let limiter = limiter.build().unwrap();
    let reservation = limiter.reserve("ann", 1).await.unwrap();
    assert_eq!(reservation.decision().payer("spend"), Some("plan"));
    reservation.settle(9);
    let settled = until_told(async || {
        let left = left(&limiter, "ann").await;
        // The last one is charged last; each policy is settled on its own.
        (left[2] == 0 && left[3] < 99).then_some(left)
    });
    assert_eq!(settled.await, [0, 0, 0, 91]);
    // The last one is above its limit by three.
    for (given_back, left_then) in [(3, 0), (1, 1)] {
        let pool = limiter.named([("pool", "ann", given_back)]);
        pool.unwrap().refund().await.unwrap();
        assert_eq!(left(&limiter, "ann").await[2], left_then);
    }
    assert_eq!(limiter.lost_settlements(), 0);
}

#[tokio::test]
async fn a_rest_that_the_server_does_not_take_is_one_lost_settlement() {
    let server = Server::start(&[]);
    let at_server = store(&server);
    let limiter = groups().spill("spend").store(at_server.clone());
    let limiter = limiter.build().unwrap();
    let asked = [
        ("plan", "ann", 1),
        ("credits", "ann", 1),
        ("pool", "ann", 1),
    ];
    let reservation = limiter.named(asked).unwrap().reserve().await.unwrap();
    lose(&server, &at_server).await;
    reservation.settle(9);
    until_told(async || (limiter.lost_settlements() > 0).then_some(())).await;
    assert_eq!(limiter.lost_settlements(), 1);
}

#[tokio::test]
async fn a_member_that_a_plan_exempts_lets_the_request_pass_for_free() {
    let server = Server::start(&[]);
    let open = Plan::new("open")
        .limit("plan", tower_ratelimit::AnchoredWindow::per_day(2))
        .unlimited("credits")
        .limit("pool", tower_ratelimit::AnchoredWindow::per_day(1))
        .limit("all", tower_ratelimit::AnchoredWindow::per_day(100));
    let limiter = groups().plans_by_name(Plans::new([open]));
    let limiter = limiter.store(store(&server)).build().unwrap();
    let open = limiter.plan("open");
    assert_eq!(
        open.check("ann", 2).await.unwrap().payer("spend"),
        Some("plan")
    );
    let free = open.check("ann", 1).await.unwrap();
    assert!(free.is_allowed() && free.payer("spend").is_none());
    assert_eq!(left(&limiter, "ann").await, [0, 1, 97]);
    let (units, _) = open.acquire_up_to("ann", 5).await.unwrap();
    assert_eq!(units, 5);
    assert_eq!(left(&limiter, "ann").await, [0, 1, 92]);
}

/// Another member may have room before the told wait is over, since each has its own.
#[tokio::test]
async fn a_denial_is_not_remembered_for_a_group() {
    let server = Server::start(&[]);
    let remembering = patient().remember_denials_for(PATIENCE * 3);
    let limiter = over(remembering.open(server.url()).unwrap());
    let other = over(store(&server));
    while limiter.check("ann", 1).await.unwrap().is_allowed() {}
    assert!(!limiter.check("ann", 1).await.unwrap().is_allowed());
    other
        .named([("credits", "ann", 1)])
        .unwrap()
        .refund()
        .await
        .unwrap();
    assert_eq!(
        payer(&limiter.check("ann", 1).await.unwrap()).as_deref(),
        Some("credits")
    );
    let before = scripts_run(&server);
    assert!(!limiter.check("ann", 1).await.unwrap().is_allowed());
    assert_ne!(scripts_run(&server), before);
}

#[tokio::test]
async fn this_process_chooses_while_the_server_is_away() {
    let server = Server::start(&[]);
    let at_server = store(&server);
    let policies = [daily("plan", 2), daily("credits", 3), daily("pool", 1)];
    let [plan, credits, pool] = policies.map(|it| it.on_store_failure(OnStoreFailure::Local));
    let at = |plan: Policy, credits: Policy| {
        let builder = Limiter::builder().policies([plan, credits, pool.clone()]);
        let builder = builder.first_of("spend", ["plan", "credits", "pool"]);
        builder.store(at_server.clone()).build().unwrap()
    };
    let local = at(plan.clone(), credits.clone());
    let refusing = at(without_a_standby(plan.clone()), credits.clone());
    let open = at(
        plan.clone(),
        credits.on_store_failure(OnStoreFailure::Allow),
    );
    assert_eq!(
        payer(&local.check("ann", 1).await.unwrap()).as_deref(),
        Some("plan")
    );
    lose(&server, &at_server).await;
    let payers = async |limiter: &Limiter, requests| {
        let mut payers = Vec::new();
        for _ in 0..requests {
            let decision = limiter.check("ann", 1).await.unwrap();
            assert!(decision.is_degraded());
            let payer = decision.payer("spend").unwrap_or("none").to_owned();
            payers.push((payer, decision.is_allowed()));
        }
        payers
    };
    let told = |told: &[(&str, bool)]| -> Vec<(String, bool)> {
        told.iter()
            .map(|(name, passes)| ((*name).to_owned(), *passes))
            .collect()
    };
    let (plan, credits, pool) = (("plan", true), ("credits", true), ("pool", true));
    let expected = [plan, plan, credits, credits, credits, pool, ("none", false)];
    assert_eq!(payers(&local, 7).await, told(&expected));
    let snapshot = local.snapshot();
    let allowed = ["plan", "credits", "pool"].map(|name| {
        let policy = snapshot.policies.iter().find(|it| it.name == name);
        policy.map(|policy| policy.allowed)
    });
    // The payer is counted alone, once more before the store went away.
    assert_eq!(allowed, [3, 3, 1].map(Some));
    // One that refuses without its store is passed over.
    assert_eq!(payers(&refusing, 2).await, told(&[credits, credits]));
    assert_eq!(
        payers(&open, 4).await,
        told(&[plan, plan, ("none", true), ("none", true)])
    );
    let all = over(at_server.clone());
    assert!(all.check("ann", 1).await.is_err());
}

/// Each in a slot of its own, somewhere.
fn keys_apart() -> Vec<String> {
    (0..50).map(|number| format!("key{number}")).collect()
}

#[tokio::test]
async fn in_a_cluster_the_keys_of_one_root_are_decided_on_in_one_call() {
    let cluster = Cluster::start();
    let limiter = over(cluster_store(&cluster));
    let run = || -> u64 {
        cluster
            .nodes
            .iter()
            .map(|node| calls(node, "evalsha"))
            .sum()
    };
    for key in keys_apart() {
        // A node may not know the script yet.
        assert_eq!(
            payer(&limiter.check(&*key, 1).await.unwrap()).as_deref(),
            Some("plan")
        );
    }
    let before = run();
    for (number, key) in keys_apart().iter().enumerate() {
        let decision = limiter.check(key.as_str(), 2).await.unwrap();
        assert_eq!(payer(&decision).as_deref(), Some("credits"), "{number}");
    }
    assert_eq!(run(), before + 50);
    let branch = |part: &str| Key::branch("acme", &[part.into_key()]);
    let of_a_tree = [("plan", branch("ann"), 1), ("credits", branch("team"), 1)];
    let decision = limiter.named(of_a_tree).unwrap().check().await.unwrap();
    assert_eq!(payer(&decision).as_deref(), Some("plan"));
}

/// The members of a group have keys of one root, so that all of them are on one node.
#[tokio::test]
async fn in_a_cluster_what_an_answer_costs_beyond_one_member_goes_to_the_next() {
    let cluster = Cluster::start();
    let limiter = groups().spill("spend").store(cluster_store(&cluster));
    let limiter = limiter.build().unwrap();
    for root in keys_apart() {
        let of = |part: &str| Key::branch(root.as_str(), &[part.into_key()]);
        let [team, user] = [of("team"), of("user")];
        let each = ["plan", "credits", "pool", "all"].into_iter();
        let each = each.zip([user, team, team, user]);
        let asked = each.map(|(name, key)| (name, key, 1));
        let reservation = limiter.named(asked).unwrap().reserve().await.unwrap();
        assert_eq!(reservation.decision().payer("spend"), Some("plan"));
        reservation.settle(9);
        let settled = until_told(async || {
            let (of_user, of_team) = (left(&limiter, user).await, left(&limiter, team).await);
            let left = [of_user[0], of_team[1], of_team[2], of_user[3]];
            // The last one is charged last; each policy is settled on its own.
            (left[2] == 0 && left[3] < 99).then_some(left)
        });
        assert_eq!(settled.await, [0, 0, 0, 91], "{root}");
        // The last one is above its limit by three.
        for (given_back, left_then) in [(3, 0), (1, 1)] {
            let pool = limiter.named([("pool", team, given_back)]);
            pool.unwrap().refund().await.unwrap();
            assert_eq!(left(&limiter, team).await[2], left_then, "{root}");
        }
    }
    assert_eq!(limiter.lost_settlements(), 0);
}

#[tokio::test]
async fn in_a_cluster_other_keys_are_an_error_that_says_what_to_do() {
    let cluster = Cluster::start();
    let limiter = over(cluster_store(&cluster));
    let asked = [("plan", "ann", 1), ("credits", "ann", 1), ("all", "bob", 1)];
    let error = limiter.named(asked).unwrap().check().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unsupported);
    assert!(story(&error).contains("one root"), "{}", story(&error));
    assert_eq!(left(&limiter, "ann").await, [2, 3, 1, 100]);
    assert_eq!(left(&limiter, "bob").await, [2, 3, 1, 100]);
    // A request of which no member asks has nothing to choose.
    let always = limiter.named([("all", "bob", 1)]).unwrap().check();
    assert!(always.await.unwrap().is_allowed());
}

/// Limits by operation are a part of the key, which stays with its root.
#[tokio::test]
async fn in_a_cluster_a_level_with_limits_by_operation_stays_with_its_root() {
    let cluster = Cluster::start();
    let by_operation = || Operations::new().limit("write", FixedWindow::per_day(1));
    let level = |name| Policy::new(name, FixedWindow::per_day(9)).operations(by_operation());
    let limiter = Limiter::builder()
        .policies([
            level("org"),
            level("team").below("org"),
            level("user").below("team"),
        ])
        .first_of("spend", ["org", "user"])
        .store(cluster_store(&cluster))
        .build()
        .unwrap();
    let payer = async |operation: &str, org: &str| {
        let below = |path: &[&str]| {
            let path: Vec<Key> = path.iter().map(|part| part.into_key()).collect();
            Key::branch(org, &path)
        };
        let levels = [
            ("org", below(&[]), 1),
            ("team", below(&["blue"]), 1),
            ("user", below(&["blue", "ann"]), 1),
        ];
        let limiter = limiter.operation(operation);
        let decision = limiter.named(levels).unwrap().check().await.unwrap();
        decision.payer("spend").map(str::to_owned)
    };
    for org in keys_apart() {
        assert_eq!(payer("read", &org).await.as_deref(), Some("org"), "{org}");
        assert_eq!(payer("write", &org).await.as_deref(), Some("org"), "{org}");
        // The team may write once.
        assert_eq!(payer("write", &org).await, None, "{org}");
        assert_eq!(payer("read", &org).await.as_deref(), Some("org"), "{org}");
    }
}

#[test]
fn a_key_with_an_operation_is_another_key_than_that_alone() {
    let cluster = || patient().open_cluster(["redis://127.0.0.1:1/"]).unwrap();
    let by_operation = |policy: Policy<Http>| {
        let operations = Operations::new().limit("POST", FixedWindow::per_day(1));
        policy.operation(key::method()).operations(operations)
    };
    let of = |name| keyed(name, key::header("x-a"));
    let error = layer(cluster(), [by_operation(of("plan")), of("credits")]).unwrap_err();
    assert!(error.contains("same key"), "{error}");
    let both = ["plan", "credits"].map(|name| by_operation(of(name)));
    assert_eq!(layer(cluster(), both).err(), None);
    let tree = |levels: &[&str]| {
        let tree = levels.iter().fold(Policy::tree("tree"), |tree, name| {
            tree.level(name, key::header("x-a"), FixedWindow::per_day(9))
        });
        let levels = tree.each(|level| by_operation(level.on_missing_key(OnMissingKey::Skip)));
        levels.build().unwrap()
    };
    let error = |policies, group: [&str; 2]| {
        let builder = RateLimitLayer::builder().policies::<Http>(policies);
        let built = builder.first_of("spend", group).store(cluster()).build();
        built.err().map(|error| error.to_string())
    };
    assert_eq!(
        error(tree(&["org", "user"]), ["tree.user", "tree.org"]),
        None
    );
    // One level alone is not known to be one.
    let other = Policy::tree("other").level("org", key::header("x-a"), FixedWindow::per_day(9));
    let apart: Vec<_> = tree(&["org"])
        .into_iter()
        .chain(other.build().unwrap())
        .collect();
    assert!(error(apart, ["tree.org", "other.org"]).is_some());
}

fn keyed(name: &str, key: impl key::Extract) -> Policy<Http> {
    Policy::new(name, FixedWindow::per_day(1)).key(key)
}

fn layer(
    store: RedisStore,
    policies: impl IntoIterator<Item = Policy<Http>>,
) -> Result<RateLimitLayer, String> {
    let builder = RateLimitLayer::builder().policies(policies);
    let builder = builder.first_of("spend", ["plan", "credits"]).store(store);
    builder.build().map_err(|error| error.to_string())
}

#[test]
fn policies_of_different_slots_are_refused_when_built() {
    let nodes = ["redis://127.0.0.1:1/", "redis://127.0.0.1:2/"];
    let cluster = || patient().open_cluster(nodes).unwrap();
    let by_header = |name| key::header(name);
    let refused = |policies: Vec<Policy<Http>>| layer(cluster(), policies).unwrap_err();
    let mistakes: HashSet<String> = [
        refused(vec![
            keyed("plan", by_header("x-a")),
            keyed("credits", by_header("x-b")),
        ]),
        refused(vec![
            keyed("plan", by_header("x-a")),
            keyed("credits", by_header("x-a")),
            keyed("other", key::global()),
        ]),
    ]
    .into();
    for mistake in &mistakes {
        assert!(
            mistake.contains("first_of") && mistake.contains("\"plan\""),
            "{mistake}"
        );
        assert!(mistake.contains("same key"), "{mistake}");
    }
    assert_eq!(mistakes.len(), 2);
    let single = || patient().open(nodes[0]).unwrap();
    let apart = || {
        [
            keyed("plan", by_header("x-a")),
            keyed("credits", by_header("x-b")),
        ]
    };
    assert_eq!(layer(single(), apart()).err(), None);
    let same = ["plan", "credits", "all"].map(|name| keyed(name, by_header("x-a")));
    assert_eq!(layer(cluster(), same).err(), None);
}

#[test]
fn what_is_known_of_single_requests_alone_is_not_refused_when_built() {
    let cluster = || patient().open_cluster(["redis://127.0.0.1:1/"]).unwrap();
    let [plan, credits] = ["plan", "credits"].map(|name| keyed(name, key::header("x-a")));
    let never_together = keyed("login", key::client_ip()).when(|head| head.path() == "/login");
    let policies = [plan.clone(), credits.clone(), never_together];
    assert_eq!(layer(cluster(), policies).err(), None);
    let tree = Policy::tree("tree")
        .level("org", key::header("x-a"), FixedWindow::per_day(9))
        .level("user", key::header("x-user"), FixedWindow::per_day(9))
        .each(|level| level.on_missing_key(OnMissingKey::Skip));
    let levels = tree.build().unwrap().into_iter();
    let other = Policy::tree("other")
        .level("org", key::header("x-a"), FixedWindow::per_day(9))
        .build();
    let trees = levels.clone().chain(other.unwrap());
    let of = |policies: Vec<Policy<Http>>, group: [&str; 2]| {
        let builder = RateLimitLayer::builder().policies(policies);
        builder.first_of("spend", group).store(cluster()).build()
    };
    assert_eq!(of(trees.collect(), ["tree.user", "other.org"]).err(), None);
    // A long key is shortened as the root of a tree, and not alone.
    let beside = levels.chain([plan, credits]).collect();
    let error = of(beside, ["tree.user", "plan"]).unwrap_err().to_string();
    assert!(error.contains("levels of one tree"), "{error}");
}

/// A closure may read anything. A clone of one that captures nothing reads the same.
#[test]
fn closures_that_may_differ_are_refused_when_built() {
    let cluster = || patient().open_cluster(["redis://127.0.0.1:1/"]).unwrap();
    let of = |plan: Policy<Http>, credits| layer(cluster(), [plan, credits]);
    let path = |head: &key::Head<'_>| head.path().to_owned();
    let by_path = |name| keyed(name, path);
    let other = |name| keyed(name, |head: &key::Head<'_>| head.path().to_owned());
    let mapped = |name| keyed(name, key::header("x-a").map(str::to_owned));
    assert_eq!(of(by_path("plan"), by_path("credits")).err(), None);
    assert_eq!(of(mapped("plan"), mapped("credits")).err(), None);
    let secret = key::Secret::new([7; 32]).unwrap();
    let number = 3;
    let capturing = move |head: &key::Head<'_>| format!("{number}{}", head.path());
    let captured = |name| keyed(name, capturing);
    for (plan, credits) in [
        (by_path("plan"), other("credits")),
        (captured("plan"), captured("credits")),
        (captured("plan"), mapped("credits")),
        (mapped("plan"), captured("credits")),
        (
            by_path("plan"),
            keyed("credits", key::from_fn(path).prefix("c")),
        ),
        (
            mapped("plan"),
            keyed(
                "credits",
                key::header("x-a").map(str::to_owned).hashed(&secret),
            ),
        ),
    ] {
        let error = of(plan, credits).unwrap_err();
        assert!(
            error.contains("first_of") && error.contains("captures nothing"),
            "{error}"
        );
    }
    // One that a file names twice is the same, and so is a peer that a closure reads.
    let registered = AnyKey::new(capturing);
    let named = |name| keyed(name, registered.clone());
    assert_eq!(of(named("plan"), named("credits")).err(), None);
    let peer = key::client_ip().connect_info(|address: &SocketAddr| *address);
    let by_peer = |name| keyed(name, peer.clone());
    assert_eq!(of(by_peer("plan"), by_peer("credits")).err(), None);
    // The levels of one tree have one root.
    let tree = Policy::tree("tree")
        .level("org", capturing, FixedWindow::per_day(9))
        .level("user", path, FixedWindow::per_day(9))
        .each(|level| level.on_missing_key(OnMissingKey::Skip));
    let levels = tree.build().unwrap();
    let of = |policies: Vec<Policy<Http>>, group: [&str; 2]| {
        let builder = RateLimitLayer::builder().policies(policies);
        builder.first_of("spend", group).store(cluster()).build()
    };
    assert_eq!(of(levels.clone(), ["tree.user", "tree.org"]).err(), None);
    let beside = levels.into_iter().chain([captured("plan")]).collect();
    assert!(of(beside, ["tree.user", "tree.org"]).is_err());
}

#[test]
fn leases_are_refused_with_a_remedy() {
    let lease = Lease::up_to(Duration::from_secs(1));
    let leasing = patient().lease(lease).open("redis://127.0.0.1:1/").unwrap();
    let error = groups().store(leasing).build().unwrap_err().to_string();
    assert!(
        error.contains("first_of") && error.contains("`lease`"),
        "{error}"
    );
}
