//! Every example runs from the root by its name, with the features in `examples/README.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The features that each example needs, by its name.
type Examples = BTreeMap<String, BTreeSet<String>>;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn texts(list: &Value) -> BTreeSet<String> {
    let texts = list.as_array().into_iter().flatten();
    texts.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the examples that `cargo run --example` finds in the root: those of the default members.
fn examples() -> Examples {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(root())
        .output()
        .unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let members = texts(&told["workspace_default_members"]);
    let packages = told["packages"].as_array().unwrap().iter();
    let packages = packages.filter(|package| members.contains(package["id"].as_str().unwrap()));
    let targets = packages.flat_map(|package| package["targets"].as_array().unwrap());
    let mut examples = Examples::new();
    for example in targets.filter(|target| texts(&target["kind"]).contains("example")) {
        let name = example["name"].as_str().unwrap().to_owned();
        let twice = examples.insert(name.clone(), texts(&example["required-features"]));
        assert!(twice.is_none(), "two packages have an example {name}");
    }
    assert!(examples.len() > 20, "only {examples:?}");
    examples
}

/// Returns the texts between backticks in a line, such as names and commands.
fn codes(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns what `cargo run --example NAME` needs according to this page: names, and then their `--features`.
fn said_to_need(page: &str) -> Examples {
    let (_, below) = page.split_once("`cargo run --example NAME`. ").unwrap();
    let (said, _) = below.split_once("With `--all-features`").unwrap();
    let (mut examples, mut names) = (Examples::new(), Vec::new());
    for code in codes(said) {
        match code.strip_prefix("--features ") {
            Some(features) => {
                let features: BTreeSet<_> = features.split(',').map(str::to_owned).collect();
                for name in names.drain(..) {
                    examples.insert(name, features.clone());
                }
            }
            None => names.push(code.to_owned()),
        }
    }
    assert!(names.is_empty(), "{names:?} need nothing");
    examples
}

#[test]
fn the_page_says_which_features_an_example_needs() {
    let page = fs::read_to_string(root().join("examples/README.md")).unwrap();
    let mut needing = examples();
    needing.retain(|_, features| !features.is_empty());
    assert_eq!(said_to_need(&page), needing);
}

#[test]
fn the_page_lists_every_example_and_its_file_is_there() {
    let page = fs::read_to_string(root().join("examples/README.md")).unwrap();
    let (_, below) = page.split_once("| example | shows |").unwrap();
    let rows = below.lines().filter(|line| line.starts_with("| [`"));
    let mut listed = BTreeSet::new();
    for link in rows.flat_map(|row| row.split("[`").skip(1)) {
        let (name, rest) = link.split_once("`](").unwrap();
        let (path, _) = rest.split_once(')').unwrap();
        let file = root().join("examples").join(path);
        assert!(file.exists(), "{name} is not at {path}");
        assert!(listed.insert(name.to_owned()), "{name} is there twice");
    }
    assert_eq!(listed, examples().into_keys().collect());
}

/// A command in the documentation names an example and all features that it needs.
#[test]
fn every_command_that_runs_an_example_is_complete() {
    let examples = examples();
    let folders = [
        "docs",
        "crates/adapt/docs",
        "crates/config/docs",
        "crates/ops/docs",
        "loadtest/docs",
        "server/docs",
        "crates/adapt",
        "crates/config",
        "crates/core",
        "crates/ops",
        "crates/redis",
        "crates/testing",
        "examples",
        "loadtest",
        "server",
        ".",
    ];
    let pages = folders.map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let pages = pages.into_iter().flatten();
    let mut commands = 0;
    for page in pages {
        let page = page.unwrap().path();
        if page.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = fs::read_to_string(&page).unwrap();
        for line in text.lines().filter(|line| line.contains("cargo run ")) {
            let mut words = line.split([' ', '`']);
            let Some(name) = words
                .by_ref()
                .skip_while(|word| *word != "--example")
                .nth(1)
            else {
                continue;
            };
            commands += 1;
            if name == "NAME" {
                continue;
            }
            let features = examples.get(name);
            let features =
                features.unwrap_or_else(|| panic!("{}: no example {name}", page.display()));
            for feature in features {
                let said = format!("--features {feature}");
                assert!(line.contains(&said), "{}: {line}", page.display());
            }
        }
    }
    assert!(commands > 10, "only {commands} commands are found");
}
