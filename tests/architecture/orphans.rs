//! Rooms of HTTP add no methods to types of the rooms below them.

use std::collections::BTreeSet;

use super::{room, root, sources};

/// The rooms that know HTTP alone.
const OF_HTTP: [&str; 3] = ["client", "middleware", "response"];

/// Returns each `impl` that names no type and no trait of its own rooms, which another crate could not have.
fn orphans(sources: &[(String, String)]) -> Vec<String> {
    let texts = || sources.iter().map(|(file, text)| (file, text.lines()));
    let lines = || texts().flat_map(|(file, lines)| lines.map(move |line| (file, line)));
    let own: BTreeSet<&str> = lines().filter_map(|(_, line)| declared(line)).collect();
    lines()
        .filter(|(_, line)| line.starts_with("impl"))
        .filter(|(_, line)| !words(line).any(|word| own.contains(word)))
        .map(|(file, line)| format!("{file}: {line}"))
        .collect()
}

/// Returns the name of the type or the trait that this line declares.
fn declared(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let rest = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let kinds = ["struct ", "enum ", "trait "];
    let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    words(rest).next()
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty())
}

#[test]
fn rooms_of_http_add_no_methods_to_types_of_rooms_below() {
    let mut sources = sources(&root().join("src"));
    sources.retain(|(file, _)| OF_HTTP.contains(&room(file).as_str()));
    assert!(sources.len() > OF_HTTP.len(), "{}", sources.len());
    let found = orphans(&sources);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn an_impl_that_another_crate_could_not_have_is_found() {
    let with = |line: &str| {
        let text = format!("pub(in crate::response) struct Answer;\ntrait OrRefuse {{}}\n{line}\n");
        orphans(&[("response/handler.rs".to_owned(), text)]).len()
    };
    assert_eq!(with("impl Decision {"), 1);
    assert_eq!(with("impl IntoResponseParts for Decision {"), 1);
    assert_eq!(with("impl OrRefuse for Decision {"), 0);
    assert_eq!(with("impl IntoResponseParts for Answer {"), 0);
}
