//! Limits: quotas and algorithms, and the limits of closures, keys, operations and nodes.

use tower_ratelimit::FixedWindow;
use tower_ratelimit_config::{Config, Format};

use super::from;
use crate::scene::{config, get, told};

#[test]
fn a_quota_is_an_anchored_window_unless_the_file_says_otherwise() {
    for (says, policies) in [
        ("quota = \"100/minute\"", "\"a\";q=100;w=60"),
        (
            "quota = { limit = 100, per = \"minute\" }",
            "\"a\";q=100;w=60",
        ),
        ("limit = 10_000\nper = \"2h\"", "\"a\";q=10000;w=7200"),
        (
            "algorithm = \"token-bucket\"\nquota = \"10/second\"\nburst = 40",
            "\"a\";q=40;w=4",
        ),
        (
            "algorithm = \"leaky-bucket\"\nquota = \"10/second\"\ncapacity = 20",
            "\"a\";q=20;w=2",
        ),
        ("algorithm = \"gcra 10/second burst 30\"", "\"a\";q=30;w=3"),
        (
            "algorithm = \"sliding-slots\"\nquota = \"100/minute\"\nslots = 6",
            "\"a\";q=100;w=60",
        ),
        (
            "algorithm = \"sliding-log\"\nquota = \"70000/day\"\nup_to = 70000",
            "\"a\";q=70000;w=86400",
        ),
        ("algorithm = \"unlimited\"", ""),
    ] {
        let config = config(&format!("[policies.a]\nkey = \"global\"\n{says}"));
        assert_eq!(told(&config, get("/")), policies, "{says}");
    }
}

#[test]
fn a_calendar_window_is_written_as_text() {
    let config = config(
        "default_plan = \"pro\"\nplan_of = { header = \"x-plan\", from = \"10.0.0.0/8\" }\n[policies.a]\nkey = \"global\"\n\
         algorithm = \"calendar-day 100 zone UTC\"\n[plans]\npro = { a = 200 }",
    );
    assert!(told(&config, get("/")).starts_with("\"a\";q=200;w="));
}

#[test]
fn policies_are_told_in_the_order_of_the_file() {
    let text = "[policies.z]\nkey = \"global\"\nquota = \"1/day\"\n[policies.a]\nkey = \"global\"\nquota = \"2/day\"";
    assert_eq!(
        told(&config(text), get("/")),
        "\"z\";q=1;w=86400, \"a\";q=2;w=86400"
    );
    let json = r#"{ "policies": { "z": { "key": "global", "quota": "1/day" }, "a": { "key": "global", "quota": "2/day" } } }"#;
    let config = Config::builder().parse(json, Format::Json).unwrap();
    assert_eq!(
        told(&config, get("/")),
        "\"z\";q=1;w=86400, \"a\";q=2;w=86400"
    );
}

#[test]
fn the_limit_of_a_request_is_what_a_registered_closure_gives_before_keys_and_plans() {
    let text = r#"
        default_plan = "free"
        plan_of = { header = "x-plan", from = "10.0.0.0/8" }
        [policies.a]
        algorithm = "fixed-window"
        key = { header = "x-id" }
        quota = "10/day"
        limit_by = { function = "contract" }
        key_limits = { keys = { kay = 20 } }
        [plans]
        free = { a = 30 }
    "#;
    let config = Config::builder()
        .limit_by("contract", |head| {
            let limit = head.header("x-limit")?.parse().ok()?;
            Some(FixedWindow::per_day(limit))
        })
        .parse(text, Format::Toml)
        .unwrap();
    let asked = |id, limit| get("/").header("x-id", id).header("x-limit", limit);
    for (id, limit, told_limit) in [
        ("kay", "40", 40),
        ("kay", "none", 20),
        ("ann", "40", 40),
        ("ann", "none", 30),
    ] {
        let expected = format!("\"a\";q={told_limit};w=86400");
        assert_eq!(told(&config, asked(id, limit)), expected, "{id} {limit}");
    }
    let explained = config
        .explain(&asked("kay", "40").body(()).unwrap(), None, None)
        .to_string();
    assert_eq!(explained.trim(), "a  fixed-window 40/day  closure  line 8");
}

#[test]
fn a_key_has_the_limit_of_its_name_or_its_prefix_or_of_other() {
    let config = config(
        r#"
        [policies.minute]
        quota = "10/minute"
        key = { header = "x-tenant" }
        [policies.minute.key_limits]
        keys = { ann = "1000/minute" }
        prefixes = { "team-" = 500, "team-a" = "600/minute" }
        other = 20
        "#,
    );
    for (tenant, limit) in [
        ("ann", 1000),
        ("team-b", 500),
        ("team-a1", 600),
        ("bob", 20),
    ] {
        let told = told(&config, get("/").header("x-tenant", tenant));
        assert_eq!(told, format!("\"minute\";q={limit};w=60"), "{tenant}");
    }
    let config = crate::scene::config(
        "[policies.a]\nquota = \"1/day\"\nkey = \"client_ip\"\nkey_limits = { keys = { \"192.0.2.9\" = 9 } }",
    );
    assert_eq!(
        crate::scene::told(&config, from([192, 0, 2, 9])),
        "\"a\";q=9;w=86400"
    );
    assert_eq!(
        crate::scene::told(&config, from([192, 0, 2, 8])),
        "\"a\";q=1;w=86400"
    );
}

#[test]
fn operations_are_a_table_by_name_with_other() {
    let json = r#"{ "policies": { "api": {
        "key": "global",
        "operation": { "header": "x-operation" },
        "operations": {"serviceB_read": "100/minute", "serviceB_write": "10/minute", "other": "50/minute"}
    } } }"#;
    let config = Config::builder().parse(json, Format::Json).unwrap();
    for (operation, limit) in [
        ("serviceB_read", 100),
        ("serviceB_write", 10),
        ("purge", 50),
    ] {
        let told = told(&config, get("/").header("x-operation", operation));
        assert_eq!(told, format!("\"api\";q={limit};w=60"), "{operation}");
    }
    let config = crate::scene::config(
        "[policies.a]\nquota = \"5/day\"\nkey = \"global\"\noperation = \"path\"\noperations = { \"/bulk\" = 2 }",
    );
    assert_eq!(
        crate::scene::told(&config, get("/bulk/7")),
        "\"a\";q=2;w=86400"
    );
    assert_eq!(
        crate::scene::told(&config, get("/bulky")),
        "\"a\";q=5;w=86400"
    );
}

#[test]
fn nodes_share_each_limit() {
    let config = config(
        "nodes = 4\n[policies.a]\nquota = \"100/minute\"\nkey = \"global\"\n[store]\nmax_keys = 1000",
    );
    assert_eq!(told(&config, get("/")), "\"a\";q=25;w=60");
}
