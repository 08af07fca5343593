//! A program of tests, run until its first test fails.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) path: PathBuf,
    pub(crate) variables: Vec<(&'static str, String)>,
    /// How long the tests that are asked have taken, one after another.
    pub(crate) takes: Duration,
}

/// What a run has shown.
#[derive(Default)]
pub(crate) struct Outcome {
    /// The tests that have failed, or what has ended the run in their place.
    pub(crate) failures: Vec<String>,
    /// When each test ended.
    pub(crate) ended: HashMap<String, SystemTime>,
}

/// How long all tests of a program may take, one after another, where nothing else is known.
const LONGEST: Duration = Duration::from_secs(600);

const ALL_ITS_TIME: &str = "all of its time";

impl Program {
    /// Reads the line that `tests/run` has for a program: its name, its folder and its path.
    pub(crate) fn read(line: &str) -> Result<Self, String> {
        let parts: Vec<_> = line.split_whitespace().collect();
        let &[name, folder, path] = parts.as_slice() else {
            return Err(format!("no name, folder and path of a program: {line:?}"));
        };
        Ok(Self {
            name: name.to_owned(),
            folder: folder.into(),
            path: path.into(),
            variables: Vec::new(),
            takes: LONGEST,
        })
    }

    /// Runs the tests that these arguments choose, and returns the first that fails, and fails again: on a busy machine a test may
    /// fail for want of time.
    pub(crate) fn first_failure(&self, tests: &[&str]) -> Result<Option<String>, String> {
        let mut by_chance: Vec<String> = Vec::new();
        loop {
            let skipped = by_chance.iter().flat_map(|test| ["--skip", test.as_str()]);
            let asked: Vec<_> = tests.iter().copied().chain(skipped).collect();
            let Outcome { failures, ended } = self.run(&asked, true)?;
            let Some(failure) = failures.into_iter().next() else {
                if ended.is_empty() && !asked.contains(&"--skip") {
                    return Err(format!("{} has no test {}", self.name, tests.join(" or ")));
                }
                return Ok(None);
            };
            if !ended.contains_key(&failure) || !self.fails_by_chance(&failure)? {
                return Ok(Some(failure));
            }
            by_chance.push(failure);
        }
    }

    /// Whether a test that has failed passes now.
    pub(crate) fn fails_by_chance(&self, test: &str) -> Result<bool, String> {
        Ok(self.run(&["--exact", test], true)?.failures.is_empty())
    }

    /// Runs the tests that these arguments choose, until the first one fails if nothing else is wanted.
    pub(crate) fn run(&self, tests: &[&str], first_only: bool) -> Result<Outcome, String> {
        // Servers that the tests start are in its group, and end with it.
        let mut child = Command::new(&self.path)
            .args(tests)
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .envs(self.variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("{}: {error}", self.path.display()))?;
        let output = child.stdout.take().expect("it is piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let begun = Instant::now();
        let mut outcome = Outcome::default();
        let mut has_result = false;
        loop {
            match lines.recv_timeout(Duration::from_secs(1)) {
                Ok(line) => {
                    has_result |= line.starts_with("test result: ");
                    let Some((test, result)) = line
                        .strip_prefix("test ")
                        .and_then(|line| line.split_once(" ... "))
                    else {
                        continue;
                    };
                    // libtest says so of a test that has to panic.
                    let test = test.trim_end_matches(" - should panic");
                    outcome.ended.insert(test.to_owned(), SystemTime::now());
                    if result == "FAILED" {
                        outcome.failures.push(test.to_owned());
                        if first_only {
                            break;
                        }
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    if self.is_late(&child, begun.elapsed()) {
                        outcome.failures.push(ALL_ITS_TIME.to_owned());
                        break;
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        if !outcome.failures.is_empty() {
            let group = format!("-{}", child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        }
        let status = child.wait().map_err(|error| error.to_string())?;
        if outcome.failures.is_empty() && !has_result {
            outcome.failures.push(format!("no result ({status})"));
        }
        Ok(outcome)
    }

    /// Whether a mutant runs in circles, or what its tests wait for does not come. A busy machine gives a program little time of a
    /// processor, so a circle is known by what it has had of it.
    fn is_late(&self, child: &Child, since_begin: Duration) -> bool {
        since_begin > Duration::from_secs(120) + 5 * self.takes
            || processor_time(child)
                .is_some_and(|time| time > Duration::from_secs(15) + 2 * self.takes)
    }
}

/// Returns what a program has used of processors, by Linux, which counts in hundredths of a second.
fn processor_time(child: &Child) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    // The name before may contain anything.
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let used = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Duration::from_millis(10 * (used(11)? + used(12)?)))
}
