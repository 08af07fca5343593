//! What every published package has: our crates pinned, documentation of all features, and a README of a screen, whose example is
//! a program of the dependencies that it names.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{pages, root, sources};

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
    let text = |name: &str| fs::read_to_string(folder.unwrap().join(name)).unwrap_or_default();
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        if text(licence).is_empty() {
            faults.push(format!("no {licence}"));
        }
    }
    let text = text(package["readme"].as_str().unwrap_or_default());
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

/// Named by code that the build of the server makes.
const OF_MADE_CODE: &str = "tonic-prost";

/// Returns the dependencies of a package that none of its sources names.
fn unused(package: &Value) -> Vec<&str> {
    let manifest = Path::new(package["manifest_path"].as_str().unwrap());
    let sources = sources(&manifest.with_file_name("src")).into_iter();
    let build = fs::read_to_string(manifest.with_file_name("build.rs")).unwrap_or_default();
    let text: Vec<String> = sources.map(|(_, text)| text).chain([build]).collect();
    let of_a_word = |c: char| !c.is_alphanumeric() && c != '_';
    let words: BTreeSet<&str> = text.iter().flat_map(|it| it.split(of_a_word)).collect();
    let dependencies = package["dependencies"].as_array().unwrap().iter();
    let own = dependencies.filter(|dependency| dependency["kind"] != "dev");
    let names = own.filter_map(|it| it["rename"].as_str().or(it["name"].as_str()));
    names
        .filter(|name| *name != OF_MADE_CODE && !words.contains(&*name.replace('-', "_")))
        .collect()
}

#[test]
fn a_published_package_uses_all_that_it_depends_on() {
    for package in published() {
        let unused = unused(&package);
        assert!(unused.is_empty(), "{}: {unused:?}", package["name"]);
    }
}

