//! The JSON Schema: it is the one that is checked in, and it agrees with the reader.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tower_ratelimit::config::{self, Config, Format};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn schema() -> Value {
    serde_json::from_str(&config::schema()).unwrap()
}

/// The tables of the documentation that are files, in TOML or JSON, as JSON.
fn examples() -> Vec<(String, Value)> {
    let mut files = Vec::new();
    for path in ["examples/limits.toml", "examples/gateway/limits.toml"] {
        let text = fs::read_to_string(root().join(path)).unwrap();
        files.push((path.to_owned(), toml::from_str(&text).unwrap()));
    }
    let page = fs::read_to_string(root().join("docs/config.md")).unwrap();
    for (index, block) in page
        .split("```")
        .enumerate()
        .filter(|(index, _)| index % 2 == 1)
    {
        let name = format!("docs/config.md, block {index}");
        match block.split_once('\n') {
            Some(("toml", text)) => files.push((name, toml::from_str(text).unwrap())),
            Some(("json", text)) => files.push((name, serde_json::from_str(text).unwrap())),
            _ => {}
        }
    }
    assert!(files.len() > 5, "only {} examples are found", files.len());
    files
}

#[test]
fn the_schema_that_is_checked_in_is_that_of_today() {
    let text = fs::read_to_string(root().join("docs/limits.schema.json")).unwrap();
    let checked_in: Value = serde_json::from_str(&text).unwrap();
    assert!(
        checked_in == schema(),
        "write `config::schema()` to docs/limits.schema.json:\n{}",
        config::schema()
    );
}

#[test]
fn every_example_of_the_documentation_is_valid() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for (name, file) in examples() {
        let errors: Vec<String> = validator
            .iter_errors(&file)
            .map(|error| error.to_string())
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
    }
}

/// A schema that takes everything would make the test above pass.
#[test]
fn the_schema_refuses_each_wrong_type_that_the_reader_refuses() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let good = json!({ "policies": { "a": { "key": "global", "quota": "1/day" } } });
    assert!(validator.is_valid(&good));
    for (path, wrong) in [
        ("/policies/a/kye", json!("global")),
        ("/policies/a/limit", json!("10k")),
        ("/policies/a/soft", json!(1)),
        ("/policies/a/no_key", json!("skp")),
        ("/policies/a/wait_up_to", json!(5)),
        ("/policies/a/key", json!({ "heder": "x-a" })),
        ("/policies/a/key", json!(["global", { "hashed": 5 }])),
        ("/policies/a/when", json!({ "methd": "GET" })),
        ("/policies/a/when", json!({ "not": { "methd": "GET" } })),
        ("/policies/a/cost", json!([{ "cots": 5 }])),
        ("/policies/a/operations", json!({ "read": true })),
        ("/plans", json!({ "free": { "a": [] } })),
        ("/store", json!({ "redis": { "evn": "A" } })),
        ("/responses", json!({ "dialects": ["draft-12"] })),
        ("/nodes", json!(-1)),
        ("/unknown", json!(1)),
    ] {
        let mut file = good.clone();
        let (table, field) = path.rsplit_once('/').unwrap();
        file.pointer_mut(table).unwrap()[field] = wrong.clone();
        assert!(!validator.is_valid(&file), "{path}: {wrong}");
        let read = Config::builder().parse(&file.to_string(), Format::Json);
        assert!(read.is_err(), "{path}: {wrong}");
    }
    assert!(!validator.is_valid(&json!({})));
}

/// A field that stands in no example has no documentation but its sentence.
#[test]
fn every_field_of_a_policy_and_of_the_file_is_in_the_documentation() {
    let page = fs::read_to_string(root().join("docs/config.md")).unwrap();
    let schema = schema();
    let mut fields: Vec<&String> = Vec::new();
    for table in [
        "/properties",
        "/$defs/policy/properties",
        "/$defs/condition/properties",
    ] {
        fields.extend(schema.pointer(table).unwrap().as_object().unwrap().keys());
    }
    for field in fields {
        assert!(page.contains(&format!("`{field}`")), "{field}");
    }
}
