//! The mistakes of a file, with their lines.

use std::fmt::Write;
use std::fs;
use std::os::unix::net::UnixListener;

use ratelimitd::Limits;
use ratelimitd::ratelimit::{Options, RateLimits, understood};
use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit_config::Config;

use super::{Folder, Scene, descriptor, passes, read, request};

/// The texts are those of `envoyproxy/ratelimit`, up to the semicolon.
#[test]
fn each_mistake_has_its_text_its_place_and_a_remedy() {
    let limit =
        |field: &str| format!("domain: shop\ndescriptors:\n- key: k\n  rate_limit:\n    {field}\n");
    let cases: Vec<(String, &str)> = vec![
        (
            "descriptors: []".into(),
            "shop.yaml:1:1: domain: config file cannot have empty domain; name the domain that Envoy sends, `domain: shop`",
        ),
        (
            String::new(),
            "shop.yaml:1:1: domain: config file cannot have empty domain; name the domain that Envoy sends",
        ),
        (
            "domain: ''".into(),
            "shop.yaml:1:9: domain: config file cannot have empty domain; name the domain that Envoy sends",
        ),
        (
            "domain: shop\ndescriptors:\n- value: v\n".into(),
            "shop.yaml:3:3: descriptors[0].key: descriptor has empty key; write the key of an entry",
        ),
        (
            "domain: shop\ndescriptors:\n- key: k\n  value: v\n- key: k\n  value: v\n".into(),
            "shop.yaml:5:8: descriptors[1].key: duplicate descriptor composite key 'shop.k_v'; leave one of them",
        ),
        (
            limit("unit: foo"),
            "shop.yaml:5:11: descriptors[0].rate_limit.unit: invalid rate limit unit 'foo'; write one of second, minute, hour, \
             day, week, month, year, or a length of time as `period`",
        ),
        (
            limit("requests_per_unit: 5"),
            "shop.yaml:5:5: descriptors[0].rate_limit.unit: invalid rate limit unit ''; write",
        ),
        (
            limit("{ unlimited: true, unit: day }"),
            "shop.yaml:5:30: descriptors[0].rate_limit.unit: should not specify rate limit unit when unlimited; leave out one of them",
        ),
        (
            limit("{ unit: day, name: a, replaces: [{ name: a }] }"),
            "shop.yaml:5:46: descriptors[0].rate_limit.replaces[0].name: replaces should not contain name of same descriptor; leave it out",
        ),
        (
            limit("{ unit: day, replaces: [{ name: '' }] }"),
            "shop.yaml:5:37: descriptors[0].rate_limit.replaces[0].name: should not have an empty replaces entry; write the `name` of another rate_limit",
        ),
        (
            "domain: shop\ndescriptors:\n- key: k\n  ratelimit: {}\n".into(),
            "shop.yaml:4:3: descriptors[0]: config error, unknown key 'ratelimit'; the nearest is rate_limit",
        ),
        (
            "domain: shop\ndescriptors:\n- key: k\n  0.25: x\n".into(),
            "shop.yaml:4:3: descriptors[0]: config error, key is not of type string: 0.25; put a text in quotes",
        ),
        (
            "domain: shop\ndescriptors:\n- a\n".into(),
            "shop.yaml:3:3: descriptors[0]: config error, yaml file contains list of type other than map: a; write a map",
        ),
        (
            "domain: shop\ndescriptors:\n- key: k\n  value: v\n  share_threshold: true\n".into(),
            "shop.yaml:5:20: descriptors[0].share_threshold: share_threshold can only be used with wildcard values (containing \
             '*'), but found key 'k_v'; give it a value with `*`",
        ),
    ];
    assert_told(&cases);
}

