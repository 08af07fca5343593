//! What each setting of a file means: it does what the builder does.

use std::net::SocketAddr;

use http::Request;
use tower_ratelimit::FixedWindow;
use tower_ratelimit::config::{Config, Format};
use tower_ratelimit::key::{self, Head};

use crate::scene::{config, get, layer, now, send, told};

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

#[cfg(feature = "calendar")]
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

/// How many of these requests pass, under one a day for each key.
fn pass(says: &str, requests: impl IntoIterator<Item = http::request::Builder>) -> usize {
    let config = config(&format!(
        "{says}\n[policies.a]\nquota = \"1/day\"\n{}",
        KEY.replace("KEY", says_key(says))
    ));
    let layer = layer(&config);
    let passed = requests
        .into_iter()
        .filter(|_| true)
        .map(|request| send(&layer, request));
    passed.filter(|answer| answer.status == 200).count()
}

const KEY: &str = "key = KEY";

/// The key stands in a comment of its own line, `#key …`.
fn says_key(says: &str) -> &str {
    says.lines()
        .find_map(|line| line.strip_prefix("#key "))
        .unwrap()
}

fn from(address: [u8; 4]) -> http::request::Builder {
    get("/").extension(SocketAddr::from((address, 1)))
}

#[test]
fn keys_count_what_they_say() {
    let two = |name: &'static str, one: &'static str, other: &'static str| {
        [get("/").header(name, one), get("/").header(name, other)]
    };
    assert_eq!(pass("#key \"global\"", [get("/"), Request::post("/")]), 1);
    assert_eq!(pass("#key \"method\"", [get("/"), Request::post("/")]), 2);
    assert_eq!(
        pass(
            "#key \"client_ip\"",
            [from([192, 0, 2, 1]), from([192, 0, 2, 2])]
        ),
        2
    );
    assert_eq!(
        pass(
            "#key \"peer_ip\"",
            [from([192, 0, 2, 1]), from([192, 0, 2, 1])]
        ),
        1
    );
    assert_eq!(pass("#key \"api_key\"", two("x-api-key", "one", "two")), 2);
    assert_eq!(
        pass(
            "#key { api_key = \"x-token\" }",
            two("x-token", "one", "two")
        ),
        2
    );
    assert_eq!(
        pass(
            "#key { header = \"x-tenant\" }",
            two("x-tenant", "one", "two")
        ),
        2
    );
    assert_eq!(
        pass("#key { cookie = \"sid\" }", two("cookie", "sid=1", "sid=2")),
        2
    );
    assert_eq!(
        pass(
            "#key { query = \"user\" }",
            [get("/?user=1"), get("/?user=2"), get("/a?user=2")]
        ),
        2
    );
    assert_eq!(
        pass(
            "#key \"bearer_token\"",
            two("authorization", "Bearer a", "Bearer b")
        ),
        2
    );
    assert_eq!(
        pass(
            "#key { hashed = { header = \"x-a\" } }",
            two("x-a", "1", "2")
        ),
        2
    );
}

#[test]
fn keys_combine() {
    let both = [
        get("/").header("x-a", "1").header("x-b", "1"),
        get("/").header("x-a", "1").header("x-b", "2"),
        get("/").header("x-a", "1").header("x-b", "1"),
    ];
    assert_eq!(
        pass("#key [{ header = \"x-a\" }, { header = \"x-b\" }]", both),
        2
    );
    let both = [
        get("/").header("x-a", "1").header("x-b", "1"),
        get("/").header("x-a", "1").header("x-b", "2"),
        get("/").header("x-b", "1"),
    ];
    assert_eq!(
        pass(
            "#key { first_of = [{ header = \"x-a\" }, { header = \"x-b\" }] }",
            both
        ),
        2
    );
    let both = [
        get("/").header("x-a", "1"),
        Request::post("/").header("x-a", "1"),
    ];
    assert_eq!(
        pass("#key { all_of = [{ header = \"x-a\" }, \"method\"] }", both),
        2
    );
}

#[test]
fn the_address_is_that_which_trusted_proxies_tell() {
    let forwarded = |peer: [u8; 4]| {
        ["198.51.100.1", "198.51.100.2"].map(|client| from(peer).header("x-forwarded-for", client))
    };
    let behind =
        "[proxies]\nnetworks = \"10.0.0.0/8\"\nheader = \"x-forwarded-for\"\n#key \"client_ip\"";
    assert_eq!(pass(behind, forwarded([10, 0, 0, 1])), 2);
    assert_eq!(pass(behind, forwarded([192, 0, 2, 1])), 1);
    let hops = "[proxies]\nhops = 1\nheader = \"X-Forwarded-For\"\n#key \"client_ip\"";
    assert_eq!(pass(hops, forwarded([192, 0, 2, 1])), 2);
    let sites = [[2_u16, 1], [2, 2]].map(|[a, b]| {
        let address = std::net::Ipv6Addr::new(0x2001, 0xdb8, a, b, 0, 0, 0, 1);
        get("/").extension(SocketAddr::from((address, 1)))
    });
    assert_eq!(pass("#key { client_ip = { ipv6_prefix = 48 } }", sites), 1);
}

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

