//! What operators and their tools see: probes, metrics, the status and the page.
//!
//! `/livez`, `/readyz` and `/metrics` answer everybody. [`Operators`] may see the rest.

use std::fmt::Write;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode, Uri};
use metrics::{counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::json;
use tokio::sync::watch;
use tower::ServiceExt;
use tower_ratelimit::key::Head;
use tower_ratelimit_ops::admin::{self, Access, Handle};
use tower_ratelimit_ops::metrics::Publisher;

use crate::limits::Limits;
use crate::phase::Phase;
use crate::ratelimit::RateLimits;
use crate::server::Server;
use crate::token::Token;

const OPEN: &str = "ratelimitd_connections";
const REFUSED: &str = "ratelimitd_refused_connections_total";
const CERTIFICATE: &str = "ratelimitd_certificate_error";
const EXPIRATION: &str = "ratelimitd_certificate_expiration_timestamp_seconds";

/// The operators of a server: who is on this machine, and who has the token.
#[derive(Clone, Debug)]
pub struct Operators {
    access: Access,
    token: Option<Token>,
}

impl Operators {
    /// Without a token, only requests from this machine are admitted. `hosts` are names of the server beside those of
    /// loopback. Operators change limits and block keys if it `is_writable`.
    pub fn new(token: Option<Token>, hosts: &[String], is_writable: bool) -> Self {
        let mut access = Access::loopback();
        if let Some(token) = token.clone() {
            access = access.or_check(move |head| token.is_in(head).then_some("token"));
        }
        if !hosts.is_empty() {
            let loopback = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned);
            access = access.hosts(loopback.iter().chain(hosts));
        }
        if is_writable {
            access = access.writable();
        }
        Self { access, token }
    }

    /// Returns why a request is refused.
    fn refuse(&self, head: &Head<'_>) -> Option<Response> {
        let why = self.access.operator(head).err()?;
        Some(match &self.token {
            // A browser asks for a password.
            Some(token) if !token.is_in(head) => {
                let challenge = [(WWW_AUTHENTICATE, "Basic realm=\"ratelimitd\"")];
                (StatusCode::UNAUTHORIZED, challenge, format!("{why}\n")).into_response()
            }
            _ => (StatusCode::FORBIDDEN, format!("{why}\n")).into_response(),
        })
    }
}

