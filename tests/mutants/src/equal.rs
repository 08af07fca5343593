//! Mutants that no test can notice.

use std::error::Error;
use std::fs;
use std::path::Path;

/// Mutants that decide as the original does, each with the reason why.
pub(crate) struct Equal(Vec<[String; 3]>);

impl Equal {
    /// Reads a file of lines `FILE | MUTANT | REASON`.
    pub(crate) fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        let text = fs::read_to_string(path)?;
        let lines = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let parts = lines.map(|line| {
            // A mutant may have the operator `|`.
            let parts = line
                .split_once(" | ")
                .and_then(|(file, rest)| Some((file, rest.rsplit_once(" | ")?)));
            let (file, (mutant, reason)) =
                parts.ok_or_else(|| format!("no file, mutant and reason: {line}"))?;
            Ok::<_, String>([file, mutant, reason].map(str::to_owned))
        });
        Ok(Self(parts.collect::<Result<_, _>>()?))
    }

    pub(crate) fn reason(&self, file: &Path, mutant: &str) -> Option<&str> {
        let line = self
            .0
            .iter()
            .find(|[of, what, _]| Path::new(of) == file && what == mutant)?;
        Some(&line[2])
    }
}
