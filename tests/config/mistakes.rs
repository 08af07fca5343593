//! All mistakes of a file at once, each with its place and the remedy.

use std::fs;

use tower_ratelimit::{FixedWindow, key};
use tower_ratelimit_config::{Config, Format};

use crate::scene::{config, mistakes, mistakes_in_json};

#[test]
fn all_mistakes_are_told_at_once_in_the_order_of_the_file() {
    let text = "\
[policies.daily]
algorithm = \"fixed-widow\"
limit = 10
per = \"day\"
key = \"client_ip\"

[policies.minute]
quota = \"100/fortnight\"
kye = \"client_ip\"
soft = 1

[policies.hour]
    limit = \"10k\"
per = \"hour\"
key = \"clientip\"
";
    assert_eq!(
        mistakes(text),
        [
            "<text>:2:13: policies.daily.algorithm: algorithm \"fixed-widow\" is unknown; did you mean \"fixed-window\"? \
             Known are fixed-window, anchored-window, sliding-log, sliding-window, sliding-slots, token-bucket, \
             leaky-bucket, gcra, leaky-queue, token-bucket-interval, calendar-day, calendar-week, calendar-month, \
             calendar-year",
            "<text>:8:9: policies.minute.quota: `period` cannot be \"fortnight\": use one of the units us, ms, s, min, h, d, \
             such as 10s or minute, and nothing after it",
            "<text>:9:1: policies.minute.kye: field \"kye\" is unknown; did you mean \"key\"? Known are levels, algorithm, quota, \
             budget, unit, concurrency, limit, per, burst, capacity, slots, places, up_to, key, fair, weights, active_for, most_tenants, unverified, cost, when, mode, renamed_from, soft, announce, on_missing_key, on_store_failure, \
             wait_up_to, wait_places, lease, ignore_plans, penalty, most, top_keys, reserve, low_priority, estimate, settle, include_usage, charge_when, \
             refund_when, on_abandoned, limit_by, key_limits, operation, operations, hours, zone, start, first_day, adapt, class",
            "<text>:10:8: policies.minute.soft: 1 is not true or false",
            "<text>:13:13: policies.hour.limit: \"10k\" is not a whole number; write 10_000",
            "<text>:15:7: policies.hour.key: key \"clientip\" is unknown; did you mean \"client_ip\"? Known are client_ip, \
             peer_ip, method, global, api_key, bearer_token, matched_path, route, grpc_method, grpc_service, \
             client_certificate, mcp_name",
        ]
    );
}

#[test]
fn the_line_is_shown_with_a_caret() {
    let error = "[policies.a]\nkey = \"global\"\n\tlimit = \"1.000\" # é\nper = \"day\""
        .parse::<Config>()
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "<text>:3:10: policies.a.limit: \"1.000\" is not a whole number; write digits without quotes\n \
         3 |  limit = \"1.000\" # é\n   \
           |          ^^^^^^^\n\
         1 mistake"
    );
}

#[test]
fn errors_of_syntax_are_told_all_at_once_too() {
    let found = mistakes("[policies.a]\nkey = \nlimit = 1 2\n");
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].starts_with("<text>:2:7: "), "{found:#?}");
    assert!(found[1].starts_with("<text>:3:9: "), "{found:#?}");
}

#[test]
fn a_file_without_policies_is_a_mistake() {
    for text in ["", "\n# nothing\n", "nodes = 2", "[policies]"] {
        let found = mistakes(text);
        assert_eq!(found.len(), 1, "{text:?}: {found:?}");
        assert!(
            found[0].contains("a file without policies limits nothing"),
            "{found:?}"
        );
    }
    let found = mistakes_in_json("{}");
    assert!(
        found[0].starts_with("<text>: `policies` is missing"),
        "{found:?}"
    );
    assert!(mistakes_in_json("")[0].contains("the file is empty"));
}

