//! Processes that a test starts, commands and reads.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::thread;

use super::redis::signal;

/// A child process, which is killed on drop.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts a program. `hears` gets each line of its standard output, and `None` at the end.
    pub fn start(
        program: &str,
        arguments: &[String],
        mut hears: impl FnMut(Option<String>) + Send + 'static,
    ) -> Self {
        let mut process = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program is there");
        let told = process.stdout.take().expect("it is piped");
        thread::spawn(move || {
            for line in BufReader::new(told).lines().map_while(Result::ok) {
                hears(Some(line));
            }
            hears(None);
        });
        Self(process)
    }

    /// Writes a line to its standard input.
    pub fn order(&mut self, line: fmt::Arguments<'_>) {
        let orders = self.0.stdin.as_mut().expect("it still takes orders");
        writeln!(orders, "{line}").expect("it reads its orders");
    }

    /// Closes its standard input.
    pub fn end_orders(&mut self) {
        drop(self.0.stdin.take());
    }

    /// Sends it a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        signal(self.0.id(), name);
    }

    /// Kills it, and waits until it has gone.
    pub fn kill(&mut self) {
        self.signal("KILL");
        self.0.wait().expect("it is a child of this process");
    }

    /// Waits until it has ended by itself, and returns whether it succeeded.
    pub fn ends_well(&mut self) -> bool {
        let status = self.0.wait().expect("it is a child of this process");
        status.success()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
