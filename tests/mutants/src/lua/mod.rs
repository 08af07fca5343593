//! Changes the Lua of the stores.
//!
//! A program of tests contains the Lua as its files have it, so a mutant is a copy of the program with other bytes in place of these:
//! nothing is compiled. `tests/mutants/lua` builds the programs, and calls this.

mod host;
mod text;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::fs;
use std::mem;
use std::path::{Path, PathBuf};

use self::host::Host;
use self::text::Mutant;
use crate::equal::Equal;
use crate::record::{Record, SURVIVED, number_of};

/// A file, and one change of it.
struct Case {
    file: PathBuf,
    text: String,
    mutant: Mutant,
}

impl Case {
    /// Stays the same as long as the file does, so a changed file is tried anew.
    fn number(&self) -> u64 {
        number_of((&self.file, &self.text, &self.mutant))
    }

    /// The tests that are about this file, which are asked before all others: the program, and parts of names in it.
    fn nearest_tests(&self) -> (&'static str, &'static [&'static str]) {
        let file = self.file.to_string_lossy();
        let of_files: [(&str, &str, &[&str]); 16] = [
            ("holders", "redis", &["drawn_slots", "fair_slots"]),
            ("fixed_window", "laws", &["fixed_window::redis"]),
            ("anchored_window", "laws", &["anchored_window::redis"]),
            (
                "calendar_window",
                "laws",
                &["calendar_window::redis", "calendars"],
            ),
            ("sliding_window", "laws", &["sliding_window::redis"]),
            ("sliding_slots", "laws", &["sliding_slots::redis"]),
            ("sliding_log", "laws", &["sliding_log::redis"]),
            ("token_bucket", "laws", &["token_bucket_by_interval::redis"]),
            ("gcra", "laws", &["gcra::redis", "leaky_queue::redis"]),
            ("concurrency", "redis", &["slots"]),
            ("lease", "redis", &["leases"]),
            ("renew", "redis", &["renewed_slots", "fair_slots"]),
            ("first_of", "laws", &["either_or"]),
            ("divided", "redis", &["fair", "guaranteed", "drawn_slots"]),
            // `fair_amend.lua`, and `fair/shares.lua` of the core.
            ("fair", "redis", &["fair"]),
            // `guarantee_amend.lua`, and `guarantee/children.lua` of the core.
            ("guarantee", "redis", &["guaranteed"]),
        ];
        let nearest = of_files.iter().find(|(name, ..)| file.contains(name));
        nearest.map_or(
            (
                "laws",
                &[
                    "gcra::redis",
                    "either_or",
                    "sliding_log::redis",
                    "hours::redis",
                    "penalties::redis",
                ],
            ),
            |&(_, program, tests)| (program, tests),
        )
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, mutant, .. } = self;
        write!(f, "{}:{}: {mutant}", file.display(), mutant.line)
    }
}

/// Tries as many mutants as this by the programs, each of which is given by its name, its folder and its path.
pub(crate) fn run(
    count: usize,
    seed: u64,
    mut record: Record,
    equal: &Equal,
    programs: &[String],
) -> Result<(), Box<dyn Error>> {
    let hosts = programs
        .iter()
        .map(|line| Host::read(line))
        .collect::<Result<Vec<_>, _>>()?;

    let mut cases = Vec::new();
    for file in files()? {
        let text = fs::read_to_string(&file)?;
        cases.extend(text::mutants(&text).into_iter().map(|mutant| Case {
            file: file.clone(),
            text: text.clone(),
            mutant,
        }));
    }
    let all = cases.len();
    cases.sort_by_key(|case| number_of((seed, &case.file, &case.mutant)));
    cases.truncate(count);
    println!("{} of {all} mutants, drawn by {seed}", cases.len());

    let mut waiting: Vec<_> = cases
        .iter()
        .filter(|case| equal.reason(&case.file, &case.mutant.to_string()).is_none())
        .filter(|case| record.result(case.number()).is_none())
        .collect();
    // Most mutants are noticed soon, and all of these come first.
    for stage in [Stage::Nearest, Stage::All] {
        let all = waiting.len();
        for (index, case) in mem::take(&mut waiting).into_iter().enumerate() {
            if let Some(test) = noticed_by(case, stage, &hosts)? {
                record.note(case.number(), case, &test)?;
            } else if stage == Stage::All {
                record.note(case.number(), case, SURVIVED)?;
            } else {
                println!("{case}: not yet ({} of {all})", index + 1);
                waiting.push(case);
            }
        }
    }

    let mut rows: BTreeMap<&Path, Row> = BTreeMap::new();
    let mut survivors = 0;
    for case in &cases {
        let row = rows.entry(&case.file).or_default();
        if let Some(reason) = equal.reason(&case.file, &case.mutant.to_string()) {
            println!("{case}: {reason}");
            row.equal += 1;
            continue;
        }
        row.tried += 1;
        if record.result(case.number()) == Some(SURVIVED) {
            println!("{case}: {SURVIVED}");
            survivors += 1;
        } else {
            row.caught += 1;
        }
    }
    println!("\n| file | mutants | caught | equal |\n| --- | --: | --: | --: |");
    for (file, row) in &rows {
        println!(
            "| `{}` | {} | {} | {} |",
            file.display(),
            row.tried,
            row.caught,
            row.equal
        );
    }
    if survivors > 0 {
        return Err(format!(
            "{survivors} survived: each needs a test, or a line in tests/mutants/equal.txt"
        )
        .into());
    }
    Ok(())
}

#[derive(Default)]
struct Row {
    tried: usize,
    caught: usize,
    equal: usize,
}

/// The files in Lua, in the order of their paths.
fn files() -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut folders = vec![
        PathBuf::from("crates/core/src"),
        PathBuf::from("crates/redis/src"),
    ];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "lua") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the program and the test that fails first.
fn noticed_by(case: &Case, stage: Stage, hosts: &[Host]) -> Result<Option<String>, String> {
    let Some(changed) = case.mutant.apply(&case.text) else {
        return Err(format!(
            "{}: no indentation to take for {}",
            case.file.display(),
            case.mutant
        ));
    };
    let hosts: Vec<_> = hosts.iter().filter(|host| host.has(&case.text)).collect();
    if hosts.is_empty() {
        return Err(format!(
            "no program contains {}: build them again",
            case.file.display()
        ));
    }
    let (nearest, tests_about_it) = case.nearest_tests();
    for host in hosts {
        let tests = match (stage, host.program.name.as_str()) {
            (Stage::Nearest, name) if name == nearest => tests_about_it,
            // They compare functions in Lua with those in Rust, most of them without a limiter.
            (Stage::Nearest, "tower_ratelimit_redis") => &["law_9", "functions", "renewal"],
            // They ask by each rule and verb.
            (Stage::Nearest, "redis") => &[
                "law_9_a_server",
                "expiry",
                "either_or",
                "nodes_that_lease_admit",
            ],
            (Stage::Nearest, _) => continue,
            // The other laws have no Lua.
            (Stage::All, "laws") => &["redis", "either_or", "calendars"],
            (Stage::All, _) => &[],
        };
        if let Some(test) = host.first_failure(&case.text, &changed, tests)? {
            return Ok(Some(format!("{}, {test}", host.program.name)));
        }
    }
    Ok(None)
}

/// Which tests are asked.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// Those that are about the file.
    Nearest,
    All,
}