#[test]
fn contradictions_name_both_lines() {
    for (text, says) in [
        (
            "[policies.a]\nkey = \"global\"\nquota = \"1/day\"\nlimit = 5",
            "<text>:4:9: policies.a.limit: `limit` contradicts `quota` (line 3); leave one of them",
        ),
        (
            "[policies.a]\nkey = \"global\"\nalgorithm = \"gcra 1/day\"\nquota = \"1/day\"",
            "<text>:4:9: policies.a.quota: `quota` contradicts `algorithm` (line 3); leave one of them",
        ),
        (
            "[policies.a]\nkey = \"global\"\nquota = \"1/day\"\nsoft = true\nwait_up_to = \"1s\"",
            "<text>:5:14: policies.a.wait_up_to: `wait_up_to` contradicts `soft` (line 4); leave one of them",
        ),
        (
            "[policies.a]\nkey = \"global\"\nquota = \"1/day\"\n[policies.A]\nkey = \"global\"\nquota = \"1/day\"",
            "<text>:4:11: policies.A: it differs from the policy of line 1 in case alone; rename one",
        ),
        (
            "[policies.a]\nkey = \"client_ip\"\nquota = \"1/day\"\n[policies.a.key_limits.keys]\n\"2001:db8::1\" = 5\n\"2001:db8::2\" = 6",
            "<text>:6:1: policies.a.key_limits.keys[1]: it is the same key as that of line 5; leave one of them",
        ),
        (
            "[policies.a]\nkey = \"global\"\nquota = \"1/day\"\ncost = [\n{ path = \"/a\", cost = 1 },\n{ path = \"/a\", cost = 2 },\n]",
            "<text>:6:1: policies.a.cost[1]: it matches the same requests as the rule of line 5; leave one of them",
        ),
        (
            "[store]\nredis = { env = \"PATH\" }\nmax_keys = 5\n[policies.a]\nkey = \"global\"\nquota = \"1/day\"",
            "<text>:2:9: store.redis: `redis` contradicts `max_keys` (line 3); leave one of them",
        ),
    ] {
        let found = mistakes(text);
        assert!(
            found.iter().any(|mistake| mistake == says),
            "{text}\n{found:#?}"
        );
    }
}

#[test]
fn a_name_that_is_there_twice_is_a_mistake() {
    let found = mistakes("[policies.a]\nkey = \"global\"\nkey = \"method\"\nquota = \"1/day\"");
    assert_eq!(
        found,
        ["<text>:3:1: the name is there twice, first in line 2; leave one"]
    );
    let text = r#"{ "policies": { "a": { "key": "global", "key": "method", "quota": "1/day" } } }"#;
    let found = mistakes_in_json(text);
    assert_eq!(
        found,
        ["<text>: policies.a.key: \"key\" is there twice; leave one"]
    );
}

#[test]
fn in_json_an_error_of_meaning_has_its_path_and_one_of_syntax_its_line() {
    let text = r#"{ "policies": { "a b": { "key": ["client_ip", "nothing"], "limit": "10k", "per": "day" } } }"#;
    let found = mistakes_in_json(text);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(
        found[0].starts_with(
            "<text>: policies.\"a b\".limit: \"10k\" is not a whole number; write 10000"
        ),
        "{found:#?}"
    );
    assert!(
        found[1].starts_with("<text>: policies.\"a b\".key[1]: key \"nothing\" is unknown"),
        "{found:#?}"
    );
    let found = mistakes_in_json("{\n  \"policies\": {,}\n}");
    assert!(found[0].starts_with("<text>:2:16: "), "{found:#?}");
}

#[test]
fn the_mistakes_of_a_plan_are_told_beside_those_of_its_policy() {
    let text = "default_plan = \"fre\"\nplan_of = { header = \"x-plan\" }\n[policies.a]\nkye = \"global\"\nquota = \"1/day\"\n\
                [policies.b]\nkey = \"global\"\nquota = \"1/day\"\n[plans.free]\na = 5\nb = \"5/hour\"\nc = 5";
    let found = mistakes(text);
    let places: Vec<&str> = found
        .iter()
        .map(|mistake| mistake.split(": ").nth(1).unwrap())
        .collect();
    let expected = [
        "default_plan",
        "plan_of",
        "policies.a.kye",
        "plans.free.b",
        "plans.free.c",
    ];
    assert_eq!(places, expected, "{found:#?}");
}

#[test]
fn a_function_that_code_has_not_registered_lists_those_that_it_has() {
    let text = "[policies.a]\nkey = { function = \"usr\" }\nquota = \"1/day\"\ncost = { function = \"weight\" }";
    let error = Config::builder()
        .key("user", key::global())
        .key("tenant", key::global())
        .parse(text, Format::Toml)
        .unwrap_err();
    let found: Vec<String> = error.mistakes().iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "<text>:2:20: policies.a.key.function: function for a key \"usr\" is unknown; did you mean \"user\"? Known are \
             user, tenant",
            "<text>:4:21: policies.a.cost.function: code has registered no function \"weight\" for a cost, and no other; \
             register it with `.cost(\"weight\", …)`",
        ]
    );
}

