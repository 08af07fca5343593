//! What only the crates of the workspace use of the lower ones is short.

use std::collections::BTreeSet;
use std::fs;

use super::{CORE, PROGRAMS, ROOT, Source, all_sources, root, sources};

/// The most names that may stand in `__internal` of a crate and be functions that are public for other crates alone.
const MOST: [(&str, usize); 3] = [
    (CORE.folder, 205),
    (ROOT.folder, 41),
    // For the server alone.
    ("crates/config/src", 6),
];

/// Returns the names in `__internal` of a crate, and its functions that are hidden because other crates alone use them.
fn internal(folder: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(folder).join("lib.rs")).unwrap();
    let (_, module) = text.split_once("pub mod __internal {").unwrap();
    let uses = module.split("pub use ").skip(1);
    let mut names: Vec<String> = uses
        .flat_map(|tree| names(&tree[..tree.find(';').unwrap()]))
        .collect();
    for source in all_sources().filter(|source| is_of(folder, source)) {
        let functions = source.text.split("#[doc(hidden)]").skip(1);
        let functions = functions.filter_map(function);
        let functions = functions.filter_map(|item| item.split(['(', '<']).next());
        names.extend(functions.map(str::to_owned));
    }
    names.sort();
    names.dedup();
    names
}

/// Returns a hidden function from its name on. Attributes may stand before it.
fn function(item: &str) -> Option<&str> {
    let mut rest = item.trim_start();
    while rest.starts_with("#[") {
        rest = rest.split_once("]\n")?.1.trim_start();
    }
    let rest = rest.strip_prefix("pub ")?;
    rest.strip_prefix("const ")
        .unwrap_or(rest)
        .strip_prefix("fn ")
}

fn is_of(folder: &str, source: &Source) -> bool {
    source.path.starts_with(&format!("{folder}/"))
}

/// The source files of all crates and programs.
fn with_programs() -> impl Iterator<Item = Source> {
    let programs = PROGRAMS.iter().flat_map(|folder| {
        let files = sources(&root().join(folder)).into_iter();
        files.map(move |(file, text)| Source {
            path: format!("{folder}/{file}"),
            text,
        })
    });
    all_sources().chain(programs)
}

/// Returns the names of an import: `b` and `c` of `a::{b, c}`.
fn names(tree: &str) -> Vec<String> {
    let last = tree.rsplit("::").next().unwrap();
    let names = last.trim_matches(['{', '}']).split(',').map(str::trim);
    names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn what_only_other_crates_use_is_short() {
    for (folder, most) in MOST {
        let names = internal(folder);
        assert!(
            names.len() > 3 && names.len() <= most,
            "{folder}: {}: {names:?}",
            names.len()
        );
    }
}

#[test]
fn other_crates_use_each_name() {
    for (folder, _) in MOST {
        let words: BTreeSet<String> = with_programs()
            .filter(|source| !is_of(folder, source))
            .flat_map(|source| {
                let words = source
                    .text
                    .split(|c: char| !c.is_alphanumeric() && c != '_');
                words.map(str::to_owned).collect::<Vec<_>>()
            })
            .collect();
        let unused: Vec<String> = internal(folder)
            .into_iter()
            .filter(|name| !words.contains(name))
            .collect();
        assert!(unused.is_empty(), "{unused:?}");
    }
}

#[test]
fn what_is_hidden_says_why() {
    let mut hidden = 0;
    for source in with_programs() {
        let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
        for (number, _) in lines
            .iter()
            .enumerate()
            .filter(|(_, it)| **it == "#[doc(hidden)]")
        {
            let says_why = number > 0 && lines[number - 1].starts_with("// ");
            assert!(says_why, "{}:{}", source.path, number + 1);
            hidden += 1;
        }
    }
    assert!(hidden > 3, "{hidden}");
}
