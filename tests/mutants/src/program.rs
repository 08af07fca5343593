//! A program of tests, run until its first test fails.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) path: PathBuf,
    pub(crate) variable: Option<(&'static str, String)>,
    /// A mutant may run in circles, and all that waits for it then fails by its deadline, or never.
    pub(crate) longest: Duration,
}

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
            variable: None,
            longest: Duration::from_secs(900),
        })
    }

    /// Runs the tests that these arguments choose, and returns the first that fails, and fails again: on a busy machine a test may
    /// fail for want of time.
    pub(crate) fn first_failure(&self, tests: &[&str]) -> Result<Option<String>, String> {
        for _ in 0..3 {
            let failed = self.run(tests)?;
            let Some(test) = failed.as_deref().filter(|test| !test.contains(' ')) else {
                return Ok(failed);
            };
            if self.run(&["--exact", test])?.is_some() {
                return Ok(failed);
            }
        }
        Err(format!(
            "a test of {} fails by chance: {}",
            self.name,
            tests.join(" or ")
        ))
    }

    fn run(&self, tests: &[&str]) -> Result<Option<String>, String> {
        // Servers that the tests start are in its group, and end with it.
        let mut child = Command::new(&self.path)
            .args(tests)
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .envs(self.variable.clone())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("{}: {error}", self.path.display()))?;
        let output = child.stdout.take().expect("it is piped");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let end = Instant::now() + self.longest;
        let mut ended = None;
        let failed = loop {
            match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) if line.ends_with("... FAILED") => {
                    let line = line.trim_start_matches("test ");
                    break Some(line.trim_end_matches(" ... FAILED").to_owned());
                }
                Ok(line) => {
                    if line.starts_with("test result: ok") {
                        ended = Some(line);
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => break Some("all of its time".to_owned()),
                Err(mpsc::RecvTimeoutError::Disconnected) => break None,
            }
        };
        if failed.is_some() {
            let group = format!("-{}", child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        }
        let status = child.wait().map_err(|error| error.to_string())?;
        match (&failed, ended) {
            (None, None) => Ok(Some(format!("no result ({status})"))),
            (None, Some(line)) if line.contains(" 0 passed") => Err(format!(
                "{} has no test that is named {}",
                self.name,
                tests.join(" or ")
            )),
            _ => Ok(failed),
        }
    }
}
