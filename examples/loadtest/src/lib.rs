//! A load tester that knows what a limit is.
//!
//! Other load testers take a 429 for a success or for a failure. This one checks the limiter: whether waits
//! and `remaining` are true, and whether it admits too many or too few requests. The guide of the crate has a
//! page on it, `docs/loadtest.md`.

pub mod aim;
pub mod drive;
pub mod exchange;
pub mod info;
pub mod judge;
pub mod options;
pub mod report;