#[test]
fn mistakes_that_are_none_there_have_a_remedy_too() {
    let limit =
        |field: &str| format!("domain: shop\ndescriptors:\n- key: k\n  rate_limit:\n    {field}\n");
    let long = format!("domain: shop\ndescriptors: {}", "[".repeat(200));
    let mut deep = String::from("domain: shop\n");
    for level in 0..17 {
        let indent = "  ".repeat(level);
        deep.extend([format!("{indent}descriptors:\n{indent}- key: k\n")]);
    }
    let cases: Vec<(String, &str)> = vec![
        (
            "domain: shop\nunit: day\n".into(),
            "shop.yaml:2:1: config error, unknown key 'unit' here; it stands below `rate_limit`",
        ),
        (
            limit("shadow_mode: true"),
            "config error, unknown key 'shadow_mode' here; it stands beside the `key` of a descriptor",
        ),
        (
            limit("{ unit: day, requests_per_unit: many }"),
            "\"many\" is no number of requests; write a whole number from 0 to 4294967295",
        ),
        (
            limit("{ unit: day, requests_per_unit: -1 }"),
            "\"-1\" is no number of requests",
        ),
        (
            limit("{ unit: day, requests_per_unit: 4294967296 }"),
            "\"4294967296\" is no number of requests",
        ),
        (
            limit("{ unit: day, settles: maybe }"),
            "rate_limit.settles: \"maybe\" is neither true nor false; write one of them",
        ),
        (
            limit("{ unit: day, period: 10min }"),
            "rate_limit.period: there is a unit too; leave out one of them",
        ),
        (
            limit("{ period: soon }"),
            "rate_limit.period: \"soon\" is no length of time; write one such as 10min, 12h or 90d",
        ),
        (
            limit("{ unit: day, burst: 5 }"),
            "rate_limit.burst: a fixed window has no burst; name an algorithm that has one",
        ),
        (
            limit("{ unit: day, algorithm: leaky-queue }"),
            "rate_limit.algorithm: \"leaky-queue\" is no algorithm for descriptors; write one of ",
        ),
        (
            limit("{ unit: day, algorithm: sliding-window, burst: 1 }"),
            "rate_limit.burst: sliding-window has no burst; leave it out",
        ),
        (
            limit("{ unit: day, on_store_failure: never }"),
            "\"never\" is none of them; write local, allow or refuse",
        ),
        (
            "domain: shop\ndomain: shop\n".into(),
            "shop.yaml:2:1: domain: it stands there twice; leave one",
        ),
        (
            "domain: shop\ndescriptors: x\n".into(),
            "descriptors: \"x\" is no list; begin each of its maps with `- `",
        ),
        (
            "domain: [shop]\n".into(),
            "domain: a list is no text; write one value",
        ),
        (
            "domain: shop\ndescriptors:\n- key: k\n  metadata: x\n".into(),
            "metadata: it is no map; write fields below it",
        ),
        (
            "- domain: shop\n".into(),
            "\"a list\" is no map; write the fields domain, descriptors",
        ),
        (
            "domain: shop\n---\ndomain: other\n".into(),
            "a second document begins here; give it a file of its own",
        ),
        ("domain: {shop\n".into(), "this is no YAML: "),
        (
            long,
            "lists and maps stand in each other on more than 64 levels; leave out levels",
        ),
        (
            deep,
            "descriptors stand in each other on more than 16 levels; leave out levels",
        ),
    ];
    assert_told(&cases);
}

#[test]
fn a_number_of_units_has_its_mistakes() {
    let limit =
        |field: &str| format!("domain: shop\ndescriptors:\n- key: k\n  rate_limit:\n    {field}\n");
    assert_told(&[
        (
            limit("{ unit_multiplier: 2, period: 10min }"),
            "rate_limit.period: there is a unit_multiplier too; leave out one of them",
        ),
        (
            limit("{ unit_multiplier: 2, unlimited: true }"),
            "rate_limit.unit_multiplier: should not specify rate limit unit when unlimited; leave out one of them",
        ),
        (
            limit("{ unit_multiplier: 2 }"),
            "rate_limit.unit: invalid rate limit unit ''; write",
        ),
        (
            limit("{ unit: day, unit_multiplier: 0 }"),
            "rate_limit.unit_multiplier: no unit is no time; write how many there are, from 1, or leave it out",
        ),
        (
            limit("{ unit: day, unit_multiplier: x }"),
            "rate_limit.unit_multiplier: \"x\" is no number; write a whole number from 0 to 4294967295",
        ),
        (
            limit("{ unit: year, unit_multiplier: 4294967295 }"),
            "rate_limit.unit_multiplier: ",
        ),
    ]);
}

