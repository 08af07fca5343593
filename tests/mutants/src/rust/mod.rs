//! Changes the Rust of the libraries: cargo-mutants lists what may change, and applies it in a copy of the workspace. What is drawn,
//! which tests are asked and what became of each is decided here. `tests/mutants/rust` makes the copy, and calls this.

mod trials;

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::path::PathBuf;

pub(crate) use self::trials::Trials;
use crate::equal::Equal;
use crate::record::{Record, SURVIVED, number_of};

/// Stands in place of a test if the compiler refuses a mutant.
const UNVIABLE: &str = "does not compile";

/// Stands before the number of the commands that have not noticed a mutant, if there are others.
const PAST: &str = "past ";

/// From each of these, as many are drawn. A file belongs to the first one that has the beginning of its path.
const PARTS: [(&str, &[&str]); 2] = [
    (
        "algorithms and engine",
        &[
            "crates/core/src/algorithm/",
            "crates/core/src/line/",
            "crates/core/src/limiter/charging.rs",
            "crates/core/src/limiter/deciding.rs",
            "crates/core/src/limiter/verdict.rs",
            "crates/core/src/store/memory/driver",
        ],
    ),
    (
        "keys, responses, config, limiter, memory, redis",
        &[
            "crates/config/src/",
            "crates/core/src/key/",
            "crates/core/src/limiter/",
            "crates/core/src/store/memory/",
            "crates/redis/src/",
            "src/key/",
            "src/response/",
        ],
    ),
];

/// A change of a file, as cargo-mutants names it.
pub(crate) struct Mutant {
    file: PathBuf,
    /// The whole name: the file, the line, the column and the change.
    name: String,
    change: String,
    /// From 0, among those of the file, and how many these are.
    index: usize,
    of: usize,
}

impl Mutant {
    /// Reads all names of mutants.
    fn read(names: &[String]) -> Option<Vec<Self>> {
        let mut of_files: HashMap<PathBuf, usize> = HashMap::new();
        let mut mutants = Vec::new();
        for name in names {
            let mut parts = name.splitn(4, ':');
            let (file, change) = (PathBuf::from(parts.next()?), parts.nth(2)?);
            let before = of_files.entry(file.clone()).or_default();
            mutants.push(Self {
                name: name.clone(),
                change: change.trim().to_owned(),
                index: *before,
                of: 0,
                file,
            });
            *before += 1;
        }
        for mutant in &mut mutants {
            mutant.of = of_files[&mutant.file];
        }
        Some(mutants)
    }

    /// Stays the same as long as the file does, so a changed file is tried anew.
    fn number(&self, trials: &Trials) -> io::Result<u64> {
        Ok(number_of((&self.name, trials.text_of(self)?)))
    }

    fn tests(&self) -> &'static [Tests] {
        tests_of(&self.file.to_string_lossy())
    }

    fn package(&self) -> String {
        let folder = self.file.strip_prefix("crates").ok();
        let folder = folder.and_then(|rest| rest.iter().next());
        folder.map_or_else(
            || "tower-ratelimit".to_owned(),
            |name| format!("tower-ratelimit-{}", name.display()),
        )
    }
}

