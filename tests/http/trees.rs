//! Limits above each other: organisation, team, user.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, StatusCode};
use proptest::prelude::*;
use tokio::time::Instant;
use tower::ServiceExt;
use tower_ratelimit::factor::{Factor, FactorCell};
use tower_ratelimit::key::{self, IntoKey, Key};
use tower_ratelimit::plan::{KeyLimits, Plan, Plans, Resolved, Resolver};
use tower_ratelimit::policy::{Http, Mode, OnMissingKey, Penalty, Settle, Tree};
use tower_ratelimit::store::SharedStore;
use tower_ratelimit::{
    Algorithm, Concurrency, FixedWindow, LeakyQueue, ManualClock, MemoryStore, Policy,
    RateLimitLayer, TokenBucket,
};

use crate::arrivals::store;
use crate::support::items::Map;

use crate::exchange::{Behind, Hello, Received, ask, cost, limit, limited_hello, now};

const PATH: [&str; 3] = ["x-org", "x-team", "x-user"];

/// A tree of up to three levels with these limits, named `spend.0` and so on.
fn tree<A: Into<Algorithm>>(limits: impl IntoIterator<Item = A>) -> Tree {
    let levels = PATH.into_iter().zip(limits).enumerate();
    levels.fold(Policy::tree("spend"), |tree, (level, (header, limit))| {
        let key = key::header(header);
        tree.level(&level.to_string(), key, limit)
    })
}

pub(crate) fn per_hour<const N: usize>(limits: [u32; N]) -> Tree {
    tree(limits.map(FixedWindow::per_hour))
}

pub(crate) fn built(tree: Tree) -> Vec<Policy<Http>> {
    tree.build().unwrap()
}