/// Asserts that the error of each text contains another one, and shows the line with a caret below its place.
fn assert_told(cases: &[(String, &str)]) {
    for (text, expected) in cases {
        let error = read(&[("shop.yaml", text)]).unwrap_err().to_string();
        assert!(
            error.contains(expected),
            "{text}\n{error}\nlacks {expected}"
        );
        let (_, place) = error.split_once("shop.yaml:").unwrap();
        let mut numbers = place.split(':').map(str::parse::<usize>);
        let (line, column) = (
            numbers.next().unwrap().unwrap(),
            numbers.next().unwrap().unwrap(),
        );
        let shown = text.lines().nth(line - 1).unwrap_or_default();
        // Of a long line a part is shown.
        if shown.len() < 60 {
            let caret = " ".repeat(column - 1) + "^";
            let gutter = " ".repeat(line.to_string().len());
            let expected = format!("\n {line} | {shown}\n {gutter} | {caret}");
            assert!(error.contains(&expected), "{error}\nlacks {expected}");
        }
    }
}

#[test]
fn all_mistakes_of_all_files_are_told_at_once() {
    let error = read(&[
        (
            "a.yaml",
            "domain: a\ndescriptors:\n- key: k\n  rate_limit: { unit: foo }\n- value: v\n",
        ),
        ("b.yml", "domain: a\n"),
        ("c.yaml", "domain: c\nx: y\n"),
        ("d.txt", "not: yaml: at all"),
        (".e.yaml", "not: yaml: at all"),
    ]);
    let error = error.unwrap_err().to_string();
    for expected in ["a.yaml:4:", "a.yaml:5:", "2 mistakes", "c.yaml:2:1"] {
        assert!(error.contains(expected), "{error}");
    }
    assert!(!error.contains("not: yaml"), "{error}");

    let error = read(&[("a.yaml", "domain: a\n"), ("b.yml", "# b\ndomain: a\n")]);
    let error = error.unwrap_err().to_string();
    let expected = "b.yml:2:9: domain: duplicate domain 'a' in config file; write all of its descriptors into one file";
    assert!(error.contains(expected), "{error}");
    assert!(
        error.contains("\n 2 | domain: a\n   |         ^"),
        "{error}"
    );

    let error = read(&[("a.txt", "")]).unwrap_err().to_string();
    assert!(
        error.contains("no file whose name ends in .yaml; put one there"),
        "{error}"
    );
    let large = format!("domain: a\n# {}\n", "x".repeat(4 << 20));
    let error = read(&[("a.yaml", &large)]).unwrap_err().to_string();
    assert!(error.contains("more than 4194304 bytes; divide"), "{error}");
}

