//! What an answer says of the service: a failure is no sample.

use std::sync::Arc;

use http::StatusCode;
use http::response::Parts;

use crate::adapt::Permit;
use crate::response::Refusal;

/// What the end of a request teaches an adaptive limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sample {
    /// It was served: the time that it took counts.
    Served,
    /// It failed because the service is overloaded.
    Overloaded,
    /// Nothing: it failed for a reason of its own, or it was refused.
    Nothing,
}

/// Says what an answer teaches.
pub(super) type Classify = dyn Fn(&Parts) -> Sample + Send + Sync;

/// By the codes of gRPC: deadline exceeded, resource exhausted, unavailable.
const OVERLOADED_CALLS: [&[u8]; 3] = [b"4", b"8", b"14"];

impl Sample {
    /// What an answer teaches unless [a closure](super::AdaptiveConcurrencyLayer::classify) says otherwise; it can fall
    /// back on this.
    pub fn of(head: &Parts) -> Self {
        if head.extensions.get::<Refusal>().is_some() {
            return Self::Nothing;
        }
        match head
            .headers
            .get("grpc-status")
            .map(http::HeaderValue::as_bytes)
        {
            None | Some(b"0") => {}
            Some(code) if OVERLOADED_CALLS.contains(&code) => return Self::Overloaded,
            Some(_) => return Self::Nothing,
        }
        match head.status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => Self::Overloaded,
            status if status.is_client_error() || status.is_server_error() => Self::Nothing,
            _ => Self::Served,
        }
    }

    pub(super) fn tell(self, permit: &mut Permit) {
        match self {
            Self::Served => permit.answered(),
            Self::Overloaded => permit.overloaded(),
            Self::Nothing => {}
        }
    }
}

/// By the closure, if there is one.
pub(super) fn classified(classify: Option<&Arc<Classify>>, head: &Parts) -> Sample {
    match classify {
        Some(classify) => classify(head),
        None => Sample::of(head),
    }
}
