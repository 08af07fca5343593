//! The architecture: imports between floors, and a page for each diagnostic.

mod ci;
mod circles;
mod examples;
mod internal;
mod names;
mod orphans;
mod packages;
mod pages;
mod promises;
mod unix;
mod way;

use std::fs;
use std::path::{Path, PathBuf};

/// A room with its floor, and the rooms of the same floor from which it may import.
type Room = (&'static str, u8, &'static [&'static str]);

/// The folders of the sources of each crate. Cargo holds the floors between crates. Two have floors inside; in a small
/// crate it is enough that no files import each other in a circle.
const CRATES: [&str; 7] = [
    CORE.folder,
    ROOT.folder,
    "crates/adapt/src",
    "crates/config/src",
    "crates/ops/src",
    "crates/redis/src",
    "crates/testing/src",
];

/// The folders of the sources of programs.
const PROGRAMS: [&str; 2] = ["loadtest/src", "server/src"];

/// A crate with floors.
struct House {
    folder: &'static str,
    rooms: &'static [Room],
    /// Names that stand in the root of the crate and belong to a lower one.
    from_below: &'static [Room],
}

const HOUSES: [&House; 2] = [&CORE, &ROOT];

const CORE: House = House {
    folder: "crates/core/src",
    rooms: CORE_ROOMS,
    from_below: &[],
};

const ROOT: House = House {
    folder: "src",
    rooms: ROOT_ROOMS,
    from_below: CORE_ROOMS,
};

const CORE_ROOMS: &[Room] = &[
    ("error", 0, &[]),
    ("clock", 0, &[]),
    ("factor", 0, &[]),
    // A period is a length of time, and an invalid quota is an error.
    ("quota", 0, &["clock", "error"]),
    ("decision", 1, &[]),
    ("diagnostics", 1, &[]),
    // It counts outcomes.
    ("observe", 1, &["decision"]),
    // A window may be a calendar window.
    ("algorithm", 2, &["calendar"]),
    ("calendar", 2, &[]),
    ("key", 2, &[]),
    ("plan", 3, &[]),
    // A policy has limits by key and by operation.
    ("policy", 3, &["plan"]),
    ("store", 4, &[]),
    ("line", 5, &[]),
    ("advice", 5, &[]),
    // It holds the requests that wait, and looks at their costs.
    ("limiter", 5, &["line", "advice"]),
    ("service", 6, &[]),
];

const ROOT_ROOMS: &[Room] = &[
    ("diagnostics", 0, &[]),
    ("store", 0, &[]),
    ("key", 1, &[]),
    // What a request will use is in its body, of which a key is a field too.
    ("usage", 1, &["key"]),
    ("policy", 2, &[]),
    ("response", 3, &[]),
    ("advice", 3, &[]),
    ("middleware", 4, &[]),
    ("client", 4, &[]),
    // Pages of documentation, without code.
    ("guide", 5, &[]),
];

/// A source file, by its path below the root.
struct Source {
    path: String,
    text: String,
}

/// The source files of all crates.
fn all_sources() -> impl Iterator<Item = Source> {
    CRATES.iter().flat_map(|folder| {
        let files = sources(&root().join(folder)).into_iter();
        files.map(move |(file, text)| Source {
            path: format!("{folder}/{file}"),
            text,
        })
    })
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

#[test]
fn no_room_imports_from_its_own_floor_or_from_above() {
    for house in HOUSES {
        let sources = sources(&root().join(house.folder));
        assert!(
            sources.len() > house.rooms.len(),
            "only {} files found",
            sources.len()
        );
        let wrong: Vec<String> = sources
            .iter()
            .flat_map(|(file, text)| violations(house, file, text))
            .collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    for folder in CRATES.iter().chain(&PROGRAMS) {
        let found = circles::circles(&sources(&root().join(folder)));
        assert!(found.is_empty(), "{folder}: {found:#?}");
    }
}

#[test]
fn every_crate_of_the_workspace_stands_in_the_list() {
    let folders = fs::read_dir(root().join("crates")).unwrap();
    let mut folders: Vec<String> = folders
        .map(|folder| format!("crates/{}/src", folder.unwrap().file_name().display()))
        .collect();
    folders.push("src".to_owned());
    folders.sort();
    let mut listed = CRATES;
    listed.sort_unstable();
    assert_eq!(folders, listed);
}

/// A file with this many lines has to begin with a description.
const LARGE: usize = 150;

#[test]
fn every_module_and_every_large_file_begins_with_what_it_is() {
    let silent: Vec<String> = all_sources()
        .filter(|source| source.path.ends_with("mod.rs") || source.text.lines().count() > LARGE)
        .filter(|source| !begins_with_documentation(&source.text))
        .map(|source| source.path)
        .collect();
    assert!(silent.is_empty(), "{silent:#?}");
    assert!(!begins_with_documentation(
        "use std::fmt;\n\n/// A type.\nstruct A;"
    ));
}

/// Returns whether the documentation of the file comes before its first item.
fn begins_with_documentation(text: &str) -> bool {
    let mut lines = text.lines();
    let first = lines.find(|line| {
        let is_code = line.starts_with("use ") || line.starts_with("mod ");
        is_code || is_documentation(line)
    });
    first.is_some_and(is_documentation)
}

fn is_documentation(line: &str) -> bool {
    line.starts_with("//!") || line.starts_with("#![doc = include_str!(")
}

#[test]
fn every_room_stands_in_the_list() {
    for house in HOUSES {
        let sources = sources(&root().join(house.folder));
        let mut rooms: Vec<String> = sources.iter().map(|(file, _)| room(file)).collect();
        rooms.sort();
        rooms.dedup();
        rooms.retain(|room| room != "lib");
        let mut listed: Vec<&str> = house.rooms.iter().map(|(room, ..)| *room).collect();
        listed.sort_unstable();
        assert_eq!(rooms, listed);
    }
}

#[test]
fn the_map_has_every_room_on_its_floor() {
    let map = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../ARCHITECTURE.md"));
    let map = fs::read_to_string(map).unwrap();
    let rows = map.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let floor: u8 = cells.next()?.parse().ok()?;
        Some((floor, cells.next()?))
    });
    let mut drawn: Vec<(u8, &str)> = rows
        .flat_map(|(floor, rooms)| {
            let rooms = rooms.split(", ").map(|room| room.trim_matches('`'));
            rooms.map(move |room| (floor, room))
        })
        .collect();
    drawn.sort_unstable();
    let rooms = HOUSES.iter().flat_map(|house| house.rooms);
    let mut listed: Vec<_> = rooms.map(|(room, floor, _)| (*floor, *room)).collect();
    listed.sort_unstable();
    assert_eq!(drawn, listed);
}

/// An operator searches for the code that is in the log.
#[test]
fn every_diagnostic_has_a_code_of_its_own_and_a_page() {
    let mut codes: Vec<String> = all_sources()
        .flat_map(|source| {
            let codes = paths(&source.text, "\"TRL").into_iter();
            codes.map(|code| format!("TRL{code}")).collect::<Vec<_>>()
        })
        .collect();
    codes.sort();
    assert!(!codes.is_empty());
    let docs = fs::read_to_string(root().join("docs/diagnostics.md")).unwrap();
    let headings = docs.lines().filter_map(|line| line.strip_prefix("# `"));
    let pages: Vec<&str> = headings
        .filter_map(|heading| heading.split('`').next())
        .collect();
    assert_eq!(codes, pages);
}

/// Mistakes that no file of limits can mend, and those whose remedy names no line of code.
const MENDED_ELSEWHERE: [(&str, &str); 15] = [
    (
        "TRL002",
        "an extension is read by a function that code has registered",
    ),
    ("TRL004", "code builds layers"),
    ("TRL005", "code builds layers"),
    ("TRL006", "one of two policies is left out"),
    ("TRL008", "a snapshot has another algorithm"),
    ("TRL010", "the server asks for certificates"),
    ("TRL011", "code puts a layer in place of an interceptor"),
    ("TRL016", "the limit or the cost"),
    ("TRL020", "a function returns the limit"),
    ("TRL023", "it is about a file"),
    ("TRL024", "the store fails"),
    ("TRL026", "another key"),
    ("TRL031", "it is about a file"),
    ("TRL034", "code serves the page"),
    ("TRL036", "the store refuses"),
];

/// An operator of a file, such as that of the gateway, writes no Rust.
#[test]
fn a_remedy_says_what_to_write_in_a_file_of_limits() {
    for Source { path, text } in all_sources() {
        for (at, _) in text.match_indices("\"TRL") {
            let code = &text[at + 1..at + 7];
            let end = text[at..].find(";\n").map_or(text.len(), |end| at + end);
            // The remedy of this one is chosen before the statement.
            let remedy = if code == "TRL001" {
                &text
            } else {
                &text[at..end]
            };
            let says = remedy.contains("in a file of limits: ");
            let is_elsewhere = MENDED_ELSEWHERE.iter().any(|(other, _)| *other == code);
            assert_eq!(says, !is_elsewhere, "{path}: {code}");
        }
    }
}

#[test]
fn an_import_that_points_up_is_found() {
    for (file, line) in [
        ("key/head.rs", "use crate::policy::Policy;"),
        ("key/head.rs", "use crate::algorithm::State;"),
        (
            "algorithm/step.rs",
            "    let x = crate::store::Reply::Now(1);",
        ),
        ("algorithm/mod.rs", "$crate::limiter::Limiter"),
        ("quota/mod.rs", "use crate::decision::Outcome;"),
        ("limiter.rs", "use super::service::LimitLayer;"),
        ("store/memory/mod.rs", "use super::super::limiter::Limiter;"),
        ("clock/mod.rs", "use crate::{error, limiter};"),
        ("clock/mod.rs", "use crate::Limiter;"),
    ] {
        let found = violations(&CORE, file, &format!("{line}\n"));
        assert_eq!(found.len(), 1, "{file}: {line}: {found:?}");
    }
    for (file, line) in [
        ("policy/mod.rs", "use crate::key::Key;"),
        ("quota/mod.rs", "use crate::clock::Micros;"),
        ("key/head.rs", "//! [`Policy`](crate::policy::Policy)"),
        ("key/head.rs", "/// [`Policy`](crate::Policy)"),
        ("key/head.rs", "use crate::key::Key;"),
        ("key/head.rs", "use super::Key;"),
        ("lib.rs", "pub use crate::limiter::Limiter;"),
    ] {
        let found = violations(&CORE, file, &format!("{line}\n"));
        assert!(found.is_empty(), "{file}: {line}: {found:?}");
    }
    for (file, line, expected) in [
        ("key/extract/head.rs", "use crate::policy::Http;", 1),
        ("response/set.rs", "use crate::middleware::RateLimit;", 1),
        ("key/extract/head.rs", "use crate::RateLimitLayer;", 1),
        ("key/extract/head.rs", "use crate::limiter::Limiter;", 0),
        ("middleware/mod.rs", "use crate::response::Refusal;", 0),
    ] {
        let found = violations(&ROOT, file, &format!("{line}\n"));
        assert_eq!(found.len(), expected, "{file}: {line}: {found:?}");
    }
}

fn violations(house: &House, file: &str, text: &str) -> Vec<String> {
    let room = room(file);
    let Some((_, floor, neighbours)) = house.rooms.iter().find(|(name, ..)| *name == room) else {
        return Vec::new();
    };
    let may = |other: &str| {
        let stands = house.rooms.iter().find(|(name, ..)| *name == other);
        if stands.is_none() && house.from_below.iter().any(|(name, ..)| *name == other) {
            return true;
        }
        let lower = stands.is_some_and(|(_, other_floor, _)| other_floor < floor);
        other == room || lower || neighbours.contains(&other)
    };
    let code = text.lines().enumerate().filter(|(_, line)| {
        let line = line.trim_start();
        !line.starts_with("//")
    });
    let mut wrong = Vec::new();
    for (index, line) in code {
        let mut report = |what: &str| wrong.push(format!("{file}:{}: {what}: {line}", index + 1));
        if line.contains("super::super") {
            report("leaves its room by a back door");
            continue;
        }
        for path in paths(line, "crate::") {
            if !may(path) {
                report("looks up");
            }
        }
        // Only the `mod.rs` of a room has the root above it.
        let first = file == format!("{room}.rs") || file == format!("{room}/mod.rs");
        for path in paths(line, "super::") {
            if first && house.rooms.iter().any(|(name, ..)| *name == path) && !may(path) {
                report("looks up");
            }
        }
    }
    wrong
}

/// Returns the names that follow `root` on this line. Other tokens (`{`, a type) are returned as they are.
fn paths<'a>(line: &'a str, root: &str) -> Vec<&'a str> {
    line.split(root)
        .skip(1)
        .map(|rest| {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
            &rest[..end.unwrap_or(rest.len())]
        })
        .collect()
}

fn room(file: &str) -> String {
    let first = file.split('/').next().unwrap_or(file);
    first.trim_end_matches(".rs").to_owned()
}

/// Every source file, by its path below `root`, with its text.
fn sources(root: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let file = path.strip_prefix(root).unwrap().display().to_string();
                found.push((file, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found
}
