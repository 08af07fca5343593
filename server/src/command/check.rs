use std::path::{Path, PathBuf};

use tower_ratelimit_config::Config;

use super::print;
use crate::{BoxError, ratelimit};

/// Print all mistakes of a file of limits and of its file in shadow, or what it means; or those of a directory of descriptors
#[derive(Debug, clap::Args)]
pub(super) struct Check {
    /// The file, in TOML, or in JSON if its name ends in .json; or the directory of --ratelimit-config
    file: PathBuf,
}

impl Check {
    pub(super) fn run(self) -> Result<(), BoxError> {
        if self.file.is_dir() {
            return print(&ratelimit::understood(&self.file)?);
        }
        print(&read(&self.file)?.understood().to_string())
    }
}

/// Reads a file and the file that it names in shadow, and prints the warnings about it.
pub(super) fn read(file: &Path) -> Result<Config, BoxError> {
    let config = Config::read(file)?;
    for warning in config.warnings() {
        eprintln!("warning: {warning}");
    }
    if let Some(shadow) = config.shadow()
        && let Some(error) = shadow.error()
    {
        return Err(format!("the file in shadow:\n{error}").into());
    }
    Ok(config)
}
