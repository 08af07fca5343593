//! What is done to the keys of a tree, and what a tree keeps: verbs, snapshots, and the options of a level.

use std::time::Duration;

use http::StatusCode;
use tower_ratelimit::key::{self, IntoKey, Key};
use tower_ratelimit::plan::{KeyLimits, Operations};
use tower_ratelimit::policy::Tree;
use tower_ratelimit::{FixedWindow, ManualClock, MemoryStore, Policy, RateLimitLayer};

use crate::exchange::{Behind, Hello, ask, cost, limit, limited_hello, now};
use crate::trees::{built, of, passes, per_hour, refused_by};

fn team(org: &str, team: &str) -> Key {
    Key::branch(org, &[team.into_key()])
}

/// Returns limit and remaining units of a key under the second level.
fn told(layer: &RateLimitLayer, key: Key) -> (u32, u32) {
    let inspection = now(layer.limiter().inspect(key)).unwrap();
    let mut policies = inspection.policies();
    let (_, outcome) = policies.find(|(name, _)| *name == "spend.1").unwrap();
    (outcome.limit(), outcome.remaining())
}

/// An organisation with 99 an hour, and teams with 1, where those of this name have 3.
fn by_key(rich: &str) -> Tree {
    let own = KeyLimits::new()
        .key(rich, FixedWindow::per_hour(3))
        .prefix("part", FixedWindow::per_hour(2));
    per_hour([99, 1]).with(|team| team.key_limits(own))
}

#[test]
fn verbs_know_the_limits_by_key_of_a_level() {
    let (_, layer) = limit(built(by_key("blue")));
    let service = Hello::behind(&layer);
    for (name, most) in [("blue", 3), ("partner", 2), ("red", 1)] {
        for org in ["acme", "other"] {
            assert_eq!(told(&layer, team(org, name)), (most, most), "{org} {name}");
            for left in (0..most).rev() {
                assert!(passes(&service, &[org, name]));
                assert_eq!(told(&layer, team(org, name)), (most, left));
            }
            assert_eq!(
                refused_by(&ask(&service, of(&[org, name]))),
                ["spend.1"],
                "{org} {name}"
            );
        }
    }
    let limiter = layer.limiter();
    now(limiter.reset(team("acme", "blue"))).unwrap();
    assert_eq!(told(&layer, team("acme", "blue")), (3, 3));
    assert_eq!(told(&layer, team("other", "blue")), (3, 0));
    // A verb that names the level charges it under the same limit.
    let blue = [("spend.1", team("acme", "blue"), 3)];
    assert!(
        now(limiter.named(blue).unwrap().check())
            .unwrap()
            .is_allowed()
    );
    assert!(
        !now(limiter.named(blue).unwrap().check())
            .unwrap()
            .is_allowed()
    );
    assert!(!passes(&service, &["acme", "blue"]));
}

#[test]
fn an_override_and_a_block_come_before_the_limits_by_key_of_a_level() {
    let (clock, layer) = limit(built(by_key("blue")));
    let service = Hello::behind(&layer);
    let (limiter, blue) = (layer.limiter(), team("acme", "blue"));
    let minute = Duration::from_secs(60);
    let more = limiter.override_limit("spend.1", blue, FixedWindow::per_hour(5), minute);
    now(more.unwrap()).unwrap();
    assert_eq!(told(&layer, blue), (5, 5));
    assert_eq!(told(&layer, team("other", "blue")), (3, 3));
    for _ in 0..5 {
        assert!(passes(&service, &["acme", "blue"]));
    }
    assert!(!passes(&service, &["acme", "blue"]));
    // What was used stays used when it ends.
    now(limiter.end_override("spend.1", blue).unwrap()).unwrap();
    assert_eq!(told(&layer, blue), (3, 0));

    let other = team("other", "blue");
    now(limiter.block(other, minute)).unwrap();
    assert_eq!(
        refused_by(&ask(&service, of(&["other", "blue"]))),
        ["spend.1"]
    );
    assert!(passes(&service, &["other", "red"]));
    clock.advance(minute);
    assert!(passes(&service, &["other", "blue"]));
}

