//! What only the crates of the workspace use of the lower ones is short.

use std::collections::BTreeSet;
use std::fs;

use super::{CORE, HOUSES, House, ROOT, Source, all_sources, root};

/// The most names that may stand in `__internal` of a crate and be functions that are public for other crates alone.
const MOST: [(&House, usize); 2] = [(&CORE, 196), (&ROOT, 41)];

/// Returns the names in `__internal` of a crate, and its functions that are hidden because other crates alone use them.
fn internal(house: &House) -> Vec<String> {
    let text = fs::read_to_string(root().join(house.folder).join("lib.rs")).unwrap();
    let (_, module) = text.split_once("pub mod __internal {").unwrap();
    let uses = module.split("pub use ").skip(1);
    let mut names: Vec<String> = uses
        .flat_map(|tree| names(&tree[..tree.find(';').unwrap()]))
        .collect();
    for source in all_sources().filter(|source| is_of(house, source)) {
        let functions = source.text.split("#[doc(hidden)]").skip(1);
        let functions = functions.filter_map(|item| item.trim_start().strip_prefix("pub fn "));
        let functions = functions.filter_map(|item| item.split(['(', '<']).next());
        names.extend(functions.map(str::to_owned));
    }
    names.sort();
    names.dedup();
    names
}

fn is_of(house: &House, source: &Source) -> bool {
    source.path.starts_with(&format!("{}/", house.folder))
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
    for (house, most) in MOST {
        let names = internal(house);
        assert!(
            names.len() > 3 && names.len() <= most,
            "{}: {}: {names:?}",
            house.folder,
            names.len()
        );
    }
}

#[test]
fn other_crates_use_each_name() {
    for house in HOUSES {
        let words: BTreeSet<String> = all_sources()
            .filter(|source| !is_of(house, source))
            .flat_map(|source| {
                let words = source
                    .text
                    .split(|c: char| !c.is_alphanumeric() && c != '_');
                words.map(str::to_owned).collect::<Vec<_>>()
            })
            .collect();
        let unused: Vec<String> = internal(house)
            .into_iter()
            .filter(|name| !words.contains(name))
            .collect();
        assert!(unused.is_empty(), "{unused:?}");
    }
}

#[test]
fn what_is_hidden_says_why() {
    let mut hidden = 0;
    let of_a_house = |source: &Source| HOUSES.iter().any(|house| is_of(house, source));
    for source in all_sources().filter(of_a_house) {
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
