//! The files that a file of limits names for values. They are followed with it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::digest::{Sha, digest, hexadecimal};

/// A longer file is no secret.
const LONGEST: u64 = 64 * 1024;

/// What these files have, or why they cannot be read. Each is read once: it may change at any moment.
#[derive(Default)]
pub(super) struct Contents(BTreeMap<PathBuf, Result<String, String>>);

impl Contents {
    pub(super) fn of(&mut self, path: PathBuf) -> Result<String, String> {
        let known = self.0.entry(path);
        known.or_insert_with_key(|path| read(path)).clone()
    }

    /// Returns the files, and a digest of what each has.
    pub(super) fn files(&self) -> SecretFiles {
        let files = self.0.iter();
        SecretFiles(
            files
                .map(|(path, content)| (path.clone(), digest_of(content)))
                .collect(),
        )
    }
}

/// The files, with a digest of what each had.
#[derive(Clone, Default)]
pub(super) struct SecretFiles(Box<[(PathBuf, Sha)]>);

impl SecretFiles {
    /// Returns one digest of a file of limits, which has this one, and of what these files had.
    pub(super) fn known_beside(&self, limits: Sha) -> Sha {
        self.beside(limits, |(_, known)| *known)
    }

    /// Returns one digest of a file of limits, which has this one, and of what these files have now. It blocks.
    pub(super) fn now_beside(&self, limits: Sha) -> Sha {
        self.beside(limits, |(path, _)| digest_now(path))
    }

    fn beside(&self, limits: Sha, of_a_file: impl Fn(&(PathBuf, Sha)) -> Sha) -> Sha {
        self.0.iter().fold(limits, |all, file| {
            let both = [all, of_a_file(file)].concat();
            digest(&hexadecimal(&both))
        })
    }
}

/// Reads a secret from a file, whose last line break is not a part of it.
fn read(path: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| {
        format!("this file cannot be read: {error}; name one that this process may read")
    };
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err("this is no file; name one that has the secret alone".to_owned());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    let read = file.take(LONGEST + 1).read_to_end(&mut bytes);
    if read.map_err(unreadable)? as u64 > LONGEST {
        return Err(format!(
            "this file has more than {LONGEST} bytes; name one that has the secret alone"
        ));
    }
    let mut text = String::from_utf8(bytes)
        .map_err(|_| "this file is not text in UTF-8; write the secret as text".to_owned())?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

fn digest_now(path: &Path) -> Sha {
    digest_of(&read(path))
}

fn digest_of(content: &Result<String, String>) -> Sha {
    digest(&format!("{content:?}"))
}

/// Leaves out the paths, in whose place a secret may stand.
impl fmt::Debug for SecretFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretFiles").finish_non_exhaustive()
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contents").finish_non_exhaustive()
    }
}
