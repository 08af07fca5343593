use http::StatusCode;
use tonic::Code;

/// The code that stands for this status of HTTP, as `google/rpc/code.proto` pairs them.
///
/// Where several codes have one status, it is the one that says least: what the layer refuses, it
/// refuses before the service has seen it.
pub(super) fn of_status(status: StatusCode) -> Code {
    match status.as_u16() {
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::NotFound,
        409 => Code::Aborted,
        412 | 428 => Code::FailedPrecondition,
        429 => Code::ResourceExhausted,
        499 => Code::Cancelled,
        501 => Code::Unimplemented,
        502 | 503 => Code::Unavailable,
        504 => Code::DeadlineExceeded,
        400..=498 => Code::InvalidArgument,
        _ => Code::Internal,
    }
}