#[test]
fn a_limit_by_a_function_that_code_has_not_registered_is_a_mistake() {
    let of = |limit_by: &str| {
        let text =
            format!("[policies.a]\nkey = \"global\"\nquota = \"1/day\"\nlimit_by = {limit_by}");
        let builder = Config::builder().limit_by("contract", |_| Some(FixedWindow::per_day(1)));
        let error = builder.parse(&text, Format::Toml).unwrap_err();
        let found: Vec<String> = error.mistakes().iter().map(ToString::to_string).collect();
        found.join("\n")
    };
    assert_eq!(
        of("{ function = \"contrakt\" }"),
        "<text>:4:25: policies.a.limit_by.function: function for a limit \"contrakt\" is unknown; did you mean \
         \"contract\"? Known are contract",
    );
    assert!(of("{}").contains("`function` is missing"));
    assert!(of("\"contract\"").contains("policies.a.limit_by"));
}

#[test]
fn each_value_that_cannot_be_is_refused_at_its_place() {
    let policy = "key = \"global\"\nquota = \"1/day\"\n";
    for (text, at, says) in [
        (
            "burst = 5",
            "5:9",
            "anchored-window has no `burst`; leave it out",
        ),
        (
            "on_missing_key = 200",
            "5:18",
            "200 is not the status of an error; give 400 to 599",
        ),
        ("on_missing_key = \"skp\"", "5:18", "did you mean \"skip\"?"),
        (
            "on_store_failure = \"alow\"",
            "5:20",
            "did you mean \"allow\"?",
        ),
        (
            "wait_up_to = \"1m\"",
            "5:14",
            "\"1m\" is not a length of time",
        ),
        ("wait_up_to = 5", "5:14", "5 is not a length of time"),
        (
            "wait_places = -1",
            "5:15",
            "-1 is out of range; give a whole number from 0 to 4294967295",
        ),
        ("cost = 1.5", "5:8", "1.5 is not a whole number"),
        ("when = {}", "5:8", "an empty condition always holds"),
        ("when = []", "5:8", "an empty list never holds"),
        (
            "when = { method = \"get\" }",
            "5:19",
            "\"get\" is not a method",
        ),
        (
            "when = { path = \"bulk\" }",
            "5:17",
            "\"bulk\" is not a path",
        ),
        ("when = { path = \"/a/*/b\" }", "5:17", "is not a path"),
        (
            "when = { header = { \"x y\" = true } }",
            "5:21",
            "the name is not the name of a header",
        ),
        (
            "when = { address = [\"10.0.0.1/8\"] }",
            "5:21",
            "\"10.0.0.1/8\" is not a network",
        ),
        ("operation = \"method\"", "5:13", "`operations` is missing"),
        (
            "operations = { other = 5 }",
            "5:14",
            "no operation is named",
        ),
        (
            "operations = { read = \"5/hour\" }",
            "5:23",
            "is of another kind or period than policy \"a\"",
        ),
        (
            "key_limits = { keys = { ann = \"gcra 5/day\" } }",
            "5:31",
            "is of another kind or period than policy \"a\"",
        ),
        (
            "key_limits = { prefixes = { \"\" = 1 } }",
            "5:29",
            "an empty prefix is every key",
        ),
        (
            "key_limits = { key_type = \"number\", keys = { ann = 1 } }",
            "5:46",
            "the name is not a whole number",
        ),
        (
            "[nodes]",
            "5:1",
            "`env` is missing; name an environment variable",
        ),
        ("[plans.free]\na = 5", "1:1", "`default_plan` is missing"),
        (
            "[plans.free]\nb = 5",
            "6:1",
            "policy \"b\" is unknown; did you mean \"a\"?",
        ),
        (
            "[plan_of]\nheader = \"x-plan\"",
            "5:1",
            "there are no plans",
        ),
        (
            "[responses]\ndialects = [\"draft-12\"]",
            "6:13",
            "did you mean \"draft-11\"?",
        ),
        (
            "[responses]\nrefusal_status = 200",
            "6:18",
            "200 is not the status of an error",
        ),
        (
            "[responses]\nretry_jitter = \"1500ms\"",
            "6:16",
            "is not a whole number of seconds",
        ),
        (
            "[responses]\npartition_keys = true",
            "6:18",
            "give the file a secret",
        ),
        (
            "[lists]\nexempt_paths = [\"/a*\"]",
            "6:17",
            "\"/a*\" is not a whole path",
        ),
        (
            "[proxies]\nhops = 40\nheader = \"forwarded\"",
            "6:8",
            "`hops` cannot be 40",
        ),
        ("[proxies]\nhops = 2", "5:1", "`header` is missing"),
        (
            "[proxies]\nheader = \"forwarded\"",
            "5:1",
            "no proxy is named",
        ),
        (
            "[store]\nprefix = \"shop\"",
            "6:10",
            "`prefix` is for Redis",
        ),
    ] {
        let text = format!("[policies.a]\n{policy}\n{text}");
        let found = mistakes(&text);
        let place = format!("<text>:{at}: ");
        let is_there = found
            .iter()
            .any(|mistake| mistake.starts_with(&place) && mistake.contains(says));
        assert!(is_there, "{text}\n{found:#?}\n{place}…{says}");
    }
}

