//! The headers under a ceiling on the cost, and under a limit with a reserve.

use std::time::Duration;

use http::{Request, StatusCode};
use tower_ratelimit::algorithm::{HourlyLimit, Hours};
use tower_ratelimit::factor::{Factor, FactorCell};
use tower_ratelimit::middleware::RateLimitLayerBuilder;
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::policy::Http;
use tower_ratelimit::{
    ConfigError, FixedWindow, LeakyQueue, Limiter, ManualClock, MemoryStore, Policy,
    RateLimitLayer, TokenBucket,
};

use crate::exchange::{Behind, Received, ask, cost, get, get_of_cost, global, limited_hello};

fn export() -> Request<()> {
    Request::get("/export").body(()).unwrap()
}

fn with_low_exports(policy: Policy<Http>) -> Policy<Http> {
    policy.low_priority(|head| head.path().starts_with("/export"))
}

fn told(answer: &Received) -> (u16, Option<&str>, Option<&str>) {
    (
        answer.status.as_u16(),
        answer.field("ratelimit-policy"),
        answer.field("retry-after"),
    )
}

fn layer(
    policies: impl IntoIterator<Item = Policy<Http>>,
    options: impl FnOnce(RateLimitLayerBuilder) -> RateLimitLayerBuilder,
) -> Result<RateLimitLayer, ConfigError> {
    let store = MemoryStore::new().clock(ManualClock::new());
    let mut builder = RateLimitLayer::builder().store(store);
    for policy in policies {
        builder = builder.policy(policy);
    }
    options(builder).build()
}

