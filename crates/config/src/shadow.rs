//! A whole file in shadow: it decides beside the file in force, on state of its own.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::Config;
use super::bodies::Bodies;
use super::departed::Departed;
use super::digest::{Sha, digest, hexadecimal};
use super::following::Followed;
use super::mistake::FileError;
use super::reading::{ConfigBuilder, whole};
use super::status::Status;
use tower_ratelimit::__internal::Shadow;
use tower_ratelimit::__internal::warn_once_of;
use tower_ratelimit::diagnostics::Diagnostic;
use tower_ratelimit::middleware::Difference;
use tower_ratelimit::observe::ShadowStats;

const REFUSED: Diagnostic = Diagnostic::new(
    "TRL031",
    "",
    "the file of limits in shadow has a mistake, so that it decides nothing, or as it did before the change",
    "mend the file, which is read again when it changes, or leave `shadow` out; the limits in force are not concerned",
);

/// The file that another one names in `shadow`.
#[derive(Debug)]
pub(super) struct ShadowFile {
    path: PathBuf,
    builder: ConfigBuilder,
    shadow: Arc<Shadow>,
    latest: Mutex<LatestFile>,
    reading: Mutex<()>,
}

#[derive(Debug, Default)]
struct LatestFile {
    /// The configuration that decides, if a file was ever valid.
    config: Option<Config>,
    status: Option<Status>,
    error: Option<FileError>,
    /// The file that was rejected last.
    refused: Option<Sha>,
    departed: Departed,
}

/// The decisions of a file in shadow beside the file in force; see [`Config::shadow`].
#[derive(Clone, Debug)]
pub struct ShadowStatus {
    path: PathBuf,
    status: Option<Status>,
    error: Option<FileError>,
    stats: ShadowStats,
    differences: Vec<Difference>,
}

impl Config {
    /// Adds the file in shadow that the configuration names. If `before` has the same file, that continues.
    pub(super) fn beside(
        mut self,
        builder: &ConfigBuilder,
        path: &Path,
        before: Option<&Arc<ShadowFile>>,
    ) -> Result<Self, FileError> {
        let Some(name) = &self.settings.shadow else {
            return Ok(self);
        };
        let named = path.with_file_name("").join(name);
        if named == path {
            let message = "shadow: it names the file itself; name the file that is tried beside it";
            return Err(whole(&path.display().to_string(), message.to_owned()));
        }
        self.shadow = match before.filter(|before| before.path == named) {
            Some(before) => Some(Arc::clone(before)),
            None => Some(ShadowFile::open(named, builder.clone())),
        };
        Ok(self)
    }

    /// Returns the decisions of the file in shadow beside this one, or `None` if this file names none.
    ///
    /// ```no_run
    /// use tower_ratelimit_config::Config;
    ///
    /// let watched = Config::read("limits.toml")?.watch()?;
    /// if let Some(shadow) = watched.shadow() {
    ///     println!("{shadow}");
    ///     for difference in shadow.differences() {
    ///         println!("{difference}");
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shadow(&self) -> Option<ShadowStatus> {
        self.shadow.as_ref().map(|file| file.status())
    }
}

impl ShadowFile {
    /// Reads the file. If it has a mistake, it decides nothing until it is corrected.
    fn open(path: PathBuf, builder: ConfigBuilder) -> Arc<Self> {
        let file = Self {
            path,
            builder,
            shadow: Arc::default(),
            latest: Mutex::default(),
            reading: Mutex::default(),
        };
        file.read_again();
        Arc::new(file)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what this file reads of bodies, if it reads anything.
    pub(super) fn bodies(&self) -> Option<Bodies> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let bodies = &latest.config.as_ref()?.settings.bodies;
        (!bodies.are_none()).then(|| bodies.clone())
    }

    /// Returns the shadow that decides by this file.
    pub(super) fn shadow(&self) -> Arc<Shadow> {
        Arc::clone(&self.shadow)
    }

