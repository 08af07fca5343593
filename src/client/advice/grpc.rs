//! The status of a gRPC call that failed at once, in the header section. A call that fails later has its status in
//! the trailers, which belong to the body.

use std::time::Duration;

use http::HeaderMap;

/// Returns whether the status is `RESOURCE_EXHAUSTED` or `UNAVAILABLE`. It means a limit only together with a wait, since
/// a message that is too large and a lost connection have the same codes.
pub(super) fn is_refusal(headers: &HeaderMap) -> bool {
    let code = headers.get("grpc-status").map(http::HeaderValue::as_bytes);
    matches!(code, Some(b"8" | b"14"))
}

/// Returns the delay of a `google.rpc.RetryInfo` among the details of the status.
#[cfg(feature = "tonic")]
pub(super) fn retry_info(headers: &HeaderMap) -> Option<Duration> {
    use base64::Engine as _;
    use base64::alphabet::STANDARD;
    use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
    use prost::Message as _;
    use tonic_types::pb;

    // The specification allows both padded and unpadded text.
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
    // Not with the conversion of prost, which overflows at the least number of seconds.
    let seconds = u64::try_from(delay.seconds).ok()?;
    let nanos = u32::try_from(delay.nanos).ok()?;
    Some(Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanos.into())))
}

/// Without feature `tonic` the details are not read.
#[cfg(not(feature = "tonic"))]
pub(super) fn retry_info(_: &HeaderMap) -> Option<Duration> {
    None
}
