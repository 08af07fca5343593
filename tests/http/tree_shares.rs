//! Levels of a tree whose limit is a share of that of the level above.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use tower_ratelimit::factor::{Factor, FactorCell};
use tower_ratelimit::key::{self, IntoKey, Key};
use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::plan::{KeyLimits, Operations, Plan, Plans, Resolved, Resolver};
use tower_ratelimit::policy::{Http, Tree};
use tower_ratelimit::{
    Algorithm, Concurrency, Decision, FixedWindow, LeakyQueue, Limiter, ManualClock, MemoryStore,
    Policy, RateLimitLayer, TokenBucket,
};

use crate::exchange::{Behind, Hello, Received, answer, ask, limit, limited_hello, now};
use crate::trees::{built, of, passes, refused_by};

/// An organisation with this limit, and teams with this share of it.
fn org_and_team(limit: impl Into<Algorithm>, share: f64) -> Tree {
    Policy::tree("spend")
        .level("org", key::header("x-org"), limit)
        .share("team", key::header("x-team"), share)
}

/// Returns the limits of all levels that a response tells, with their names.
fn limits(received: &Received) -> Vec<(String, u32)> {
    let told = received.field("ratelimit-policy").unwrap_or_default();
    let told = told.split(", ").filter_map(|item| {
        let (name, rest) = item.split_once(";q=")?;
        let limit = rest.split(';').next()?.parse().ok()?;
        Some((name.trim_matches('"').to_owned(), limit))
    });
    told.collect()
}

fn both(org: u32, team: u32) -> Vec<(String, u32)> {
    vec![("spend.org".into(), org), ("spend.team".into(), team)]
}

#[test]
fn a_level_has_its_share_of_the_level_above_and_that_bounds_all_shares() {
    let (_, service) = limited_hello(built(org_and_team(FixedWindow::per_hour(10), 0.4)));
    let first = ask(&service, of(&["acme", "blue"]));
    assert_eq!(limits(&first), both(10, 4));
    for _ in 1..4 {
        assert!(passes(&service, &["acme", "blue"]));
    }
    assert_eq!(
        refused_by(&ask(&service, of(&["acme", "blue"]))),
        ["spend.team"]
    );
    // Three teams of 0.4 each are more than the organisation has.
    for team in ["red", "green"] {
        let passed = (0..4).filter(|_| passes(&service, &["acme", team]));
        assert_eq!(passed.count(), if team == "red" { 4 } else { 2 });
    }
    assert_eq!(
        refused_by(&ask(&service, of(&["acme", "green"]))),
        ["spend.org"]
    );
    assert!(passes(&service, &["other", "blue"]));
}

#[test]
fn a_share_of_a_share_is_one_of_what_the_level_above_has() {
    let tree =
        org_and_team(FixedWindow::per_hour(10), 0.5).share("user", key::header("x-user"), 0.5);
    let of_levels: Vec<_> = built(tree)
        .iter()
        .map(|level| level.algorithm().limit())
        .collect();
    assert_eq!(of_levels, [Some(10), Some(5), Some(3)]);
}

#[test]
fn a_bucket_has_the_share_of_its_rate_and_of_its_burst() {
    let text = |limit: Algorithm| {
        let levels = org_and_team(limit, 0.25).build().unwrap();
        levels[1].algorithm().to_string()
    };
    assert_eq!(
        text(TokenBucket::per_second(10).burst(30).into()),
        "token-bucket 3/second burst 8"
    );
    assert_eq!(text(Concurrency::of(9).into()), "concurrency 3");
    let burst = org_and_team(TokenBucket::per_hour(10).burst(4), 0.5);
    let (_, service) = limited_hello(built(burst));
    let passed = (0..9).filter(|_| passes(&service, &["acme", "blue"]));
    assert_eq!(passed.count(), 2);
}

fn plans() -> Plans {
    Plans::new([
        Plan::new("free").limit("spend.org", FixedWindow::per_hour(5)),
        Plan::new("pro")
            .limit("spend.org", FixedWindow::per_hour(50))
            .limit("spend.team", FixedWindow::per_hour(30)),
        Plan::new("staff").unlimited("spend.org"),
        Plan::new("other").limit("calls", FixedWindow::per_hour(9)),
    ])
}

fn with_plans(tree: Tree) -> RateLimitLayer {
    let calls = Policy::new("calls", FixedWindow::per_hour(99)).key(key::header("x-org"));
    let layer = RateLimitLayer::builder()
        .policies(built(tree))
        .policy(calls)
        .plans(plans(), |head| head.header("x-user").map(str::to_owned))
        .store(MemoryStore::new().clock(ManualClock::new()));
    layer.build().unwrap()
}

