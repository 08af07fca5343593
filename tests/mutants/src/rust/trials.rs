//! Runs of cargo-mutants in a copy of the workspace.

use std::collections::HashSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use super::{Mutant, Tests, UNVIABLE};

pub(crate) struct Trials {
    cargo_mutants: PathBuf,
    /// The copy, whose files a mutant changes.
    workspace: PathBuf,
    target: PathBuf,
    /// What passes on the code as it is.
    pass: HashSet<Tests>,
}

impl Trials {
    pub(crate) fn new(cargo_mutants: &str, workspace: &str, target: &str) -> Self {
        Self {
            cargo_mutants: cargo_mutants.into(),
            workspace: workspace.into(),
            target: target.into(),
            pass: HashSet::new(),
        }
    }

    /// Returns the names of all mutants of the libraries.
    pub(super) fn list(&self) -> Result<Vec<String>, Box<dyn Error>> {
        let mut command = self.command(&self.cargo_mutants);
        command
            .args(["mutants", "--list", "--workspace", "--no-config"])
            .args(["--file=src/**/*.rs", "--file=crates/*/src/**/*.rs"]);
        let output = command.stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(format!("cargo-mutants lists nothing ({})", output.status).into());
        }
        let names = String::from_utf8(output.stdout)?;
        Ok(names.lines().map(str::to_owned).collect())
    }

    pub(super) fn text_of(&self, mutant: &Mutant) -> io::Result<String> {
        fs::read_to_string(self.workspace.join(&mutant.file))
    }

    /// Returns the first of these tests that fails, or what else became of this mutant, unless all pass.
    pub(super) fn noticed_by(
        &mut self,
        mutant: &Mutant,
        tests: Tests,
    ) -> Result<Option<String>, Box<dyn Error>> {
        self.look_whether_it_passes(tests)?;
        let (package, options) = tests;
        let out = self.target.join("trial");
        let mut command = self.command(&self.cargo_mutants);
        command
            .args(["mutants", "--in-place", "--no-config"])
            .args(["--baseline=skip", "--timeout=600", "--build-timeout=3600"])
            // The other packages take as long to read as a mutant takes to compile.
            .arg(format!("--package={}", mutant.package()))
            .arg(format!("--file={}", mutant.file.display()))
            // `--re` does not concern all kinds of mutants.
            .arg(format!("--shard={}/{}", mutant.index, mutant.of))
            .arg(format!("--output={}", out.display()))
            .arg(format!("--test-package={package}"))
            .args(options.iter().map(|option| format!("--cargo-arg={option}")));
        let output = command.output()?;
        let is_in = |list: &str| {
            let path = out.join("mutants.out").join(list);
            fs::read_to_string(path).is_ok_and(|names| names.contains(&mutant.name))
        };
        if is_in("unviable.txt") {
            Ok(Some(UNVIABLE.to_owned()))
        } else if is_in("timeout.txt") {
            Ok(Some(format!("{package}, all of its time")))
        } else if is_in("caught.txt") {
            let test = first_failure(&out.join("mutants.out/log"))?;
            Ok(Some(format!("{package}, {test}")))
        } else if is_in("missed.txt") {
            Ok(None)
        } else {
            let said = String::from_utf8_lossy(&output.stderr);
            let status = output.status;
            Err(format!("{}: not tried ({status}): {said}", mutant.name).into())
        }
    }

    /// A test that fails without a mutant would catch all of them.
    fn look_whether_it_passes(&mut self, tests: Tests) -> Result<(), Box<dyn Error>> {
        if self.pass.contains(&tests) {
            return Ok(());
        }
        let (package, options) = tests;
        let mut command = self.command(Path::new("cargo"));
        command
            .args(["test", "--quiet", "--package", package])
            .args(options);
        let output = command.output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{package} fails without a mutant: {said}\n{errors}").into());
        }
        self.pass.insert(tests);
        Ok(())
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.workspace)
            .env("CARGO_TARGET_DIR", self.target.join("target"))
            .stdin(Stdio::null());
        command
    }
}

fn first_failure(logs: &Path) -> io::Result<String> {
    for log in fs::read_dir(logs)? {
        let log = fs::read(log?.path())?;
        let failed = String::from_utf8_lossy(&log).lines().find_map(|line| {
            let test = line.strip_prefix("test ")?;
            test.strip_suffix(" ... FAILED").map(str::to_owned)
        });
        if let Some(test) = failed {
            return Ok(test);
        }
    }
    Ok("no result".to_owned())
}
