//! Files of `envoyproxy/ratelimit` that are written as a file of limits.

use std::process::Command;
use std::time::Duration;

use ratelimitd::envoy::messages::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratelimitd::envoy::messages::envoy::service::ratelimit::v3::RateLimitResponse;
use ratelimitd::ratelimit::{import, understood};
use tower_ratelimit_config::Config;

use super::super::program::{failed, printed};
use super::{Folder, Scene, With, charging, descriptor, model, passes, request, tables, vectors};

/// What only an import has to get right: the order of patterns, whatever stands between them; values that some entries share; keys
/// and values with any characters; and descriptors that have no limit before another one that has.
const OTHERS: &str = r#"
domain: shop
descriptors:
- { key: order, value: "ab*", rate_limit: { unit: hour, requests_per_unit: 4 } }
- { key: tenant, rate_limit: { unit: hour, requests_per_unit: 30 } }
- { key: order, value: "a*", rate_limit: { unit: hour, requests_per_unit: 2 } }
- { key: order, value: "*", rate_limit: { unit: hour, requests_per_unit: 6 } }
- { key: order, value: abc }
- key: tenant
  value: "g*"
  share_threshold: true
  descriptors:
  - { key: path, value: "/x*", rate_limit: { unit: hour, requests_per_unit: 5 } }
  - { key: path, value: "/y*", share_threshold: true, rate_limit: { unit: hour, requests_per_unit: 5 } }
  - { key: path, value: "/y*b", descriptors: [] }
- { key: "a=b", rate_limit: { unit: month, requests_per_unit: 3 } }
- { key: "a=b", value: "c=\"d\"\\ \t é", rate_limit: { unit: year, requests_per_unit: 2 } }
- { key: a, value: "b", rate_limit: { unit: week, requests_per_unit: 4 } }
- { key: path, value_to_metric: true, detailed_metric: true, rate_limit: { period: 10min, requests_per_unit: 6, algorithm: token-bucket, burst: 2 } }
- { key: none, rate_limit: { unlimited: true } }
"#;

/// The keys of the files, each with values that a file has, and others that nearly are.
const ENTRIES: [(&str, &[&str]); 32] = [
    ("key1", &["value1", "other"]),
    ("subkey1", &["x", "subvalue1"]),
    ("key2", &["a", "value2", "value3", ""]),
    ("key5", &["value5"]),
    ("subkey5", &["subvalue5", "other"]),
    ("wild", &["foo", "foo1", "fo"]),
    ("midWild", &["barxb", "bar"]),
    ("multiWild", &["fooXbarYbaz", "foobaz"]),
    ("file", &["test1", "test2", "test3"]),
    ("order", &["abc", "abd", "ac", "ab*", "a*", "b"]),
    ("number", &["7", "8"]),
    ("year", &["2026"]),
    ("free", &["x"]),
    ("none", &["x"]),
    ("k1", &["v1"]),
    ("k2", &["v2"]),
    ("k3", &["x"]),
    ("user", &["u", "ann"]),
    ("a_b", &["", "c"]),
    ("a", &["b", "x", "x_b"]),
    ("b", &["y", ""]),
    ("a=b", &["c=\"d\"\\ \t é", "c"]),
    ("tenant", &["gold", "gray", "free", "ann"]),
    (
        "path",
        &[
            "/api/a", "/files/1", "/files/2", "/x1", "/x2", "/y1", "/yb", "/",
        ],
    ),
    ("method", &["GET", "POST"]),
    ("all", &["x"]),
    ("shadow", &["x"]),
    ("tokens", &["x"]),
    ("burst", &["x"]),
    ("long", &["x"]),
    ("minutes", &["x"]),
    ("provider", &["a", "b", "c"]),
];

/// Keys that may follow each other.
const BELOW: [(&str, &str); 9] = [
    ("key1", "subkey1"),
    ("key2", "key2"),
    ("key5", "subkey5"),
    ("k1", "user"),
    ("k2", "user"),
    ("a", "b"),
    ("tenant", "path"),
    ("user", "method"),
    ("tenant", "method"),
];