#[test]
fn a_share_follows_the_plan_of_the_request() {
    let layer = with_plans(org_and_team(FixedWindow::per_hour(10), 0.4));
    let service = Hello::behind(&layer);
    let of_plan = |plan: &str| limits(&ask(&service, of(&["acme", "blue", plan])));
    assert_eq!(of_plan("free"), both(5, 2));
    // The plan speaks of the level itself.
    assert_eq!(of_plan("pro"), both(50, 30));
    assert!(of_plan("staff").is_empty());
    assert_eq!(of_plan("other"), [("calls".to_owned(), 9)]);
    // What was used stays used: two by the free plan and one by the other.
    let again = ask(&service, of(&["acme", "blue", "free"]));
    assert_eq!(refused_by(&again), ["spend.team"]);

    // The verbs of a limiter have the same limits.
    let limiter = layer.limiter().plan("free");
    let blue = Key::branch("acme", &["blue".into_key()]);
    let team = now(limiter.inspect(blue)).unwrap();
    let (_, outcome) = team
        .policies()
        .find(|(name, _)| *name == "spend.team")
        .unwrap();
    assert_eq!((outcome.limit(), outcome.remaining()), (2, 0));
}

#[test]
fn limits_that_are_divided_by_nodes_are_divided_once() {
    let layer = RateLimitLayer::builder()
        .policies(built(org_and_team(FixedWindow::per_hour(100), 0.4)))
        .plans_by_name(Plans::new([
            Plan::new("own").limit("spend.org", FixedWindow::per_hour(50))
        ]))
        .nodes(2)
        .store(MemoryStore::new().clock(ManualClock::new()));
    let service = Hello::behind(&layer.build().unwrap());
    assert_eq!(limits(&ask(&service, of(&["acme", "blue"]))), both(25, 10));
}

#[tokio::test(start_paused = true)]
async fn a_share_follows_what_a_resolver_finds() {
    use tower::ServiceExt;

    let resolver = Resolver::new(|org: String| async move {
        let own = Plan::new("own").limit("spend.org", FixedWindow::per_hour(20));
        let own = match org.as_str() {
            "acme" => own,
            _ => own.limit("spend.team", FixedWindow::per_hour(1)),
        };
        Ok::<_, std::io::Error>(Resolved::Limits(own))
    });
    let layer = RateLimitLayer::builder()
        .policies(built(org_and_team(FixedWindow::per_hour(10), 0.4)))
        .resolver(resolver, |head| head.header("x-org").map(str::to_owned))
        .store(MemoryStore::new().clock(ManualClock::new()));
    let service = Hello::behind(&layer.build().unwrap());
    for (org, team) in [("acme", 8), ("other", 1)] {
        let response = service.clone().oneshot(of(&[org, "blue"])).await.unwrap();
        assert_eq!(limits(&answer(response)), both(20, team));
    }
}

#[test]
fn the_hours_of_the_level_above_hold_for_its_share() {
    use tower_ratelimit::Hours;

    let hours = Hours::in_zone("UTC").unwrap();
    let hours = hours.at("00:00-12:00", FixedWindow::per_hour(8)).unwrap();
    let hours = hours.at("12:00-18:00", Factor::thousandths(2_000)).unwrap();
    let tree = Policy::tree("spend")
        .level("org", key::header("x-org"), FixedWindow::per_hour(10))
        .with(|org| org.hours(&hours).unwrap())
        .share("team", key::header("x-team"), 0.4);
    let layer = with_plans(tree.clone());
    let service = Hello::behind(&layer);
    let (clock, plain) = limited_hello(built(tree));
    let limits_now = |service: &Hello| limits(&ask(service, of(&["acme", "blue", "free"])));
    // It is midnight.
    assert_eq!(limits_now(&plain), both(8, 4));
    // A limit of an interval does not replace that of a plan.
    assert_eq!(limits_now(&service), both(5, 2));
    clock.advance(Duration::from_secs(13 * 3_600));
    assert_eq!(limits_now(&plain), both(20, 8));
    clock.advance(Duration::from_secs(6 * 3_600));
    assert_eq!(limits_now(&plain), both(10, 4));
}

