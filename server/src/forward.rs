//! Sends a request to the upstream, and passes its response back.

use std::fmt;
use std::io;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, EXPECT, HOST, TE, TRANSFER_ENCODING};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::copy_bidirectional;

use crate::calls::{Calls, NoResponse, UnderWay};
use crate::counted::Counted;
use crate::stall::{Progress, RequestBody, Stalled, Watched};
use crate::tls::{self, Roots};
use crate::{Body, fields, text_response, trace};

/// The time within which a connection to the upstream has to open.
const CONNECT: Duration = Duration::from_secs(5);

/// The longest head of a response over HTTP/1.1, and the bytes of its body that are read ahead of the client.
const READ_AHEAD: usize = 64 * 1024;

pub(crate) const LATE: &str = "the rest of the request did not arrive in time";

/// The service behind the gateway. It shows its address.
#[derive(Clone, Debug)]
pub struct Upstream {
    scheme: Scheme,
    authority: Authority,
    timeout: Duration,
    /// The client for all requests but gRPC.
    http1: Client<HttpsConnector<HttpConnector>, Watched<RequestBody>>,
    grpc: Calls,
}

/// The facts about a request that are not in its head.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    pub(crate) client: crate::server::Client,
    /// Whether the peer may tell the address of the client.
    pub(crate) is_proxy: bool,
    /// The header in which proxies tell it, by the file.
    pub(crate) client_header: Option<HeaderName>,
    pub(crate) counted: Counted,
    /// The `traceparent` of the span of the request.
    pub(crate) span: Option<HeaderValue>,
    /// How the body arrives that the limits read.
    pub(crate) arrival: Progress,
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority)
    }
}

impl Upstream {
    /// Forwards to an upstream such as `http://127.0.0.1:8080`, which has to begin its response, or to take more of the
    /// request, within `timeout`. An upstream of `https` has to be trusted by these roots.
    ///
    /// # Errors
    ///
    /// When this is no URL of `http` or `https`, when it has a path or credentials, and when there are no roots.
    pub fn new(url: &str, roots: &Roots, timeout: Duration) -> Result<Self, String> {
        if url.contains('@') {
            // It is not shown: a password may stand in it.
            let error = "--upstream: the URL has an @, and a user and a password would not be sent; write http://HOST:PORT or \
                         https://HOST:PORT, and let clients send Authorization";
            return Err(error.to_owned());
        }
        let wrong = |why: &str| {
            format!("--upstream: {url:?} {why}; write http://HOST:PORT or https://HOST:PORT")
        };
        let uri: Uri = url.parse().map_err(|_| wrong("is not a URL"))?;
        let parts = uri.into_parts();
        let scheme = parts.scheme.ok_or_else(|| wrong("has no scheme"))?;
        let config = match scheme.as_str() {
            "http" => tls::unused()?,
            "https" => roots.config()?,
            _ => return Err(wrong("is neither http nor https")),
        };
        if parts.path_and_query.is_some_and(|path| path != "/") {
            return Err(wrong("has a path, and paths are passed as they are"));
        }
        let authority = parts.authority.ok_or_else(|| wrong("has no host"))?;
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_nodelay(true);
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .http1_max_buf_size(READ_AHEAD);
        let over_http1 = tls::connector(config.clone(), connector.clone(), false);
        let over_http2 = tls::connector(config, connector, true);
        let address = Uri::builder()
            .scheme(scheme.clone())
            .authority(authority.clone())
            .path_and_query(PathAndQuery::from_static("/"));
        let address = address.build().map_err(|_| wrong("is not a URL"))?;
        Ok(Self {
            scheme,
            authority,
            timeout,
            http1: builder.build(over_http1),
            grpc: Calls::new(address, over_http2),
        })
    }

    /// Returns how long each side may keep the other waiting.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Answers with the response of the upstream, or with 502 or 504 if there is none, and with 408 if the client does not
    /// send its request.
    pub(crate) async fn answer(&self, mut request: Request<RequestBody>) -> Response<Body> {
        let Some(sender) = request.extensions_mut().remove::<Sender>() else {
            return text_response(StatusCode::INTERNAL_SERVER_ERROR, "the peer is unknown");
        };
        sender.arrival.is_over();
        // Bytes after a body could be taken for bytes of the other protocol.
        let may_switch = request.method() == Method::GET && request.body().is_end_stream();
        let switches = may_switch && fields::switches(request.headers());
        let client = switches.then(|| hyper::upgrade::on(&mut request));
        let is_grpc = fields::is_grpc(request.headers());
        let own = sender.span.clone();
        let parent = own.or_else(|| trace::parent(request.headers()));
        let trace_id = parent.as_ref().and_then(trace::id);
        let progress = Progress::new();
        let Some(request) = self.outgoing(request, &sender, client.is_some(), is_grpc, &progress)
        else {
            return text_response(StatusCode::BAD_REQUEST, "this target cannot be forwarded");
        };
        match progress
            .within(self.timeout, self.send(request, is_grpc))
            .await
        {
            Ok(Ok(response)) => incoming(response, client, &sender),
            Ok(Err(_)) if progress.has_broken_off() => text_response(
                StatusCode::BAD_REQUEST,
                "the body of the request breaks off, or is malformed",
            ),
            Ok(Err(error)) => failed(&error, trace_id),
            // A stream of gRPC may stay open with nothing to send, and waits for its response.
            Err(Stalled::Client) if !is_grpc => text_response(StatusCode::REQUEST_TIMEOUT, LATE),
            Err(Stalled::Client | Stalled::Upstream) => {
                tracing::warn!(trace_id, "the upstream did not answer in time");
                text_response(
                    StatusCode::GATEWAY_TIMEOUT,
                    "the upstream did not answer in time",
                )
            }
        }
    }