/// A request of this organisation, team and user.
pub(crate) fn of(path: &[&str]) -> Request<()> {
    let mut request = Request::new(());
    for (name, value) in PATH.into_iter().zip(path) {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
}

fn costing(mut request: Request<()>, cost: u32) -> Request<()> {
    request.headers_mut().insert("x-cost", cost.into());
    request
}

/// Returns the policies that a refusal names.
pub(crate) fn refused_by(answer: &Received) -> Vec<String> {
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    let Some(tower_ratelimit::response::Refusal::Denied(decision)) = &answer.refusal else {
        panic!("{:?}", answer.refusal);
    };
    let refusing = decision.policies().filter(|(_, told)| !told.is_allowed());
    refusing.map(|(name, _)| name.to_owned()).collect()
}

pub(crate) fn passes(service: &Hello, path: &[&str]) -> bool {
    ask(service, of(path)).status == StatusCode::OK
}

#[test]
fn each_level_counts_what_is_below_it_and_the_refusal_names_it() {
    let (_, service) = limited_hello(built(per_hour([4, 3, 2])));
    for _ in 0..2 {
        assert!(passes(&service, &["acme", "blue", "ann"]));
    }
    assert_eq!(
        refused_by(&ask(&service, of(&["acme", "blue", "ann"]))),
        ["spend.2"]
    );
    assert!(passes(&service, &["acme", "blue", "bob"]));
    assert_eq!(
        refused_by(&ask(&service, of(&["acme", "blue", "bob"]))),
        ["spend.1"]
    );
    assert!(passes(&service, &["acme", "red", "ann"]));
    assert_eq!(
        refused_by(&ask(&service, of(&["acme", "red", "bob"]))),
        ["spend.0"]
    );
    assert!(passes(&service, &["other", "blue", "ann"]));
}

#[test]
fn a_team_of_one_organisation_is_not_that_of_another_however_names_are_cut() {
    let (_, service) = limited_hello(built(per_hour([9, 1])));
    let long = "3f2504e0-4f89-11d3-9a0c-0305e82c3301";
    for path in [
        ["a", "b"],
        ["ab", ""],
        ["", "ab"],
        ["b", "a"],
        ["a,t:b", "c"],
        ["a", "b,t:c"],
        [long, "a"],
        ["a", long],
        [long, long],
    ] {
        assert!(passes(&service, &path), "{path:?}");
        assert_eq!(
            refused_by(&ask(&service, of(&path))),
            ["spend.1"],
            "{path:?}"
        );
    }
}

#[test]
fn headers_tell_all_levels_and_a_refusal_the_one_that_binds() {
    let (_, service) = limited_hello(built(per_hour([9, 1])));
    let first = ask(&service, of(&["acme", "blue"]));
    assert_eq!(
        first.field("ratelimit"),
        Some("\"spend.0\";r=8;t=3600, \"spend.1\";r=0;t=3600")
    );
    let second = ask(&service, of(&["acme", "blue"]));
    assert_eq!(second.field("ratelimit"), Some("\"spend.1\";r=0;t=3600"));
    assert_eq!(second.field("retry-after"), Some("3600"));
}

#[test]
fn a_tree_has_one_to_eight_levels_and_names_of_its_own() {
    let error = Policy::tree("spend").build().unwrap_err().to_string();
    assert!(
        error.starts_with("`levels` cannot be 0: give one to eight levels"),
        "{error}"
    );
    let deep = |levels: usize| {
        (0..levels).fold(Policy::tree("deep"), |tree, level| {
            tree.level(
                &level.to_string(),
                key::header("x-org"),
                FixedWindow::per_hour(1),
            )
        })
    };
    let error = deep(9).build().unwrap_err().to_string();
    assert!(error.starts_with("`levels` cannot be 9: "), "{error}");
    let (_, service) = limited_hello(built(deep(8)));
    assert!(passes(&service, &["acme"]));
    assert_eq!(refused_by(&ask(&service, of(&["acme"]))).len(), 8);

    let other = Policy::new("SPEND.1", FixedWindow::per_hour(1)).key(key::global());
    let layer = RateLimitLayer::builder()
        .policies(built(per_hour([9, 9])))
        .policy(other);
    let error = layer.build().unwrap_err().to_string();
    assert!(error.contains("\"SPEND.1\""), "{error}");
}

#[test]
fn what_the_server_should_have_provided_is_its_own_fault() {
    let of_extension = Policy::tree("spend")
        .level(
            "org",
            key::extension::<u32>().map(|id: &u32| *id),
            FixedWindow::per_hour(9),
        )
        .level("team", key::header("x-team"), FixedWindow::per_hour(9));
    let (_, service) = limited_hello(built(of_extension));
    assert_eq!(
        ask(&service, of(&[])).status,
        StatusCode::INTERNAL_SERVER_ERROR
    );
    // A level refuses requests without its key also where it has no limit.
    let tree = tree([Algorithm::Unlimited]);
    let (_, service) = limited_hello(built(tree));
    assert_eq!(ask(&service, of(&[])).status, StatusCode::BAD_REQUEST);
    assert!(passes(&service, &["acme"]));
}

// With everything else.

#[test]
fn a_missing_key_is_refused_unless_the_level_says_otherwise() {
    let (_, service) = limited_hello(built(per_hour([9, 9])));
    for path in [&["acme"][..], &[]] {
        assert_eq!(ask(&service, of(path)).status, StatusCode::BAD_REQUEST);
    }
    let shared = per_hour([9, 1]).with(|team| team.on_missing_key(OnMissingKey::Shared));
    let (_, service) = limited_hello(built(shared));
    for org in ["acme", "other"] {
        assert!(passes(&service, &[org]));
        // Of the same organisation alone.
        assert_eq!(refused_by(&ask(&service, of(&[org]))), ["spend.1"]);
    }
    let skipped = per_hour([2, 1]).with(|team| team.on_missing_key(OnMissingKey::Skip));
    let (_, service) = limited_hello(built(skipped));
    assert!(passes(&service, &["acme"]) && passes(&service, &["acme"]));
    assert_eq!(refused_by(&ask(&service, of(&["acme"]))), ["spend.0"]);
}

#[test]
fn a_shared_level_without_what_the_server_provides_is_one_of_its_parent() {
    let tree = Policy::tree("spend")
        .level("0", key::header("x-org"), FixedWindow::per_hour(9))
        .level(
            "1",
            key::extension::<u32>().map(|id: &u32| *id),
            FixedWindow::per_hour(1),
        )
        .with(|user| user.on_missing_key(OnMissingKey::Shared));
    let (_, service) = limited_hello(built(tree));
    for org in ["acme", "other"] {
        assert!(passes(&service, &[org]));
        assert_eq!(refused_by(&ask(&service, of(&[org]))), ["spend.1"]);
    }
}

#[test]
fn a_level_that_counts_requests_without_its_key_together_is_passed_over_for_a_member_with_a_key() {
    let tree = per_hour([9, 9]).with(|team| team.on_missing_key(OnMissingKey::Shared));
    let pool = Policy::new("pool", FixedWindow::per_hour(1)).key(key::header("x-org"));
    let layer = RateLimitLayer::builder()
        .policies(built(tree))
        .policy(pool)
        .first_of("spend", ["spend.1", "pool"])
        .store(MemoryStore::new().clock(ManualClock::new()));
    let service = Hello::behind(&layer.build().unwrap());
    assert!(passes(&service, &["acme"]));
    assert_eq!(refused_by(&ask(&service, of(&["acme"]))), ["pool"]);
    assert!(passes(&service, &["acme", "a"]));
}

/// Of a path that is long, a digest is kept. A client chooses how long it is.
#[test]
fn a_request_without_a_key_is_known_as_one_however_long_its_path_is() {
    let tree = per_hour([9, 9, 9]).with(|user| user.on_missing_key(OnMissingKey::Shared));
    let pool = Policy::new("pool", FixedWindow::per_hour(1)).key(key::header("x-org"));
    let layer = RateLimitLayer::builder()
        .policies(built(tree))
        .policy(pool)
        .first_of("spend", ["spend.2", "pool"])
        .store(MemoryStore::new().clock(ManualClock::new()));
    let service = Hello::behind(&layer.build().unwrap());
    let (org, long) = ("acme-corporation-international", "t".repeat(45));
    for (org, team) in [("acme", "a"), ("other", &*long), (org, &*long)] {
        assert!(passes(&service, &[org, team]));
        assert_eq!(refused_by(&ask(&service, of(&[org, team]))), ["pool"]);
        assert!(passes(&service, &[org, team, "ann"]));
        assert!(passes(&service, &[org, team, &long]));
    }
}

/// Each part of a key is read once, whatever the levels that have it.
#[test]
fn the_key_of_each_level_is_read_once_for_a_request() {
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = |header: &'static str| {
        let reads = Arc::clone(&reads);
        move |head: &key::Head<'_>| {
            reads.fetch_add(1, Ordering::Relaxed);
            let value = head.headers().get(header)?;
            value.to_str().ok().map(str::to_owned)
        }
    };
    let tree = PATH
        .into_iter()
        .fold(Policy::tree("spend"), |tree, header| {
            tree.level(header, counted(header), FixedWindow::per_hour(9))
        });
    let other = Policy::tree("other").level("org", counted("x-team"), FixedWindow::per_hour(2));
    let policies = [built(tree), built(other)].concat();
    let (_, service) = limited_hello(policies);
    assert!(passes(&service, &["acme", "a", "ann"]));
    assert_eq!(reads.load(Ordering::Relaxed), 4);
    assert!(passes(&service, &["acme", "a", "ann"]));
    assert_eq!(
        refused_by(&ask(&service, of(&["acme", "a", "ann"]))),
        ["other.org"]
    );
    assert!(passes(&service, &["acme", "b", "ann"]));
}

