#![doc = include_str!("../README.md")]

/// The guide: loads, checks and findings.
#[doc = include_str!("../docs/load-tests.md")]
pub mod guide {}

pub mod aim;
pub mod drive;
pub mod exchange;
pub mod info;
pub mod judge;
pub mod options;
pub mod report;
