//! The copy of the workspace with all mutants in it, and the programs of its tests.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Mutant;
use super::switches::{mutant_around, switched};
use crate::program::Program;

pub(crate) struct Workspace {
    copy: PathBuf,
    /// Has what is built, and by which tests each mutant is reached.
    target: PathBuf,
}

/// A program of tests, and which of them come by a mutant.
pub(super) struct Tested {
    program: Program,
    /// How long all of its tests take.
    pub(super) takes: Duration,
    threads: HashMap<u64, Vec<String>>,
}

impl Workspace {
    pub(crate) fn new(copy: &str, target: &str) -> Self {
        Self {
            copy: copy.into(),
            target: target.into(),
        }
    }

    /// Makes the copy. A file that is the same keeps its time, so that cargo builds nothing anew.
    fn write(&self, mutants: &[&Mutant]) -> Result<(), Box<dyn Error>> {
        let mut of_files: HashMap<&Path, Vec<&Mutant>> = HashMap::new();
        for mutant in mutants {
            of_files.entry(&mutant.file).or_default().push(mutant);
        }
        let roots: HashSet<_> = of_files.keys().map(|file| root_of_crate(file)).collect();
        let switch = self.copy.join("tests/mutants/switch.rs");
        let files = Command::new("git").args(["ls-files", "-z"]).output()?;
        for file in String::from_utf8(files.stdout)?.split_terminator('\0') {
            let file = Path::new(file);
            let mut text = fs::read(file)?;
            if let Some(mutants) = of_files.get(file) {
                text = switched(str::from_utf8(&text)?, mutants)?.0.into();
            }
            if roots.contains(file) {
                text.extend(format!("\n#[path = \"{}\"]\nmod mutant;\n", switch.display()).bytes());
            }
            let copy = self.copy.join(file);
            if fs::read(&copy).ok().as_ref() != Some(&text) {
                fs::create_dir_all(copy.parent().ok_or("a file has no folder")?)?;
                // The copy may be run if the file may.
                fs::copy(file, &copy)?;
                fs::write(&copy, text)?;
            }
        }
        Ok(())
    }

