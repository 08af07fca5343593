use http::StatusCode;

use crate::error::ConfigError;
use crate::key::Missing;

/// The treatment of requests without a key for a policy.
///
/// [`Policy::on_missing_key`](super::Policy::on_missing_key) sets it. The default depends on the cause:
///
/// - The client left the key out: [`Shared`](Self::Shared), because a client must not escape a
///   limit by sending less. A level of a [tree](super::Tree) refuses the request with `400 Bad Request`, because nobody
///   else is to pay for it.
/// - The server does not provide it: the answer is `500 Internal Server Error`, with a diagnostic,
///   because a whole site must not share a quota by accident.
///
/// A key that the server does not provide is always logged. For a key that the server provides only
/// for some requests, use [`optional`](crate::key::Extractor::optional).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnMissingKey {
    /// The requests share one quota of the policy.
    Shared,
    /// The policy does not apply to the requests. If it is the only policy, a client that leaves the key out
    /// has no limit at all.
    Skip,
    /// The requests are refused with this status, 4xx or 5xx, and charge nothing.
    ///
    /// A `401` requires `WWW-Authenticate` (RFC 9110, section 15.5.2). An outer layer has to add
    /// it, because this layer does not know the scheme. A gRPC call gets the code of [this
    /// table](crate::response#grpc).
    Refuse(StatusCode),
}

impl OnMissingKey {
    pub(super) fn by_default(missing: &Missing, is_level: bool) -> Self {
        match missing {
            Missing::ByServer(_) => Self::Refuse(StatusCode::INTERNAL_SERVER_ERROR),
            _ if is_level => Self::Refuse(StatusCode::BAD_REQUEST),
            _ => Self::Shared,
        }
    }

    pub(super) fn check(self) -> Result<(), ConfigError> {
        match self {
            Self::Refuse(status) => check_status("on_missing_key", status),
            Self::Shared | Self::Skip => Ok(()),
        }
    }
}

/// Rejects a status that does not tell the client of a refusal.
pub(crate) fn check_status(field: &'static str, status: StatusCode) -> Result<(), ConfigError> {
    if status.is_client_error() || status.is_server_error() {
        return Ok(());
    }
    let remedy = "give a status of an error, 400 to 599";
    Err(ConfigError::new(field, status.as_u16(), remedy))
}
