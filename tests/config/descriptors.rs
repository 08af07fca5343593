//! The tables `envoy`.

use tower_ratelimit::Algorithm;
use tower_ratelimit::policy::Mode;
use tower_ratelimit_config::{Config, DescriptorLimit};

use crate::scene::{config, get, mistakes, mistakes_in_json, told};

const POLICY: &str = "[policies.export]\nquota = \"10/minute\"\nkey = \"client_ip\"\n";

/// Returns the entries as the file writes them, and the limit.
fn shown(limit: &DescriptorLimit) -> (String, String) {
    let entries = limit.entries().map(|(key, value)| match value {
        Some(value) => format!("{key}={value}"),
        None => key.to_owned(),
    });
    let entries: Vec<String> = entries.collect();
    let limit = format!("{} {}", limit.policy().name(), limit.policy().algorithm());
    (entries.join(" "), limit)
}

#[track_caller]
fn only(text: &str) -> DescriptorLimit {
    let config = config(text);
    let limits = config.descriptors();
    assert_eq!(limits.len(), 1);
    limits[0].clone()
}

fn table(fields: &str) -> String {
    format!("[[envoy]]\ndomain = \"shop\"\nentries = [\"tenant\"]\n{fields}\n")
}

#[test]
fn a_table_has_the_fields_of_a_policy() {
    for (fields, expected) in [
        ("quota = \"5/hour\"", "anchored-window 5/hour"),
        (
            "algorithm = \"fixed-window\"\nquota = \"5/hour\"",
            "fixed-window 5/hour",
        ),
        (
            "algorithm = \"token-bucket\"\nlimit = 5\nper = \"10min\"\nburst = 9",
            "token-bucket 5/10min burst 9",
        ),
        ("quota = \"unlimited\"", "unlimited"),
        (
            "algorithm = \"calendar-day\"\nlimit = 7\nzone = \"UTC\"",
            "calendar-day 7 zone UTC",
        ),
    ] {
        let (_, limit) = shown(&only(&table(fields)));
        assert_eq!(limit, format!("shop/tenant {expected}"), "{fields}");
    }
    let fields =
        "quota = \"5/hour\"\nhours = { zone = \"UTC\", limits = { \"22:00-06:00\" = 50 } }";
    let limit = only(&table(fields));
    assert!(matches!(limit.policy().algorithm(), Algorithm::ByHours(_)));
}

#[test]
fn entries_are_names_values_and_patterns() {
    let limit = only(
        "[[envoy]]\ndomain = \"shop\"\nentries = [\"tenant\", \"path=/export/*\", \"query=a=b\", \"empty=\"]\nquota = \"5/hour\"\n\
         together = true\ncharge = \"after\"\nmode = \"shadow\"",
    );
    let entries: Vec<_> = limit.entries().collect();
    assert_eq!(
        entries,
        [
            ("tenant", None),
            ("path", Some("/export/*")),
            ("query", Some("a=b")),
            ("empty", Some(""))
        ]
    );
    assert_eq!(
        (limit.domain(), limit.line(), limit.mode()),
        ("shop", Some(1), Mode::Shadow)
    );
    // Where there is a pattern.
    let together: Vec<bool> = limit.together().collect();
    assert_eq!(together, [false, true, false, false]);
    assert!(limit.is_charged_after() && !limit.is_alternative());
}

#[test]
fn an_entry_is_a_text_or_a_table() {
    let limit = only(
        "[[envoy]]\ndomain = \"shop\"\nentries = [\"tenant=*\", { key = \"a=b\" }, { key = \"path\", value = \"/*\", together = true, \
         in_metrics = true }]\nquota = \"5/hour\"",
    );
    let entries: Vec<_> = limit.entries().collect();
    assert_eq!(
        entries,
        [("tenant", Some("*")), ("a=b", None), ("path", Some("/*"))]
    );
    let together: Vec<bool> = limit.together().collect();
    let in_metrics: Vec<bool> = limit.in_metrics().collect();
    assert_eq!(
        (together, in_metrics),
        (vec![false, false, true], vec![false, false, true])
    );
}