#[test]
fn levels_below_a_shared_one_are_those_of_the_client_without_a_key() {
    let x_team = key::header("x-team");
    let tree = Policy::tree("spend")
        .level("0", key::header("x-org"), FixedWindow::per_hour(9))
        .with(|org| org.on_missing_key(OnMissingKey::Shared))
        .level("1", x_team, FixedWindow::per_hour(1));
    let (_, service) = limited_hello(built(tree));
    let mut blue = Request::new(());
    blue.headers_mut().insert("x-team", "blue".parse().unwrap());
    assert_eq!(ask(&service, blue.clone()).status, StatusCode::OK);
    assert_eq!(refused_by(&ask(&service, blue)), ["spend.1"]);
    assert!(passes(&service, &["acme", "blue"]));
}

#[test]
fn a_cost_and_a_condition_hold_for_all_levels_or_for_one() {
    let tree = per_hour([10, 10]).each(|level| level.cost(cost));
    let (_, service) = limited_hello(built(tree));
    assert_eq!(
        ask(&service, costing(of(&["acme", "a"]), 7)).status,
        StatusCode::OK
    );
    let refused = ask(&service, costing(of(&["acme", "b"]), 4));
    assert_eq!(refused_by(&refused), ["spend.0"]);
    // All or nothing: the team was not charged.
    let next = ask(&service, costing(of(&["acme", "b"]), 3));
    assert_eq!(
        next.field("ratelimit"),
        Some("\"spend.0\";r=0;t=3600, \"spend.1\";r=7;t=3600")
    );

    let posts = per_hour([1, 9]).each(|level| level.when(|head| head.method() == "POST"));
    let (_, service) = limited_hello(built(posts));
    assert!(passes(&service, &["acme", "a"]) && passes(&service, &["acme", "a"]));
    let post = || {
        let mut request = of(&["acme", "a"]);
        *request.method_mut() = http::Method::POST;
        request
    };
    assert_eq!(ask(&service, post()).status, StatusCode::OK);
    assert_eq!(refused_by(&ask(&service, post())), ["spend.0"]);
}