/// The tests that are asked, one command after the other: the package, and what `cargo test` takes beside it.
pub(crate) type Tests = (&'static str, &'static [&'static str]);

const UNIT: &[&str] = &["--lib", "--all-features"];
const OF_CORE: &[Tests] = &[
    ("tower-ratelimit-core", UNIT),
    (
        "tower-ratelimit-tests",
        &["--test=limiter", "--no-default-features"],
    ),
    (
        "tower-ratelimit-laws",
        &["--test=laws", "--no-default-features"],
    ),
];

/// Those next to a file come first, since most mutants do not get past them.
fn tests_of(file: &str) -> &'static [Tests] {
    let of_folders: [(&str, &[Tests]); 4] = [
        (
            "crates/config",
            &[
                ("tower-ratelimit-config", UNIT),
                (
                    "tower-ratelimit-tests",
                    &["--test=config", "--all-features"],
                ),
            ],
        ),
        (
            "crates/redis",
            &[
                ("tower-ratelimit-redis", UNIT),
                ("tower-ratelimit-tests", &["--test=redis", "--all-features"]),
            ],
        ),
        (
            "src/response/grpc",
            &[
                ("tower-ratelimit", UNIT),
                ("tower-ratelimit-tests", &["--test=grpc", "--all-features"]),
            ],
        ),
        (
            "src",
            &[
                ("tower-ratelimit", UNIT),
                ("tower-ratelimit-tests", &["--test=http", "--all-features"]),
            ],
        ),
    ];
    let tests = of_folders
        .iter()
        .find(|(folder, _)| file.starts_with(folder));
    tests.map_or(OF_CORE, |(_, tests)| tests)
}

#[derive(Default)]
struct Row {
    drawn: usize,
    unviable: usize,
    caught: usize,
    equal: usize,
    survived: usize,
}

/// Tries as many mutants of each part as this.
pub(crate) fn run(
    count: usize,
    seed: u64,
    mut record: Record,
    equal: &Equal,
    mut trials: Trials,
) -> Result<(), Box<dyn Error>> {
    let mut parts: [Vec<Mutant>; PARTS.len()] = Default::default();
    let all = Mutant::read(&trials.list()?).ok_or("a mutant without a file and a change")?;
    for mutant in all {
        let is_of = |folder: &&str| mutant.name.starts_with(*folder);
        if let Some(part) = PARTS.iter().position(|(_, all)| all.iter().any(is_of)) {
            parts[part].push(mutant);
        }
    }
    for ((part, _), mutants) in PARTS.iter().zip(&mut parts) {
        let all = mutants.len();
        mutants.sort_by_key(|mutant| number_of((seed, &mutant.name)));
        mutants.truncate(count);
        println!(
            "{part}: {} of {all} mutants, drawn by {seed}",
            mutants.len()
        );
    }

    // All are asked by the tests next to them before any is asked by others, which take longer.
    let most = parts.iter().flatten().map(|mutant| mutant.tests().len());
    for round in 0..most.max().unwrap_or_default() {
        for mutants in &parts {
            for mutant in mutants {
                if equal.reason(&mutant.file, &mutant.change).is_some() {
                    continue;
                }
                let number = mutant.number(&trials)?;
                let has_passed = match record.result(number) {
                    None => 0,
                    Some(result) => result
                        .strip_prefix(PAST)
                        .map_or(Ok(round + 1), str::parse)?,
                };
                if has_passed > round {
                    continue;
                }
                let tests = mutant.tests();
                let noticed_by = trials.noticed_by(mutant, tests[round])?;
                let result = noticed_by.unwrap_or_else(|| match round + 1 {
                    all if all == tests.len() => SURVIVED.to_owned(),
                    some => format!("{PAST}{some}"),
                });
                println!("{}: {result}", mutant.name);
                record.note(number, result)?;
            }
        }
    }

    let mut rows: [Row; PARTS.len()] = Default::default();
    for (row, mutants) in rows.iter_mut().zip(&parts) {
        for mutant in mutants {
            row.drawn += 1;
            if let Some(reason) = equal.reason(&mutant.file, &mutant.change) {
                println!("{}: {reason}", mutant.name);
                row.equal += 1;
                continue;
            }
            match record.result(mutant.number(&trials)?) {
                Some(UNVIABLE) => row.unviable += 1,
                Some(SURVIVED) | None => {
                    println!("{}: {SURVIVED}", mutant.name);
                    row.survived += 1;
                }
                Some(_) => row.caught += 1,
            }
        }
    }
    println!("\n| part | mutants | do not compile | caught | equal | survived |");
    println!("| --- | --: | --: | --: | --: | --: |");
    for ((part, _), row) in PARTS.iter().zip(&rows) {
        let Row {
            drawn,
            unviable,
            caught,
            equal,
            survived,
        } = row;
        println!("| {part} | {drawn} | {unviable} | {caught} | {equal} | {survived} |");
    }
    let survived: usize = rows.iter().map(|row| row.survived).sum();
    if survived > 0 {
        return Err(format!(
            "{survived} survived: each needs a test, or a line in tests/mutants/equal.txt"
        )
        .into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_has_its_place_among_those_of_its_file() {
        let names = [
            "crates/core/src/a.rs:1:2: replace f -> (A, b::C) with Default::default()",
            "src/b.rs:1:2: replace < with == in g",
            "crates/core/src/a.rs:3:4: delete field c from struct D",
        ];
        let mutants = Mutant::read(&names.map(str::to_owned)).unwrap();
        let places: Vec<_> = mutants.iter().map(|it| (it.index, it.of)).collect();
        assert_eq!(places, [(0, 2), (0, 1), (1, 2)]);
        let packages: Vec<_> = mutants.iter().map(Mutant::package).collect();
        assert_eq!(packages[..2], ["tower-ratelimit-core", "tower-ratelimit"]);
        assert_eq!(
            mutants[0].change,
            "replace f -> (A, b::C) with Default::default()"
        );
    }
}
