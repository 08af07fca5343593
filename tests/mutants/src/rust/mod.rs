//! Changes the Rust of the libraries. cargo-mutants lists what may change; a draw of that is put into a copy of the workspace, each change
//! behind a switch, and the copy is built once. Then a mutant is a run of the tests that come by it, with its switch on.
//! `tests/mutants/rust` calls this.

mod switches;
mod workspace;

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::fmt;
use std::fs;
use std::mem;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use self::switches::switched;
pub(crate) use self::workspace::Workspace;
use self::workspace::{Stage, noticed_late};
use crate::equal::Equal;
use crate::record::{Record, SURVIVED, number_of};

/// Stands in place of a test if the compiler refuses a mutant.
const UNVIABLE: &str = "does not compile";

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

/// A change of a file, as cargo-mutants has it.
pub(crate) struct Mutant {
    file: PathBuf,
    /// The whole name: the file, the line, the column and the change.
    name: String,
    /// The change, and the text of the line.
    change: String,
    /// What is changed, such as `BinaryOperator`.
    genre: String,
    line: usize,
    column: usize,
    replacement: String,
    /// Stays the same as long as the file does, so a changed file is tried anew.
    number: u64,
}

impl Mutant {
    fn read(listed: &Value, texts: &mut HashMap<PathBuf, String>) -> Result<Self, Box<dyn Error>> {
        let text_of = |value: &Value| value.as_str().map(str::to_owned).ok_or("no text");
        let number_of_start = |name| listed["span"]["start"][name].as_u64().ok_or("no place");
        let file = PathBuf::from(text_of(&listed["file"])?);
        let name = text_of(&listed["name"])?;
        if !texts.contains_key(&file) {
            texts.insert(file.clone(), fs::read_to_string(&file)?);
        }
        let change = name.splitn(4, ':').nth(3).ok_or("no change")?.trim();
        let line = number_of_start("line")?.try_into()?;
        let text = texts[&file].lines().nth(line - 1).ok_or("no line")?.trim();
        Ok(Self {
            change: format!("{change}, in `{text}`"),
            genre: text_of(&listed["genre"])?,
            line,
            column: number_of_start("column")?.try_into()?,
            replacement: text_of(&listed["replacement"])?,
            number: number_of((&name, &texts[&file])),
            file,
            name,
        })
    }

    /// Returns the index of the part that it belongs to.
    fn part(&self) -> Option<usize> {
        let is_of = |folder: &&str| self.name.starts_with(*folder);
        PARTS.iter().position(|(_, all)| all.iter().any(is_of))
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            column,
            change,
            ..
        } = self;
        write!(f, "{}:{line}:{column}: {change}", file.display())
    }
}

#[derive(Default)]
struct Part {
    mutants: Vec<Mutant>,
    /// How many others no switch can turn on.
    without_switch: usize,
}

#[derive(Default)]
struct Row {
    drawn: usize,
    unviable: usize,
    caught: usize,
    equal: usize,
    survived: usize,
}

/// Tries as many mutants of each part as this by these programs.
pub(crate) fn run(
    count: usize,
    seed: u64,
    mut record: Record,
    equal: &Equal,
    cargo_mutants: &str,
    workspace: &Workspace,
    programs: &[String],
) -> Result<(), Box<dyn Error>> {
    let mut parts = all(cargo_mutants)?;
    for ((name, _), part) in PARTS.iter().zip(&mut parts) {
        let Part {
            mutants,
            without_switch,
        } = part;
        let all = mutants.len();
        mutants.sort_by_key(|mutant| number_of((seed, &mutant.name)));
        mutants.truncate(count);
        println!(
            "{name}: {} of {all} mutants, drawn by {seed}; {without_switch} others can have no switch",
            mutants.len()
        );
    }
    let drawn: Vec<&Mutant> = parts.iter().flat_map(|part| &part.mutants).collect();

    let compiled = loop {
        let may_compile = |mutant: &&&Mutant| record.result(mutant.number) != Some(UNVIABLE);
        let may_compile: Vec<_> = drawn.iter().filter(may_compile).copied().collect();
        let refused = workspace.refused(&may_compile)?;
        if refused.is_empty() {
            break may_compile;
        }
        for mutant in refused {
            record.note(mutant.number, mutant, UNVIABLE)?;
        }
    };
    let mut waiting: Vec<_> = compiled
        .into_iter()
        .filter(|mutant| equal.reason(&mutant.file, &mutant.change).is_none())
        .filter(|mutant| record.result(mutant.number).is_none())
        .collect();
    // Most mutants are noticed soon, and all of these come first.
    let mut programs_so_far = Vec::new();
    for program in workspace.programs(programs)? {
        let program = workspace.tested(program)?;
        for mutant in mem::take(&mut waiting) {
            match program.first_failure(mutant, Stage::Quick)? {
                Some(test) => record.note(mutant.number, mutant, &test)?,
                None => waiting.push(mutant),
            }
        }
        println!("{program}: {} wait for other tests", waiting.len());
        programs_so_far.push(program);
    }
    for mutant in waiting {
        let result = noticed_late(mutant, &programs_so_far)?;
        record.note(mutant.number, mutant, result.as_deref().unwrap_or(SURVIVED))?;
    }

    let mut rows: [Row; PARTS.len()] = Default::default();
    for (row, part) in rows.iter_mut().zip(&parts) {
        for mutant in &part.mutants {
            row.drawn += 1;
            if let Some(reason) = equal.reason(&mutant.file, &mutant.change) {
                println!("{mutant}: {reason}");
                row.equal += 1;
                continue;
            }
            match record.result(mutant.number) {
                Some(UNVIABLE) => row.unviable += 1,
                Some(SURVIVED) | None => {
                    println!("{mutant}: {SURVIVED}");
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

/// Returns the mutants of each part that can have a switch, and how many others there are.
fn all(cargo_mutants: &str) -> Result<[Part; PARTS.len()], Box<dyn Error>> {
    let mut command = Command::new(cargo_mutants);
    command
        .args(["mutants", "--list", "--json", "--workspace", "--no-config"])
        .args(["--file=src/**/*.rs", "--file=crates/*/src/**/*.rs"]);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("cargo-mutants lists nothing ({})", output.status).into());
    }
    let listed: Vec<Value> = serde_json::from_slice(&output.stdout)?;
    let mut texts = HashMap::new();
    let mut all = Vec::new();
    for mutant in &listed {
        all.push(Mutant::read(mutant, &mut texts)?);
    }
    let mut without_switch = HashSet::new();
    for (file, text) in &texts {
        let of_file: Vec<_> = all.iter().filter(|mutant| mutant.file == *file).collect();
        let (_, without) = switched(text, &of_file)?;
        without_switch.extend(without.iter().map(|mutant| mutant.number));
    }
    let mut parts: [Part; PARTS.len()] = Default::default();
    for mutant in all {
        let Some(part) = mutant.part() else { continue };
        if without_switch.contains(&mutant.number) {
            parts[part].without_switch += 1;
        } else {
            parts[part].mutants.push(mutant);
        }
    }
    Ok(parts)
}