/// What a file is tried with: keys, and pairs of keys.
struct Known {
    keys: Vec<&'static str>,
    pairs: Vec<(&'static str, &'static str)>,
}

impl Known {
    fn of(file: &str) -> Self {
        let is_there = |key: &&str| {
            let ends = [",", "\n", " }"].map(|end| format!("key: {key}{end}"));
            ends.iter().any(|text| file.contains(text)) || file.contains(&format!("key: {key:?}"))
        };
        let keys = ENTRIES.iter().map(|(key, _)| *key);
        let pairs = BELOW.iter().copied();
        Self {
            keys: keys.filter(is_there).collect(),
            pairs: pairs
                .filter(|(key, below)| is_there(key) && is_there(below))
                .collect(),
        }
    }

    fn any(&self, random: &mut fastrand::Rng) -> RateLimitDescriptor {
        let entry = |random: &mut fastrand::Rng, key: &str| {
            let (key, values) = ENTRIES.iter().find(|(known, _)| *known == key).unwrap();
            (*key, *random.choice(values.iter()).unwrap())
        };
        let entries = match random.choice(&self.pairs) {
            Some((first, second)) if random.bool() => {
                vec![entry(random, first), entry(random, second)]
            }
            _ => {
                let key = random.choice(&self.keys).unwrap();
                vec![entry(random, key)]
            }
        };
        match random.u32(..6) {
            0 => descriptor(&entries).at(random.u64(..8)),
            _ => descriptor(&entries),
        }
    }
}

/// What an answer says, but for the metadata, which a table has not, and for how it spells a period of several units.
fn comparable(mut answer: RateLimitResponse) -> RateLimitResponse {
    answer.dynamic_metadata = None;
    for status in &mut answer.statuses {
        if let Some(limit) = &mut status.current_limit
            && limit.unit_multiplier.take().is_some()
        {
            limit.unit = 0;
        }
    }
    answer
}

#[tokio::test]
async fn an_imported_file_decides_as_theirs() {
    let mut answers = [0_u32; 3];
    for file in [
        vectors::FILE,
        vectors::REPLACING,
        vectors::ALIKE,
        model::FILE,
        charging::FILE,
        charging::QUOTAS,
        OTHERS,
    ] {
        let theirs = Scene::new(file);
        let imported = import(&theirs.folder.0).unwrap();
        let (ours, clock) = tables::scene(&imported.file);
        let known = Known::of(file);
        let mut random = fastrand::Rng::with_seed(43);
        for _ in 0..2_000 {
            let descriptors: Vec<_> = (0..random.u32(1..4))
                .map(|_| known.any(&mut random))
                .collect();
            let expected = theirs.ask(descriptors.clone()).await;
            let answer = ours.ask(request(descriptors.clone()), None).await.unwrap();
            let kind = match expected
                .statuses
                .iter()
                .any(|it| it.current_limit.is_some())
            {
                false => 0,
                true if passes(&expected) => 1,
                true => 2,
            };
            answers[kind] += 1;
            assert_eq!(
                comparable(answer),
                comparable(expected),
                "{descriptors:?}\n{}",
                imported.file
            );
            if random.u32(..8) == 0 {
                let step = Duration::from_secs(random.u64(..1_000));
                theirs.clock.advance(step);
                clock.advance(step);
            }
        }
    }
    assert!(
        answers.iter().all(|answers| *answers > 1_500),
        "{answers:?}"
    );
}

