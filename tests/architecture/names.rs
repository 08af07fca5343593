//! The names that outlive a release, as `names.txt` has them.

use std::collections::BTreeSet;
use std::fs;

use super::{root, sources};

/// A group, and a name in it with what belongs to the name.
type Name = (String, String);

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Returns the cells of the rows of each table whose first column has this heading.
fn rows(page: &str, heading: &str) -> Vec<Vec<String>> {
    let heading = format!("| {heading} |");
    let tables = page.split("\n\n").filter(|it| it.starts_with(&heading));
    let rows = tables.flat_map(|table| table.lines().skip(2));
    let cells = |row: &str| {
        let cells = row.trim_matches('|').split(" | ");
        cells.map(|cell| cell.trim().replace('`', "")).collect()
    };
    rows.map(cells).collect()
}

/// A dashboard asks for metrics by their names and labels.
fn metrics() -> Vec<String> {
    let page = read("crates/ops/docs/metrics.md");
    let named = rows(&page, "name").into_iter().map(|cells| {
        let [name, kind, labels, unit, _] = <[String; 5]>::try_from(cells).unwrap();
        let labels = if labels == "none" { "" } else { &labels };
        format!("{name}{{{labels}}} {kind} in {unit}")
    });
    let outcomes = rows(&page, "outcome").into_iter();
    let outcomes = outcomes.map(|cells| format!("outcome={}", cells[0]));
    let of_the_server = ["server/docs/server.md", "server/docs/envoy.md"].map(read);
    let of_the_server = of_the_server.iter().flat_map(|page| {
        page.lines()
            .filter(|line| line.starts_with("| `ratelimitd_"))
    });
    let of_the_server = of_the_server.map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        format!("{}{{{}}}", cells[1], cells[2]).replace('`', "")
    });
    named.chain(outcomes).chain(of_the_server).collect()
}

/// The page of diagnostics has each code of the sources, as another test sees to.
fn diagnostics() -> Vec<String> {
    let page = read("docs/diagnostics.md");
    let headings = page.lines().filter_map(|line| line.strip_prefix("# `TRL"));
    headings
        .filter_map(|heading| Some(format!("TRL{}", heading.split('`').next()?)))
        .collect()
}

/// The page of what the log says has each line, as another test sees to.
fn log_lines() -> Vec<String> {
    let page = read("docs/operating.md");
    let lines = rows(&page, "target").into_iter().map(|cells| {
        let [target, level, _, fields] = <[String; 4]>::try_from(cells).unwrap();
        format!("{target} {level}: {fields}")
    });
    let (_, kinds) = page.split_once("`key_kind` is the kind").unwrap();
    let (kinds, _) = kinds.split_once("Targets, levels").unwrap();
    let kinds = kinds.split('`').skip(1).step_by(2);
    let kinds = kinds.map(|kind| format!("key_kind={kind}"));
    lines.chain(kinds).collect()
}

/// Returns the code of the files below this folder, each without its tests.
fn code_below(folder: &str) -> String {
    let files = sources(&root().join(folder)).into_iter();
    let code = files.filter_map(|(_, text)| Some(text.split("#[cfg(test)]").next()?.to_owned()));
    code.collect::<Vec<_>>().concat()
}

/// Returns the literal with which a text begins.
fn literal(text: &str) -> Option<&str> {
    text.trim_start().strip_prefix('"')?.split('"').next()
}

/// Returns the name and the value of each constant text.
fn constants(code: &str) -> impl Iterator<Item = (&str, &str)> {
    code.split("const ").skip(1).filter_map(|rest| {
        let (name, value) = rest.split_once(": &")?;
        let value = value.strip_prefix("'static ").unwrap_or(value);
        Some((name, literal(value.strip_prefix("str =")?)?))
    })
}