    async fn send(
        &self,
        request: Request<Watched<RequestBody>>,
        is_grpc: bool,
    ) -> Result<Response<Incoming>, NoResponse> {
        if is_grpc {
            // Its connection may have to open first, which would make room for that in every request.
            return Box::pin(self.grpc.request(request)).await;
        }
        let response = self.http1.request(request).await;
        response.map_err(|error| NoResponse {
            has_connected: !error.is_connect(),
            error: error.into(),
        })
    }

    fn outgoing(
        &self,
        request: Request<RequestBody>,
        sender: &Sender,
        switches: bool,
        is_grpc: bool,
        progress: &Progress,
    ) -> Option<Request<Watched<RequestBody>>> {
        let (mut parts, body) = request.into_parts();
        let has_unknown_length = !body.is_end_stream() && body.size_hint().exact().is_none();
        let takes_trailers = fields::takes_trailers(&parts.headers);
        fields::leave_the_connection(&mut parts.headers, |name| sender.counted.reads(name));
        let client_header = sender.client_header.as_ref();
        fields::tell_the_client(
            &mut parts.headers,
            &sender.client,
            sender.is_proxy,
            client_header,
        );
        if let Some(span) = &sender.span {
            trace::go_on(&mut parts.headers, span);
        }
        let mut authority = None;
        let headers = &mut parts.headers;
        // Reading the body makes the gateway send `100 Continue`.
        headers.remove(EXPECT);
        if switches {
            fields::switch(headers);
        }
        if has_unknown_length && !is_grpc {
            // hyper would take a GET for one without a body.
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        if is_grpc {
            // HTTP/2 has the host in the URI.
            let host = headers.remove(HOST);
            authority = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
            if takes_trailers {
                headers.insert(TE, HeaderValue::from_static("trailers"));
            }
        }
        let path = parts.uri.path_and_query().cloned();
        parts.uri = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(authority.unwrap_or_else(|| self.authority.clone()))
            .path_and_query(path.unwrap_or_else(|| PathAndQuery::from_static("/")))
            .build()
            .ok()?;
        parts.version = if is_grpc {
            Version::HTTP_2
        } else {
            Version::HTTP_11
        };
        parts.extensions = http::Extensions::new();
        Some(Request::from_parts(parts, progress.watch(body)))
    }
}

/// Returns the response of the upstream as the client gets it.
fn incoming(
    mut response: Response<Incoming>,
    client: Option<OnUpgrade>,
    sender: &Sender,
) -> Response<Body> {
    let has_switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let client = client.filter(|_| has_switched && fields::switches(response.headers()));
    let upstream = hyper::upgrade::on(&mut response);
    let (mut parts, body) = response.into_parts();
    let call_under_way = parts.extensions.remove::<UnderWay>();
    parts.version = Version::HTTP_11;
    parts.extensions = http::Extensions::new();
    if parts.headers.contains_key(TRANSFER_ENCODING) {
        // hyper has decoded the transfer coding, and the length may differ.
        parts.headers.remove(CONTENT_LENGTH);
    }
    fields::leave_the_connection(&mut parts.headers, fields::is_set_in_responses);
    match client {
        Some(client) => {
            fields::switch(&mut parts.headers);
            parts.headers.remove(CONTENT_LENGTH);
            sender.client.heads.upgrade();
            tokio::spawn(tunnel(client, upstream));
        }
        None if has_switched => {
            return text_response(
                StatusCode::BAD_GATEWAY,
                "the upstream switched protocols unasked",
            );
        }
        None => {}
    }
    let body = body.map_err(move |error| {
        // It ends with the body.
        let _ = &call_under_way;
        error.into()
    });
    Response::from_parts(parts, body.boxed_unsync())
}

/// Passes bytes of another protocol both ways, until both sides have ended.
async fn tunnel(client: OnUpgrade, upstream: OnUpgrade) {
    let (Ok(client), Ok(upstream)) = tokio::join!(client, upstream) else {
        return;
    };
    let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
    if let Err(error) = copy_bidirectional(&mut client, &mut upstream).await {
        tracing::debug!("a switched connection broke off: {error}");
    }
}

fn failed(failure: &NoResponse, trace_id: Option<&str>) -> Response<Body> {
    let causes: Vec<String> = causes(failure).map(ToString::to_string).collect();
    tracing::warn!(trace_id, "the upstream failed: {}", causes.join(": "));
    if is_timeout(failure) {
        return text_response(
            StatusCode::GATEWAY_TIMEOUT,
            "the upstream cannot be reached in time",
        );
    }
    if !failure.has_connected {
        return text_response(StatusCode::BAD_GATEWAY, "the upstream cannot be reached");
    }
    text_response(StatusCode::BAD_GATEWAY, "the upstream did not answer")
}

fn causes(failure: &NoResponse) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    let first: &(dyn std::error::Error + 'static) = failure.error.as_ref();
    std::iter::successors(Some(first), |cause| cause.source())
}

fn is_timeout(failure: &NoResponse) -> bool {
    causes(failure)
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::TimedOut)
}
