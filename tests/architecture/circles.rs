//! Files that import each other in a circle.
//!
//! An edge leads from a file to the file of each path that it imports. A `mod.rs` is the front of its folder, so its
//! imports from its own files are no edges. An import from the `mod.rs` above is an edge, because that `mod.rs` may
//! import other files in turn.

use std::collections::{BTreeMap, BTreeSet};

/// Returns the files of each circle, sorted; `sources` are the paths below `src`, with their texts.
pub(crate) fn circles(sources: &[(String, String)]) -> Vec<Vec<String>> {
    let files: BTreeMap<Vec<String>, &str> = sources
        .iter()
        .map(|(file, _)| (module(file), file.as_str()))
        .collect();
    let edges: BTreeMap<&str, BTreeSet<&str>> = sources
        .iter()
        .filter(|(file, _)| file != "lib.rs")
        .map(|(file, text)| (file.as_str(), imports(file, text, &files)))
        .collect();
    let mut circles = BTreeSet::new();
    for &file in edges.keys() {
        let reached = reachable(file, &edges);
        if reached.contains(file) {
            let circle = reached
                .into_iter()
                .filter(|other| reachable(other, &edges).contains(file));
            circles.insert(circle.map(str::to_owned).collect::<Vec<_>>());
        }
    }
    circles.into_iter().collect()
}

/// Returns the path of the module that a file has.
fn module(file: &str) -> Vec<String> {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    match path {
        "lib" => Vec::new(),
        path => path.split('/').map(str::to_owned).collect(),
    }
}

/// Returns every file that this one reaches by one edge or more.
fn reachable<'a>(from: &str, edges: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut ahead: Vec<&str> = edges.get(from).into_iter().flatten().copied().collect();
    while let Some(file) = ahead.pop() {
        if reached.insert(file) {
            ahead.extend(edges.get(file).into_iter().flatten());
        }
    }
    reached
}

fn imports<'a>(
    file: &str,
    text: &str,
    files: &BTreeMap<Vec<String>, &'a str>,
) -> BTreeSet<&'a str> {
    let me = module(file);
    let found = paths(text).into_iter().filter_map(|path| {
        let path = absolute(&path, &me)?;
        // The longest prefix of the path that is a module; its items follow.
        let modules = (1..=path.len()).rev().map(|len| &path[..len]);
        modules.into_iter().find_map(|module| files.get(module))
    });
    let is_front = file.ends_with("mod.rs");
    let is_own = |other: &str| is_front && module(other).starts_with(&me);
    found
        .copied()
        .filter(|other| *other != file && !is_own(other))
        .collect()
}

/// Returns the paths in the code, without its tests, that begin at the crate or near the file.
fn paths(text: &str) -> Vec<Vec<String>> {
    let code = text.split("\nmod tests {").next().unwrap_or(text);
    let lines = code.lines().map(str::trim_start);
    let code: String = lines.filter(|line| !line.starts_with("//")).collect();
    let mut paths = Vec::new();
    for root in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(root) {
            let before = code[..at].chars().next_back();
            if before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':') {
                expand(&code[at..], &[], &mut paths);
            }
        }
    }
    paths
}

/// Adds each path of an import tree: of `a::{b, c::d}`, `a::b` and `a::c::d`. Returns the rest of the text.
fn expand<'a>(mut rest: &'a str, head: &[String], paths: &mut Vec<Vec<String>>) -> &'a str {
    let mut path = head.to_vec();
    loop {
        let end = rest
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        path.push(rest[..end].to_owned());
        rest = &rest[end..];
        let Some(behind) = rest.strip_prefix("::") else {
            paths.push(path);
            return rest;
        };
        rest = behind;
        if let Some(mut tree) = rest.strip_prefix('{') {
            loop {
                tree = expand(tree.trim_start(), &path, paths);
                // A new name stands behind `as`.
                tree = tree.trim_start_matches(|c: char| c != ',' && c != '}' && c != ';');
                match tree.strip_prefix(',') {
                    Some(next) if !next.trim_start().starts_with('}') => tree = next,
                    _ => return tree.trim_start_matches([',', ' ', '}']),
                }
            }
        }
    }
}

/// Returns the path from the root of the crate.
fn absolute(path: &[String], me: &[String]) -> Option<Vec<String>> {
    let (root, mut rest) = path.split_first()?;
    let mut base = match root.as_str() {
        "crate" => Vec::new(),
        "super" => me.split_last()?.1.to_vec(),
        _ => me.to_vec(),
    };
    while rest.first().is_some_and(|next| next == "super") {
        base.pop()?;
        rest = &rest[1..];
    }
    base.extend_from_slice(rest);
    Some(base)
}

#[test]
fn a_circle_is_found_and_a_front_is_none() {
    let source = |file: &str, text: &str| (file.to_owned(), text.to_owned());
    let found = circles(&[
        source(
            "a/mod.rs",
            "mod b;\nmod c;\nmod d;\npub use self::b::B;\nuse self::c::C;\npub struct A;\n",
        ),
        source("a/b.rs", "use super::A;\nuse super::{c::{C, D}, d};\n"),
        source("a/c.rs", "fn c() -> crate::a::d::D { todo!() }\n"),
        source(
            "a/d.rs",
            "use crate::a::b::B as Other;\n// use super::c::C;\n",
        ),
        source(
            "e.rs",
            "use crate::a::A;\n#[cfg(test)]\nmod tests {\n    use crate::f::F;\n}\n",
        ),
        source("f.rs", "use crate::{a::A, e::E};\n"),
    ]);
    assert_eq!(found, [["a/b.rs", "a/c.rs", "a/d.rs"]]);
}
