//! A program of tests, with a changed text in it.

use std::fs;

use memchr::memmem;

use crate::program::Program;

pub(super) struct Host {
    pub(super) program: Program,
    bytes: Vec<u8>,
}

impl Host {
    /// Reads the line that `tests/run` has for a program.
    pub(super) fn read(line: &str) -> Result<Self, String> {
        let program = Program::read(line)?;
        let bytes = fs::read(&program.path);
        let bytes = bytes.map_err(|error| format!("{}: {error}", program.path.display()))?;
        Ok(Self { program, bytes })
    }

    /// Whether the program contains this text.
    pub(super) fn has(&self, text: &str) -> bool {
        memmem::find(&self.bytes, text.as_bytes()).is_some()
    }

    /// Runs the tests whose names contain one of these, with another text of the same length in place of this one, and returns the
    /// first that fails.
    pub(super) fn first_failure(
        &self,
        text: &str,
        changed: &str,
        tests: &[&str],
    ) -> Result<Option<String>, String> {
        assert_eq!(text.len(), changed.len(), "the text would not fit");
        let mut bytes = self.bytes.clone();
        let places: Vec<_> = memmem::find_iter(&self.bytes, text.as_bytes()).collect();
        for place in places {
            bytes[place..place + text.len()].copy_from_slice(changed.as_bytes());
        }
        let path = self.program.path.with_extension("mutant");
        let written = fs::copy(&self.program.path, &path).and_then(|_| fs::write(&path, bytes));
        written.map_err(|error| format!("{}: {error}", path.display()))?;
        let program = Program {
            path: path.clone(),
            ..self.program.clone()
        };
        let failure = program.first_failure(tests);
        fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        failure
    }
}
