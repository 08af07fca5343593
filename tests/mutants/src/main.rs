//! Changes the Lua of the stores in one place at a time, and looks whether a test notices.
//!
//! A program of tests contains the Lua as its files have it, so a mutant is a copy of the program with other bytes in place of these:
//! nothing is compiled. `tests/mutants/lua` builds the programs, and calls this.

mod lua;
mod program;
mod record;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use lua::Mutant;
use program::Program;
use record::{Record, SURVIVED, number_of};

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

    /// The part of each program that is about this file, which is asked before the whole.
    fn nearest_tests(&self) -> Vec<&'static str> {
        let file = self.file.to_string_lossy();
        let of_algorithms: [(&str, &[&str]); 9] = [
            ("fixed_window", &["fixed_window::redis"]),
            ("anchored_window", &["anchored_window::redis"]),
            ("calendar_window", &["calendar_window::redis", "calendars"]),
            ("sliding_window", &["sliding_window::redis"]),
            ("sliding_slots", &["sliding_slots::redis"]),
            ("sliding_log", &["sliding_log::redis"]),
            ("token_bucket", &["token_bucket_by_interval::redis"]),
            ("gcra", &["gcra::redis", "leaky_queue::redis"]),
            ("concurrency", &["concurrency", "slots"]),
        ];
        let tests = of_algorithms.iter().find(|(name, _)| file.contains(name));
        tests.map_or_else(
            || vec!["gcra::redis", "either_or", "sliding_log::redis"],
            |(_, tests)| tests.to_vec(),
        )
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let [count, seed, record, equal, programs @ ..] = &env::args().skip(1).collect::<Vec<_>>()[..]
    else {
        return Err(
            "usage: COUNT SEED RECORD EQUAL PROGRAM…, each program as a name, a folder and a path"
                .into(),
        );
    };
    let (count, seed): (usize, u64) = (count.parse()?, seed.parse()?);
    let programs = programs
        .iter()
        .map(|line| Program::read(line))
        .collect::<Result<Vec<_>, _>>()?;
    let mut record = Record::open(Path::new(record))?;
    let equal = Equal::read(Path::new(equal))?;

    let mut cases = Vec::new();
    for file in files()? {
        let text = fs::read_to_string(&file)?;
        cases.extend(lua::mutants(&text).into_iter().map(|mutant| Case {
            file: file.clone(),
            text: text.clone(),
            mutant,
        }));
    }
    let all = cases.len();
    cases.sort_by_key(|case| number_of((seed, &case.file, &case.mutant)));
    cases.truncate(count);
    println!("{} of {all} mutants, drawn by {seed}", cases.len());

    let mut rows: BTreeMap<&Path, Row> = BTreeMap::new();
    let mut survivors = 0;
    for case in &cases {
        let row = rows.entry(&case.file).or_default();
        let place = format!(
            "{}:{}: {}",
            case.file.display(),
            case.mutant.line,
            case.mutant
        );
        if let Some(reason) = equal.reason(case) {
            println!("{place}: {reason}");
            row.equal += 1;
            continue;
        }
        let number = case.number();
        if record.result(number).is_none() {
            let noticed_by = noticed_by(case, &programs)?;
            record.note(number, noticed_by.unwrap_or_else(|| SURVIVED.to_owned()))?;
        }
        let result = record.result(number).unwrap_or(SURVIVED);
        println!("{place}: {result}");
        row.tried += 1;
        if result == SURVIVED {
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
        PathBuf::from("crates/core/src/algorithm"),
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
fn noticed_by(case: &Case, programs: &[Program]) -> Result<Option<String>, String> {
    let Some(changed) = case.mutant.apply(&case.text) else {
        return Err(format!(
            "{}: no indentation to take for {}",
            case.file.display(),
            case.mutant
        ));
    };
    let programs: Vec<_> = programs
        .iter()
        .filter(|program| program.has(&case.text))
        .collect();
    if programs.is_empty() {
        return Err(format!(
            "no program contains {}: build them again",
            case.file.display()
        ));
    }
    let nearest = case.nearest_tests();
    for tests in [&nearest[..], &[]] {
        for program in &programs {
            // The other laws have no Lua.
            let tests = match (program.name.as_str(), tests) {
                ("laws", []) => &["redis", "either_or", "calendars"],
                (_, tests) if tests.is_empty() || program.name == "laws" => tests,
                _ => continue,
            };
            if let Some(test) = program.first_failure(&case.text, &changed, tests)? {
                return Ok(Some(format!("{}, {test}", program.name)));
            }
        }
    }
    Ok(None)
}

/// Mutants that decide as the original does, each with the reason why.
struct Equal(Vec<[String; 3]>);

impl Equal {
    /// Reads a file of lines `FILE | MUTANT | REASON`.
    fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        let text = fs::read_to_string(path)?;
        let lines = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let parts = lines.map(|line| {
            let parts: Vec<_> = line.split(" | ").map(str::to_owned).collect();
            <[String; 3]>::try_from(parts)
                .map_err(|_| format!("no file, mutant and reason: {line}"))
        });
        Ok(Self(parts.collect::<Result<_, _>>()?))
    }

    fn reason(&self, case: &Case) -> Option<&str> {
        let (file, mutant) = (case.file.to_string_lossy(), case.mutant.to_string());
        let line = self
            .0
            .iter()
            .find(|[of, what, _]| *of == file && *what == mutant)?;
        Some(&line[2])
    }
}