#[test]
fn a_file_without_mistakes_is_read_however_it_is_written() {
    read(&[(
        "shop.yaml",
        "
%YAML 1.2
---
domain: shop
descriptors:
  - key: tenant
    value: gold
    shadow_mode: yes
    quota_mode: false
    detailed_metric: true
    value_to_metric: true
    metadata: { provider: { region: eu, weight: 0.25 }, list: [1, x, ~] }
    rate_limit: &limit
      unit: hour
      requests_per_unit: 10
      name: gold
      replaces:
        - name: silver
  - key: tenant
    value:
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: path
    descriptors:
    - { key: \"0.25\", rate_limit: { period: 10min, requests_per_unit: 5, algorithm: token-bucket, burst: 20, settles: true } }
    - { key: again, rate_limit: *limit }
",
    )])
    .unwrap();
}

#[tokio::test]
async fn what_is_no_file_is_left_out_and_what_is_no_number_of_yaml_is_a_text() {
    let file = "domain: shop\ndescriptors:\n- key: k\n  metadata: { a: nan, b: infinity, c: 1.5 }\n  rate_limit: { unit: hour, requests_per_unit: 1 }\n";
    let folder = Folder::of(&[("shop.yaml", file)]);
    // To read it would be an error.
    let _socket = UnixListener::bind(folder.0.join("socket.yaml")).unwrap();
    let options = Options::default();
    let limits = RateLimits::read(folder.path(), options, LimiterBuilder::build).unwrap();
    let answer = limits.ask(request(vec![descriptor(&[("k", "v")])]), None);
    let fields = format!("{:?}", answer.await.unwrap().dynamic_metadata);
    for expected in [
        "StringValue(\"nan\")",
        "StringValue(\"infinity\")",
        "NumberValue(1.5)",
    ] {
        assert!(fields.contains(expected), "{fields}");
    }
}

#[tokio::test]
async fn a_mistake_leaves_the_old_files_in_force_and_a_change_keeps_what_was_used() {
    let file = |limit: u32| {
        format!(
            "domain: shop\ndescriptors:\n- key: k\n  rate_limit: {{ unit: hour, requests_per_unit: {limit} }}\n"
        )
    };
    let scene = Scene::new(&file(2));
    let value = descriptor(&[("k", "v")]);
    assert_eq!(scene.pass(&value, [1, 1, 1]).await, [true, true, false]);

    scene
        .folder
        .write("shop.yaml", "domain: shop\ndescriptors:\n- kei: k\n");
    scene.limits.reload();
    let error = scene.limits.error().unwrap().to_string();
    assert!(error.contains("shop.yaml:3:3"), "{error}");
    assert!(!passes(&scene.ask(vec![value.clone()]).await));

    scene.folder.write("shop.yaml", &file(4));
    scene.folder.write("other.yaml", "domain: other\n");
    scene.limits.reload();
    assert_eq!(scene.limits.error(), None);
    assert_eq!(scene.pass(&value, [1, 1, 1]).await, [true, true, false]);

    fs::remove_file(scene.folder.0.join("shop.yaml")).unwrap();
    scene.limits.reload();
    let answer = scene.ask(vec![value]).await;
    assert_eq!(
        (passes(&answer), answer.statuses[0].current_limit.as_ref()),
        (true, None)
    );
}

#[test]
fn a_directory_that_is_not_there_is_an_error_with_its_name() {
    let folder = Folder::of(&[]);
    let path = folder.0.join("missing");
    let read = understood(&path);
    let error = read.unwrap_err().to_string();
    assert!(
        error.contains("missing: the file cannot be read: No such file"),
        "{error}"
    );
}

#[test]
fn files_and_limits_are_bounded_in_number() {
    let mut text = "domain: files\ndescriptors:\n".to_owned();
    for number in 0..20_000 {
        let limit = "rate_limit: { unit: hour, requests_per_unit: 1 }";
        writeln!(text, "- {{ key: k{number}, {limit} }}").unwrap();
    }
    let folder = Folder::of(&[("files.yaml", &text)]);
    understood(&folder.0).unwrap();
    // A table of the file of limits is one more.
    let table = "[[envoy]]\ndomain = \"shop\"\nentries = [\"tenant\"]\nquota = \"1/hour\"\n";
    let config: Config = table.parse().unwrap();
    let layer = config.layer().unwrap();
    let limits = Limits::Text { config, layer };
    let read = RateLimits::beside(&limits, Some(folder.0.clone()), Options::default());
    let expected = "there are 20001 limits; leave 20000, by descriptors without a value";
    assert_eq!(read.unwrap_err().to_string(), expected);

    let folder = Folder::of(&[]);
    for number in 0..1_001 {
        let text = format!("domain: d{number}\n");
        folder.write(&format!("{number}.yaml"), &text);
    }
    let error = understood(&folder.0).unwrap_err().to_string();
    let expected = ": there are more than 1000 files; join some of them";
    assert!(error.ends_with(expected), "{error}");
    fs::remove_file(folder.0.join("0.yaml")).unwrap();
    understood(&folder.0).unwrap();
}