/// Why a store fails: the reasons that errors are given, as literals or as constants.
fn reasons() -> Vec<String> {
    let code = ["crates/core/src/store", "crates/redis/src"];
    let code = code.map(code_below).concat();
    let before = ["because(", "(Unavailable, ", "(Misconfigured, "];
    let before =
        before
            .iter()
            .chain(&["::Unavailable, ", "::Misconfigured, ", "(error).unwrap_or("]);
    let given = before.flat_map(|before| code.split(before).skip(1));
    let given = given.filter_map(|rest| {
        let end = rest.find([')', ',', ' '])?;
        let constant = || constants(&code).find(|(name, _)| *name == &rest[..end]);
        literal(rest).or_else(|| Some(constant()?.1))
    });
    let (_, of_certificates) = code.split_once("fn certificate(").unwrap();
    let (of_certificates, _) = of_certificates.split_once("\n}\n").unwrap();
    let of_certificates = of_certificates.split('"').skip(1).step_by(2);
    let of_certificates =
        of_certificates.filter(|it| it.contains("certificate") && !it.contains(':'));
    given.chain(of_certificates).map(str::to_owned).collect()
}

/// The texts of algorithms have these names and words.
fn algorithms() -> Vec<String> {
    let code = code_below("crates/core/src/algorithm");
    constants(&code)
        .map(|(_, word)| word.to_owned())
        .filter(|word| !word.is_empty())
        .collect()
}

/// The schema of the file has the dialects by their names.
fn dialects() -> Vec<String> {
    let schema: serde_json::Value =
        serde_json::from_str(&read("crates/config/limits.schema.json")).unwrap();
    let dialects = &schema["properties"]["responses"]["properties"]["dialects"]["items"]["enum"];
    let dialects = dialects.as_array().unwrap().iter();
    dialects.map(|it| it.as_str().unwrap().to_owned()).collect()
}

/// Returns all names as `names.txt` has them.
fn found() -> BTreeSet<Name> {
    let groups = [
        ("algorithms", algorithms()),
        ("diagnostics", diagnostics()),
        ("dialects", dialects()),
        ("log lines", log_lines()),
        ("metrics", metrics()),
        ("reasons", reasons()),
    ];
    let names = groups.into_iter().flat_map(|(group, names)| {
        assert!(names.len() > 5, "{group}: {names:?}");
        names.into_iter().map(move |name| (group.to_owned(), name))
    });
    names.collect()
}

/// Returns the names of a list, which has a line in brackets before each group.
fn listed(list: &str) -> BTreeSet<Name> {
    let mut group = "";
    let mut names = BTreeSet::new();
    for line in list.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            Some(next) => group = next,
            None => assert!(
                names.insert((group.to_owned(), line.to_owned())),
                "twice: {line}"
            ),
        }
    }
    names
}

/// Returns what is to be said of each name that is in one of both only.
fn differences(listed: &BTreeSet<Name>, found: &BTreeSet<Name>) -> Vec<String> {
    let gone = listed.difference(found).map(|(group, name)| {
        format!("{group}: `{name}` is gone, and docs/stability.md promises that it stays")
    });
    let new = found.difference(listed).map(|(group, name)| {
        format!("{group}: `{name}` is new: add it to tests/architecture/names.txt, and it stays")
    });
    gone.chain(new).collect()
}

#[test]
fn no_name_that_a_release_has_goes_away() {
    let listed = listed(&read("tests/architecture/names.txt"));
    let wrong = differences(&listed, &found());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_name_that_is_gone_and_one_that_is_new_are_found() {
    let list = listed("[a]\nx\ny {z} counter\n\n[b]\nx\n");
    assert_eq!(differences(&list, &list), Vec::<String>::new());
    let renamed = listed("[a]\nx\ny {w} counter\n\n[b]\nx\n");
    let wrong = differences(&list, &renamed);
    assert_eq!(wrong.len(), 2);
    assert!(
        wrong[0].starts_with("a: `y {z} counter` is gone"),
        "{wrong:?}"
    );
    assert!(
        wrong[1].starts_with("a: `y {w} counter` is new"),
        "{wrong:?}"
    );
}
