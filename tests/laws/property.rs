use std::env;

use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseResult, TestRunner};

/// The number of cases for each property, unless `PROPTEST_CASES` sets another.
const CASES: u32 = 10_000;

/// The file with the seeds of failures; it is checked in, and its cases run first.
macro_rules! seeds {
    ($name:ident) => {
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/proptest-regressions/",
            stringify!($name),
            ".txt"
        )
    };
}
pub(crate) use seeds;

/// Tests a law with many cases. The law is behind a pointer, so that proptest is compiled once for each kind of case,
/// and not for each of some hundred tests.
pub(crate) fn check<S: Strategy>(
    seeds: &'static str,
    cases: S,
    law: &dyn Fn(&S::Value) -> TestCaseResult,
) {
    check_at(seeds, 1, cases, law);
}

/// The same with fewer cases, each of which costs as much as several others.
pub(crate) fn check_at<S: Strategy>(
    seeds: &'static str,
    price: u32,
    cases: S,
    law: &dyn Fn(&S::Value) -> TestCaseResult,
) {
    let mut config = Config {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(seeds))),
        ..Config::default()
    };
    if env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    config.cases = config.cases.div_ceil(price);
    let result = TestRunner::new(config).run(&cases, |case| law(&case));
    if let Err(failure) = result {
        panic!("{failure}");
    }
}
