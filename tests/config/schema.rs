//! The JSON Schema is checked in, and agrees with the reader.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tower_ratelimit_config::{Config, Format, schema as of_the_file};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn schema() -> Value {
    serde_json::from_str(&of_the_file()).unwrap()
}

/// A file of limits in the documentation.
struct Example {
    name: String,
    text: String,
    format: Format,
}

impl Example {
    fn value(&self) -> Value {
        match self.format {
            Format::Json => serde_json::from_str(&self.text).unwrap(),
            _ => toml::from_str(&self.text).unwrap(),
        }
    }
}

/// Returns the files of the examples, and all code blocks of the documentation that are files of limits.
fn examples() -> Vec<Example> {
    let mut examples = Vec::new();
    for name in ["examples/limits.toml", "server/limits.toml"] {
        examples.push(Example {
            name: name.to_owned(),
            text: fs::read_to_string(root().join(name)).unwrap(),
            format: Format::Toml,
        });
    }
    let folders = [
        "docs",
        "crates/config/docs",
        "crates/ops/docs",
        "server/docs",
    ];
    let pages = folders.map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let pages = pages.into_iter().flatten();
    let pages = pages.map(|page| page.unwrap().path());
    for path in pages.chain([root().join("README.md")]) {
        if path.extension().is_some_and(|extension| extension == "md") {
            let page = fs::read_to_string(&path).unwrap();
            examples.extend(blocks(&path.display().to_string(), &page));
        }
    }
    let count_in = |page: &str| {
        let of_it = examples
            .iter()
            .filter(|example| example.name.contains(page));
        of_it.count()
    };
    for (page, at_least) in [("config.md", 10), ("hours.md", 1), ("penalties.md", 1)] {
        assert!(count_in(page) >= at_least, "{page}");
    }
    examples
}

fn blocks(page: &str, text: &str) -> Vec<Example> {
    let blocks = text.split("```").skip(1).step_by(2).enumerate();
    let blocks = blocks.filter_map(|(index, block)| {
        let (language, text) = block.split_once('\n')?;
        // Other tables have policies, too.
        let (format, sign) = match language {
            "toml" => (Format::Toml, "[policies"),
            "json" => (Format::Json, "\"policies\": {"),
            _ => return None,
        };
        let example = Example {
            name: format!("{page}, block {index}"),
            text: text.to_owned(),
            format,
        };
        text.contains(sign).then_some(example)
    });
    blocks.collect()
}

#[test]
fn the_schema_that_is_checked_in_is_that_of_today() {
    let text = fs::read_to_string(root().join("crates/config/limits.schema.json")).unwrap();
    let checked_in: Value = serde_json::from_str(&text).unwrap();
    assert!(
        checked_in == schema(),
        "write `schema()` to crates/config/limits.schema.json:\n{}",
        of_the_file()
    );
}

#[test]
fn every_example_of_the_documentation_is_valid() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for example in examples() {
        let errors: Vec<String> = validator
            .iter_errors(&example.value())
            .map(|error| error.to_string())
            .collect();
        assert!(errors.is_empty(), "{}: {errors:#?}", example.name);
    }
}

/// With the functions that the pages name.
#[test]
fn every_example_of_the_documentation_is_read_without_a_warning() {
    use std::convert::Infallible;
    use tower_ratelimit::key::{self, Head};
    use tower_ratelimit::plan::{Resolved, Resolver};

    let customers = Resolver::new(|_: String| async { Ok::<_, Infallible>(Resolved::NotFound) });
    let customer = |head: &Head<'_>| head.header("x-id").map(str::to_owned);
    let builder = Config::builder()
        .key("tenant", key::header("x-tenant"))
        .resolver("customers", customers, customer);
    for example in examples() {
        match builder.parse(&example.text, example.format) {
            Err(error) => panic!("{}:\n{error}", example.name),
            Ok(config) => {
                let mut warnings = config.warnings().iter();
                // The text is no file, and so has no file beside it.
                let warning = warnings.find(|warning| warning.path() != "shadow");
                assert!(warning.is_none(), "{}: {warning:?}", example.name);
            }
        }
    }
}

/// A schema that accepts everything would pass the test above.
#[test]
fn the_schema_refuses_each_wrong_type_that_the_reader_refuses() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let good = json!({ "policies": { "a": { "key": "global", "quota": "1/day" } } });
    assert!(validator.is_valid(&good));
    let level = |name| json!({ "name": name, "key": "global", "quota": "1/day" });
    for (path, wrong) in [
        ("/policies/a/kye", json!("global")),
        ("/policies/a/limit", json!("10k")),
        ("/policies/a/soft", json!(1)),
        ("/policies/a/on_missing_key", json!("skp")),
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
        ("/first_of", json!({ "spend": ["a"] })),
        ("/first_of", json!({ "spend": { "spill": true } })),
        ("/first_of", json!({ "spend": { "of": ["a"] } })),
        ("/policies/a", json!({ "levels": [] })),
        ("/policies/a", json!({ "levels": vec![level("b"); 9] })),
        (
            "/policies/a",
            json!({ "levels": [{ "key": "global", "quota": "1/day" }] }),
        ),
        (
            "/policies/a",
            json!({ "levels": [{ "name": "b", "fair": "api_key" }] }),
        ),
        (
            "/policies/a",
            json!({ "levels": [{ "name": "b", "unverified": "together" }] }),
        ),
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

/// Returns the names in the first column of the table under a heading.
fn reference<'p>(page: &'p str, heading: &str, first: &str) -> BTreeSet<&'p str> {
    let (_, section) = page.split_once(heading).expect(heading);
    let (_, table) = section.split_once(first).expect(first);
    let rows = table.lines().skip(1).take_while(|row| row.starts_with('|'));
    let names = rows.filter_map(|row| row.split('|').nth(1));
    names
        .flat_map(|names| names.split('`').skip(1).step_by(2))
        .collect()
}

#[test]
fn the_tables_of_the_documentation_have_the_settings_of_the_file_and_no_others() {
    let page = fs::read_to_string(root().join("crates/config/docs/config.md")).unwrap();
    let schema = schema();
    for (heading, first, table) in [
        ("# Policies", "| field | value | default |", "/$defs/policy"),
        ("# Conditions", "| field | holds if |", "/$defs/condition"),
        (
            "# Limits that follow the load",
            "| field of `[adapt]` | meaning |",
            "/properties/adapt",
        ),
        (
            "# The store, secrets and responses",
            "| field | what it is |",
            "",
        ),
    ] {
        let settings = schema.pointer(&format!("{table}/properties")).unwrap();
        let settings = settings.as_object().unwrap().keys().map(String::as_str);
        let named = reference(&page, heading, first);
        assert_eq!(named, settings.collect::<BTreeSet<_>>(), "{heading}");
    }
}

/// A setting that is not in the page has only its sentence as documentation.
#[test]
fn each_setting_of_each_table_is_in_the_documentation() {
    fn settings<'s>(of: &'s Value, found: &mut BTreeSet<&'s str>) {
        match of {
            Value::Object(fields) => {
                if let Some(Value::Object(properties)) = fields.get("properties") {
                    found.extend(properties.keys().map(String::as_str));
                }
                fields.values().for_each(|value| settings(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| settings(value, found)),
            _ => {}
        }
    }
    let page = fs::read_to_string(root().join("crates/config/docs/config.md")).unwrap();
    let is_part = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '$'));
    let words: BTreeSet<&str> = page.split(is_part).collect();
    let schema = schema();
    let mut found = BTreeSet::new();
    settings(&schema, &mut found);
    let missing: Vec<_> = found.difference(&words).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
