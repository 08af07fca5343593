//! Classifies answers as signs of the load of the service.

use http::StatusCode;
use http::response::Parts;

use crate::Sample;
use tower_ratelimit::response::Refusal;

/// The gRPC codes of an overloaded server: deadline exceeded, resource exhausted, unavailable.
const OVERLOADED_CALLS: [&[u8]; 3] = [b"4", b"8", b"14"];

impl Sample {
    /// Classifies the answer of an HTTP service by default. A
    /// [closure](crate::middleware::AdaptiveConcurrencyLayer::classify) can fall back on this.
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
}