#[test]
fn the_plan_is_that_of_a_key_in_a_table() {
    let config = config(
        r#"
        default_plan = "free"
        [plan_of]
        key = "api_key"
        plans = { k3y = "pro" }
        [policies.minute]
        algorithm = "token-bucket"
        quota = "10/minute"
        key = "api_key"
        [plans]
        free = { minute = 10 }
        pro = { minute = { limit = 100, burst = 150 } }
        "#,
    );
    let told = |key| told(&config, get("/").header("x-api-key", key));
    assert_eq!(told("k3y"), "\"minute\";q=150;w=90");
    assert_eq!(told("another"), "\"minute\";q=10;w=60");
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

#[test]
fn responses_are_as_the_file_says() {
    let config = config(
        r#"
        [policies.a]
        quota = "1/day"
        key = "global"
        [responses]
        dialects = ["x-ratelimit", "draft-11"]
        refusal_status = 503
        refusal_body = { content_type = "text/html", text = "<p>later</p>" }
        "#,
    );
    let layer = layer(&config);
    let allowed = send(&layer, get("/"));
    assert_eq!(allowed.head.headers["x-ratelimit-limit"], "1");
    assert_eq!(allowed.policies.unwrap(), "\"a\";q=1;w=86400");
    let refused = send(&layer, get("/"));
    assert_eq!(refused.status, 503);
    assert_eq!(refused.head.headers["content-type"], "text/html");
    assert_eq!(refused.body, "<p>later</p>");
}

#[test]
fn requests_without_a_key_are_treated_as_the_file_says() {
    for (no_key, statuses) in [
        ("\"shared\"", [200, 429]),
        ("\"skip\"", [200, 200]),
        ("401", [401, 401]),
    ] {
        let config = config(&format!(
            "[policies.a]\nquota = \"1/day\"\nkey = {{ header = \"x-a\" }}\nno_key = {no_key}"
        ));
        let layer = layer(&config);
        let got = [(); 2].map(|()| send(&layer, get("/")).status);
        assert_eq!(got, statuses, "{no_key}");
    }
}

#[test]
fn a_soft_policy_refuses_no_request_and_a_waiting_one_waits() {
    let config = config("[policies.a]\nquota = \"1/day\"\nkey = \"global\"\nsoft = true");
    let layer = layer(&config);
    assert_eq!([(); 2].map(|()| send(&layer, get("/")).status), [200, 200]);
    // A layer waits; its limiter is asked by code, and answers at once.
    let waits =
        "[policies.a]\nquota = \"1/day\"\nkey = \"global\"\nwait_up_to = \"2s\"\nwait_places = 3";
    let limiter = crate::scene::config(waits).limiter().unwrap();
    let allowed = [(); 2].map(|()| now(limiter.check("k", 1)).unwrap().is_allowed());
    assert_eq!(allowed, [true, false]);
}

#[test]
fn nodes_share_each_limit() {
    let config = config(
        "nodes = 4\n[policies.a]\nquota = \"100/minute\"\nkey = \"global\"\n[store]\nmax_keys = 1000",
    );
    assert_eq!(told(&config, get("/")), "\"a\";q=25;w=60");
}

#[test]
fn a_limiter_has_the_policies_and_the_plans() {
    let config = config(
        "default_plan = \"free\"\nplan_of = { header = \"x-plan\", from = \"10.0.0.0/8\" }\n[policies.a]\nquota = \"1/day\"\n\
         key = \"global\"\n[plans]\nfree = { a = 1 }\npro = { a = 3 }",
    );
    let limiter = config.limiter().unwrap();
    let check = |plan: &str, cost| {
        crate::scene::now(limiter.plan(plan).check("ann", cost))
            .unwrap()
            .is_allowed()
    };
    assert!(check("pro", 3));
    assert!(!check("pro", 1));
    assert!(!check("free", 1));
}

/// Layers of one configuration share its store, so that what one charges the other knows.
#[test]
fn two_layers_of_a_configuration_share_their_state() {
    let config = config("[policies.a]\nquota = \"1/day\"\nkey = \"global\"");
    let (one, other) = (config.layer().unwrap(), config.layer().unwrap());
    assert_eq!(send(&one, get("/")).status, 200);
    assert_eq!(send(&other, get("/")).status, 429);
}

#[test]
fn a_request_is_explained_with_the_line_of_each_limit() {
    let config = config(
        r#"default_plan = "free"
plan_of = { header = "x-plan", from = "10.0.0.0/8" }
[lists]
deny = { path = "/secret" }
[policies.minute]
quota = "10/minute"
key = { header = "x-tenant" }
cost = [{ method = "POST", cost = 5 }]
[policies.minute.key_limits.keys]
acme = 1000
[policies.posts]
limit = 5
per = "day"
key = "global"
when = { method = "POST" }
[plans.free]
minute = 10
[plans.pro]
minute = 100
"#,
    );
    let understood = config.understood().to_string();
    assert_eq!(
        understood,
        "minute  anchored-window 10/minute  policy  line 6\nposts   anchored-window 5/day      policy  line 12\n"
    );
    let explain = |request: http::request::Builder, key, plan| {
        config
            .explain(&request.body(()).unwrap(), key, plan)
            .to_string()
    };
    assert_eq!(
        explain(get("/"), Some("ann"), Some("pro")),
        "minute  anchored-window 100/minute  plan pro  line 19\nposts   does not apply\n"
    );
    assert_eq!(
        explain(Request::post("/").header("x-tenant", "acme"), None, None),
        "minute  anchored-window 1000/minute, cost 5  key \"acme\"  line 10\n\
         posts   anchored-window 5/day                policy      line 12\n"
    );
    assert_eq!(
        explain(get("/"), None, None),
        "minute  the request has no key\nposts   does not apply\n"
    );
    assert!(explain(get("/secret"), None, None).contains("denied by a list"));
}
