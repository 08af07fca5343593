//! Settings that read a request: costs, conditions, functions, lists and plans.

use http::Request;
use tower_ratelimit::key::{self, Head};
use tower_ratelimit_config::{Config, Format};

use super::from;
use crate::scene::{config, get, layer, send, told};

#[test]
fn a_cost_is_that_of_the_first_rule_that_matches() {
    let config = config(
        r#"
        [policies.a]
        key = "global"
        quota = "1000/day"
        cost = [
            { method = "POST", path = "/bulk", cost = 100 },
            { path = ["/bulk/*", "/import"], cost = 10 },
            { method = ["PUT", "PATCH"], cost = 5 },
        ]
        "#,
    );
    let layer = layer(&config);
    let mut left = 1000;
    for (request, cost) in [
        (Request::post("/bulk"), 100),
        (get("/bulk"), 10),
        (get("/bulk/7/8"), 10),
        (get("/bulky"), 1),
        (get("/import"), 10),
        (get("/import/1"), 1),
        (Request::put("/x"), 5),
        (Request::patch("/"), 5),
    ] {
        left -= cost;
        let limits = send(&layer, request).limits.unwrap();
        assert!(
            limits.starts_with(&format!("\"a\";r={left};")),
            "{limits}, {left}"
        );
    }
}

#[test]
fn a_condition_holds_if_each_of_its_fields_does() {
    for (when, request, applies) in [
        ("{ method = \"POST\" }", Request::post("/"), true),
        ("{ method = \"POST\" }", get("/"), false),
        (
            "{ method = \"POST\", path = \"/a\" }",
            Request::post("/b"),
            false,
        ),
        ("{ path = \"/a/*\" }", get("/a"), true),
        ("{ path = \"/*\" }", get("/a"), true),
        ("{ path = \"/a\" }", get("/a?b"), true),
        ("{ header = { x-a = true } }", get("/"), false),
        (
            "{ header = { x-a = true } }",
            get("/").header("x-a", ""),
            true,
        ),
        ("{ header = { x-a = false } }", get("/"), true),
        (
            "{ header = { x-a = [\"1\", \"2\"] } }",
            get("/").header("x-a", "2"),
            true,
        ),
        (
            "{ header = { x-a = \"1\" } }",
            get("/").header("x-a", "2"),
            false,
        ),
        ("{ address = \"192.0.2.0/24\" }", get("/"), true),
        ("{ address = [\"10.0.0.0/8\", \"::1\"] }", get("/"), false),
        ("{ not = { method = \"GET\" } }", get("/"), false),
        (
            "{ not = [{ method = \"GET\" }, { path = \"/a\" }] }",
            Request::post("/b"),
            true,
        ),
        (
            "[{ method = \"GET\" }, { path = \"/a\" }]",
            Request::post("/a"),
            true,
        ),
    ] {
        let config = config(&format!(
            "[policies.a]\nkey = \"global\"\nquota = \"1/day\"\nwhen = {when}"
        ));
        assert_eq!(!told(&config, request).is_empty(), applies, "{when}");
    }
}

#[test]
fn functions_are_those_that_code_has_registered() {
    let text = r#"
        default_plan = "free"
        plan_of = { function = "plan" }
        [policies.a]
        key = { function = "tenant" }
        quota = "10/day"
        cost = { function = "weight" }
        when = { function = "is_counted" }
        [plans]
        free = { a = 10 }
        pro = { a = 20 }
    "#;
    let config = Config::builder()
        .key("tenant", key::header("x-tenant"))
        .cost("weight", |head| if head.path() == "/bulk" { 7 } else { 1 })
        .condition("is_counted", |head| head.path() != "/free")
        .plan_of("plan", |head: &Head<'_>| {
            Some(head.header("x-tenant")?.to_owned())
        })
        .parse(text, Format::Toml)
        .unwrap();
    let layer = layer(&config);
    let ask = |path, tenant| send(&layer, get(path).header("x-tenant", tenant)).limits;
    assert_eq!(ask("/bulk", "pro").unwrap(), "\"a\";r=13;t=86400");
    assert_eq!(ask("/", "free").unwrap(), "\"a\";r=9;t=86400");
    assert_eq!(ask("/free", "free"), None);
}

#[test]
fn the_plan_is_read_from_the_header_of_a_gateway_alone() {
    let config = config(
        r#"
        default_plan = "free"
        plan_of = { header = "x-plan", from = "10.0.0.0/8" }
        [policies.minute]
        quota = "10/minute"
        key = "global"
        [plans.free]
        minute = "10/minute"
        [plans.pro]
        minute = { limit = 100 }
        [plans.all]
        minute = "unlimited"
        "#,
    );
    let told = |peer, plan| told(&config, from(peer).header("x-plan", plan));
    assert_eq!(told([10, 0, 0, 1], "pro"), "\"minute\";q=100;w=60");
    assert_eq!(told([192, 0, 2, 1], "pro"), "\"minute\";q=10;w=60");
    assert_eq!(told([10, 0, 0, 1], "unheard"), "\"minute\";q=10;w=60");
    assert_eq!(told([10, 0, 0, 1], "all"), "");
}

/// A limit of a plan has the period of the quota. The period of the burst was used, and the limit was refused.
#[test]
fn the_plan_is_that_of_a_key_in_a_table() {
    for algorithm in ["token-bucket 10/minute", "token-bucket 10/minute burst 40"] {
        let config = config(&format!(
            r#"
            default_plan = "free"
            [plan_of]
            key = "api_key"
            plans = {{ k3y = "pro" }}
            [policies.minute]
            algorithm = "{algorithm}"
            key = "api_key"
            [plans]
            free = {{ minute = 20 }}
            pro = {{ minute = {{ limit = 100, burst = 150 }} }}
            "#,
        ));
        let told = |key| told(&config, get("/").header("x-api-key", key));
        assert_eq!(told("k3y"), "\"minute\";q=150;w=90");
        assert_eq!(told("another"), "\"minute\";q=20;w=60");
    }
}

#[test]
fn lists_decide_before_policies() {
    let config = config(
        r#"
        [policies.a]
        quota = "1/day"
        key = "global"
        [lists]
        exempt_paths = ["/health"]
        allow = { method = "OPTIONS" }
        deny = [{ header = { user-agent = "scraper" } }]
        "#,
    );
    let layer = layer(&config);
    assert_eq!(send(&layer, get("/health")).policies, None);
    assert_eq!(send(&layer, Request::options("/")).policies, None);
    assert_eq!(
        send(&layer, get("/").header("user-agent", "scraper")).status,
        403
    );
    assert_eq!(send(&layer, get("/")).status, 200);
    assert_eq!(send(&layer, get("/")).status, 429);
}