#[test]
fn a_table_may_replace_others_and_be_an_alternative_of_others() {
    let fields =
        "quota = \"5/hour\"\nname = \"gold\"\nreplaces = [\"all\", \"free\"]\nalternative = true";
    let limit = only(&table(fields));
    let replaces: Vec<&str> = limit.replaces().collect();
    assert_eq!(
        (limit.name(), replaces, limit.is_alternative()),
        (Some("gold"), vec!["all", "free"], true)
    );
    assert_eq!(
        config(&table(fields)).understood().to_string(),
        "shop/tenant  anchored-window 5/hour, an alternative, named gold, replaces all, free  envoy  line 1\n"
    );
    let limit = only(&table("quota = \"5/hour\"\nreplaces = \"all\""));
    assert_eq!((limit.name(), limit.replaces().len()), (None, 1));
}

#[test]
fn a_table_has_the_limit_of_a_policy_or_of_its_plan() {
    let plans = "[plans.gold]\nexport = 100\n[plans.free]\nother = 1\n[policies.other]\nquota = \"1/day\"\nkey = \"global\"\n";
    let plan_of =
        "default_plan = \"free\"\nplan_of = { header = \"x-plan\", from = \"10.0.0.0/8\" }\n";
    let file = format!("{plan_of}{POLICY}mode = \"shadow\"\n{plans}");
    for (fields, expected) in [
        (
            "policy = \"export\"",
            ("shop/tenant anchored-window 10/minute", Mode::Shadow),
        ),
        (
            "policy = \"export\"\nplan = \"gold\"\nmode = \"enforce\"",
            ("shop/tenant anchored-window 100/minute", Mode::Enforce),
        ),
        (
            "policy = \"export\"\nplan = \"free\"",
            ("shop/tenant anchored-window 10/minute", Mode::Shadow),
        ),
    ] {
        let limit = only(&format!("{file}{}", table(fields)));
        assert_eq!((&*shown(&limit).1, limit.mode()), expected, "{fields}");
    }
}

#[test]
fn a_file_may_have_tables_alone_and_limits_no_other_request() {
    let config = config(&table("quota = \"5/hour\""));
    assert_eq!(told(&config, get("/")), "");
    assert!(config.limiter().is_ok());
    assert_eq!(
        config.understood().to_string(),
        "shop/tenant  anchored-window 5/hour  envoy  line 1\n"
    );
    let with_policy = format!(
        "{POLICY}{}",
        table("policy = \"export\"\nmode = \"shadow\"")
    );
    assert_eq!(
        with_policy
            .parse::<Config>()
            .unwrap()
            .understood()
            .to_string(),
        "export       anchored-window 10/minute             policy  line 2\n\
         shop/tenant  anchored-window 10/minute, in shadow  envoy   line 4\n"
    );
}

/// Asserts that this is the one mistake.
fn assert_told(text: &str, expected: &str) {
    let found = mistakes(text);
    let expected = format!("<text>:{expected}");
    assert!(
        found.len() == 1 && found[0].starts_with(&expected),
        "{text}\n{expected}\n{found:#?}"
    );
}

#[test]
fn each_mistake_of_an_entry_and_of_a_name_has_its_line_and_a_remedy() {
    for (text, expected) in [
        (
            "[[envoy]]\ndomain = \"d\"\nentries = [1]\nquota = \"1/s\"",
            "3:12: envoy[0].entries[0]: 1 is not an entry; write a text, such as \"tenant\", or a table with `key`",
        ),
        (
            "[[envoy]]\ndomain = \"d\"\nentries = [{ value = \"a\" }]\nquota = \"1/s\"",
            "3:12: envoy[0].entries[0]: `key` is missing; name the key that Envoy sends",
        ),
        (
            "[[envoy]]\ndomain = \"d\"\nentries = [{ key = \"a\", value = \"b\", together = true }]\nquota = \"1/s\"",
            "3:49: envoy[0].entries[0].together: the value has no `*`; write one",
        ),
        (
            "[[envoy]]\ndomain = \"d\"\nentries = [\"a=b\", { key = \"a\", values = \"b\" }]\nquota = \"1/s\"",
            "3:32: envoy[0].entries[1].values: field \"values\" is unknown; did you mean \"value\"?",
        ),
        (
            &table("quota = \"1/s\"\nname = \"\""),
            "5:8: envoy[0].name: a name is empty; write one",
        ),
        (
            &table("quota = \"1/s\"\nname = \"a\"\nreplaces = [\"b\", \"a\"]"),
            "6:18: envoy[0].replaces[1]: a table does not replace itself; give the `name` of another one",
        ),
        (
            &table("quota = \"1/s\"\nreplaces = \"\""),
            "5:12: envoy[0].replaces: a name is empty; write one",
        ),
        (
            &table("quota = \"1/s\"\nalternative = 1"),
            "5:15: envoy[0].alternative: 1 is not true or false",
        ),
    ] {
        assert_told(text, expected);
    }
}

