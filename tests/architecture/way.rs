//! The way of a request is narrow: one file writes charges, and one asks a backend to decide.

use super::{HOUSES, root, sources};

/// The rooms between a request and its store.
const ROOMS: [&str; 5] = ["limiter/", "line/", "middleware/", "policy/", "service/"];

const WRITERS: &[&str] = &["limiter/charging.rs"];

const ASKERS: &[&str] = &["limiter/deciding.rs"];

/// The verbs of a backend that decide, by what they are called on.
const DECIDES: [&str; 10] = [
    ".admit_alike(&policies",
    ".admit_one(",
    ".admit_under(",
    ".charge_now(",
    ".charge_one(",
    "backend.charge(",
    "backend.decide(",
    "backend.inner().charge",
    "backend.acquire_up_to",
    "inner().acquire_up_to",
];

/// Returns the files in which code, that of tests left out, has what is looked for.
fn files_with(has: impl Fn(&str) -> bool) -> Vec<String> {
    let houses = HOUSES.iter();
    let mut files: Vec<String> = houses
        .flat_map(|house| sources(&root().join(house.folder)))
        .filter(|(file, _)| ROOMS.iter().any(|room| file.starts_with(room)))
        .filter(|(file, text)| !file.ends_with("_tests.rs") && has(&code(text)))
        .map(|(file, _)| file)
        .collect();
    files.sort();
    files
}

/// Returns the code of a file, without its tests, comments and spaces.
fn code(text: &str) -> String {
    let tests = text.find("#[cfg(test)]\nmod tests");
    let lines = text[..tests.unwrap_or(text.len())].lines();
    let code = lines.filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(str::split_whitespace).collect()
}

/// Returns whether code makes a charge: by its constructor, or as a struct.
fn writes(code: &str) -> bool {
    let is_new = |(at, _): (usize, &str)| !ends_a_name(&code[..at]);
    let made = |(at, _): (usize, &str)| {
        ["=", "=>", "(", "{"]
            .iter()
            .any(|before| code[..at].ends_with(before))
    };
    code.match_indices("Charge::new(").any(is_new) || code.match_indices("Charge{").any(made)
}

fn ends_a_name(code: &str) -> bool {
    code.ends_with(|last: char| last.is_alphanumeric() || last == '_')
}

#[test]
fn no_other_file_writes_a_charge() {
    assert_eq!(files_with(writes), WRITERS);
}

#[test]
fn no_other_file_asks_a_backend_to_decide() {
    let decides = |code: &str| DECIDES.iter().any(|verb| code.contains(verb));
    assert_eq!(files_with(decides), ASKERS);
}

/// Sixteen verbs had a second body each, for the store in this process, and some of them differed.
#[test]
fn no_verb_has_a_second_body_for_the_store_in_this_process() {
    let is_second = |code: &str| {
        let functions = code.split("pubfn").skip(1);
        let mut names = functions.filter_map(|it| it.split(['(', '<']).next());
        names.any(|name| name.ends_with("_now"))
    };
    let of_limiter = files_with(is_second).into_iter();
    let of_limiter = of_limiter.filter(|file| file.starts_with("limiter/"));
    assert_eq!(of_limiter.collect::<Vec<_>>(), [] as [&str; 0]);
}

#[test]
fn a_writer_is_found_and_a_pattern_is_none() {
    for (text, is_found) in [
        ("let charge = Charge::new(policy, key, 1);", true),
        ("Some(price) => Charge {\n    beyond: 0,", true),
        ("held.push(ReservedCharge { charge, taken })", false),
        ("ReservedCharge::new(charge)", false),
        ("impl Charge {", false),
        ("// Charge::new(policy, key, 1)", false),
        (
            "#[cfg(test)]\nmod tests {\n    Charge::new(0, key, 1);\n}",
            false,
        ),
    ] {
        assert_eq!(writes(&code(text)), is_found, "{text}");
    }
}
