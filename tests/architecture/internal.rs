//! What only the crates of the workspace use of the lower ones is short.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::sync::LazyLock;

use super::{CORE, PROGRAMS, ROOT, Source, all_sources, root, sources};

/// How many items of each crate only the crates of the workspace may use: the names in its `__internal`, and what is public and hidden
/// beside it.
///
/// A type and its methods are one item if only other crates of the workspace can name the type: it stands in `__internal`, or is hidden.
/// Each hidden function of a public type is an item of its own. What the root passes on from the core is an item of the core.
const ITEMS: [(&str, usize); 3] = [
    (CORE.folder, 165),
    (ROOT.folder, 24),
    // For the server alone.
    ("crates/config/src", 6),
];

/// Returns the names that stand in `__internal` of a crate, without those that it passes on from the core, and these.
fn exported(folder: &str) -> (Vec<String>, Vec<String>) {
    let text = fs::read_to_string(root().join(folder).join("lib.rs")).unwrap();
    let (_, module) = text.split_once("pub mod __internal {").unwrap();
    let uses = module.split("pub use ").skip(1);
    let uses = uses.map(|tree| &tree[..tree.find(';').unwrap()]);
    let (passed_on, own): (Vec<_>, Vec<_>) =
        uses.partition(|tree| tree.starts_with("tower_ratelimit_core::"));
    let [own, passed_on] = [own, passed_on].map(|uses| uses.into_iter().flat_map(names).collect());
    (own, passed_on)
}

/// Returns what is public and hidden beside `__internal`: functions, with the type that has them, and the types that other crates name,
/// by these words of theirs.
fn hidden(folder: &str, words: &HashSet<&str>) -> Vec<(&'static str, &'static str)> {
    let mut all = Vec::new();
    for source in SOURCES.iter().filter(|source| is_of(folder, source)) {
        for (at, attribute) in source.text.match_indices("#[doc(hidden)]") {
            let (before, behind) = (&source.text[..at], &source.text[at + attribute.len()..]);
            let Some((keyword, name)) = item(behind) else {
                continue;
            };
            let is_method = before.ends_with("\n    ");
            let owner = before.rsplit("\nimpl").next().filter(|_| is_method);
            if keyword == "fn" || words.contains(name) {
                all.push((owner.map_or("", implementor), name));
            }
        }
    }
    all
}

/// Returns the type of an implementation: `A` of `<T: B<C>> A<T> {`.
fn implementor(text: &str) -> &str {
    let mut depth = 0;
    let end_of_parameters = text.find(|c| {
        depth += i32::from(c == '<') - i32::from(c == '>');
        depth == 0
    });
    let rest = text[end_of_parameters.unwrap_or(0)..].trim_start_matches(['>', ' ']);
    rest.split(|c: char| !c.is_alphanumeric()).next().unwrap()
}

/// Returns the keyword and the name of a hidden item. Attributes may stand before it.
fn item(text: &str) -> Option<(&str, &str)> {
    let mut rest = text.trim_start();
    while rest.starts_with("#[") {
        rest = rest.split_once("]\n")?.1.trim_start();
    }
    let rest = rest.strip_prefix("pub ")?;
    let rest = rest.strip_prefix("const fn").map_or(rest, |_| &rest[6..]);
    let mut words = rest.split(|c: char| !c.is_alphanumeric() && c != '_');
    let keyword = words
        .next()
        .filter(|it| ["fn", "struct", "enum", "const"].contains(it));
    Some((keyword?, words.next()?))
}

/// Returns the words of all crates and programs but this one.
fn words_outside(folder: &str) -> HashSet<&'static str> {
    let others = SOURCES.iter().filter(|source| !is_of(folder, source));
    let is_in_word = |c: char| c.is_alphanumeric() || c == '_';
    let words = others.flat_map(|source| source.text.split(move |c| !is_in_word(c)));
    words.collect()
}

/// Returns the items of a crate that only other crates of the workspace use.
fn internal(folder: &str) -> BTreeSet<String> {
    let (names, _) = exported(folder);
    let hidden = hidden(folder, &words_outside(folder)).into_iter();
    let hidden = hidden.map(|(owner, name)| match owner {
        "" => name.to_owned(),
        owner => format!("{owner}::{name}"),
    });
    names.into_iter().chain(hidden).collect()
}

fn is_of(folder: &str, source: &Source) -> bool {
    source.path.starts_with(&format!("{folder}/"))
}

/// The source files of all crates and programs.
static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let programs = PROGRAMS.iter().flat_map(|folder| {
        let files = sources(&root().join(folder)).into_iter();
        files.map(move |(file, text)| Source {
            path: format!("{folder}/{file}"),
            text,
        })
    });
    all_sources().chain(programs).collect()
});

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
    for (folder, number) in ITEMS {
        let items = internal(folder);
        assert_eq!(items.len(), number, "{folder}: {items:?}");
    }
}

#[test]
fn the_map_says_what_they_are_for() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, section) = map.split_once("### Hidden").unwrap();
    for (name, (_, number)) in ["core", "root", "config"].into_iter().zip(ITEMS) {
        let rows = section.lines().take_while(|line| !line.starts_with("## "));
        let rows = rows.filter_map(|row| {
            row.strip_prefix("| ")?
                .strip_prefix(name)?
                .split('|')
                .nth(1)
        });
        let told: usize = rows
            .map(|items| items.trim().parse::<usize>().unwrap())
            .sum();
        assert_eq!(told, number, "{name}");
    }
}

#[test]
fn other_crates_use_each_name() {
    for (folder, _) in ITEMS {
        let words = words_outside(folder);
        let (own, passed_on) = exported(folder);
        let hidden = hidden(folder, &words);
        let hidden = hidden.into_iter().map(|(_, name)| name.to_owned());
        let mut names = own.into_iter().chain(passed_on).chain(hidden);
        let unused = names.find(|name| !words.contains(&**name));
        assert_eq!(unused, None, "{folder}: no other crate uses it");
    }
}

#[test]
fn what_is_hidden_says_why() {
    let mut hidden = 0;
    for source in &*SOURCES {
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
