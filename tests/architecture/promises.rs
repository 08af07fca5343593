//! What is stable from 1.0 on has no types of crates that are not.

use std::fs;

use super::root;

/// Those that have a 1.0, and the two of tower whose 0.3 all middleware shares.
const STABLE: [&str; 9] = [
    "bytes",
    "http",
    "http_body",
    "redis",
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

/// Returns the public API of each package that is stable from 1.0 on.
fn stable_apis() -> impl Iterator<Item = (&'static str, String)> {
    let packages = [
        "tower-ratelimit",
        "tower-ratelimit-core",
        "tower-ratelimit-redis",
    ];
    packages.into_iter().map(|package| {
        let path = root().join(format!("tests/public-api/{package}.txt"));
        (package, fs::read_to_string(path).unwrap())
    })
}

/// Returns the enums, and the structs with public fields, that cannot grow.
fn closed(api: &str) -> Vec<&str> {
    let of_fields = |name: &str| {
        let field = format!("pub {name}::");
        api.lines().any(|line| {
            line.strip_prefix(&*field)
                .is_some_and(|rest| rest.contains(": "))
        })
    };
    let items = api.lines().filter_map(|line| {
        let (attributes, item) = line.split_once("pub ")?;
        let (kind, rest) = item.split_once(' ')?;
        let name = rest.split(['<', ' ', '(']).next()?;
        let has_parts = match kind {
            "enum" => true,
            "struct" => of_fields(name) || rest.contains('(') && !rest.ends_with("(_)"),
            _ => false,
        };
        (has_parts && !attributes.contains("#[non_exhaustive]")).then_some(name)
    });
    items.collect()
}

/// As the page on stability says.
#[test]
fn what_has_public_fields_or_variants_can_grow() {
    let closed: Vec<String> = stable_apis()
        .flat_map(|(_, api)| {
            closed(&api)
                .into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(
        closed,
        [
            "tower_ratelimit::policy::Cost",
            "tower_ratelimit::response::Answer",
            "tower_ratelimit_core::calendar::Weekday",
        ]
    );
}

#[test]
fn what_cannot_grow_is_found() {
    let api = "pub enum a::Day\n#[non_exhaustive] pub enum a::Kind\npub struct a::Cost(u32)\npub struct a::Limit(_)\n\
               pub struct a::Stats {..}\npub a::Stats::count: u64\npub struct a::Whole<T> {..}\npub fn a::Whole::new(of: u8)\n";
    assert_eq!(closed(api), ["a::Day", "a::Cost", "a::Stats"]);
}

/// Returns the methods of a trait, and what it asks of a type that implements it.
fn of_trait<'a>(api: &'a str, name: &str) -> Option<(Vec<&'a str>, &'a str)> {
    let head = format!("pub trait {name}");
    let asked = api.lines().find_map(|line| {
        let asked = line.strip_prefix(&*head)?;
        asked.is_empty().then_some("").or(asked.strip_prefix(": "))
    })?;
    let method = format!("pub fn {name}::");
    let methods = api
        .lines()
        .filter_map(|line| line.strip_prefix(&*method)?.split('(').next());
    Some((methods.collect(), asked))
}

#[test]
fn traits_that_get_no_other_method_have_one() {
    let apis: Vec<String> = stable_apis().map(|(_, api)| api).collect();
    let of = |name: &str| apis.iter().find_map(|api| of_trait(api, name)).unwrap();
    for (name, method) in [
        ("tower_ratelimit::key::KeyOf", "make"),
        ("tower_ratelimit_core::key::Extracted", "extracted"),
        ("tower_ratelimit::response::OrRefuse", "or_refuse"),
    ] {
        assert_eq!(of(name).0, [method], "{name}");
    }
}

/// So they may get more methods.
#[test]
fn traits_that_others_cannot_implement_ask_for_what_others_cannot_have() {
    let apis: Vec<String> = stable_apis().map(|(_, api)| api).collect();
    let of = |name: &str| apis.iter().find_map(|api| of_trait(api, name)).unwrap();
    for name in [
        "tower_ratelimit::policy::Keyed",
        "tower_ratelimit_core::limiter::Verb",
        "tower_ratelimit_core::store::Store",
        "tower_ratelimit_core::store::Backend",
    ] {
        let (_, asked) = of(name);
        assert!(
            asked.split(" + ").any(|it| it == "Sealed"),
            "{name}: {asked}"
        );
    }
}

#[test]
fn a_stable_item_names_no_type_of_an_unstable_crate() {
    for (package, api) in stable_apis() {
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