/// Returns the routes for operators and their tools. The metrics and the status tell of these limits, and of these servers by the
/// flag of their listener.
pub fn router(
    (limits, rate_limits): (&Limits, Option<RateLimits>),
    operators: Operators,
    phase: watch::Receiver<Phase>,
    servers: Vec<(&'static str, Server)>,
) -> Router {
    let layer = limits.layer();
    let mut publisher = Publisher::new(layer.monitor());
    if let Some(its) = limits.config().concurrency() {
        publisher = publisher.concurrency(its.concurrency());
    }
    let metrics = Metrics::new(publisher, rate_limits.clone(), servers.clone());
    let status = {
        let (limits, phase) = (limits.clone(), phase.clone());
        move || async move { status(&limits, rate_limits.as_ref(), *phase.borrow(), &servers) }
    };
    let page = Handle::from(&layer).until(draining(phase.clone()));
    let page: Router = admin::router(page, operators.access.clone());
    // A router that is nested has no path that ends in a slash.
    let with_slash = page.clone().map_request(|mut request: Request| {
        *request.uri_mut() = Uri::from_static("/");
        request
    });
    let for_operators = Router::new()
        .route("/status", get(status))
        .route_service("/dashboard/", with_slash)
        .nest("/dashboard", page)
        .layer(from_fn_with_state(operators, admit));
    Router::new()
        .route("/livez", get(|| async { "live\n" }))
        .route(
            "/readyz",
            get(move || async move { ready(*phase.borrow()) }),
        )
        .route(
            "/metrics",
            get(move |headers: HeaderMap| async move { metrics.answer(&headers) }),
        )
        .merge(for_operators)
}

async fn draining(mut phase: watch::Receiver<Phase>) {
    // Without a sender the server has ended.
    let _ = phase.wait_for(|phase| *phase >= Phase::Draining).await;
}

async fn admit(State(operators): State<Operators>, request: Request, next: Next) -> Response {
    let refusal = operators.refuse(&Head::of(&request));
    match refusal {
        Some(refusal) => refusal,
        None => next.run(request).await,
    }
}

fn ready(phase: Phase) -> Response {
    match phase.why_not_ready() {
        None => "ready\n".into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

fn status(
    limits: &Limits,
    rate_limits: Option<&RateLimits>,
    phase: Phase,
    servers: &[(&'static str, Server)],
) -> Response {
    let mut status = limits.status();
    if let Some(rate_limits) = rate_limits {
        status["descriptors"] = rate_limits.status();
    }
    status["program"] = env!("CARGO_PKG_VERSION").into();
    status["ready"] = phase.why_not_ready().is_none().into();
    status["unready_because"] = phase.why_not_ready().into();
    for (flag, server) in servers {
        if let Some(certificate) = server.certificate() {
            status["certificates"][*flag] = json!({
                "error": certificate.error(),
                "expires": certificate.expiration(),
            });
        }
    }
    let json = [(CONTENT_TYPE, "application/json")];
    (json, status.to_string()).into_response()
}

/// The numbers of the limits, for Prometheus.
struct Metrics {
    publisher: Publisher,
    rate_limits: Option<RateLimits>,
    servers: Vec<(&'static str, Server)>,
}

impl Metrics {
    fn new(
        publisher: Publisher,
        rate_limits: Option<RateLimits>,
        servers: Vec<(&'static str, Server)>,
    ) -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self {
            publisher,
            rate_limits,
            servers,
        })
    }

    fn answer(&self, headers: &HeaderMap) -> Response {
        // A recorder keeps each series that it has ever seen. All of ours are sums and states, so a new one has what is in force.
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            self.publisher.publish();
            self.rate_limits.iter().for_each(RateLimits::publish);
            self.servers.iter().for_each(publish);
        });
        let text = recorder.handle().render();
        let accepts = headers.get_all(ACCEPT).iter();
        let mut accepts = accepts.filter_map(|value| value.to_str().ok());
        if accepts.any(|value| value.contains("application/openmetrics-text")) {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            return ([(CONTENT_TYPE, kind)], openmetrics(&text)).into_response();
        }
        ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
    }
}

fn publish((listener, server): &(&'static str, Server)) {
    let places = server.places();
    describe_gauge!(
        OPEN,
        "Connections that are open, by the flag of their listener"
    );
    describe_counter!(
        REFUSED,
        "Connections that were closed at once, by the bound that they were over"
    );
    gauge!(OPEN, "listener" => *listener)
        .set(f64::from(u32::try_from(places.open()).unwrap_or(u32::MAX)));
    let (of_a_client, of_all) = places.refused();
    counter!(REFUSED, "listener" => *listener, "bound" => "client").absolute(of_a_client);
    counter!(REFUSED, "listener" => *listener, "bound" => "all").absolute(of_all);
    if let Some(certificate) = server.certificate() {
        describe_gauge!(
            CERTIFICATE,
            "Whether the newest certificate of a listener was refused: 1 or 0"
        );
        let is_refused = f64::from(u8::from(certificate.error().is_some()));
        gauge!(CERTIFICATE, "listener" => *listener).set(is_refused);
        describe_gauge!(
            EXPIRATION,
            "When the certificate of a listener expires, or one of those that lead to its authority, in seconds since 1970"
        );
        #[expect(
            clippy::cast_precision_loss,
            reason = "no year of a certificate has so many seconds"
        )]
        gauge!(EXPIRATION, "listener" => *listener).set(certificate.expiration() as f64);
    }
}

/// Returns a text of Prometheus in the form of `OpenMetrics`: a family of counters has no suffix, and there is an end.
fn openmetrics(text: &str) -> String {
    let mut open = String::with_capacity(text.len());
    for line in text.lines().filter(|line| !line.is_empty()) {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(what), Some(name), Some(rest)) => {
                // Writing to a text cannot fail.
                let family = name.strip_suffix("_total").unwrap_or(name);
                // Each sample of a counter has the suffix there, and those of envoyproxy/ratelimit have none.
                let is_unknown = what == "TYPE" && rest == "counter" && family == name;
                let rest = if is_unknown { "unknown" } else { rest };
                let _ = writeln!(open, "# {what} {family} {rest}");
            }
            _ => open.extend([line, "\n"]),
        }
    }
    open + "# EOF\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_names_a_family_without_the_suffix_of_its_counters() {
        let text = "# HELP a_total The a.\n# TYPE a_total counter\na_total{b=\"c d\"} 1\n\n# TYPE e gauge\ne 2\n# TYPE hits counter\nhits 3\n\n";
        let expected = "# HELP a The a.\n# TYPE a counter\na_total{b=\"c d\"} 1\n# TYPE e gauge\ne 2\n# TYPE hits unknown\nhits 3\n# EOF\n";
        assert_eq!(openmetrics(text), expected);
    }
}