#[test]
fn low_priority_is_told_the_limit_without_the_reserve_and_waits_for_that() {
    let bucket = global("api", TokenBucket::per_second(1).burst(10)).reserve(4);
    let (clock, service) = limited_hello([with_low_exports(bucket)]);
    let first = ask(&service, export());
    assert_eq!(told(&first), (200, Some(r#""api";q=6;w=6"#), None));
    assert_eq!(first.field("ratelimit"), Some(r#""api";r=5;t=5"#));
    for _ in 0..5 {
        assert_eq!(ask(&service, export()).status, 200);
    }
    // Nothing remains for low priority, and four for other requests.
    let refused = ask(&service, export());
    assert_eq!(told(&refused), (429, Some(r#""api";q=6;w=6"#), Some("1")));
    let others = ask(&service, get());
    assert_eq!(told(&others), (200, Some(r#""api";q=10;w=10"#), None));
    assert_eq!(others.field("ratelimit"), Some(r#""api";r=3;t=3"#));
    // The used part of the reserve has to come back first.
    assert_eq!(told(&ask(&service, export())).2, Some("2"));
    clock.advance(Duration::from_secs(2));
    assert_eq!(ask(&service, export()).status, 200);
}

#[test]
fn low_priority_leaves_the_reserve_of_the_limit_of_the_hour() {
    let of_the_hour: [(HourlyLimit, u32); 4] = [
        (FixedWindow::per_hour(10).into(), 10),
        (FixedWindow::per_hour(3).into(), 3),
        (FixedWindow::per_hour(30).into(), 30),
        (Factor::thousandths(2_000).into(), 40),
    ];
    for (limit, number) in of_the_hour {
        let hours = Hours::in_zone("UTC").unwrap();
        let hours = hours.at("00:00-24:00", limit).unwrap();
        let policy = global("api", FixedWindow::per_hour(20)).reserve(4);
        let (_, service) = limited_hello([with_low_exports(policy.hours(&hours).unwrap())]);
        let low = number.saturating_sub(4);
        for _ in 0..low {
            assert_eq!(ask(&service, export()).status, 200, "{number}");
        }
        let refused = ask(&service, export());
        let policy = format!("\"api\";q={low};w=3600");
        assert_eq!(told(&refused).0, 429, "{number}");
        assert_eq!(told(&refused).1, Some(&*policy));
        for _ in low..number {
            assert_eq!(ask(&service, get()).status, 200, "{number}");
        }
        assert_eq!(ask(&service, get()).status, 429, "{number}");
    }
}

#[test]
fn without_low_priority_a_reserve_changes_nothing() {
    let (_, service) = limited_hello([global("api", FixedWindow::per_hour(3)).reserve(2)]);
    for _ in 0..3 {
        assert_eq!(ask(&service, export()).status, 200);
    }
    assert_eq!(ask(&service, get()).status, 429);
}

#[test]
fn low_priority_is_refused_under_a_plan_that_is_no_more_than_the_reserve() {
    let plans = Plans::new([
        Plan::new("free").limit("api", FixedWindow::per_hour(20)),
        Plan::new("pro").limit("api", FixedWindow::per_hour(25)),
    ]);
    let policy = with_low_exports(global("api", FixedWindow::per_hour(100)).reserve(20));
    let layer = layer([policy], |builder| {
        builder.plans(plans, |head| {
            Some(head.header("x-plan").unwrap_or("free").to_owned())
        })
    });
    let service = crate::exchange::Hello::behind(&layer.unwrap());
    let refused = ask(&service, export());
    assert_eq!(refused.status, 429);
    assert_eq!(refused.field("retry-after"), None);
    assert_eq!(ask(&service, get()).status, 200);
    let mut pro = export();
    pro.headers_mut().insert("x-plan", "pro".parse().unwrap());
    assert_eq!(told(&ask(&service, pro)).1, Some(r#""api";q=5;w=3600"#));
}

#[test]
fn a_request_above_the_ceiling_is_refused_for_good_and_charged_to_no_policy() {
    let rows = global("rows", FixedWindow::per_hour(1_000))
        .most(50)
        .cost(cost);
    let requests = global("requests", FixedWindow::per_hour(10));
    let (_, service) = limited_hello([rows, requests]);
    let refused = ask(&service, get_of_cost(51));
    assert_eq!(told(&refused).0, 429);
    assert_eq!(refused.field("retry-after"), None);
    let limits = refused.field("ratelimit").unwrap();
    assert!(limits.contains(r#""rows";r=1000"#), "{limits}");
    let passed = ask(&service, get_of_cost(50));
    assert_eq!(passed.status, 200);
    let limits = passed.field("ratelimit").unwrap();
    assert!(limits.contains(r#""requests";r=9"#), "{limits}");
}

#[test]
fn too_large_a_request_has_its_own_status_in_the_response_and_in_the_problem() {
    let rows = || global("rows", FixedWindow::per_hour(100)).cost(cost);
    for (policy, large) in [(rows().most(50), 51), (rows(), 101)] {
        let layer = layer([policy], |builder| {
            builder.too_large_status(StatusCode::PAYLOAD_TOO_LARGE)
        });
        let service = crate::exchange::Hello::behind(&layer.unwrap());
        let answer = ask(&service, get_of_cost(large));
        assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert!(
            answer.text().contains(r#""status":413"#),
            "{}",
            answer.text()
        );
        for _ in 0..2 {
            assert_eq!(ask(&service, get_of_cost(50)).status, 200);
        }
        // A wait helps these requests.
        let answer = ask(&service, get_of_cost(50));
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        assert!(
            answer.text().contains(r#""status":429"#),
            "{}",
            answer.text()
        );
    }
}

#[test]
fn a_ceiling_and_a_reserve_that_do_not_go_with_the_limit_are_refused() {
    let refused = |policy: Policy<Http>| layer([policy], |it| it).unwrap_err().to_string();
    let hourly = || global("api", FixedWindow::per_hour(10));
    let ceiling = "give 1 to 10, the limit of policy \"api\"";
    assert_eq!(
        refused(hourly().most(11)),
        format!("`most` cannot be 11: {ceiling}")
    );
    assert_eq!(
        refused(hourly().most(0)),
        format!("`most` cannot be 0: {ceiling}")
    );
    assert_eq!(
        refused(hourly().reserve(10)),
        "`reserve` cannot be 10: give less than 10, the limit of policy \"api\""
    );
    let error = refused(hourly().reserve(5).factor(&FactorCell::new()));
    assert!(
        error.contains("give it no reserve, or leave the factor out"),
        "{error}"
    );
    let highest = global("api", FixedWindow::per_hour(u32::MAX)).most(5);
    assert!(refused(highest).starts_with("`limit` cannot be 4294967295"));
}

#[test]
fn nodes_that_split_a_limit_split_the_reserve() {
    let limiter = Limiter::builder()
        .policy(Policy::new("api", FixedWindow::per_hour(100)).reserve(31))
        .nodes(3)
        .build_local()
        .unwrap();
    // 34 for this node, of which low priority leaves 11.
    assert!(limiter.low_priority().check("ann", 23).now().is_allowed());
    assert!(!limiter.low_priority().check("ann", 1).now().is_allowed());
    assert!(limiter.check("ann", 11).now().is_allowed());
}

#[test]
fn taking_what_there_is_takes_no_more_than_the_ceiling() {
    let limiter = Limiter::builder()
        .policy(
            Policy::new("rows", FixedWindow::per_hour(100))
                .most(30)
                .reserve(20),
        )
        .build_local()
        .unwrap();
    let low = limiter.low_priority();
    let taken: Vec<_> = (0..5)
        .map(|_| low.acquire_up_to("ann", 50).now().0)
        .collect();
    assert_eq!(taken, [30, 30, 20, 0, 0]);
    assert_eq!(limiter.acquire_up_to("ann", 50).now().0, 20);
    // A settlement is not a request.
    limiter.settle("bob", 31).now();
    assert_eq!(limiter.peek("bob", 0).now().binding().unwrap().1.used(), 31);
}

#[test]
fn a_queue_keeps_places_for_high_priority() {
    let policy = Policy::new("turns", LeakyQueue::per_second(1).places(3)).reserve(2);
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .policy(policy)
        .store(MemoryStore::new().clock(clock))
        .build_local()
        .unwrap();
    let low = limiter.low_priority();
    assert_eq!(low.check("ann", 1).now().delay(), Duration::ZERO);
    assert_eq!(low.check("ann", 1).now().delay(), Duration::from_secs(1));
    assert!(!low.check("ann", 1).now().is_allowed());
    assert_eq!(
        limiter.check("ann", 1).now().delay(),
        Duration::from_secs(2)
    );
}
