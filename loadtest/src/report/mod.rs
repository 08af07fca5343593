//! The results of a run, for people and for programs.

mod json;
mod numbers;
mod picture;
mod text;

use crate::drive::Outcome;
use crate::options::Options;

pub use self::json::VERSION;

/// The report of a run.
#[derive(Debug)]
pub struct Report<'a> {
    options: &'a Options,
    outcome: &'a Outcome,
}

impl<'a> Report<'a> {
    /// Creates the report of this outcome.
    pub fn new(options: &'a Options, outcome: &'a Outcome) -> Self {
        Self { options, outcome }
    }
}