#[test]
fn a_level_may_be_off_or_in_shadow() {
    for (mode, told) in [(Mode::Off, false), (Mode::Shadow, true)] {
        let tree = per_hour([9, 1]).with(|team| team.mode(mode));
        let (_, layer) = limit(built(tree));
        let service = Hello::behind(&layer);
        assert!(passes(&service, &["acme", "a"]) && passes(&service, &["acme", "a"]));
        let counts = layer.limiter().snapshot();
        let denied = counts.policies[1].shadow_refused > 0;
        assert_eq!(denied, told, "{mode:?}");
    }
}

#[test]
fn an_estimate_is_settled_at_every_level() {
    let tree =
        per_hour([100, 50]).each(|level| level.estimate(10).settle(Settle::from_header("x-real")));
    let (_, layer) = limit(built(tree));
    let answer = |request: Request<()>| {
        let cost = request.headers()["x-cost"].clone();
        let mut response = http::Response::new(String::new());
        response.headers_mut().insert("x-real", cost);
        async move { Ok::<_, std::convert::Infallible>(response) }
    };
    let service = tower::Layer::layer(&layer, tower::service_fn(answer));
    assert_eq!(
        ask(&service, costing(of(&["acme", "a"]), 42)).status,
        StatusCode::OK
    );
    // 42 of 50 are used, so an estimate of 10 does not fit.
    assert_eq!(
        refused_by(&ask(&service, costing(of(&["acme", "a"]), 1))),
        ["spend.1"]
    );
    assert_eq!(
        ask(&service, costing(of(&["acme", "b"]), 3)).status,
        StatusCode::OK
    );
    let limiter = layer.limiter();
    let inspect = |key: Key| now(limiter.inspect(key)).unwrap().to_string();
    let org = inspect(Key::branch("acme", &[]));
    assert!(org.starts_with("spend.0: 45 of 100 used"), "{org}");
    let team = inspect(Key::branch("acme", &["a".into_key()]));
    assert!(team.contains("spend.1: 42 of 50 used"), "{team}");
}

#[test]
fn a_penalty_blocks_the_key_of_its_level() {
    let penalty = Penalty::after(3, Duration::from_secs(60)).block(Duration::from_secs(7_200));
    let tree = per_hour([9, 1]).with(|team| team.penalty(penalty));
    let (clock, service) = limited_hello(built(tree));
    assert!(passes(&service, &["acme", "a"]));
    for _ in 0..3 {
        assert!(!passes(&service, &["acme", "a"]));
    }
    clock.advance(Duration::from_secs(3_600));
    assert!(!passes(&service, &["acme", "a"]));
    assert!(passes(&service, &["acme", "b"]) && passes(&service, &["other", "a"]));
}

