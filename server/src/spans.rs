//! A span for each request, by the conventions of OpenTelemetry for HTTP and gRPC.
//!
//! A span has no value that could be a key of a limit, but for the method and the path: no address, no query and no header.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Version};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use opentelemetry::global::{BoxedSpan, BoxedTracer};
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags,
    TraceId, TraceState, Tracer,
};
use opentelemetry::{Context as Surroundings, KeyValue};
use pin_project_lite::pin_project;
use tonic::Code;

use crate::{Body, BoxError, trace};

/// The longest text of a client in a span, in bytes. Thousands of spans may wait for a collector.
const LONGEST: usize = 1_024;

/// Begins the spans of requests.
#[derive(Clone, Debug)]
pub struct Spans {
    tracer: Arc<BoxedTracer>,
}

/// The span of a request. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Span(BoxedSpan);

/// The verdict of a response that is no refusal of the request itself, in its extensions.
#[derive(Clone, Debug)]
pub(crate) struct Limited {
    pub(crate) is_limited: bool,
    pub(crate) policy: Option<String>,
}

impl Spans {
    /// Begins spans with this tracer.
    pub fn new(tracer: BoxedTracer) -> Self {
        Self {
            tracer: Arc::new(tracer),
        }
    }

    /// Begins the span of a request, which came over `http` or `https`.
    pub(crate) fn request<B>(&self, request: &Request<B>, scheme: &'static str) -> Span {
        let method = request.method();
        let version = match request.version() {
            Version::HTTP_2 => "2",
            Version::HTTP_10 => "1.0",
            _ => "1.1",
        };
        let mut attributes = vec![
            KeyValue::new("url.scheme", scheme),
            KeyValue::new("url.path", cut(request.uri().path())),
            KeyValue::new("network.protocol.version", version),
        ];
        let name = if let Some(method) = well_known(method) {
            attributes.push(KeyValue::new("http.request.method", method));
            method
        } else {
            let original = cut(method.as_str());
            attributes.push(KeyValue::new("http.request.method", "_OTHER"));
            attributes.push(KeyValue::new("http.request.method_original", original));
            "HTTP"
        };
        self.begin(request.headers(), name, attributes)
    }

    /// Begins the span of a call, of the method with this full name.
    pub(crate) fn call(&self, metadata: &HeaderMap, method: &'static str) -> Span {
        let attributes = vec![
            KeyValue::new("rpc.system.name", "grpc"),
            KeyValue::new("rpc.method", method),
        ];
        self.begin(metadata, method, attributes)
    }

    fn begin(&self, headers: &HeaderMap, name: &'static str, attributes: Vec<KeyValue>) -> Span {
        let builder = SpanBuilder::from_name(name)
            .with_kind(SpanKind::Server)
            .with_attributes(attributes);
        let mut above = Surroundings::new();
        if let Some(parent) = parent(headers) {
            above = above.with_remote_span_context(parent);
        }
        Span(self.tracer.build_with_context(builder, &above))
    }
}

impl Span {
    /// Returns the `traceparent` of what happens below this span.
    pub(crate) fn traceparent(&self) -> Option<HeaderValue> {
        let own = self.0.span_context();
        let flags = own.trace_flags().to_u8();
        let text = format!("00-{}-{}-{flags:02x}", own.trace_id(), own.span_id());
        own.is_valid().then(|| HeaderValue::try_from(text).ok())?
    }

    /// Tells whether a limit has refused the request, and which one.
    pub(crate) fn limited(&mut self, is_limited: bool, policy: Option<&str>) {
        self.0
            .set_attribute(KeyValue::new("ratelimitd.limited", is_limited));
        if let Some(policy) = policy {
            let policy = KeyValue::new("ratelimitd.policy", policy.to_owned());
            self.0.set_attribute(policy);
        }
    }

    /// Tells the status of a call, and ends the span.
    pub(crate) fn called(mut self, code: Code) {
        let name = match code {
            Code::Ok => "OK",
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::Unavailable => "UNAVAILABLE",
            _ => "UNKNOWN",
        };
        let status = KeyValue::new("rpc.response.status_code", name);
        self.0.set_attribute(status);
        // A mistake of the caller is no error of the server.
        if code == Code::Unavailable {
            self.fail(name);
        }
    }

    /// Tells the status of a response. The span ends with its body.
    pub(crate) fn answered(mut self, response: Response<Body>) -> Response<Body> {
        let status = response.status();
        let code = KeyValue::new("http.response.status_code", i64::from(status.as_u16()));
        self.0.set_attribute(code);
        if status.is_server_error() {
            self.fail(status.as_str().to_owned());
        }
        let of_body = |body| Spanned {
            body,
            span: Some(self),
        };
        response.map(|body| of_body(body).boxed_unsync())
    }

    fn fail(&mut self, kind: impl Into<opentelemetry::Value>) {
        self.0.set_attribute(KeyValue::new("error.type", kind));
        self.0.set_status(Status::error(""));
    }
}

/// Returns the span of the client above this one.
fn parent(headers: &HeaderMap) -> Option<SpanContext> {
    let parent = trace::parent(headers)?;
    let place = trace::place(&parent)?;
    let state = headers
        .get("tracestate")
        .and_then(|state| state.to_str().ok());
    let state: Option<TraceState> = state.and_then(|state| state.parse().ok());
    Some(SpanContext::new(
        TraceId::from_hex(place.trace).ok()?,
        SpanId::from_hex(place.span).ok()?,
        TraceFlags::new(u8::from_str_radix(place.flags, 16).ok()?),
        true,
        state.unwrap_or_default(),
    ))
}

fn well_known(method: &Method) -> Option<&'static str> {
    let names = [
        "GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "CONNECT",
    ];
    names.into_iter().find(|name| method == name)
}

fn cut(text: &str) -> String {
    let mut ends = (0..=text.len().min(LONGEST)).rev();
    let end = ends.find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or_default()].to_owned()
}

pin_project! {
    /// The body of a response whose span ends with it.
    struct Spanned {
        #[pin]
        body: Body,
        span: Option<Span>,
    }
}

impl http_body::Body for Spanned {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(context));
        match (&frame, this.span.take()) {
            (Some(Ok(_)), span) => *this.span = span,
            (Some(Err(_)), Some(mut span)) => span.fail("_OTHER"),
            (Some(Err(_)) | None, _) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
