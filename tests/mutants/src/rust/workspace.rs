//! The copy of the workspace with all mutants in it, and the programs of its tests.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde_json::Value;

use super::Mutant;
use super::switches::{mutant_near, switched};
use crate::program::{Outcome, Program};

pub(crate) struct Workspace {
    copy: PathBuf,
    /// Has what is built, and by which tests each mutant is reached.
    target: PathBuf,
}

/// A program of tests, and which of them come by a mutant.
pub(super) struct Tested {
    program: Program,
    /// How long all of its tests take.
    takes: Duration,
    /// The tests that fail without a mutant.
    fail: Vec<String>,
    /// How long a test takes once it has come by a mutant.
    tests: HashMap<String, Duration>,
    /// The tests that come by a mutant in their own thread, the quickest one first.
    reached: HashMap<u64, Vec<String>>,
    /// The mutants that other threads come by, or other processes: a test of the program may be behind it.
    elsewhere: HashSet<u64>,
}

/// Which tests of a program are asked.
#[derive(Clone, Copy)]
pub(super) enum Stage {
    /// The quickest of those that come by the mutant.
    Quick,
    /// The others of those.
    Slow,
    /// All others, if a thread that is of no test comes by it.
    Elsewhere,
}

/// Of each property, so few cases come by the code that all of them come by.
const CASES: u32 = 10;

/// All cases take no longer than this many times the few.
const TIMES_THE_CASES: u32 = 10;

/// How long the quickest tests of a program have taken together, without a mutant.
const LONGEST_OF_QUICK: Duration = Duration::from_secs(2);

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
            let number = mutant_near(&text, start?..end?)?;
            if number.is_some() {
                return Ok(number);
            }
        }
        Ok(None)
    }

    /// Builds programs of tests.
    pub(super) fn programs(&self, names: &[String]) -> Result<Vec<Program>, Box<dyn Error>> {
        let mut list = self.command("tests/run");
        let output = list
            .arg("--list")
            .args(names)
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            return Err(format!("the tests are not built ({})", output.status).into());
        }
        let lines = String::from_utf8(output.stdout)?;
        let programs = lines.lines().map(Program::read);
        Ok(programs.collect::<Result<_, _>>()?)
    }

    /// Runs a program without a mutant, unless it has been run since it was built.
    pub(super) fn tested(&self, program: Program) -> Result<Tested, Box<dyn Error>> {
        let file = program.path.file_name().ok_or("a program has a name")?;
        let reached = self.target.join("reached").join(file);
        let changed = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
        if changed(&reached) < changed(&program.path) {
            println!("{} without a mutant", program.name);
            reach(&program, &reached)?;
        }
        Tested::read(program, &fs::read_to_string(&reached)?)
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

/// Runs a program without a mutant, and writes down which tests come by which mutants, and how long they take.
fn reach(program: &Program, known: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(known.parent().ok_or("a file has no folder")?)?;
    let new = known.with_extension("new");
    fs::write(&new, "")?;
    let program = Program {
        variables: vec![
            ("MUTANTS_REACHED", new.to_string_lossy().into_owned()),
            ("PROPTEST_CASES", CASES.to_string()),
        ],
        ..program.clone()
    };
    let begun = Instant::now();
    let Outcome { failures, ended } = program.run(&[], false)?;
    let mut lines = vec![format!("takes {}", begun.elapsed().as_millis())];
    for test in failures {
        if !ended.contains_key(&test) {
            return Err(format!("{} has no result without a mutant: {test}", program.name).into());
        }
        if !program.fails_by_chance(&test)? {
            println!(
                "{}, {test} fails without a mutant, and is not asked",
                program.name
            );
            lines.push(format!("fails {test}"));
        }
    }
    let mut begun: HashMap<&str, u128> = HashMap::new();
    let reached = fs::read_to_string(&new)?;
    for line in reached.lines() {
        let mut parts = line.splitn(3, ' ');
        let (Some(number), Some(at), Some(thread)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(format!("no number, time and thread: {line:?}").into());
        };
        if ended.contains_key(thread) {
            begun.entry(thread).or_insert(at.parse()?);
            lines.push(format!("reached {number} {thread}"));
        } else {
            lines.push(format!("elsewhere {number}"));
        }
    }
    for (test, begun) in begun {
        let ended = ended[test].duration_since(UNIX_EPOCH)?.as_millis();
        lines.push(format!("test {} {test}", ended.saturating_sub(begun)));
    }
    lines.sort();
    lines.dedup();
    fs::write(&new, lines.join("\n"))?;
    fs::rename(new, known)?;
    Ok(())
}

impl fmt::Display for Tested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.program.name)
    }
}

