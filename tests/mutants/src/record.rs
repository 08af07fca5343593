//! What became of each mutant, in a file that grows by a line for each, so that a run goes on where the last one stopped.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::io::{self, Write as _};
use std::path::Path;

/// What stands in place of a test if none noticed a mutant.
pub(crate) const SURVIVED: &str = "SURVIVED";

pub(crate) struct Record {
    results: HashMap<u64, String>,
    file: File,
}

/// A number of what this is, the same in each run.
pub(crate) fn number_of(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

impl Record {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = File::options().create(true).append(true).open(path)?;
        let lines = fs::read_to_string(path)?;
        let results = lines.lines().filter_map(|line| {
            let mut parts = line.split('\t');
            let number = u64::from_str_radix(parts.next()?, 16).ok()?;
            Some((number, parts.next()?.to_owned()))
        });
        Ok(Self {
            results: results.collect(),
            file,
        })
    }

    /// Returns the test that noticed this mutant, or [`SURVIVED`], if it has been tried.
    pub(crate) fn result(&self, number: u64) -> Option<&str> {
        self.results.get(&number).map(String::as_str)
    }

    /// Notes the result, prints it, and writes down of what it is, for who reads the file.
    pub(crate) fn note(
        &mut self,
        number: u64,
        what: impl fmt::Display,
        result: &str,
    ) -> io::Result<()> {
        println!("{what}: {result}");
        writeln!(self.file, "{number:016x}\t{result}\t{what}")?;
        self.results.insert(number, result.to_owned());
        Ok(())
    }
}
