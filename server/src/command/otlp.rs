//! Sends the spans of requests to a collector, by OTLP over HTTP.

use std::env;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use opentelemetry::KeyValue;
use opentelemetry::global;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::spans::Spans;
use crate::tls::{self, Roots};

/// The time for a connection to the collector, and for its answer.
const ANSWERED: Duration = Duration::from_secs(10);

/// The longest answer of a collector that is read.
const LONGEST: usize = 64 * 1024;

/// The variables with which other programs find a collector: of spans alone, and of everything.
const OF_SPANS: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const OF_ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Sends spans in batches, from a thread of its own.
pub(super) struct Export {
    provider: SdkTracerProvider,
    spans: Spans,
}

impl Export {
    /// Sends spans to the collector of the flag, or else to that of the usual variables. Without either there are none.
    ///
    /// It needs a runtime, whose tasks send.
    pub(super) fn start(flag: Option<&str>) -> Result<Option<Self>, String> {
        let Some((source, url)) = endpoint(flag) else {
            return Ok(None);
        };
        for protocol in [
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
            "OTEL_EXPORTER_OTLP_PROTOCOL",
        ] {
            if let Some(other) = variable(protocol).filter(|it| it != "http/protobuf") {
                return Err(format!(
                    "{protocol}: {other:?} is not spoken; set http/protobuf, and an endpoint that takes it, mostly of port 4318"
                ));
            }
        }
        let address: Uri = url
            .parse()
            .map_err(|_| wrong(source, &url, "is not a URL"))?;
        let roots = match address.scheme_str() {
            Some("http") => tls::unused()?,
            Some("https") => Roots::Platform.config()?,
            _ => return Err(wrong(source, &url, "is neither http nor https")),
        };
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(Some(ANSWERED));
        let sender = Sender {
            client: Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .build(tls::connector(roots, tcp, false)),
            runtime: Handle::current(),
            is_away: AtomicBool::new(false),
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(sender)
            .with_endpoint(&url)
            .build();
        let exporter = exporter.map_err(|error| format!("{source}: {error}"))?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource())
            .build();
        // A provider that is dropped waits for its collector, and the program may have to end at once.
        global::set_tracer_provider(provider.clone());
        Ok(Some(Self {
            provider,
            spans: Spans::new(global::tracer("ratelimitd")),
        }))
    }

    pub(super) fn spans(&self) -> Spans {
        self.spans.clone()
    }

    /// Sends what has not been sent yet, for so long at most.
    pub(super) async fn end(self, time: Duration) {
        let end = move || self.provider.shutdown_with_timeout(time);
        match tokio::task::spawn_blocking(end).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("the last spans were not sent: {error}"),
            Err(error) => tracing::warn!("the last spans were not sent: {error}"),
        }
    }
}

/// Returns the URL for spans, and where it comes from.
fn endpoint(flag: Option<&str>) -> Option<(&'static str, String)> {
    let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|it| it.eq_ignore_ascii_case("true"));
    if is_off {
        return None;
    }
    // By the specification, this is the place of spans below the address of a collector.
    let below = |url: &str| format!("{}/v1/traces", url.trim_end_matches('/'));
    if let Some(flag) = flag {
        return Some(("--otlp-endpoint", below(flag)));
    }
    let of_spans = variable(OF_SPANS).map(|url| (OF_SPANS, url));
    of_spans.or_else(|| variable(OF_ALL).map(|url| (OF_ALL, below(&url))))
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn wrong(source: &str, url: &str, why: &str) -> String {
    format!("{source}: {url:?} {why}; write http://HOST:4318 or https://HOST:4318")
}

/// Describes this program. The usual variables may name it otherwise, and tell more.
fn resource() -> Resource {
    let detected = Resource::builder().build();
    let name = detected
        .get(&"service.name".into())
        .map(|name| name.to_string());
    let is_named = name.is_some_and(|name| !name.starts_with("unknown_service"));
    let mut resource = Resource::builder()
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    if !is_named {
        resource = resource.with_service_name("ratelimitd");
    }
    resource.build()
}

/// Sends batches from the thread that makes them, by tasks of the runtime.
#[derive(Debug)]
struct Sender {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: Handle,
    /// Whether the last batch has failed: the log says it once, and once that it is over.
    is_away: AtomicBool,
}

#[tonic::async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = self.client.request(request.map(Full::new));
        let whole = async {
            let (parts, body) = answer.await?.into_parts();
            let body = Limited::new(body, LONGEST).collect().await?.to_bytes();
            Ok::<_, HttpError>(Response::from_parts(parts, body))
        };
        // The thread of the batches has no timers.
        let sent = self.runtime.spawn(async { timeout(ANSWERED, whole).await });
        let sent = sent.await;
        let sent = sent.map_err(HttpError::from).and_then(|sent| sent?);
        self.note(&sent);
        sent
    }
}

impl Sender {
    fn note(&self, sent: &Result<Response<Bytes>, HttpError>) {
        let why = match sent {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answers {}", answer.status())),
            Err(error) => Some(causes(error.as_ref())),
        };
        let was_away = self.is_away.swap(why.is_some(), Ordering::Relaxed);
        match why {
            Some(why) if !was_away => {
                tracing::warn!("the collector takes no spans, and they are lost: {why}");
            }
            None if was_away => tracing::info!("the collector takes spans again"),
            _ => {}
        }
    }
}

fn causes(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |cause| (*cause).source());
    let causes: Vec<String> = causes.map(ToString::to_string).collect();
    causes.join(": ")
}