#[test]
fn a_factor_and_an_override_concern_the_level_that_has_them() {
    let factor = FactorCell::new();
    let tree = Policy::tree("spend")
        .level("org", key::header("x-org"), FixedWindow::per_hour(10))
        .with(|org| org.factor(&factor))
        .share("team", key::header("x-team"), 0.4);
    let (_, service) = limited_hello(built(tree));
    factor.set(Factor::thousandths(500), "the test");
    assert_eq!(limits(&ask(&service, of(&["acme", "blue"]))), both(5, 4));

    let each = org_and_team(FixedWindow::per_hour(10), 0.4).each(|level| level.factor(&factor));
    let (_, service) = limited_hello(built(each));
    assert_eq!(limits(&ask(&service, of(&["acme", "blue"]))), both(5, 2));

    let (_, layer) = limit(built(org_and_team(FixedWindow::per_hour(10), 0.4)));
    let more = FixedWindow::per_hour(20);
    let acme = Key::branch("acme", &[]);
    let limiter = layer.limiter();
    let given = limiter.override_limit("spend.org", acme, more, Duration::from_secs(60));
    now(given.unwrap()).unwrap();
    let service = Hello::behind(&layer);
    assert_eq!(limits(&ask(&service, of(&["acme", "blue"]))), both(20, 4));
}

#[test]
fn a_level_with_a_share_may_have_limits_of_its_own_by_key() {
    let own = KeyLimits::new().key("blue", FixedWindow::per_hour(7));
    let tree = org_and_team(FixedWindow::per_hour(10), 0.4).with(|team| team.key_limits(own));
    let (_, service) = limited_hello(built(tree));
    assert_eq!(limits(&ask(&service, of(&["acme", "blue"]))), both(10, 7));
    assert_eq!(limits(&ask(&service, of(&["acme", "red"]))), both(10, 4));
}

#[test]
fn what_is_no_share_is_refused_with_the_remedy() {
    let refused = |tree: Tree| tree.build().unwrap_err().to_string();
    let hourly = FixedWindow::per_hour(10);
    for (share, shown) in [
        (0.0, "0"),
        (-0.4, "-0.4"),
        (1.000_001, "1.000001"),
        (0.000_000_1, "0.0000001"),
        (f64::NAN, "NaN"),
        (40.0, "40"),
    ] {
        assert_eq!(
            refused(org_and_team(hourly, share)),
            format!("`share` cannot be {shown}: give a number from 0.000001 to 1, such as 0.4")
        );
    }
    let root = Policy::tree("spend").share("org", key::header("x-org"), 0.4);
    assert_eq!(
        refused(root.level("team", key::header("x-team"), hourly)),
        "`share` cannot be \"spend.org\": begin with `level`: nothing is above the root, of which it could have a share"
    );
    assert_eq!(
        refused(org_and_team(Algorithm::Unlimited, 0.4)),
        "`share` cannot be \"spend.org\": give this policy a limit, of which another one can have a share"
    );
    // The first mistake is told, whatever follows.
    let tree = org_and_team(hourly, 2.0).share("user", key::header("x-user"), 3.0);
    assert!(refused(tree).contains("cannot be 2:"));
}

#[test]
fn a_share_needs_the_policy_of_which_it_is_one() {
    let refused = |policies: Vec<Policy<Http>>| {
        let layer = RateLimitLayer::builder().policies(policies);
        layer.build().unwrap_err().to_string()
    };
    let hourly = FixedWindow::per_hour(10);
    let levels = built(org_and_team(hourly, 0.4));
    let remedy = "`share` cannot be \"spend.team\": add policy \"spend.org\" before it, of whose limit it is a share";
    assert_eq!(refused(vec![levels[1].clone()]), remedy);
    assert_eq!(refused(levels.iter().rev().cloned().collect()), remedy);
    let other = Policy::new("spend.org", FixedWindow::per_hour(20)).key(key::header("x-org"));
    assert_eq!(
        refused(vec![other, levels[1].clone()]),
        "`share` cannot be \"spend.team\": take it of the policy \"spend.org\" that is beside it, fixed-window 20/hour"
    );
    let by_key = |org: Policy<Http>| org.key_limits(KeyLimits::new().key("acme", hourly));
    let by_operation = |org: Policy<Http>| {
        let operations = Operations::new().limit("GET", hourly);
        org.operation_by_path().operations(operations)
    };
    let by_closure = |org: Policy<Http>| org.limit_by(|_| None::<FixedWindow>);
    let with: [&dyn Fn(Policy<Http>) -> Policy<Http>; 3] = [&by_key, &by_operation, &by_closure];
    for with in with {
        let org = with(levels[0].clone());
        assert_eq!(
            refused(vec![org, levels[1].clone()]),
            "`share` cannot be \"spend.team\": leave limits by key, by operation and by a closure out of policy \"spend.org\": a \
             share follows the limits of plans and of a resolver"
        );
    }
    // Two queues would be two lines.
    let queues = built(org_and_team(LeakyQueue::per_second(2).places(9), 0.4));
    assert!(refused(queues).starts_with("`leaky queue` cannot be \"spend.team\""));
}