#[test]
fn a_factor_scales_a_level() {
    let factor = FactorCell::new();
    let tree = tree([TokenBucket::per_hour(9), TokenBucket::per_hour(4)]);
    let tree = tree.with(|team| team.factor(&factor));
    let (_, service) = limited_hello(built(tree));
    factor.set(Factor::thousandths(500), "the test");
    assert!(passes(&service, &["acme", "a"]) && passes(&service, &["acme", "a"]));
    assert_eq!(refused_by(&ask(&service, of(&["acme", "a"]))), ["spend.1"]);
}

#[test]
fn plans_and_limits_by_key_speak_of_a_level() {
    let plans = Plans::new([
        Plan::new("free").limit("spend.1", FixedWindow::per_hour(1)),
        Plan::new("pro").limit("spend.1", FixedWindow::per_hour(3)),
    ]);
    let limits = KeyLimits::new().key("acme", FixedWindow::per_hour(2));
    let x_org = || key::header("x-org");
    let tree = Policy::tree("spend")
        .level("0", x_org(), FixedWindow::per_hour(9))
        .with(|org| org.key_limits(limits))
        .level("1", key::header("x-team"), FixedWindow::per_hour(1));
    let layer = RateLimitLayer::builder()
        .policies(built(tree))
        .plans(plans.default_plan("free"), |head| {
            head.header("x-team")
                .filter(|team| *team == "rich")
                .map(|_| "pro")
        })
        .store(MemoryStore::new().clock(ManualClock::new()))
        .build()
        .unwrap();
    let service = Hello::behind(&layer);
    assert!(passes(&service, &["other", "a"]));
    assert_eq!(refused_by(&ask(&service, of(&["other", "a"]))), ["spend.1"]);
    for _ in 0..3 {
        assert!(passes(&service, &["other", "rich"]));
    }
    assert_eq!(
        refused_by(&ask(&service, of(&["other", "rich"]))),
        ["spend.1"]
    );
    assert!(passes(&service, &["acme", "rich"]) && passes(&service, &["acme", "rich"]));
    assert_eq!(
        refused_by(&ask(&service, of(&["acme", "rich"]))),
        ["spend.0"]
    );
}

#[test]
fn operators_block_reset_and_override_the_key_of_a_level() {
    let (_, layer) = limit(built(per_hour([9, 1])));
    let service = Hello::behind(&layer);
    let limiter = layer.limiter();
    let (team, org) = (
        Key::branch("acme", &["a".into_key()]),
        Key::branch("acme", &[]),
    );

    assert!(passes(&service, &["acme", "a"]) && !passes(&service, &["acme", "a"]));
    now(limiter.reset(team)).unwrap();
    assert!(passes(&service, &["acme", "a"]));
    now(limiter.block(org, Duration::from_secs(60))).unwrap();
    assert_eq!(refused_by(&ask(&service, of(&["acme", "b"]))), ["spend.0"]);
    assert!(passes(&service, &["other", "a"]));
    now(limiter.unblock(org)).unwrap();
    assert!(passes(&service, &["acme", "b"]));

    let own = FixedWindow::per_hour(3);
    let more = limiter.override_limit("spend.1", team, own, Duration::from_secs(600));
    now(more.unwrap()).unwrap();
    assert!(passes(&service, &["acme", "a"]) && passes(&service, &["acme", "a"]));
    assert_eq!(refused_by(&ask(&service, of(&["acme", "a"]))), ["spend.1"]);
    assert_eq!(refused_by(&ask(&service, of(&["acme", "b"]))), ["spend.1"]);
}

