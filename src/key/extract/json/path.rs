use std::fmt;

use crate::error::ConfigError;

/// The longest path, and the longest name on it in bytes.
const DEEPEST: usize = 8;
const LONGEST_NAME: usize = 64;

/// A path in a JSON document: the names of the members on the way.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct JsonPath(Box<[Box<str>]>);

impl JsonPath {
    pub(super) fn parse(path: &str) -> Result<Self, ConfigError> {
        let names: Box<[Box<str>]> = path.split('.').map(Box::from).collect();
        let mut lengths = names.iter().map(|name| name.len());
        if names.len() > DEEPEST || !lengths.all(|length| (1..=LONGEST_NAME).contains(&length)) {
            let remedy = "give the names of members with dots between them, such as `params.name`: at most eight, each of 1 to \
                          64 bytes";
            return Err(ConfigError::quoting("json", path, remedy));
        }
        Ok(Self(names))
    }

    /// Returns the name at this level.
    pub(super) fn name(&self, level: usize) -> Option<&str> {
        self.0.get(level).map(AsRef::as_ref)
    }

    pub(super) fn len(&self) -> usize {
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