#[test]
fn two_dialects_with_one_header_are_refused_as_the_builder_refuses_them() {
    let text = "[policies.a]\nkey = \"global\"\nquota = \"1/day\"\n[responses]\ndialects = [\"github\", \"x-ratelimit\"]";
    let found = mistakes(text);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].contains("keep one of the two"), "{found:#?}");
}

#[test]
fn a_file_that_is_not_there_too_large_or_no_text_is_refused() {
    let folder = std::env::temp_dir().join(format!("limits-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("limits.toml");
    let error = Config::read(&path).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("limits.toml: the file cannot be read: "),
        "{error}"
    );

    let good = "[policies.a]\nkey = \"global\"\nquota = \"1/day\"\n";
    fs::write(&path, good).unwrap();
    assert!(Config::read(&path).is_ok());
    fs::write(&path, format!("{good}#{}", "x".repeat(1 << 20))).unwrap();
    let error = Config::read(&path).unwrap_err();
    assert!(
        error.to_string().contains("larger than 1048576 bytes"),
        "{error}"
    );
    assert!(Config::builder().max_bytes(2 << 20).read(&path).is_ok());

    fs::write(&path, b"# \xff").unwrap();
    let error = Config::read(&path).unwrap_err();
    assert!(
        error.to_string().contains("is not UTF-8: byte 2"),
        "{error}"
    );

    let path = folder.join("limits.json");
    fs::write(
        &path,
        r#"{ "policies": { "a": { "key": "global", "quota": "1/day" } } }"#,
    )
    .unwrap();
    assert!(Config::read(&path).is_ok());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_secret_comes_from_the_environment_and_no_message_shows_it() {
    let policy = "[policies.a]\nkey = \"api_key\"\nquota = \"1/day\"";
    let found = mistakes(&format!(
        "secret = {{ env = \"THIS_IS_NOT_SET\" }}\n{policy}"
    ));
    assert_eq!(
        found,
        [
            "<text>:1:18: secret.env: the environment variable \"THIS_IS_NOT_SET\" is not set; set it, or name another"
        ]
    );
    let found = mistakes(&format!("secret = \"hunter2\"\n{policy}"));
    assert_eq!(found.len(), 1);
    for text in [
        "secret = \"hunter2\"",
        "secret = \"hunter2",
        "[store]\nredis = \"redis//hunter2\"",
        "[store]\nredis = \"redis://hunter2@\" 5",
    ] {
        let error = format!("{text}\n{policy}").parse::<Config>().unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    let config: Config = format!("secret = \"0123456789abcdef\"\n{policy}")
        .parse()
        .unwrap();
    let [warning] = config.warnings() else {
        panic!("{:?}", config.warnings());
    };
    assert_eq!(warning.line(), Some(1));
    assert!(
        !warning.to_string().contains("0123456789abcdef"),
        "{warning}"
    );
    assert!(!format!("{config:?}").contains("0123456789abcdef"));
}

/// The error of a file that is watched is kept, and shown to operators once a second.
#[test]
fn a_file_of_mistakes_alone_tells_the_first_hundred_and_their_number() {
    let fields: Vec<String> = (0..2_000).map(|field| format!("x{field} = 1\n")).collect();
    let error = fields.concat().parse::<Config>().unwrap_err();
    assert_eq!(error.mistakes().len(), 100);
    // The first is that there is no policy.
    assert_eq!(error.mistakes()[99].line(), Some(99));
    let shown = error.to_string();
    assert!(
        shown.ends_with("\nthe first 100 of 2001 mistakes"),
        "{shown}"
    );
    assert!(shown.len() < 64 * 1_024, "{}", shown.len());
}

#[test]
fn a_file_of_another_version_is_refused() {
    let with = |version: &str| {
        format!("version = {version}\n[policies.a]\nkey = \"global\"\nquota = \"1/day\"")
    };
    config(&with("1"));
    for version in ["0", "2", "4294967295"] {
        assert_eq!(
            mistakes(&with(version)),
            [
                "<text>:1:11: version: this program reads files of version 1; write version = 1, or leave it out"
            ]
        );
    }
    assert!(mistakes(&with("\"1\""))[0].contains("version"));
}
