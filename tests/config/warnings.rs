//! Settings that are valid and suspicious.

use tower_ratelimit_config::{Config, Format};

use crate::scene::config;

fn warnings(config: &Config) -> Vec<String> {
    config.warnings().iter().map(ToString::to_string).collect()
}

#[test]
fn the_url_of_a_store_that_stands_in_the_file_is_told_and_not_shown() {
    let of = |store: &str| {
        warnings(&config(&format!(
            "[policies.a]\nquota = \"1/day\"\nkey = \"global\"\n[store]\n{store}\n"
        )))
    };
    for (store, places) in [
        (
            "redis = \"redis://:hunter2@192.0.2.1/\"",
            &["5:9: store.redis"][..],
        ),
        (
            "cluster = [\"redis://:hunter2@192.0.2.1/\", \"redis://:hunter2@192.0.2.2/\"]",
            &["5:12: store.cluster[0]", "5:43: store.cluster[1]"],
        ),
    ] {
        let found = of(store);
        assert_eq!(found.len(), places.len(), "{found:?}");
        for (found, place) in found.iter().zip(places) {
            assert!(
                found.starts_with(&format!("<text>:{place}: the URL stands in the file")),
                "{found}"
            );
            assert!(!found.contains("hunter2"), "{found}");
        }
    }
}

#[test]
fn a_policy_of_which_no_plan_speaks_is_told() {
    let of = |more: &str| {
        let text = format!(
            "default_plan = \"free\"\nplan_of = {{ header = \"x-plan\", from = \"10.0.0.0/8\" }}\n[plans.free]\na = 10\n\
             [policies.a]\nquota = \"10/minute\"\nkey = \"global\"\n[policies.b]\nquota = \"1/second\"\nkey = \"client_ip\"\n{more}"
        );
        warnings(&config(&text))
    };
    let [warning] = &of("")[..] else {
        panic!("{:?}", of(""));
    };
    assert!(
        warning.starts_with("<text>:8:1: policies.b: no plan speaks of it"),
        "{warning}"
    );
    assert!(of("ignore_plans = true").is_empty());
}

#[test]
fn a_limit_that_can_never_bind_is_told_with_both_lines() {
    let of = |second: &str| {
        let text = format!(
            "[policies.minute]\nquota = \"100/minute\"\nkey = \"client_ip\"\n\n[policies.hour]\nkey = \"client_ip\"\n{second}\n"
        );
        warnings(&config(&text))
    };
    let told = "it can never deny anything, since policy \"hour\" (line 7) counts the same clients and is at least as strict; \
                leave one out, or correct the one that has a digit too few or too many";
    assert_eq!(
        of("quota = \"50/hour\""),
        [format!("<text>:2:9: policies.minute: {told}").replace("minute:", "minute.quota:")]
    );
    // It may bind.
    assert!(of("quota = \"1000/hour\"").is_empty());
    assert!(of("quota = \"50/hour\"\nwhen = { path = \"/a\" }").is_empty());
    assert!(of("quota = \"50/hour\"\nsoft = true").is_empty());
    // It is in shadow beside the other policy, and refuses nothing.
    assert!(of("quota = \"50/hour\"\nmode = \"shadow\"").is_empty());

    // Under one plan, and not under the other.
    let plans = config(
        "default_plan = \"free\"\nplan_of = { header = \"x-plan\", from = \"10.0.0.0/8\" }\n\
         [policies.minute]\nquota = \"10/minute\"\nkey = \"global\"\n[policies.hour]\nquota = \"100/hour\"\nkey = \"global\"\n\
         [plans.free]\nminute = 10\nhour = 100\n[plans.pro]\nminute = 1000\nhour = 100\n",
    );
    let told = told.replace("line 7", "line 14");
    assert_eq!(
        warnings(&plans),
        [format!("<text>:13:10: plans.pro.minute: {told}")]
    );

    let json = r#"{ "policies": { "a": { "key": "global", "quota": "10/minute" }, "b": { "key": "global", "quota": "5/hour" } } }"#;
    let json = Config::builder().parse(json, Format::Json).unwrap();
    let [warning] = &warnings(&json)[..] else {
        panic!("{:?}", json.warnings());
    };
    assert!(
        warning.starts_with("<text>: policies.a.quota: it can never"),
        "{warning}"
    );
    assert!(
        warning.contains("policy \"b\" (policies.b.quota)"),
        "{warning}"
    );
}
