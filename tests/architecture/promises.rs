//! What is stable from 1.0 on has no types of crates that are not.

use std::fs;

use super::root;

/// Those that have a 1.0, and the two of tower whose 0.3 all middleware shares.
const STABLE: [&str; 8] = [
    "bytes",
    "http",
    "http_body",
    "serde_core",
    "smallvec",
    "tokio",
    "tower_layer",
    "tower_service",
];

/// Those whose traits our types implement, and no more: the page on stability says that this follows their versions.
const TRAITS: [&str; 3] = ["axum_core", "pin_project_lite", "tonic"];

/// Returns the crates that a line of the public API names, but for ours.
fn named(line: &str) -> Vec<&str> {
    let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let paths = line.match_indices("::").map(|(at, _)| &line[..at]);
    let words = paths.filter_map(|before| {
        let start = before.rfind(|c| !is_of_a_name(c)).map_or(0, |at| at + 1);
        // What stands behind a path is no crate.
        let word = &before[start..];
        (!before[..start].ends_with("::") && word.starts_with(|c: char| c.is_ascii_lowercase()))
            .then_some(word)
    });
    words
        .filter(|word| *word != "self" && !word.starts_with("tower_ratelimit"))
        .collect()
}

/// Returns the crate that makes this line unstable.
fn unstable(line: &str) -> Option<&str> {
    let implements = line.starts_with("impl");
    named(line)
        .into_iter()
        .find(|word| !(STABLE.contains(word) || implements && TRAITS.contains(word)))
}

#[test]
fn a_stable_item_names_no_type_of_an_unstable_crate() {
    for package in ["tower-ratelimit", "tower-ratelimit-core"] {
        let path = root().join(format!("tests/public-api/{package}.txt"));
        let api = fs::read_to_string(path).unwrap();
        for line in api.lines() {
            assert_eq!(unstable(line), None, "{package}: {line}");
        }
    }
}

#[test]
fn a_type_of_an_unstable_crate_is_found() {
    for (line, found) in [
        (
            "pub fn a::b(axum_core::Body) -> http::Response<()>",
            Some("a"),
        ),
        (
            "pub fn tower_ratelimit::b(axum_core::Body)",
            Some("axum_core"),
        ),
        ("impl axum_core::IntoResponse for Refusal", None),
        ("impl From<rand::Rng> for Refusal", Some("rand")),
        ("pub use tower_ratelimit::A = self::a::A", None),
        (
            "pub fn tower_ratelimit::a(&self) -> S::Error where S: tower_service::Service<Q>",
            None,
        ),
    ] {
        assert_eq!(unstable(line), found, "{line}");
    }
}
