use std::path::PathBuf;

use clap::ValueEnum;

use super::print;
use crate::{BoxError, ratelimit};

/// Print a file of limits that decides as the files of another program
#[derive(Debug, clap::Args)]
pub(super) struct Import {
    /// The program: ratelimit, for envoyproxy/ratelimit
    #[arg(hide_possible_values = true)]
    from: Program,
    /// The directory of its files
    directory: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Program {
    Ratelimit,
}

impl Import {
    pub(super) fn run(self) -> Result<(), BoxError> {
        let imported = match self.from {
            Program::Ratelimit => ratelimit::import(&self.directory)?,
        };
        for warning in &imported.warnings {
            eprintln!("warning: {warning}");
        }
        print(&imported.file)
    }
}
