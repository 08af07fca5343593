//! All files of a directory and the tables of the file of limits, which are in force together.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tower_ratelimit_config::__internal::{Notes, SourceText};
use tower_ratelimit_config::{DescriptorLimit, FileError};

use super::domain::Domain;
use super::file::{self, LARGEST};
use super::limiters::Opening;
use super::statistics::Statistics;
use super::tables;
use crate::limits::Limits;

/// The most files, and the most limits in all of them and in the tables.
const MOST_FILES: usize = 1_000;
const MOST_LIMITS: usize = 20_000;

/// Where limits of descriptors stand.
#[derive(Debug)]
pub(super) struct Sources {
    /// The files of `envoyproxy/ratelimit`.
    pub(super) directory: Option<PathBuf>,
    /// The file of limits, with its tables `envoy`.
    pub(super) limits: Option<Limits>,
}

impl Sources {
    /// Reads the files of the directory, and takes the tables that are in force.
    pub(super) fn read(&self) -> Result<Texts, Mistakes> {
        let texts = match &self.directory {
            Some(directory) => Texts::read(directory)?,
            None => Texts::default(),
        };
        Ok(match &self.limits {
            Some(limits) => texts.beside(limits.config().descriptors()),
            None => texts,
        })
    }
}

/// The texts of all files, by their paths, and the tables of the file of limits.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts {
    files: BTreeMap<PathBuf, String>,
    tables: Option<Arc<[DescriptorLimit]>>,
}

/// Tables that were read again may differ.
impl PartialEq for Texts {
    fn eq(&self, other: &Self) -> bool {
        let are_same = match (&self.tables, &other.tables) {
            (Some(tables), Some(others)) => Arc::ptr_eq(tables, others),
            (tables, others) => tables.is_none() == others.is_none(),
        };
        are_same && self.files == other.files
    }
}

/// The domains of all files.
#[derive(Debug)]
pub(super) struct Domains(HashMap<String, Domain>);

/// What is wrong with the files of a directory.
#[derive(Clone, PartialEq, Eq)]
pub struct Mistakes(Arc<[String]>);

impl Texts {
    /// Reads the files of a directory. Hidden ones are left out: Kubernetes keeps older versions in them.
    pub(super) fn read(directory: &Path) -> Result<Self, Mistakes> {
        let wrong = |path: &Path, error: &dyn fmt::Display| {
            Mistakes::of(format!("{}: {error}", path.display()))
        };
        let entries = fs::read_dir(directory).map_err(|error| wrong(directory, &error))?;
        let mut texts = BTreeMap::new();
        for entry in entries {
            let path = entry.map_err(|error| wrong(directory, &error))?.path();
            let is_yaml = path
                .extension()
                .is_some_and(|it| it == "yaml" || it == "yml");
            let is_hidden = path
                .file_name()
                .is_some_and(|it| it.as_encoded_bytes().starts_with(b"."));
            // A pipe would have no end.
            if !is_yaml || is_hidden || !path.is_file() {
                continue;
            }
            if texts.len() == MOST_FILES {
                let message = format!("there are more than {MOST_FILES} files; join some of them");
                return Err(wrong(directory, &message));
            }
            let text = read(&path).map_err(|error| wrong(&path, &error))?;
            texts.insert(path, text);
        }
        if texts.is_empty() {
            let message = "it has no file whose name ends in .yaml; put one there";
            return Err(wrong(directory, &message));
        }
        Ok(Self {
            files: texts,
            tables: None,
        })
    }

    pub(super) fn beside(self, tables: Arc<[DescriptorLimit]>) -> Self {
        Self {
            tables: Some(tables),
            ..self
        }
    }

    /// Returns the limits of each domain.
    pub(super) fn domains(&self, statistics: &Statistics) -> Result<Vec<file::Domain>, Mistakes> {
        let mut mistakes = Vec::new();
        let mut domains = tables::domains(self.tables.as_deref().unwrap_or_default(), statistics);
        for (path, text) in &self.files {
            let file = path.display().to_string();
            let mut wrong = |error: FileError| mistakes.push(error.to_string());
            match file::read(&file, text, statistics) {
                Err(error) => wrong(error),
                Ok(domain) if domains.iter().any(|other| other.name == domain.name) => {
                    let message = format!(
                        "duplicate domain '{}' in config file; write all of its descriptors into one file",
                        domain.name,
                    );
                    let mut notes = Notes::default();
                    notes.add(Some(&domain.span), "domain", message);
                    let source = SourceText::without_secrets(&file, text);
                    wrong(FileError::of(notes, &source));
                }
                Ok(domain) => domains.push(domain),
            }
        }
        let mut limits = 0;
        for domain in &domains {
            domain.top.each(&mut |_| limits += 1);
        }
        if limits > MOST_LIMITS {
            mistakes.push(format!(
                "there are {limits} limits; leave {MOST_LIMITS}, by descriptors without a value"
            ));
        }
        if mistakes.is_empty() {
            Ok(domains)
        } else {
            Err(Mistakes(mistakes.into()))
        }
    }
}

fn read(path: &Path) -> Result<String, String> {
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    let most = LARGEST as u64 + 1;
    file.take(most)
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    if text.len() > LARGEST {
        return Err(format!(
            "it has more than {LARGEST} bytes; divide its domains into several files"
        ));
    }
    Ok(text)
}

impl Domains {
    pub(super) fn open(
        texts: &Texts,
        opening: Opening<'_>,
        statistics: &Statistics,
        before: Option<&Self>,
    ) -> Result<Self, Mistakes> {
        let domains = texts.domains(statistics)?.into_iter().map(|file| {
            let name = file.name.clone();
            let before = before.and_then(|before| before.get(&name));
            let periods = before.map_or_else(Vec::new, |domain| domain.limiters().periods());
            let opened = Domain::open(file, opening, &periods);
            let opened = opened.map_err(|error| Mistakes::of(format!("domain {name:?}: {error}")));
            Ok((name, opened?))
        });
        domains.collect::<Result<_, _>>().map(Self)
    }

    /// Follows the number of nodes that share the store.
    pub(super) fn follow_nodes(&self) {
        for domain in self.0.values() {
            let limiters = domain.limiters();
            if let Some(standby) = &limiters.standby {
                standby.follow(&limiters.limiter);
            }
        }
    }

    /// Returns one of the domains, all of which count in one store.
    pub(super) fn any(&self) -> Option<&Domain> {
        self.0.values().next()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Domain> {
        self.0.get(name)
    }
}

/// Names the domains.
impl fmt::Display for Domains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<&str> = self.0.keys().map(String::as_str).collect();
        names.sort_unstable();
        f.write_str(&names.join(", "))
    }
}

impl Mistakes {
    pub(super) fn of(message: String) -> Self {
        Self([message].into())
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl fmt::Debug for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Mistakes {}
