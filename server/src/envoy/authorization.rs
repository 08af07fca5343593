use std::collections::BTreeMap;
use std::time::Duration;

use http::Extensions;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body_util::BodyExt;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tonic::{Code, Request, Response, Status};
use tower_ratelimit::Decision;
use tower_ratelimit::middleware::Deadline;

use super::messages::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use super::messages::envoy::config::core::v3::{HeaderValue as Field, HeaderValueOption};
use super::messages::envoy::service::auth::v3::authorization_server;
use super::messages::envoy::service::auth::v3::check_response::HttpResponse;
use super::messages::envoy::service::auth::v3::{
    CheckRequest, CheckResponse, DeniedHttpResponse, OkHttpResponse,
};
use super::messages::envoy::r#type::v3::HttpStatus;
use super::messages::google::rpc;
use super::original::{Unusable, original};
use crate::{Body, Gateway, question, refusals, text_response};

/// What of its time Envoy needs for the way of the answer.
const WAY_BACK: Duration = Duration::from_millis(3);

/// External authorization: the file of limits decides about the request that Envoy describes.
pub(super) struct Authorization {
    gateway: Gateway,
}

impl Authorization {
    pub(super) fn new(gateway: Gateway) -> Self {
        Self { gateway }
    }
}

#[tonic::async_trait]
impl authorization_server::Authorization for Authorization {
    async fn check(
        &self,
        request: Request<CheckRequest>,
    ) -> Result<Response<CheckResponse>, Status> {
        const METHOD: &str = "envoy.service.auth.v3.Authorization/Check";
        let metadata = request.metadata().as_ref();
        let span = self
            .gateway
            .spans()
            .map(|spans| spans.call(metadata, METHOD));
        let deadline = deadline(metadata);
        let counted = self.gateway.counted();
        let response = match original(request.into_inner().attributes, &counted) {
            Ok(request) => self.gateway.ask(request, &counted, deadline).await,
            Err(Unusable::Client((status, why))) => text_response(status, why),
            Err(Unusable::Envoy(why)) => {
                if let Some(span) = span {
                    span.called(Code::InvalidArgument);
                }
                return Err(Status::invalid_argument(why));
            }
        };
        if let Some(mut span) = span {
            let cause = refusals::cause(&response);
            span.limited(cause.is_some(), cause.map(|(policy, _)| policy));
            span.called(Code::Ok);
        }
        Ok(Response::new(answer(response).await))
    }
}

/// Returns until when a call has to be answered.
pub(super) fn deadline(headers: &HeaderMap) -> Option<Deadline> {
    let expected = headers.get("x-envoy-expected-rq-timeout-ms");
    let expected = expected.and_then(|value| value.to_str().ok()?.parse().ok());
    let expected = expected.map(|time| Deadline::after(Duration::from_millis(time)));
    let deadlines = expected.into_iter().chain(Deadline::of_call(headers));
    let moment = deadlines.filter_map(|deadline| deadline.moment()).min()?;
    moment.checked_sub(WAY_BACK).map(Deadline::at)
}

async fn answer(response: http::Response<Body>) -> CheckResponse {
    if question::has_passed(&response) {
        return CheckResponse {
            dynamic_metadata: payers(response.extensions()),
            status: Some(status(Code::Ok)),
            http_response: Some(HttpResponse::OkResponse(OkHttpResponse {
                response_headers_to_add: fields(response.headers()),
            })),
        };
    }
    let (parts, body) = response.into_parts();
    let (code, refused) = match parts.status {
        refused @ StatusCode::TOO_MANY_REQUESTS => (Code::ResourceExhausted, refused),
        refused @ StatusCode::SERVICE_UNAVAILABLE => (Code::Unavailable, refused),
        refused if question::is_refusal(refused) => (Code::PermissionDenied, refused),
        _ => (Code::PermissionDenied, StatusCode::FORBIDDEN),
    };
    // It is in memory.
    let body = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes);
    let body = String::from_utf8_lossy(&body.unwrap_or_default()).into_owned();
    CheckResponse {
        dynamic_metadata: None,
        status: Some(status(code)),
        http_response: Some(HttpResponse::DeniedResponse(DeniedHttpResponse {
            status: Some(HttpStatus {
                code: refused.as_u16().into(),
            }),
            headers: fields(&parts.headers),
            body,
        })),
    }
}

/// Says which policy pays in each group of which one does, if any pays: `{"payers": {"spend": "plan"}}`.
fn payers(extensions: &Extensions) -> Option<Struct> {
    let decision = extensions.get::<Decision>()?;
    let payers = decision.payers().map(|(group, payer)| {
        let kind = Some(Kind::StringValue(payer.to_owned()));
        (group.to_owned(), Value { kind })
    });
    let fields: BTreeMap<String, Value> = payers.collect();
    if fields.is_empty() {
        return None;
    }
    let kind = Some(Kind::StructValue(Struct { fields }));
    let fields = [("payers".to_owned(), Value { kind })].into();
    Some(Struct { fields })
}

fn status(code: Code) -> rpc::Status {
    rpc::Status {
        code: code.into(),
        message: String::new(),
    }
}

/// Returns these fields as Envoy adds them to a response: in place of those of the upstream.
fn fields(headers: &HeaderMap) -> Vec<HeaderValueOption> {
    let mut last = None;
    let of_the_body = [CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION];
    let fields = headers
        .iter()
        .filter(|(name, _)| !of_the_body.contains(name));
    fields
        .map(|(name, value)| {
            let is_more = last.replace(name) == Some(name);
            HeaderValueOption {
                header: Some(field(name, value)),
                append_action: if is_more {
                    HeaderAppendAction::AppendIfExistsOrAdd
                } else {
                    HeaderAppendAction::OverwriteIfExistsOrAdd
                }
                .into(),
            }
        })
        .collect()
}

fn field(name: &HeaderName, value: &HeaderValue) -> Field {
    let (value, raw_value) = match value.to_str() {
        Ok(text) => (text.to_owned(), Vec::new()),
        Err(_) => (String::new(), value.as_bytes().to_vec()),
    };
    Field {
        key: name.as_str().to_owned(),
        value,
        raw_value,
    }
}
