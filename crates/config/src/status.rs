use std::fmt;
use std::time::SystemTime;

use super::digest::{Sha, hexadecimal};
use super::mistake::FileError;
use tower_ratelimit::middleware::Swap;

/// The configuration that a [`Watched`](super::Watched) layer has in force.
#[derive(Clone, Debug)]
pub struct Status {
    pub(super) version: u64,
    pub(super) sha256: Sha,
    pub(super) since: SystemTime,
    pub(super) error: Option<FileError>,
}

impl Status {
    /// Creates the status of the first version of a file.
    pub(super) fn first(sha256: Sha) -> Self {
        Self {
            version: 1,
            sha256,
            since: SystemTime::now(),
            error: None,
        }
    }

    /// Records the next version, which is in force from now on.
    pub(super) fn next(&mut self, sha256: Sha) {
        *self = Self {
            version: self.version + 1,
            ..Self::first(sha256)
        };
    }

    /// Returns the number of the configuration in force, counted from 1 at start-up.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the SHA-256 of the file in force, as 64 hexadecimal digits.
    pub fn sha256(&self) -> String {
        hexadecimal(&self.sha256)
    }

    /// Returns when it was put into force.
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// Returns why the newest file is not in force, or `None` if it is.
    pub fn error(&self) -> Option<&FileError> {
        self.error.as_ref()
    }

    /// Shows the status in the snapshots of a layer.
    pub(super) fn show_in(&self, swap: &Swap) {
        let error = self.error.as_ref().map(ToString::to_string);
        swap.show(self.version, self.sha256(), self.since, error);
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "version {}, sha256 {}", self.version, self.sha256())?;
        match &self.error {
            Some(error) => write!(f, "; the newest file is refused:\n{error}"),
            None => Ok(()),
        }
    }
}
