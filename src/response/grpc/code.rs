use http::StatusCode;
use tonic::Code;

/// Returns the gRPC code for an HTTP status, as `google/rpc/code.proto` pairs them.
///
/// If several codes have one status, the result is the least specific code, because the layer
/// refuses before the service has seen the request.
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
