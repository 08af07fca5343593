//! A server that is measured in a process of its own.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::Failure;

/// A process that ends with the program.
pub(crate) struct Process {
    child: Child,
    /// The process would end if nobody could read what it prints.
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a server, and returns what it prints after this word.
    pub(crate) fn start(command: &mut Command, word: &str) -> Result<(Self, String), Failure> {
        let mut process = Self::spawn(command)?;
        loop {
            let line = process.output.next().ok_or("the server has ended")??;
            if let Some(rest) = line.strip_prefix(word) {
                return Ok((process, rest.to_owned()));
            }
        }
    }

    pub(crate) fn spawn(command: &mut Command) -> Result<Self, Failure> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or("it has no output")?;
        Ok(Self {
            child,
            output: BufReader::new(output).lines(),
        })
    }

    /// Returns the memory that it has, in bytes.
    pub(crate) fn memory(&self) -> Result<u64, Failure> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next());
        Ok(kilobytes.ok_or("no memory")?.parse::<u64>()? * 1024)
    }

    /// Returns the processor time that it has had.
    pub(crate) fn cpu(&self) -> Result<Duration, Failure> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, fields) = text.rsplit_once(')').ok_or("no name")?;
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.map(str::parse::<u64>).sum::<Result<_, _>>()?;
        // A hundred in a second, whatever the kernel's own are.
        Ok(Duration::from_millis(10 * ticks))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the command of the server that was built beside this program.
pub(crate) fn ratelimitd(file: &Path) -> Result<Command, Failure> {
    let own = env::current_exe()?;
    let programs = own.parent().and_then(Path::parent);
    let mut command = Command::new(programs.ok_or("it has no folder")?.join("ratelimitd"));
    command.arg("serve").arg(file).args(["--ops", "none"]);
    Ok(command)
}