    pub(super) fn status(&self) -> ShadowStatus {
        let latest = self.latest();
        ShadowStatus {
            path: self.path.clone(),
            status: latest.status.clone(),
            error: latest.error.clone(),
            stats: self.shadow.stats(),
            differences: self.shadow.differences(),
        }
    }

    fn latest(&self) -> MutexGuard<'_, LatestFile> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Followed for ShadowFile {
    fn digest(&self) -> Option<Sha> {
        let text = self.builder.text_again(&self.path).ok()?;
        Some(digest(&text))
    }

    fn is_new(&self, sha256: &Sha) -> bool {
        let latest = self.latest();
        match &latest.status {
            // The file was bad or missing meanwhile.
            Some(status) if status.sha256 == *sha256 => latest.error.is_some(),
            _ => latest.refused != Some(*sha256),
        }
    }

    fn read_again(&self) {
        // One at a time: the last to begin has the newest file.
        let _one = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let builder = match &self.latest().config {
            Some(before) => self.builder.clone().hashing_as(before),
            None => self.builder.clone(),
        };
        let (sha256, read) = builder.read_with_digest(&self.path, builder.text_again(&self.path));
        let mut latest = self.latest();
        let next = read.map(|next| match &latest.config {
            // Units that were used under a limit stay used.
            Some(before) => next.over_the_store_of(before),
            None => next.over_a_store_of_its_own(),
        });
        let built = next.and_then(|next| match next.live_layer() {
            Ok(layer) => Ok((next, layer)),
            Err(error) => Err(next.refused(&error)),
        });
        match built {
            Ok((next, layer)) => {
                latest.refused = None;
                latest.error = None;
                if let Some(sha256) = sha256 {
                    let before = layer.put_into(&self.shadow);
                    if let (Some(before), Some(config)) = (before, latest.config.take()) {
                        let (was, is) = (&config.settings.states, &next.settings.states);
                        latest.departed.leave(was, is, &before, Instant::now());
                    }
                    match &mut latest.status {
                        Some(status) if status.sha256 == sha256 => {}
                        Some(status) => status.next(sha256),
                        none => *none = Some(Status::first(sha256)),
                    }
                    latest.config = Some(next);
                }
            }
            Err(error) => {
                if let Some(sha256) = sha256
                    && latest.refused != Some(sha256)
                {
                    warn_once_of(&REFUSED, format!("{}: {error}", hexadecimal(&sha256[..4])));
                }
                latest.refused = sha256;
                latest.error = Some(error);
            }
        }
        let error = latest.error.as_ref().map(ToString::to_string);
        self.shadow.set_error(error);
    }
}

impl ShadowStatus {
    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the version of the file that decides, or `None` until it is valid for the first time.
    pub fn status(&self) -> Option<&Status> {
        self.status.as_ref()
    }

    /// Returns why the newest file does not decide, or `None` if it does.
    pub fn error(&self) -> Option<&FileError> {
        self.error.as_ref()
    }

    /// Returns how many requests both files have decided.
    pub fn compared(&self) -> u64 {
        self.stats.compared
    }

    /// Returns how many of them were allowed, and would be refused by the file in shadow.
    pub fn would_refuse(&self) -> u64 {
        self.stats.would_refuse
    }

    /// Returns how many of them were refused, and would be allowed by the file in shadow.
    pub fn would_allow(&self) -> u64 {
        self.stats.would_allow
    }

    /// Returns the last hundred differences at most, the oldest first. Under contention a difference may only
    /// be counted.
    pub fn differences(&self) -> &[Difference] {
        &self.differences
    }
}

/// Writes one line, and below it the error if the newest file does not decide.
impl fmt::Display for ShadowStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: of {} requests it would refuse {} that were allowed, and allow {} that were refused",
            self.path.display(),
            self.compared(),
            self.would_refuse(),
            self.would_allow(),
        )?;
        match &self.error {
            Some(error) => write!(f, "; the newest file is refused:\n{error}"),
            None => Ok(()),
        }
    }
}
