//! What stands in the place of the usage in a program without feature `usage`: the same names, of which there are no values. So
//! the compiler leaves out the code that reads bodies.

use std::convert::Infallible;

use bytes::Buf;
use http::{Extensions, HeaderMap};

/// What the body of a response says that it has used. The program reads none: it is built without feature `usage`.
#[derive(Clone, Debug)]
pub(crate) struct Usage(Infallible);

/// Reads one answer.
pub(crate) struct UsageReader(Infallible);

impl Usage {
    pub(crate) fn is_priced(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn guess(&self, _: Option<&str>, _: u64, _: u64) -> u32 {
        match self.0 {}
    }
}

impl UsageReader {
    pub(crate) fn new(usage: &Usage, _: &HeaderMap) -> Self {
        match usage.0 {}
    }

    pub(crate) fn read(&mut self, _: &impl Buf) {
        match self.0 {}
    }

    pub(crate) fn units(&self, _: Option<&str>) -> Option<u32> {
        match self.0 {}
    }
}

/// Returns the model that a request asks for.
pub(crate) fn requested_model(_: &Extensions, _: &str) -> Option<Box<str>> {
    None
}