#[test]
fn each_mistake_has_its_line_and_a_remedy() {
    for (text, expected) in [
        (
            "envoy = 1",
            "1:9: envoy: 1 is not a list of tables; write each of them under [[envoy]]",
        ),
        (
            "[[envoy]]\nentries = [\"a\"]\nquota = \"1/s\"",
            "1:1: envoy[0]: `domain` is missing; name the domain that Envoy sends",
        ),
        (
            "[[envoy]]\ndomain = \"\"\nentries = [\"a\"]\nquota = \"1/s\"",
            "2:10: envoy[0].domain: a name is empty",
        ),
        (
            "[[envoy]]\ndomain = \"d\"\nquota = \"1/s\"",
            "1:1: envoy[0]: `entries` is missing; name the keys",
        ),
        (
            "[[envoy]]\ndomain = \"d\"\nentries = []\nquota = \"1/s\"",
            "3:11: envoy[0].entries: there are 0 entries; give 1 to 16",
        ),
        (
            "[[envoy]]\ndomain = \"d\"\nentries = [\"a\", \"=b\"]\nquota = \"1/s\"",
            "3:17: envoy[0].entries[1]: a name is empty",
        ),
        (&table(""), "1:1: envoy[0]: `quota` is missing"),
        (
            &table("quota = \"1/s\"\ncharge = \"later\""),
            "5:10: envoy[0].charge: \"later\" is unknown; did you mean \"after\"? Known are before, after",
        ),
        (
            &table("quota = \"1/s\"\ntogether = true"),
            "5:12: envoy[0].together: no entry has a `*`",
        ),
        (
            &table("quota = \"1/s\"\nkey = \"client_ip\""),
            "5:1: envoy[0].key: field \"key\" is unknown",
        ),
        (
            &table("quota = \"1/s\"\nplan = \"gold\""),
            "5:8: envoy[0].plan: a plan gives the limit of a policy",
        ),
        (
            &table("algorithm = \"leaky-queue 1/second places 5\""),
            "4:13: envoy[0].algorithm: Envoy lets no request wait",
        ),
        (
            &table("algorithm = \"concurrency 5\""),
            "4:13: envoy[0].algorithm: Envoy lets no request wait",
        ),
        (
            &table("policy = \"export\""),
            "4:10: envoy[0].policy: policy \"export\" is unknown; there is none",
        ),
        (
            &format!("{POLICY}{}", table("policy = \"exports\"")),
            "7:10: envoy[0].policy: policy \"exports\" is unknown; did you mean \"export\"?",
        ),
        (
            &format!("{POLICY}{}", table("policy = \"export\"\nquota = \"1/s\"")),
            "8:9: envoy[0].quota: `quota` contradicts `policy` (line 7); leave one of them",
        ),
        (
            &format!("{POLICY}{}", table("policy = \"export\"\nplan = \"gold\"")),
            "8:8: envoy[0].plan: plan \"gold\" is unknown; there is none",
        ),
        (
            "[policies.busy]\nconcurrency = 5\nkey = \"global\"\n[[envoy]]\ndomain = \"d\"\nentries = [\"a\"]\npolicy = \"busy\"",
            "7:10: envoy[0].policy: Envoy lets no request wait",
        ),
        (
            &format!("{}{}", table("quota = \"1/s\""), table("quota = \"2/s\"")),
            "5:1: envoy[1]: the domain has these entries already (line 1); leave one of them",
        ),
    ] {
        assert_told(text, expected);
    }
    let of_json = r#"{"envoy": [{"domain": "d", "entries": ["a"], "quota": 1}]}"#;
    assert!(mistakes_in_json(of_json)[0].starts_with("<text>: envoy[0].quota: "));
}

#[test]
fn a_mistake_of_a_policy_is_told_once() {
    let file = format!("{POLICY}mode = \"shdow\"\n{}", table("policy = \"export\""));
    let found = mistakes(&file);
    assert!(
        found.len() == 1 && found[0].contains("policies.export.mode"),
        "{found:#?}"
    );
}