#[test]
fn an_inspection_and_a_limiter_show_a_tree_as_a_tree() {
    let calls = Policy::new("calls", FixedWindow::per_hour(9)).key(key::header("x-org"));
    let tree = per_hour([9, 8]).share("user", key::header("x-user"), 0.5);
    let (_, layer) = limit(built(tree).into_iter().chain([calls]));
    let limiter = layer.limiter();
    assert_eq!(
        limiter.levels().collect::<Vec<_>>(),
        [("spend.1", "spend.0"), ("spend.user", "spend.1")]
    );
    let shown = now(limiter.inspect(Key::branch("acme", &[]))).unwrap();
    assert_eq!(
        shown.to_string(),
        "spend.0: nothing of 9 used.\n  spend.1: nothing of 8 used.\n    spend.user: nothing of 4 used.\n\
         calls: nothing of 9 used.\n"
    );
    // A level under a factor has its state under another name.
    let factor = FactorCell::new();
    let tree = per_hour([9, 8]).each(|level| {
        let was = level.name().replace("spend", "old");
        level.factor(&factor).renamed_from(was)
    });
    let (_, layer) = limit(built(tree));
    let limiter = layer.limiter();
    assert_eq!(
        limiter.levels().collect::<Vec<_>>(),
        [("spend.1", "spend.0")]
    );
}

#[test]
fn a_renamed_level_keeps_what_was_used() {
    let clock = ManualClock::new();
    let store = MemoryStore::new().clock(clock.clone());
    let layer = |tree: Tree| {
        let layer = RateLimitLayer::builder()
            .policies(built(tree))
            .store(store.clone());
        Hello::behind(&layer.build().unwrap())
    };
    // A store keeps the states of policies that are in use.
    let first = layer(per_hour([9, 1]));
    assert!(passes(&first, &["acme", "a"]));
    let renamed = Policy::tree("cost")
        .level("org", key::header("x-org"), FixedWindow::per_hour(9))
        .with(|org| org.renamed_from("spend.0"))
        .level("team", key::header("x-team"), FixedWindow::per_hour(1))
        .with(|team| team.renamed_from("spend.1"));
    assert_eq!(
        refused_by(&ask(&layer(renamed), of(&["acme", "a"]))),
        ["cost.team"]
    );
    // A level below, or none of it, changes nothing for those above.
    assert_eq!(
        refused_by(&ask(&layer(per_hour([9, 1, 1])), of(&["acme", "a", "u"]))),
        ["spend.1"]
    );
    let org = ask(&layer(per_hour([9])), of(&["acme"]));
    assert_eq!(org.field("ratelimit"), Some("\"spend.0\";r=7;t=3600"));
}

#[test]
fn a_level_may_bound_what_is_in_flight() {
    let tree = tree([
        Algorithm::from(FixedWindow::per_hour(2)),
        Concurrency::of(1).into(),
    ]);
    let (_, service) = limited_hello(built(tree));
    for _ in 0..2 {
        assert!(passes(&service, &["acme", "a"]));
    }
    assert_eq!(refused_by(&ask(&service, of(&["acme", "a"]))), ["spend.0"]);
}

#[test]
fn a_level_may_have_hours() {
    let hours = tower_ratelimit::Hours::in_zone("UTC").unwrap();
    let hours = hours.at("00:00-24:00", FixedWindow::per_hour(1)).unwrap();
    let tree = per_hour([9, 5]).with(|team| team.hours(&hours).unwrap());
    let (_, service) = limited_hello(built(tree));
    assert!(passes(&service, &["acme", "a"]) && passes(&service, &["acme", "b"]));
    assert_eq!(refused_by(&ask(&service, of(&["acme", "a"]))), ["spend.1"]);
}

#[tokio::test(start_paused = true)]
async fn a_resolver_answers_for_a_level() {
    let resolver = Resolver::new(|_: String| async {
        let own = Plan::new("own").limit("spend.1", FixedWindow::per_hour(2));
        Ok::<_, std::io::Error>(Resolved::Limits(own))
    });
    let layer = RateLimitLayer::builder()
        .policies(built(per_hour([9, 1])))
        .resolver(resolver, |head| head.header("x-org").map(str::to_owned))
        .store(MemoryStore::new().clock(ManualClock::new()));
    let service = Hello::behind(&layer.build().unwrap());
    for status in [200, 200, 429] {
        let answer = service.clone().oneshot(of(&["acme", "a"])).await.unwrap();
        assert_eq!(answer.status(), status);
    }
}