#[test]
fn an_imported_file_has_their_words_in_ours() {
    let folder = Folder::of(&[
        (
            "a.yaml",
            r#"domain: shop
descriptors:
- key: tenant
  descriptors:
  - key: path
    value: /export/*
    share_threshold: true
    detailed_metric: true
    rate_limit: { unit: hour, requests_per_unit: 10, name: export, replaces: [{ name: all }, { name: "a\"b" }] }
- key: tenant
  value: free
- key: model
  value: a
  quota_mode: true
  metadata: { pool: a }
  rate_limit: { unit: month, requests_per_unit: 0 }
- key: "a=b"
  shadow_mode: true
  rate_limit: { period: 10min, requests_per_unit: 5, algorithm: token-bucket, burst: 9, settles: true, on_store_failure: refuse }
"#,
        ),
        (
            "b.yaml",
            "domain: other\ndescriptors: [{ key: k, rate_limit: { unlimited: true } }]\n",
        ),
    ]);
    let path = folder.path();
    let imported = import(&folder.0).unwrap();
    let expected = format!(
        r#"# The domain shop of {path}/a.yaml.

[[envoy]]
domain = "shop"
entries = [{{ key = "tenant", in_metrics = true }}, {{ key = "path", value = "/export/*", in_metrics = true }}]
algorithm = "fixed-window"
quota = "10/hour"
together = true
name = "export"
replaces = ["all", "a\"b"]

[[envoy]]
domain = "shop"
entries = ["tenant=free"]
quota = "unlimited"
mode = "off"

# {path}/a.yaml:12: metadata is left out: a table has none, so the answers for Envoy lack it
[[envoy]]
domain = "shop"
entries = ["model=a"]
algorithm = "fixed-window"
quota = "0/30d"
alternative = true

[[envoy]]
domain = "shop"
entries = [{{ key = "a=b" }}]
algorithm = "token-bucket"
quota = "5/10min"
burst = 9
on_store_failure = "refuse"
mode = "shadow"
charge = "after"

# The domain other of {path}/b.yaml.

[[envoy]]
domain = "other"
entries = ["k"]
quota = "unlimited"
"#
    );
    assert_eq!(imported.file, expected);
    let warning = format!(
        "{path}/a.yaml:12: metadata is left out: a table has none, so the answers for Envoy lack it"
    );
    assert_eq!(imported.warnings, [&*warning]);

    assert_eq!(printed(&["import", "ratelimit", path]), expected);
    let ended = Command::new(env!("CARGO_BIN_EXE_ratelimitd"))
        .args(["import", "ratelimit", path])
        .output();
    let warned = String::from_utf8(ended.unwrap().stderr).unwrap();
    assert_eq!(warned, format!("warning: {warning}\n"));
    // What `check` says of the one, `check` says of the other.
    let config: Config = expected.parse().unwrap();
    assert_eq!(config.descriptors().len(), 5);
    assert_eq!(understood(&folder.0).unwrap().matches("  line ").count(), 4);
}

#[test]
fn what_no_request_can_have_is_told_and_left_out() {
    let long = "x".repeat(1_025);
    let folder = Folder::of(&[(
        "shop.yaml",
        &*format!(
            "domain: shop\ndescriptors:\n- key: k\n  rate_limit: {{ unit: day }}\n- key: {long}\n  rate_limit: {{ unit: day }}\n"
        ),
    )]);
    let imported = import(&folder.0).unwrap();
    let warning = format!(
        "{}/shop.yaml:5: the key is left out: no request has one that is so long",
        folder.path()
    );
    assert!(
        imported.file.contains(&format!("# {warning}\n")),
        "{}",
        imported.file
    );
    assert_eq!(imported.file.matches("[[envoy]]").count(), 1);
    assert_eq!(imported.warnings, [warning]);
}

#[test]
fn files_that_cannot_be_imported_are_told_so() {
    let empty = Folder::of(&[("shop.yaml", "domain: shop\n")]);
    let (code, error) = failed(&["import", "ratelimit", empty.path()], &[]);
    assert_eq!(code, Some(1));
    assert!(
        error.contains("no file has a limit that a request can have; there is nothing to write"),
        "{error}"
    );

    let wrong = Folder::of(&[("shop.yaml", "domain: shop\ndescriptors:\n- kei: k\n")]);
    let (code, error) = failed(&["import", "ratelimit", wrong.path()], &[]);
    assert!(
        code == Some(1) && error.contains("shop.yaml:3:3"),
        "{error}"
    );

    let (code, error) = failed(&["import", "limitador", wrong.path()], &[]);
    assert!(
        code == Some(2) && error.contains("invalid value 'limitador'"),
        "{error}"
    );
}
