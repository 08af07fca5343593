use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, header};
use http_body::SizeHint;

use crate::key::{Head, Unread, WantedFields};

/// What is read of which requests.
#[derive(Clone)]
pub(super) struct Reading {
    pub(super) wanted: Arc<WantedFields>,
    pub(super) max_bytes: usize,
    pub(super) read_if: Option<Arc<ReadIf>>,
    pub(super) include_usage_if: Option<Arc<IncludeUsageIf>>,
}

/// What is read of each request: always the same, or what a closure says.
#[derive(Clone)]
pub(super) enum Readings {
    Own(Reading),
    Following(Arc<dyn Fn() -> Reading + Send + Sync>),
}

pub(super) type IncludeUsageIf = dyn Fn(&Head<'_>) -> bool + Send + Sync;
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

impl Reading {
    /// Returns what happens to a request if its body cannot be read, or why its body is not read.
    pub(super) fn look(
        &self,
        head: &Head<'_>,
        length: SizeHint,
        is_at_its_end: bool,
    ) -> Result<Unreadable, (Unread, Unreadable)> {
        const UNWANTED: (Unread, Unreadable) = (Unread::Unwanted, Unreadable::Pass);
        if is_at_its_end || length.exact() == Some(0) {
            return Err(UNWANTED);
        }
        let unreadable = match &self.read_if {
            Some(read_if) => {
                let of_usage = || self.includes_usage(head).then_some(Unreadable::Pass);
                read_if(head).or_else(of_usage).ok_or(UNWANTED)?
            }
            None => Unreadable::Refuse,
        };
        if !is_json(head.headers()) {
            return Err((Unread::NotJson, unreadable));
        }
        if length.lower() > self.max_bytes as u64 {
            return Err((Unread::TooLong, unreadable));
        }
        Ok(unreadable)
    }

    /// Returns whether the stream that answers a request is to tell its usage.
    pub(super) fn includes_usage(&self, head: &Head<'_>) -> bool {
        let holds = self.include_usage_if.as_ref();
        holds.is_some_and(|holds| holds(head))
    }
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

/// Returns whether a body with these headers has no content coding.
pub(super) fn is_plain(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::CONTENT_ENCODING).iter();
    codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

fn is_json(headers: &HeaderMap) -> bool {
    if !is_plain(headers) {
        return false;
    }
    let mut kinds = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(kind), None) = (kinds.next(), kinds.next()) else {
        return false;
    };
    let kind = kind.as_bytes().split(|byte| *byte == b';').next();
    let kind = kind.unwrap_or_default().trim_ascii().to_ascii_lowercase();
    kind == b"application/json" || kind.ends_with(b"+json")
}
