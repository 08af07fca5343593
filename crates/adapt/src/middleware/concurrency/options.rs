use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use http::response::Parts;

use crate::{AdaptiveConcurrency, Sample};
use tower_ratelimit::key::Head;

/// The options of a layer.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) concurrency: AdaptiveConcurrency,
    /// The status of a refusal.
    pub(super) status: StatusCode,
    pub(super) except: Option<Arc<Except>>,
    pub(super) partition: Option<Arc<PartitionOf>>,
    pub(super) classify: Option<Arc<Classify>>,
}

type Except = dyn Fn(&Head<'_>) -> bool + Send + Sync;

type PartitionOf = dyn Fn(&Head<'_>) -> Option<Cow<'static, str>> + Send + Sync;

/// Classifies an answer.
pub(super) type Classify = dyn Fn(&Parts) -> Sample + Send + Sync;

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("concurrency", &self.concurrency)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}