#[test]
fn a_path_of_which_a_digest_is_kept_has_its_limit_by_key_in_a_layer_alone() {
    let long = "3f2504e0-4f89-11d3-9a0c-0305e82c3301";
    let (_, layer) = limit(built(by_key(long)));
    let service = Hello::behind(&layer);
    assert_eq!(told(&layer, team(long, long)), (1, 1));
    for _ in 0..3 {
        assert!(passes(&service, &[long, long]));
    }
    assert!(!passes(&service, &[long, long]));
    // There is room for it below a short root.
    assert_eq!(told(&layer, team("a", long)), (3, 3));
}

#[test]
fn a_snapshot_has_the_states_of_all_levels() {
    let clock = ManualClock::new();
    let layer = |store: &MemoryStore| {
        let tree = per_hour([9, 3]).share("user", key::header("x-user"), 0.7);
        let layer = RateLimitLayer::builder().policies(built(tree));
        layer.store(store.clone()).build().unwrap()
    };
    let store = MemoryStore::new().clock(clock.clone());
    let before = layer(&store);
    let service = Hello::behind(&before);
    for path in [["acme", "blue", "ann"], ["acme", "blue", "bob"]] {
        assert!(passes(&service, &path));
    }
    let limiter = before.limiter();
    let (green, hour) = (team("acme", "green"), Duration::from_secs(3_600));
    now(limiter.block(green, hour)).unwrap();
    let more = limiter.override_limit(
        "spend.1",
        team("acme", "red"),
        FixedWindow::per_hour(7),
        hour,
    );
    now(more.unwrap()).unwrap();

    let restored = MemoryStore::new().clock(clock).restore(&store.snapshot());
    let after = layer(&restored.unwrap());
    let service = Hello::behind(&after);
    let third = ask(&service, of(&["acme", "blue", "ann"]));
    assert_eq!(
        third.field("ratelimit"),
        Some("\"spend.0\";r=6;t=3600, \"spend.1\";r=0;t=3600, \"spend.user\";r=1;t=3600")
    );
    assert_eq!(
        refused_by(&ask(&service, of(&["acme", "green", "ann"]))),
        ["spend.1"]
    );
    assert_eq!(told(&after, team("acme", "red")), (7, 7));
}

#[test]
fn a_level_may_be_soft_or_have_a_ceiling_or_limits_by_operation() {
    let soft = per_hour([2, 1]).with(Policy::soft);
    let (_, service) = limited_hello(built(soft));
    // The level that is soft charges what it has room for.
    assert!(passes(&service, &["acme", "a"]) && passes(&service, &["acme", "a"]));
    assert_eq!(refused_by(&ask(&service, of(&["acme", "b"]))), ["spend.0"]);

    let ceiling = per_hour([9, 9])
        .each(|level| level.cost(cost))
        .with(|team| team.most(2));
    let (_, service) = limited_hello(built(ceiling));
    let costing = |cost: u32| {
        let mut request = of(&["acme", "a"]);
        request.headers_mut().insert("x-cost", cost.into());
        request
    };
    let refused = ask(&service, costing(3));
    assert_eq!(refused_by(&refused), ["spend.1"]);
    assert_eq!(refused.field("retry-after"), None);
    assert_eq!(ask(&service, costing(2)).status, StatusCode::OK);

    let operations = Operations::new().limit("POST", FixedWindow::per_hour(1));
    let operations = per_hour([9, 5]).with(|team| {
        let by_method = key::method();
        team.operation(by_method).operations(operations)
    });
    let (_, service) = limited_hello(built(operations));
    let post = || {
        let mut request = of(&["acme", "a"]);
        *request.method_mut() = http::Method::POST;
        request
    };
    assert_eq!(ask(&service, post()).status, StatusCode::OK);
    assert_eq!(refused_by(&ask(&service, post())), ["spend.1"]);
    assert!(passes(&service, &["acme", "a"]));
}