/// Returns the crates that a program names: in its imports, and where it calls what every program of a service has.
fn named(program: &[&str]) -> BTreeSet<String> {
    let of_a_line = |line: &&str| {
        let import = line.trim_start().strip_prefix("use ");
        let import = import.and_then(|path| path.split([':', ';']).next());
        let called = ["axum", "tokio"].into_iter();
        let called = called.filter(|name| line.contains(&format!("{name}::")));
        let names: Vec<_> = import.into_iter().chain(called).collect();
        names.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut names: BTreeSet<_> = program.iter().flat_map(of_a_line).collect();
    names.remove("std");
    names
}

/// Returns the crates that lines of a `Cargo.toml` name, if they are its dependencies.
fn depended_on(lines: &[&str]) -> Option<BTreeSet<String>> {
    let is_table = |line: &&str| line.ends_with("dependencies]");
    lines.first().filter(|line| is_table(line))?;
    let names = lines.iter().filter_map(|line| line.split_once(" = "));
    Some(names.map(|(name, _)| name.replace('-', "_")).collect())
}

/// Returns the dependencies that a page lists first.
fn listed(page: &str) -> Option<BTreeSet<String>> {
    let (_, blocks) = pages::parts(page);
    blocks.iter().find_map(|(_, lines)| depended_on(lines))
}

/// Returns what each example of a page needs beside the dependencies above it, or else the first ones below it, and their number.
fn missing(page: &str) -> (usize, BTreeSet<String>) {
    let (_, blocks) = pages::parts(page);
    let Some(mut stated) = listed(page) else {
        return (0, BTreeSet::new());
    };
    let (mut examples, mut missing) = (0, BTreeSet::new());
    for (language, lines) in &blocks {
        if language.starts_with("rust") {
            examples += 1;
            missing.extend(named(lines).difference(&stated).cloned());
            let hidden = lines.iter().filter(|line| line.starts_with("# "));
            missing.extend(hidden.map(|line| (*line).to_owned()));
        } else if let Some(names) = depended_on(lines) {
            stated = names;
        }
    }
    (examples, missing)
}

#[test]
fn an_example_of_a_readme_needs_what_the_readme_lists_and_hides_nothing() {
    let mut examples = 0;
    for package in published() {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let text = fs::read_to_string(manifest.with_file_name("README.md")).unwrap();
        let (found, missing) = missing(&text);
        assert!(missing.is_empty(), "{}: {missing:?}", package["name"]);
        examples += found;
    }
    assert!(examples > 8, "{examples}");
}

/// A page without a list of its own relies on that of the crate, and on that of the project.
#[test]
fn an_example_of_a_page_needs_what_a_list_above_it_has() {
    let of_file = |path: &Path| fs::read_to_string(path).ok().and_then(|text| listed(&text));
    let project = of_file(&root().join("README.md")).unwrap();
    let mut with_a_list = 0;
    // What a module of the crate includes is no page of the guide.
    let pages = pages::pages().into_iter();
    for page in pages.filter(|page| page.path != "src/client/clients.md") {
        let path = root().join(&page.path);
        let folder = path
            .ancestors()
            .find(|folder| folder.join("Cargo.toml").exists());
        let mut stated = of_file(&folder.unwrap().join("README.md")).unwrap_or_default();
        stated.extend(project.iter().cloned());
        let own = listed(&page.text);
        with_a_list += usize::from(own.is_some());
        stated.extend(own.unwrap_or_default());
        for (language, lines) in pages::parts(&page.text).1 {
            if language.starts_with("rust") {
                let missing: Vec<_> = named(&lines).difference(&stated).cloned().collect();
                assert!(missing.is_empty(), "{}: {missing:?}", page.path);
            }
        }
    }
    assert!(with_a_list >= 3, "{with_a_list}");
}

/// Returns the features that lines of a `Cargo.toml` take of our packages, and that those do not have.
fn unknown_features(lines: &[&str], packages: &[Value]) -> Vec<String> {
    let unknown = lines.iter().flat_map(|line| {
        let (name, rest) = line.split_once(" = ").unwrap_or_default();
        let package = packages.iter().find(|package| package["name"] == name);
        let list = rest.split_once("features = [");
        let list = list.and_then(|(_, list)| list.split(']').next());
        let features = list.unwrap_or_default().split(',');
        let features = features.map(|it| it.trim().trim_matches('"'));
        let features = features.filter(|feature| !feature.is_empty());
        features.filter_map(move |feature| {
            let is_there = package?["features"].get(feature).is_some();
            (!is_there).then(|| format!("{name} has no feature {feature}"))
        })
    });
    unknown.collect()
}

#[test]
fn a_list_of_dependencies_names_features_that_are_there() {
    let packages = published();
    let folder = |package: &Value| {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        manifest.parent().unwrap().to_owned()
    };
    let readmes = packages.iter().map(|it| folder(it).join("README.md"));
    let pages = pages::pages().into_iter();
    let pages = pages.map(|page| root().join(page.path));
    let mut with_features = 0;
    for path in readmes.chain(pages) {
        let text = fs::read_to_string(&path).unwrap();
        for (_, lines) in pages::parts(&text).1 {
            if depended_on(&lines).is_some() {
                let unknown = unknown_features(&lines, &packages);
                assert!(unknown.is_empty(), "{}: {unknown:?}", path.display());
                with_features += lines.iter().filter(|it| it.contains("features = ")).count();
            }
        }
    }
    assert!(with_features > 5, "{with_features}");
}

/// What is outside is not in the tarball of the package.
#[test]
fn a_source_includes_files_of_its_own_package_alone() {
    let mut included = 0;
    for package in published() {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let folder = manifest.parent().unwrap().canonicalize().unwrap();
        for (source, text) in sources(&folder.join("src")) {
            let source = folder.join("src").join(source);
            let paths = text.split("include_str!(\"").skip(1);
            for path in paths.filter_map(|rest| rest.split('"').next()) {
                let path = source.parent().unwrap().join(path);
                let file = path.canonicalize().unwrap();
                assert!(file.starts_with(&folder), "{}", path.display());
                included += 1;
            }
        }
    }
    assert!(included > 40, "{included}");
}

/// Cargo publishes a package after those that its tests need, if they have a version.
#[test]
fn no_package_needs_itself_for_its_tests() {
    let packages = published();
    let mut left: Vec<&Value> = packages.iter().collect();
    while !left.is_empty() {
        let names: BTreeSet<&str> = left.iter().filter_map(|it| it["name"].as_str()).collect();
        let before = left.len();
        left.retain(|package| {
            let dependencies = package["dependencies"].as_array().unwrap().iter();
            let published = dependencies.filter(|it| it["kind"] != "dev" || it["req"] != "*");
            let mut needed = published.filter_map(|it| it["name"].as_str());
            needed.any(|name| names.contains(name))
        });
        assert!(left.len() < before, "these need each other: {names:?}");
    }
}

#[test]
fn a_release_has_each_package_that_is_published() {
    let file = fs::read_to_string(root().join("release-plz.toml")).unwrap();
    let names = file.lines().filter_map(|line| line.strip_prefix("name = "));
    let released: BTreeSet<_> = names
        .map(|name| name.trim_matches('"').to_owned())
        .collect();
    let published = published();
    let published = published
        .iter()
        .map(|package| package["name"].as_str().unwrap().to_owned());
    assert_eq!(released, published.collect());
}