#[test]
fn a_shared_store_has_a_state_for_each_level_and_all_are_charged_or_none() {
    let items = Map::new(&ManualClock::new());
    let layer = || {
        let layer = RateLimitLayer::builder().policies(built(per_hour([3, 2])));
        let layer = layer.store(SharedStore::new(items.clone()));
        Hello::behind(&layer.build().unwrap())
    };
    let nodes = [layer(), layer()];
    assert!(passes(&nodes[0], &["acme", "a"]) && passes(&nodes[1], &["acme", "a"]));
    assert_eq!(refused_by(&ask(&nodes[0], of(&["acme", "a"]))), ["spend.1"]);
    assert!(passes(&nodes[1], &["acme", "b"]));
    assert_eq!(refused_by(&ask(&nodes[0], of(&["acme", "b"]))), ["spend.0"]);
    let mut names: Vec<String> = items.items().keys().cloned().collect();
    names.sort();
    assert!(
        names.iter().any(|name| name.contains("u:t:acme,t:a")),
        "{names:?}"
    );
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn a_member_of_a_tree_may_be_one_of_several_that_pay() {
    let credits = Policy::new("credits", FixedWindow::per_hour(1)).key(key::header("x-org"));
    let layer = RateLimitLayer::builder()
        .policies(built(per_hour([9, 1])))
        .policy(credits)
        .first_of("spend", ["spend.1", "credits"])
        .store(MemoryStore::new().clock(ManualClock::new()));
    let service = Hello::behind(&layer.build().unwrap());
    assert!(passes(&service, &["acme", "a"]) && passes(&service, &["acme", "a"]));
    assert!(!passes(&service, &["acme", "a"]));
    assert!(passes(&service, &["acme", "b"]));
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_until_all_levels_have_room() {
    let levels: [Algorithm; 2] = [
        TokenBucket::per_second(1).burst(1).into(),
        LeakyQueue::per_second(2).places(9).into(),
    ];
    let tree = tree(levels).each(|level| match level.algorithm() {
        Algorithm::TokenBucket(_) => level.wait_up_to(Duration::from_secs(9)),
        _ => level,
    });
    let layer = RateLimitLayer::builder()
        .policies(built(tree))
        .store(store());
    let service = Hello::behind(&layer.build().unwrap());
    let begun = Instant::now();
    for second in 0..3 {
        let answer = service.clone().oneshot(of(&["acme", "a"])).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(begun.elapsed().as_secs(), second);
    }
}

proptest! {
    /// No level is ever over, a request is refused only by a level without room, and charges all levels or none.
    #[test]
    fn a_tree_decides_as_counters_of_its_paths(
        limits in prop::array::uniform3(1_u32..12),
        asked in prop::collection::vec((0..2_usize, 0..2_usize, 0..2_usize, 0..4_u32), 1..60),
    ) {
        const NAMES: [&str; 2] = ["a", "3f2504e0-4f89-11d3-9a0c-0305e82c3301"];
        let tree = per_hour(limits).each(|level| level.cost(cost));
        let (_, service) = limited_hello(built(tree));
        let mut used: HashMap<Vec<usize>, u32> = HashMap::new();
        for (org, team, user, units) in asked {
            let path = [org, team, user];
            let room = |level: usize| {
                limits[level] - used.get(&path[..=level]).copied().unwrap_or(0)
            };
            let without: Vec<String> = (0..3)
                .filter(|level| units > room(*level))
                .map(|level| format!("spend.{level}"))
                .collect();
            let answer = ask(&service, costing(of(&path.map(|name| NAMES[name])), units));
            if without.is_empty() {
                prop_assert_eq!(answer.status, StatusCode::OK);
                for level in 0..3 {
                    *used.entry(path[..=level].to_vec()).or_default() += units;
                }
            } else {
                prop_assert_eq!(refused_by(&answer), without);
            }
        }
    }
}
