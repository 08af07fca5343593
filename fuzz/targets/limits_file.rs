//! The file of limits, in TOML, or in JSON if it begins with a brace: each mistake has a place and words, what is read can be
//! enforced, and the same file in JSON is understood alike.

#![no_main]

use http::Request;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tower_ratelimit::MemoryStore;
use tower_ratelimit_config::{Config, Explained, FileError, Format};

fuzz_target!(|text: &str| {
    if text.trim_start().starts_with('{') {
        if !serde_json::from_str(text).is_ok_and(|file| leads_elsewhere(&file)) {
            read(text, Format::Json).ok();
        }
        return;
    }
    let table = toml::from_str::<toml::Table>(text).ok();
    let value = table.as_ref().map(serde_json::to_value);
    if value.is_some_and(|file| file.is_ok_and(|file| leads_elsewhere(&file))) {
        return;
    }
    let understood = read(text, Format::Toml);
    let Some(table) = table else {
        return;
    };
    // A date is no value of JSON, and neither is a number that is none.
    let Ok(json) = serde_json::to_string(&table) else {
        return;
    };
    if json.contains("$__toml_private_datetime") || json.contains("null") {
        return;
    }
    let in_json = read(&json, Format::Json);
    match (understood, in_json) {
        (Ok(understood), Ok(in_json)) => {
            let rows = |explained: &Explained| -> Vec<_> {
                let rows = explained.rows().iter();
                let mut rows: Vec<_> = rows
                    .map(|row| [row.policy(), row.rule(), row.says()].map(str::to_owned))
                    .collect();
                rows.sort();
                rows
            };
            assert_eq!(rows(&understood), rows(&in_json), "{json}");
        }
        (Err(_), Err(_)) => {}
        (Ok(_), Err(error)) => panic!("in JSON alone: {error}\n{json}"),
        (Err(error), Ok(_)) => panic!("in TOML alone: {error}\n{json}"),
    }
});

/// Whether it would read another file, or ask the environment.
fn leads_elsewhere(value: &Value) -> bool {
    match value {
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| name == "env" || name == "file" || leads_elsewhere(value)),
        Value::Array(values) => values.iter().any(leads_elsewhere),
        _ => false,
    }
}

fn read(text: &str, format: Format) -> Result<Explained, FileError> {
    let config = Config::builder().parse(text, format).inspect_err(|error| {
        assert!(!error.mistakes().is_empty());
        let lines = text.lines().count() + 1;
        for mistake in error.mistakes() {
            assert!(!mistake.message().is_empty());
            assert!(
                mistake
                    .line()
                    .is_none_or(|line| (1..=lines).contains(&line)),
                "{mistake}"
            );
        }
        assert!(!error.to_string().is_empty());
    })?;
    let layer = config.layer_over(MemoryStore::new());
    assert!(layer.is_ok(), "{}", layer.map(drop).unwrap_err());
    let request = Request::post("/v1/chat?q=1")
        .header("x-tenant", "acme")
        .body(())
        .expect("it is one");
    let _ = config.explain(&request, Some("ann"), None).to_string();
    Ok(config.understood())
}