impl Tested {
    /// Reads what [`reach`] has written.
    fn read(program: Program, reached: &str) -> Result<Self, Box<dyn Error>> {
        let mut tested = Self {
            program,
            takes: Duration::ZERO,
            fail: Vec::new(),
            tests: HashMap::new(),
            reached: HashMap::new(),
            elsewhere: HashSet::new(),
        };
        for line in reached.lines() {
            let (kind, rest) = line.split_once(' ').ok_or("no kind of a line")?;
            match (kind, rest.split_once(' ')) {
                ("takes", None) => tested.takes = Duration::from_millis(rest.parse()?),
                ("fails", None) => tested.fail.push(rest.to_owned()),
                ("elsewhere", None) => _ = tested.elsewhere.insert(rest.parse()?),
                ("test", Some((takes, test))) => {
                    let takes = Duration::from_millis(takes.parse()?);
                    tested.tests.insert(test.to_owned(), takes);
                }
                ("reached", Some((number, test))) => {
                    let tests = tested.reached.entry(number.parse()?).or_default();
                    tests.push(test.to_owned());
                }
                _ => return Err(format!("not a line of what is reached: {line:?}").into()),
            }
        }
        for tests in tested.reached.values_mut() {
            tests.retain(|test| !tested.fail.contains(test));
            tests.sort_by_key(|test| tested.tests[test]);
        }
        Ok(tested)
    }

    /// Returns the first test of this stage that fails with this mutant, and its program.
    pub(super) fn first_failure(
        &self,
        mutant: &Mutant,
        stage: Stage,
    ) -> Result<Option<String>, String> {
        let by_name = self
            .reached
            .get(&mutant.number)
            .map_or(&[][..], Vec::as_slice);
        let mut so_far = Duration::ZERO;
        let quick = by_name.iter().take_while(|test| {
            so_far += self.tests[*test];
            so_far < LONGEST_OF_QUICK
        });
        let (quick, slow) = by_name.split_at(quick.count());
        let takes = |tests: &[String]| tests.iter().map(|test| self.tests[test]).sum();
        let (tests, takes): (Vec<&str>, Duration) = match stage {
            Stage::Quick if !quick.is_empty() => (list(quick), takes(quick)),
            Stage::Slow if !slow.is_empty() => (list(slow), takes(slow)),
            Stage::Elsewhere if self.elsewhere.contains(&mutant.number) => {
                let asked = by_name.iter().chain(&self.fail);
                let others = asked.flat_map(|test| ["--skip", test.as_str()]);
                // At most as many at a time as there are processors, or somewhat more.
                (others.collect(), 4 * self.takes)
            }
            _ => return Ok(None),
        };
        let program = Program {
            variables: vec![("MUTANT", mutant.number.to_string())],
            takes: TIMES_THE_CASES * takes,
            ..self.program.clone()
        };
        let test = program.first_failure(&[&["--exact"], &tests[..]].concat())?;
        Ok(test.map(|test| format!("{self}, {test}")))
    }
}

fn list(tests: &[String]) -> Vec<&str> {
    tests.iter().map(String::as_str).collect()
}

/// Returns the program and the test that fails with this mutant, which the quickest tests have not noticed.
pub(super) fn noticed_late(mutant: &Mutant, programs: &[Tested]) -> Result<Option<String>, String> {
    for stage in [Stage::Slow, Stage::Elsewhere] {
        for program in programs {
            let failure = program.first_failure(mutant, stage)?;
            if failure.is_some() {
                return Ok(failure);
            }
        }
    }
    Ok(None)
}
