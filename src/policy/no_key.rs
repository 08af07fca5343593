use http::StatusCode;

use crate::error::ConfigError;
use crate::key::Missing;

/// What becomes of requests from which a policy can take no key.
///
/// Set by [`Policy::no_key`](super::Policy::no_key). Unless it is, it depends on whose doing it is:
/// requests whose client left the key out are [`Shared`](Self::Shared), since a client must not
/// escape a limit by sending less; where the server does not provide it, they are refused with
/// `500 Internal Server Error` and a diagnostic, since a quota must not be shared by a whole site
/// by accident. What the server does not provide is logged whatever becomes of the request; of what
/// it provides at times only, [`Extension::optional`](crate::key::Extension::optional) says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoKey {
    /// All of them share one quota of the policy.
    Shared,
    /// The policy does not apply to them. Where it is the only one, whoever leaves the key out has
    /// no limit at all.
    Skip,
    /// They are refused with this status, which is one of 4xx or 5xx, and charged to nothing. A `401`
    /// has to have a `WWW-Authenticate` (RFC 9110, section 15.5.2), which a layer outside adds: the
    /// scheme is not known here. A call of gRPC gets the code of
    /// [this table](crate::response#grpc).
    Refuse(StatusCode),
}

impl NoKey {
    pub(super) fn by_default(missing: &Missing) -> Self {
        match missing {
            Missing::ByClient => Self::Shared,
            Missing::ByServer(_) => Self::Refuse(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }

    pub(super) fn check(self) -> Result<(), ConfigError> {
        match self {
            Self::Refuse(status) => check_status("no_key", status),
            Self::Shared | Self::Skip => Ok(()),
        }
    }
}

/// Refuses a status that does not say to a client that it was refused.
pub(crate) fn check_status(field: &'static str, status: StatusCode) -> Result<(), ConfigError> {
    if status.is_client_error() || status.is_server_error() {
        return Ok(());
    }
    let remedy = "give a status of an error, 400 to 599";
    Err(ConfigError::new(field, status.as_u16(), remedy))
}
