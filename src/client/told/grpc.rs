//! What a call of gRPC is told that failed at once: its status stands in the header section. One
//! that fails later tells it in the trailers, which are the body's.

use std::time::Duration;

use http::HeaderMap;

/// `RESOURCE_EXHAUSTED` and `UNAVAILABLE`: a limit only if a wait is told with them, since a message
/// that is too large, or a connection that was lost, has the same codes.
pub(super) fn is_refusal(headers: &HeaderMap) -> bool {
    let code = headers.get("grpc-status").map(http::HeaderValue::as_bytes);
    matches!(code, Some(b"8" | b"14"))
}

/// The delay of a `google.rpc.RetryInfo` among the details of the status.
#[cfg(feature = "tonic")]
pub(super) fn retry_info(headers: &HeaderMap) -> Option<Duration> {
    use base64::Engine as _;
    use base64::alphabet::STANDARD;
    use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
    use prost::Message as _;
    use tonic_types::pb;

    // Padded and unpadded have to be read.
    const ENGINE: GeneralPurpose = GeneralPurpose::new(
        &STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    const TYPE: &str = "type.googleapis.com/google.rpc.RetryInfo";

    let details = headers.get("grpc-status-details-bin")?;
    let details = ENGINE.decode(details.as_bytes()).ok()?;
    let status = pb::Status::decode(details.as_slice()).ok()?;
    let info = status
        .details
        .iter()
        .find(|detail| detail.type_url == TYPE)?;
    let delay = pb::RetryInfo::decode(info.value.as_slice())
        .ok()?
        .retry_delay?;
    // Read by hand: prost's own conversion overflows at the least number of seconds.
    let seconds = u64::try_from(delay.seconds).ok()?;
    let nanos = u32::try_from(delay.nanos).ok()?;
    Some(Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanos.into())))
}

/// Without feature `tonic` details are not read.
#[cfg(not(feature = "tonic"))]
pub(super) fn retry_info(_: &HeaderMap) -> Option<Duration> {
    None
}
