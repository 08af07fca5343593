//! The result of a test that fails.

use std::error::Error;
use std::fmt::{self, Write};

use tower_ratelimit_core::error::{ConfigError, StoreError};

/// A law that a store breaks, and how the test saw it.
///
/// Its `Debug` form is the same text as `Display`, since `unwrap` shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Broken {
    law: &'static str,
    seen: String,
}

impl Broken {
    pub(super) fn new(law: &'static str, seen: impl fmt::Display) -> Self {
        Self {
            law,
            seen: seen.to_string(),
        }
    }

    pub(super) fn refused(law: &'static str, error: &ConfigError) -> Self {
        Self::new(law, format_args!("the store could not be opened: {error}"))
    }

    pub(super) fn failed(law: &'static str, error: &StoreError) -> Self {
        let mut seen = format!("the store answered with an error: {error}");
        let mut source = error.source();
        while let Some(cause) = source {
            // Writing to a `String` does not fail.
            let _ = write!(seen, ": {cause}");
            source = cause.source();
        }
        Self { law, seen }
    }

    /// Returns the law.
    pub fn law(&self) -> &str {
        self.law
    }

    /// Returns the question, the right answer, and the answer of the store.
    pub fn seen(&self) -> &str {
        &self.seen
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the store breaks the law that {}: {}",
            self.law, self.seen
        )
    }
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for Broken {}
