use std::fmt;

use crate::error::ConfigError;

/// The most names on a path, and the longest of them in bytes.
const DEEPEST: usize = 8;
pub(crate) const LONGEST_NAME: usize = 64;

/// A path of a request's body, for the remedy of one that is wrong.
pub(super) const EXAMPLE: &str = "params.name";

/// A path in a JSON document: the names of the members on the way.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct JsonPath(Box<[Box<str>]>);

impl JsonPath {
    /// Reads the names of a path that a user has written. The remedy of a mistake shows this example.
    pub(crate) fn parse(path: &str, example: &str) -> Result<Self, ConfigError> {
        let parsed = Self::known(path);
        let mut lengths = parsed.0.iter().map(|name| name.len());
        let is_deep = parsed.len() > DEEPEST;
        if is_deep || !lengths.all(|length| (1..=LONGEST_NAME).contains(&length)) {
            let remedy = format!(
                "give the names of members with dots between them, such as `{example}`: at most eight, each of 1 to 64 bytes"
            );
            return Err(ConfigError::quoting("json", path, remedy));
        }
        Ok(parsed)
    }

    /// Reads the names of a path that is right.
    pub(crate) fn known(path: &str) -> Self {
        Self(path.split('.').map(Box::from).collect())
    }

    /// Returns the name at this level.
    pub(crate) fn name(&self, level: usize) -> Option<&str> {
        self.0.get(level).map(AsRef::as_ref)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(AsRef::as_ref)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the path is written so.
    pub(super) fn is(&self, path: &str) -> bool {
        self.0.iter().map(AsRef::as_ref).eq(path.split('.'))
    }
}

impl fmt::Debug for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.join("."))
    }
}
