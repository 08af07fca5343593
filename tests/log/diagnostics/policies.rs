//! Policies that never bind, and requests that cost more than a limit.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use http::{Request, StatusCode};
use tower::{Layer, ServiceExt};
use tower_ratelimit::__internal::AnyKey;
use tower_ratelimit::factor::FactorCell;
use tower_ratelimit::key::{self, Head, IntoKey, Key};
use tower_ratelimit::plan::{Operations, Plan, Plans};
use tower_ratelimit::policy::{Fair, Http, OnMissingKey};
use tower_ratelimit::{FixedWindow, LimitLayer, Limiter, Policy, RateLimitLayer, TokenBucket};

use super::{User, assert_warns_once, block_on, hello};
use crate::support::log::Log;

#[test]
fn a_policy_that_never_binds_is_warned_of_when_the_layer_is_built() {
    let by_header = |name: &str, algorithm: FixedWindow| {
        Policy::new(name, algorithm).key(key::header("x-api-key"))
    };
    let minute = || by_header("minute", FixedWindow::per_minute(10));
    let hour = || by_header("hour", FixedWindow::per_hour(10));
    let build = |policies: [Policy<Http>; 2]| {
        Log::of(|| {
            RateLimitLayer::builder()
                .policies(policies)
                .build()
                .unwrap()
        })
        .1
    };
    let peer_of = || key::peer_ip().connect_info(|peer: &SocketAddr| *peer);
    for apart in [
        // Other clients, other requests, other costs, or a policy that denies nothing.
        [minute().key_of_another_type(), hour()],
        [minute(), hour().when(|head| head.method() == "POST")],
        [minute(), hour().cost(|_| 2)],
        [minute(), hour().soft()],
        [minute(), hour().on_missing_key(OnMissingKey::Skip)],
        [minute(), by_header("hour", FixedWindow::per_hour(100))],
        // The first policy refuses requests that share a quota under the second.
        [
            minute().on_missing_key(OnMissingKey::Refuse(StatusCode::UNAUTHORIZED)),
            hour(),
        ],
        // The peer as a closure of each policy tells it.
        [
            Policy::new("minute", FixedWindow::per_minute(10)).key(peer_of()),
            Policy::new("hour", FixedWindow::per_hour(10)).key(peer_of()),
        ],
        // Two types of one name, as of two versions of a crate.
        [
            by_user_of_its_own!("minute", FixedWindow::per_minute(10)),
            by_user_of_its_own!("hour", FixedWindow::per_hour(10)),
        ],
        [
            Policy::new("minute", FixedWindow::per_minute(10)).key(|_: &Head<'_>| "a"),
            Policy::new("hour", FixedWindow::per_hour(10)).key(|_: &Head<'_>| "a"),
        ],
    ] {
        let lines = build(apart);
        assert!(lines.is_empty(), "{lines:?}");
    }
    let some_of_them = || build([minute().when(|head| head.method() == "POST"), hour()]);
    assert_warns_once(
        &some_of_them(),
        "TRL006",
        r#"policy "minute" beside "hour""#,
    );
    assert!(some_of_them().is_empty());
    let lines = build([by_header("day", FixedWindow::per_day(9)), hour()]);
    assert_warns_once(&lines, "TRL006", r#"policy "hour" beside "day""#);

    // So is one closure that reads an extension for both.
    let user = key::extension::<User>().map(|user: &User| user.id);
    let of_user =
        |name: &str, algorithm: FixedWindow| Policy::new(name, algorithm).key(user.clone());
    let lines = build([
        of_user("m", FixedWindow::per_minute(10)),
        of_user("h", FixedWindow::per_hour(10)),
    ]);
    assert_warns_once(&lines, "TRL006", r#"policy "m" beside "h""#);
}

/// The log reported `policy "same" beside "same"`, beside the error.
#[test]
fn two_policies_of_one_name_are_an_error_and_no_warning() {
    let policy = |limit| Policy::new("same", limit).key(key::global());
    let policies = [FixedWindow::per_minute(10), FixedWindow::per_hour(10)].map(policy);
    let (error, lines) = Log::of(|| RateLimitLayer::builder().policies(policies).build());
    let text = r#"`name` cannot be "same": give each policy a name of its own; case is ignored"#;
    assert_eq!(error.unwrap_err().to_string(), text);
    assert!(lines.is_empty(), "{lines:?}");
}

/// A limiter gets keys and costs with each call, so nothing is known when it is built.
#[test]
fn a_policy_of_a_limiter_never_binds_where_all_are_asked_alike() {
    let twice = || {
        let same = ["one", "two"].map(|name| Policy::new(name, FixedWindow::per_hour(10_000)));
        Limiter::builder().policies(same).build_local().unwrap()
    };
    let ((), lines) = Log::of(|| {
        let limiter = twice();
        for _ in 0..99 {
            let _ = limiter.check("ann", 1).now();
        }
    });
    assert!(lines.is_empty(), "{lines:?}");
    let ((), lines) = Log::of(|| {
        let (by_check, by_admit) = (twice(), twice());
        for _ in 0..300 {
            let _ = by_check.check("ann", 1).now();
            let _ = by_admit.admit("ann", 1).now();
        }
    });
    assert_warns_once(&lines, "TRL006", r#"policy "two" beside "one""#);
}

/// A limiter with 60 requests and 100,000 tokens a minute, each asked at its own cost: the log told the operator to
/// remove the tokens.
#[test]
fn policies_that_are_asked_at_costs_of_their_own_are_not_accused() {
    let limiter = || {
        Limiter::builder()
            .policy(Policy::new("requests", FixedWindow::per_minute(60)))
            .policy(Policy::new("tokens", FixedWindow::per_minute(100_000)))
            .build_local()
            .unwrap()
    };
    let ((), lines) = Log::of(|| {
        let limiter = limiter();
        let asked = [("requests", "ann", 1), ("tokens", "ann", 4_000)];
        for _ in 0..300 {
            let _ = limiter.named(asked).unwrap().check().now();
            // A call that asks all of them alike comes from an operator.
            let _ = limiter.check("ann", 1).now();
        }
    });
    assert!(lines.is_empty(), "{lines:?}");
}

/// The example of a file had a table of operations beside a stricter policy, and the log reported it.
#[test]
fn policies_whose_limits_differ_between_requests_are_not_accused() {
    let window = FixedWindow::per_minute;
    let ((), lines) = Log::of(|| {
        let operations = Operations::new().limit("GET", window(5));
        let by_method = Policy::new("by method", window(50))
            .operations(operations)
            .ignore_plans()
            .key(key::global())
            .operation(key::method());
        let by_plan = Policy::new("by plan", window(50)).key(key::global());
        let strict = Policy::new("strict", window(10))
            .ignore_plans()
            .key(key::global());
        let plan = Plan::new("small").limit("by plan", window(3));
        RateLimitLayer::builder()
            .policies([by_method, by_plan, strict])
            .plans(Plans::new([plan]), |_: &Head<'_>| None::<&str>)
            .build()
            .unwrap();
    });
    assert!(lines.is_empty(), "{lines:?}");
}

/// A batch of 50 under a burst of 20 is refused for ever, and the response has no wait.
#[test]
fn a_cost_above_the_limit_is_warned_of_once_for_each_policy() {
    let burst = |name: &str| Policy::new(name, TokenBucket::per_second(10).burst(20));
    let closed = Policy::new("closed", FixedWindow::per_day(0));
    let soft = Policy::new("soft", FixedWindow::per_day(5)).soft();
    let quiet = || {
        let limiter = Limiter::builder().policies([burst("quiet"), closed, soft]);
        let limiter = limiter.build_local().unwrap();
        let ask = |policy, cost| {
            limiter
                .named([(policy, "ann", cost)])
                .unwrap()
                .check()
                .now()
        };
        for _ in 0..3 {
            // All of it, more than is left, a limit that nothing passes, a policy that denies nothing.
            let _ = (ask("quiet", 20), ask("quiet", 20), ask("closed", 2));
            let _ = ask("soft", 50);
        }
        // Questions, and taking what there is.
        let _ = limiter.peek("ann", 50).now();
        let _ = limiter.acquire_up_to("ann", 50).now();
        let _ = block_on(limiter.acquire_up_to("ann", 50).into_future()).unwrap();
        // An override with a lower limit, and a block.
        let one = TokenBucket::per_second(10).burst(1);
        let day = Duration::from_secs(86_400);
        limiter
            .override_limit("quiet", "bob", one, day)
            .unwrap()
            .now()
            .unwrap();
        let _ = limiter.named([("quiet", "bob", 2)]).unwrap().check().now();
        limiter.block("eve", day).now();
        let _ = limiter.named([("quiet", "eve", 50)]).unwrap().check().now();
    };
    let ((), lines) = Log::of(quiet);
    assert!(lines.is_empty(), "{lines:?}");

    // Under a factor, a limit is kept in parts of a unit.
    let factor = FactorCell::new();
    let costly = |name: &str| {
        let policy = burst(name);
        if name.ends_with("in parts") {
            return policy.factor(&factor);
        }
        policy
    };
    let limiter = |name: &str| {
        Limiter::builder()
            .policy(costly(name))
            .build_local()
            .unwrap()
    };
    let now = |name: &str| limiter(name).check("ann", 50).now().is_allowed();
    let verdict = |name: &str| limiter(name).admit("ann", 50).now();
    let later = |name: &str| {
        block_on(limiter(name).check("ann", 50).into_future())
            .unwrap()
            .is_allowed()
    };
    let by_name = |name: &str| {
        let limiter = limiter(name);
        let asked = limiter.named([(name, "ann", 50)]).unwrap().check();
        asked.now().is_allowed()
    };
    let by_name_later = |name: &str| {
        let limiter = limiter(name);
        let asked = limiter.named([(name, "ann", 50)]).unwrap().check();
        block_on(asked.into_future()).unwrap().is_allowed()
    };
    let by_layer = |name: &str| {
        let policy = costly(name).key(key::global()).cost(|_| 50);
        let limit = RateLimitLayer::builder().policy(policy).build().unwrap();
        let asked = hello().layer(limit).oneshot(Request::new(Body::empty()));
        block_on(asked).unwrap().status() == StatusCode::OK
    };
    let by_service = |name: &str| {
        let limit: LimitLayer<(), bool, ()> =
            LimitLayer::new(limiter(name), |()| "ann", |_| Ok(false)).cost(|()| 50);
        let inner = tower::service_fn(async |()| Ok(true));
        block_on(limit.layer(inner).oneshot(())).unwrap()
    };
    let ways: [(&str, IsAllowed<'_>); 7] = [
        ("now", &now),
        ("verdict", &verdict),
        ("later", &later),
        ("by name", &by_name),
        ("by name, later", &by_name_later),
        ("layer", &by_layer),
        ("service", &by_service),
    ];
    for (way, is_allowed) in ways {
        for name in [way, &format!("{way}, in parts")] {
            let ((), lines) = Log::of(|| {
                for _ in 0..3 {
                    assert!(!is_allowed(name), "{name}");
                }
            });
            assert_warns_once(&lines, "TRL016", &format!("policy {name:?}"));
        }
    }
}

/// Sends a request above the limit, and returns whether it was allowed.
type IsAllowed<'a> = &'a dyn Fn(&str) -> bool;

macro_rules! by_user_of_its_own {
    ($name:literal, $algorithm:expr) => {{
        #[derive(Clone)]
        struct User;

        impl IntoKey for User {
            fn into_key(self) -> Key {
                Key::GLOBAL
            }
        }

        Policy::new($name, $algorithm).key(key::extension::<User>())
    }};
}
use by_user_of_its_own;

trait OfAnotherType {
    fn key_of_another_type(self) -> Policy<Http>;
}

impl OfAnotherType for Policy<Http> {
    fn key_of_another_type(self) -> Policy<Http> {
        Policy::new(self.name(), *self.algorithm()).key(key::header("x-tenant"))
    }
}

#[test]
fn a_limit_that_is_divided_by_what_a_client_chooses_is_warned_of_when_the_layer_is_built() {
    let build = |tenant: AnyKey, fair: Fair| {
        let policy = Policy::new("divided by choice", TokenBucket::per_second(10));
        let policy = policy.key(key::global()).fair_by(tenant, fair);
        let plans = Plans::new([Plan::new("known")]);
        let layer = RateLimitLayer::builder()
            .policy(policy)
            .plans(plans, |_| None::<&str>);
        Log::of(|| layer.build().unwrap()).1
    };
    let header = || key::header("x-tenant");
    for verified in [
        AnyKey::new(key::client_ip()),
        AnyKey::new(key::client_certificate()),
        AnyKey::new(key::extension::<User>().map(|user: &User| user.id)),
        // What a closure reads is not known.
        AnyKey::new(|head: &Head<'_>| head.header("x-tenant").map(IntoKey::into_key)),
    ] {
        let lines = build(verified, Fair::new());
        assert!(lines.is_empty(), "{lines:?}");
    }
    for said in [
        Fair::new().unverified_together(),
        Fair::new().unverified_apart(),
    ] {
        let lines = build(AnyKey::new(header()), said);
        assert!(lines.is_empty(), "{lines:?}");
    }
    for (tenant, chosen) in [
        (AnyKey::new(header()), "header x-tenant"),
        (
            AnyKey::new(header().map(|name: &str| name.into_key())),
            "header x-tenant through a closure",
        ),
        (AnyKey::new(key::api_key()), "header x-api-key"),
        (AnyKey::new(key::bearer_token()), "header authorization"),
        (AnyKey::new(key::cookie("sid")), "cookie sid"),
        (AnyKey::new(key::query("user")), "query parameter user"),
        (AnyKey::new(key::metadata("tenant")), "metadata tenant"),
        (AnyKey::new(key::json("user")), "field user of the body"),
        (AnyKey::new(key::mcp_name()), "the name of what is called"),
        (AnyKey::new(key::grpc_method()), "the method that is called"),
        (
            AnyKey::new(key::grpc_service()),
            "the service that is called",
        ),
        (
            AnyKey::new(key::client_ip().and(key::query("name").prefix("a"))),
            "query parameter name",
        ),
        (
            AnyKey::new(key::client_ip().or(key::cookie("name"))),
            "cookie name",
        ),
    ] {
        let lines: Vec<_> = (0..2)
            .flat_map(|_| build(tenant.clone(), Fair::new()))
            .collect();
        let subject = format!("policy \"divided by choice\", {chosen}");
        assert_warns_once(&lines, "TRL041", &subject);
    }
}
