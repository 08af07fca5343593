//! The refusal of a request that finds all slots of an adaptive limit taken.

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};

use super::draft11::quoted;
use super::names::{RATELIMIT, RATELIMIT_POLICY};
use super::refusals::Refusals;

/// Refuses a request because `limit` of them are in flight. It sends no wait, since it is unknown when one of
/// them ends.
pub fn saturated<B>(
    name: &str,
    status: StatusCode,
    limit: u32,
    request: &mut Request<B>,
) -> Response<Bytes> {
    #[cfg(feature = "tonic")]
    let call = super::grpc::call_of(request);
    let response = Refusals::saturated(name, status, limit, request.extensions_mut());
    #[cfg(feature = "tonic")]
    let response = match call {
        Some(content_type) => super::grpc::GrpcRefusals::translated(content_type, response),
        None => response,
    };
    let mut response = response;
    let name = quoted(name);
    let headers = response.headers_mut();
    let policy = format!("{name};q={limit};qu=\"concurrent-requests\"");
    for (field, value) in [
        (&RATELIMIT_POLICY, policy),
        (&RATELIMIT, format!("{name};r=0")),
    ] {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(field, value);
        }
    }
    response
}
