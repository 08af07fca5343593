//! The questions of the rate limit service as JSON over HTTP, in the spelling of proto3.

use std::sync::LazyLock;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde_json::Deserializer;

use super::{NoAnswer, RateLimits};
use crate::envoy::messages::DESCRIPTORS;
use crate::envoy::messages::envoy::service::ratelimit::v3::rate_limit_response::Code;
use crate::envoy::messages::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::refusals::Refusals;
use crate::{Body, BoxError, full, spans, text_response};

/// The most bytes of a question.
const LARGEST: usize = 1 << 20;

static MESSAGES: LazyLock<Option<[MessageDescriptor; 2]>> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(DESCRIPTORS).ok()?;
    let message = |name: &str| {
        pool.get_message_by_name(&format!("envoy.service.ratelimit.v3.RateLimit{name}"))
    };
    Some([message("Request")?, message("Response")?])
});

/// Answers 200 if the request passes, and 429 if it is over a limit.
pub(crate) async fn answer<B>(
    limits: &RateLimits,
    (refusals, parent): (&Refusals, Option<HeaderValue>),
    body: B,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let body = match Limited::new(body, LARGEST).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            let why = "send a request of 1 MiB at most";
            return text_response(StatusCode::PAYLOAD_TOO_LARGE, why);
        }
        Err(_) => return text_response(StatusCode::BAD_REQUEST, "the body breaks off"),
    };
    let request = match read(&body) {
        Ok(request) => request,
        Err(error) => return text_response(StatusCode::BAD_REQUEST, &error),
    };
    match limits.ask(request, None).await {
        Err(NoAnswer::Invalid(why)) => text_response(StatusCode::BAD_REQUEST, &why),
        Err(NoAnswer::Unavailable(why)) => text_response(StatusCode::SERVICE_UNAVAILABLE, &why),
        Ok(answer) => {
            refusals.note_answer(&answer, || parent);
            let status = match answer.overall_code() {
                Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
                Code::Ok | Code::Unknown => StatusCode::OK,
            };
            let mut response = Response::new(full(write(&answer).unwrap_or_default()));
            *response.status_mut() = status;
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            let (is_limited, name) = super::limited(&answer);
            response.extensions_mut().insert(spans::Limited {
                is_limited,
                policy: name.map(ToOwned::to_owned),
            });
            response
        }
    }
}

fn read(text: &[u8]) -> Result<RateLimitRequest, String> {
    let [request, _] = MESSAGES.as_ref().ok_or("the messages cannot be read")?;
    let mut json = Deserializer::from_slice(text);
    let message = DynamicMessage::deserialize(request.clone(), &mut json);
    let message = message.and_then(|message| json.end().map(|()| message));
    let message = message.map_err(|error| format!("this is no RateLimitRequest: {error}"))?;
    message.transcode_to().map_err(|error| error.to_string())
}

fn write(answer: &RateLimitResponse) -> Option<String> {
    let [_, response] = MESSAGES.as_ref()?;
    let mut message = DynamicMessage::new(response.clone());
    message.transcode_from(answer).ok()?;
    serde_json::to_string(&message).ok()
}
