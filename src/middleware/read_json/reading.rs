use std::fmt;
use std::sync::Arc;

use crate::key::{Head, WantedFields};

/// What is read of which requests.
#[derive(Clone)]
pub(super) struct Reading {
    pub(super) wanted: Arc<WantedFields>,
    pub(super) max_bytes: usize,
    pub(super) read_if: Option<Arc<ReadIf>>,
}

/// What is read of each request: always the same, or what a closure says.
#[derive(Clone)]
pub(super) enum Readings {
    Own(Reading),
    Following(Arc<dyn Fn() -> Reading + Send + Sync>),
}

pub(super) type ReadIf = dyn Fn(&Head<'_>) -> Option<Unreadable> + Send + Sync;

/// What happens to a request whose body cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreadable {
    /// It is refused, by [`Refusal::Unread`](crate::response::Refusal::Unread).
    Refuse,
    /// It goes on without the fields: it has no key, its operation is one of the others, and estimates are made of its length.
    Pass,
}

impl Readings {
    /// Returns what is read of the next request.
    pub(super) fn now(&self) -> Reading {
        match self {
            Self::Own(reading) => reading.clone(),
            Self::Following(next) => next(),
        }
    }
}

impl fmt::Debug for Readings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(reading) => f
                .debug_struct("Reading")
                .field("fields", &reading.wanted)
                .field("max_bytes", &reading.max_bytes)
                .finish_non_exhaustive(),
            Self::Following(_) => f.write_str("closure"),
        }
    }
}
