//! What every published package has: our crates pinned, documentation of all features, and a README of a screen.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::root;

/// The lines of a README of a screen.
const SCREEN: usize = 60;

/// Returns the packages of the workspace that are published, as `cargo metadata` describes them.
fn published() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(root())
        .output()
        .unwrap();
    let mut told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let Value::Array(mut packages) = told["packages"].take() else {
        panic!("no packages: {told}");
    };
    // `publish = false` is an empty list of registries.
    packages.retain(|package| package["publish"].is_null());
    assert!(packages.len() >= 9, "{}", packages.len());
    packages
}

/// What a package names wrongly, or leaves out.
fn faults(package: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for dependency in package["dependencies"].as_array().unwrap() {
        let name = dependency["name"].as_str().unwrap();
        let version = dependency["req"].as_str().unwrap();
        // Cargo leaves a dependency of tests out of what is published if it has no version.
        let is_published = dependency["kind"] != "dev" || version != "*";
        if name.starts_with("tower-ratelimit") && is_published && !version.starts_with('=') {
            faults.push(format!("{name} is taken as {version}"));
        }
    }
    if package["metadata"]["docs"]["rs"]["all-features"] != true {
        faults.push("docs.rs does not build all features".to_owned());
    }
    let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent();
    let readme = package["readme"].as_str().unwrap_or_default();
    let text = fs::read_to_string(folder.unwrap().join(readme)).unwrap_or_default();
    // The page of the root is that of the project.
    let is_long = package["name"] != "tower-ratelimit" && text.lines().count() > SCREEN;
    if text.is_empty() || is_long {
        faults.push(format!("a README of {} lines", text.lines().count()));
    }
    faults
}

#[test]
fn a_published_package_pins_its_crates_and_has_a_page() {
    for package in published() {
        let faults = faults(&package);
        assert!(faults.is_empty(), "{}: {faults:?}", package["name"]);
    }
}
