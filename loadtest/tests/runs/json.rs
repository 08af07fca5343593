//! The report as JSON, and its schema.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use serde_json::Value;
use tower_ratelimit::{AnchoredWindow, RateLimitLayer, key};

use crate::server::{Server, run};

const SCHEMA: &str = include_str!("../../report.schema.json");

#[test]
fn the_report_is_as_its_schema_says() {
    let policy = AnchoredWindow::new(10, Duration::from_secs(3_600)).unwrap();
    let layer = RateLimitLayer::new(key::peer_ip(), policy);
    let server = Server::of(
        Router::new()
            .route("/", get(|| async { "hello" }))
            .layer(layer),
    );
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    for (stated, disproved) in [
        ("anchored-window 10/hour", false),
        ("anchored-window 9/hour", true),
    ] {
        let words = ["--json", "--requests", "30", "--check", "--policy", stated];
        let run = run(&[&[server.url.as_str()][..], &words].concat());
        let report: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(valid(&report, &schema, &schema, "report"), Ok(()));
        assert_eq!(report["total"], 30);
        assert_eq!(report["disproved"], disproved);
        assert_eq!(run.code, i32::from(disproved));
        assert!(run.stderr.starts_with("Total: 30 in "), "{}", run.stderr);
    }
}

#[test]
fn a_report_that_differs_is_found() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let wrong = |report: Value| assert!(valid(&report, &schema, &schema, "report").is_err());
    wrong(serde_json::json!({}));
    wrong(serde_json::json!([]));
    let request = &schema["$defs"]["request"];
    let sample = serde_json::json!({
        "number": 0, "client": 0, "node": 0, "sent_us": 1, "received_us": null, "answer": ""
    });
    assert_eq!(valid(&sample, request, &schema, "request"), Ok(()));
    for (field, value) in [
        ("number", "x".into()),
        ("sent_us", (-1).into()),
        ("extra", 0.into()),
    ] {
        let mut sample = sample.clone();
        sample[field] = value;
        assert!(
            valid(&sample, request, &schema, "request").is_err(),
            "{field}"
        );
    }
}

/// Validates a value by a schema, in the part of JSON Schema that our schema uses.
fn valid(value: &Value, schema: &Value, root: &Value, at: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{at}: {what}: {value}"));
    for (keyword, rule) in schema.as_object().unwrap() {
        match keyword.as_str() {
            "$ref" => {
                let path = rule.as_str().unwrap().trim_start_matches('#');
                valid(value, root.pointer(path).unwrap(), root, at)?;
            }
            "const" if value != rule => return wrong("another value"),
            "enum" if !rule.as_array().unwrap().contains(value) => return wrong("not listed"),
            "minimum" if value.as_f64() < rule.as_f64() && !value.is_null() => {
                return wrong("too small");
            }
            "const" | "enum" | "minimum" | "$schema" | "$defs" | "title" | "description" => {}
            "type" => {
                let types = rule
                    .as_array()
                    .cloned()
                    .unwrap_or_else(|| vec![rule.clone()]);
                if !types.iter().any(|kind| is(value, kind.as_str().unwrap())) {
                    return wrong("another type");
                }
            }
            "required" if value.is_object() => {
                let mut names = rule.as_array().unwrap().iter();
                if let Some(name) = names.find(|name| value.get(name.as_str().unwrap()).is_none()) {
                    return wrong(&format!("{name} is missing"));
                }
            }
            "properties" | "additionalProperties" | "required" | "items" => {
                children(value, schema, root, at)?;
            }
            other => panic!("{other}: the test knows no such keyword"),
        }
    }
    Ok(())
}

fn children(value: &Value, schema: &Value, root: &Value, at: &str) -> Result<(), String> {
    for item in value.as_array().into_iter().flatten() {
        valid(item, &schema["items"], root, at)?;
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        let at = format!("{at}.{name}");
        match (
            schema["properties"].get(name),
            &schema["additionalProperties"],
        ) {
            (None, Value::Bool(false)) => return Err(format!("{at} is not in the schema")),
            (None, Value::Null) => {}
            (Some(schema), _) | (None, schema) => valid(field, schema, root, &at)?,
        }
    }
    Ok(())
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{other}: no such type"),
    }
}