#[test]
fn shares_of_a_limiter_follow_its_plans() {
    let org = Policy::new("org", FixedWindow::per_hour(10));
    let team = org.share("team", 0.4).unwrap();
    let limiter = Limiter::builder()
        .policies([org, team])
        .plans_by_name(Plans::new([
            Plan::new("free"),
            Plan::new("pro").limit("org", FixedWindow::per_hour(100)),
        ]))
        .build_local()
        .unwrap();
    let limits = |plan: &str| {
        let decision = limiter.plan(plan).check("acme", 1).now();
        let limits = decision.policies().map(|(_, outcome)| outcome.limit());
        limits.collect::<Vec<_>>()
    };
    assert_eq!(limits("pro"), [100, 40]);
    // A plan that does not speak of what another one speaks of exempts from it.
    assert!(limits("free").is_empty());
}

/// An organisation and its teams, without HTTP.
fn by_plan() -> LimiterBuilder {
    let org = Policy::new("org", FixedWindow::per_hour(10));
    let team = Policy::new("team", FixedWindow::per_hour(1)).below("org");
    Limiter::builder().policies([org, team])
}

fn plans_of_teams() -> Plans {
    let plan = |name, org, team| {
        let plan = Plan::new(name).limit("org", FixedWindow::per_hour(org));
        plan.limit("team", FixedWindow::per_hour(team))
    };
    Plans::new([plan("free", 10, 3), plan("pro", 20, 7)]).default_plan("free")
}

/// The key of an organisation and that of a team of it, at a cost of one.
fn demands(org: &str, team: &str) -> [(&'static str, Key, u32); 2] {
    let team = Key::branch(org, &[team.into_key()]);
    // The order in which they are named means nothing.
    [("team", team, 1), ("org", team.root(), 1)]
}

/// Returns the limits of the organisation and of the team that a decision tells.
fn told(decision: &Decision) -> Vec<u32> {
    let limits = decision.policies().map(|(_, outcome)| outcome.limit());
    limits.collect()
}

#[test]
fn the_plan_of_levels_that_are_named_is_that_of_the_lowest() {
    let rich = Key::branch("acme", &["rich".into_key()]);
    // What is known of the organisation by itself is not asked.
    let plan_of = move |key: &Key| (*key == rich || *key == rich.root()).then_some("pro");
    let limiter = by_plan().plans(plans_of_teams(), plan_of);
    let limiter = limiter.build_local().unwrap();
    let limits = |org, team| told(&limiter.named(demands(org, team)).unwrap().check().now());
    assert_eq!(limits("acme", "rich"), [20, 7]);
    assert_eq!(limits("acme", "poor"), [10, 3]);
    let org = limiter.named([demands("acme", "poor")[1]]).unwrap();
    assert_eq!(told(&org.check().now()), [20]);
    // A plan that is named stands for all.
    let pro = limiter.plan("pro");
    let poor = pro.named(demands("acme", "poor")).unwrap();
    assert_eq!(told(&poor.check().now()), [20, 7]);
}

#[tokio::test(start_paused = true)]
async fn a_resolver_is_asked_for_the_lowest_level_that_is_named() {
    let (asked, rich) = (
        Arc::new(Mutex::new(Vec::new())),
        Key::branch("acme", &["rich".into_key()]),
    );
    let seen = Arc::clone(&asked);
    let resolver = Resolver::new(move |key: Key| {
        seen.lock().unwrap().push(key);
        let plan = if key == rich { "pro" } else { "free" };
        async move { Ok::<_, std::io::Error>(Resolved::plan(plan)) }
    });
    let limiter = by_plan()
        .plans_by_name(plans_of_teams())
        .resolver(resolver, |key| Some(*key))
        .build()
        .unwrap();
    let rich = limiter.named(demands("acme", "rich")).unwrap();
    assert_eq!(told(&rich.check().await.unwrap()), [20, 7]);
    let poor = limiter.named(demands("acme", "poor")).unwrap();
    assert_eq!(told(&poor.check().await.unwrap()), [10, 3]);
    let lowest = ["rich", "poor"].map(|team| Key::branch("acme", &[team.into_key()]));
    assert_eq!(*asked.lock().unwrap(), lowest);
}

proptest! {
    /// A share is never more than the whole, less than its part by under a unit, and nothing only of nothing.
    #[test]
    fn a_share_is_its_part_rounded_up(whole in 0..=u32::MAX, millionths in 1..=1_000_000_u32) {
        let share = f64::from(millionths) / 1e6;
        let org = Policy::new("org", FixedWindow::per_hour(whole));
        let part = org.share("team", share).unwrap();
        let part = u64::from(part.algorithm().limit().unwrap());
        let exact = u64::from(whole) * u64::from(millionths);
        prop_assert!(part <= whole.into());
        prop_assert!(part * 1_000_000 >= exact && part * 1_000_000 < exact + 1_000_000);
    }
}