    /// Makes the copy and returns the mutants that the compiler refuses, until there are none.
    pub(super) fn refused<'a>(
        &self,
        mutants: &[&'a Mutant],
    ) -> Result<Vec<&'a Mutant>, Box<dyn Error>> {
        self.write(mutants)?;
        // What `tests/run` builds too, so that nothing is built twice.
        let mut build = self.command("cargo");
        build
            .args(["test", "--quiet", "--no-run"])
            .args(["--workspace", "--exclude=tower-ratelimit-benches*"])
            .args(["--all-features", "--lib", "--message-format=json"]);
        let output = build.output()?;
        let mut refused = HashSet::new();
        for line in String::from_utf8(output.stdout)?.lines() {
            let line: Value = serde_json::from_str(line)?;
            let message = &line["message"];
            // The last error of a crate counts the others, and has no place.
            let has_place = |spans: &Vec<Value>| !spans.is_empty();
            if message["level"] == "error" && message["spans"].as_array().is_some_and(has_place) {
                let number = self.blamed(message)?;
                let number =
                    number.ok_or_else(|| format!("no mutant is near: {}", message["rendered"]))?;
                refused.insert(number);
            }
        }
        if refused.is_empty() && !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        let is_refused = |mutant: &&&Mutant| refused.contains(&mutant.number);
        Ok(mutants.iter().filter(is_refused).copied().collect())
    }

    /// Returns the number of the mutant that an error of the compiler is about.
    fn blamed(&self, message: &Value) -> Result<Option<u64>, Box<dyn Error>> {
        let mut spans: Vec<_> = message["spans"].as_array().into_iter().flatten().collect();
        spans.sort_by_key(|span| span["is_primary"] != true);
        for span in spans {
            let end = |name: &str| span[name].as_u64().map(usize::try_from);
            let (Some(file), Some(start), Some(end)) = (
                span["file_name"].as_str(),
                end("byte_start"),
                end("byte_end"),
            ) else {
                return Err("a place without a file and bytes".into());
            };
            let text = fs::read_to_string(self.copy.join(file))?;
            let number = mutant_around(&text, start?..end?)?;
            if number.is_some() {
                return Ok(number);
            }
        }
        Ok(None)
    }

    /// Builds programs of tests, and runs each one without a mutant unless it has been run since. The quickest one is the first.
    pub(super) fn tested(&self, names: &[String]) -> Result<Vec<Tested>, Box<dyn Error>> {
        let mut list = self.command("tests/run");
        let output = list
            .arg("--list")
            .args(names)
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            return Err(format!("the tests are not built ({})", output.status).into());
        }
        let mut all = Vec::new();
        for line in String::from_utf8(output.stdout)?.lines() {
            all.push(self.reached_by(Program::read(line)?)?);
        }
        all.sort_by_key(|program| program.takes);
        Ok(all)
    }

    /// Learns which tests of a program come by which mutants.
    fn reached_by(&self, program: Program) -> Result<Tested, Box<dyn Error>> {
        let file = program.path.file_name().ok_or("a program has a name")?;
        let known = self.target.join("reached").join(file);
        let changed = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
        if changed(&known) < changed(&program.path) {
            println!("{} without a mutant", program.name);
            fs::create_dir_all(self.target.join("reached"))?;
            let new = known.with_extension("new");
            fs::write(&new, "")?;
            let begun = Instant::now();
            let program = Program {
                variable: Some(("MUTANTS_REACHED", new.to_string_lossy().into_owned())),
                ..program.clone()
            };
            if let Some(test) = program.first_failure(&[])? {
                return Err(format!("{}, {test} fails without a mutant", program.name).into());
            }
            let reached = fs::read_to_string(&new)?;
            fs::write(&new, format!("{}\n{reached}", begun.elapsed().as_secs()))?;
            fs::rename(new, &known)?;
        }
        let reached = fs::read_to_string(&known)?;
        let (takes, lines) = reached.split_once('\n').ok_or("a first line")?;
        let takes = Duration::from_secs(takes.parse()?);
        let mut threads: HashMap<u64, Vec<String>> = HashMap::new();
        for line in lines.lines() {
            let (number, thread) = line.split_once(' ').ok_or("a number and a thread")?;
            threads
                .entry(number.parse()?)
                .or_default()
                .push(thread.to_owned());
        }
        Ok(Tested {
            program: Program {
                longest: Duration::from_secs(60) + 5 * takes,
                ..program
            },
            takes,
            threads,
        })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.copy)
            .env("CARGO_TARGET_DIR", self.target.join("target"))
            .stdin(Stdio::null());
        command
    }
}

fn root_of_crate(file: &Path) -> PathBuf {
    let folders = file.iter().take_while(|part| *part != "src");
    folders.collect::<PathBuf>().join("src/lib.rs")
}

/// Returns the program and the test that fails with this mutant. The tests that come by it are asked before programs that do so in
/// threads of their own, of which all tests are asked.
pub(super) fn noticed_by(
    mutant: &Mutant,
    programs: &[Tested],
) -> Result<Option<String>, Box<dyn Error>> {
    for by_name in [true, false] {
        for Tested {
            program, threads, ..
        } in programs
        {
            let threads = threads.get(&mutant.number).into_iter().flatten();
            // A test has the name of its module, too.
            let (mut tests, others): (Vec<&str>, Vec<&str>) = threads
                .map(String::as_str)
                .partition(|thread| thread.contains("::"));
            if by_name && tests.is_empty() || !by_name && others.is_empty() {
                continue;
            }
            if by_name {
                tests.push("--exact");
            } else {
                tests.clear();
            }
            let program = Program {
                variable: Some(("MUTANT", mutant.number.to_string())),
                ..program.clone()
            };
            if let Some(test) = program.first_failure(&tests)? {
                return Ok(Some(format!("{}, {test}", program.name)));
            }
        }
    }
    Ok(None)
}
