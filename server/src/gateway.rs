//! Routes a request to the upstream, or to the gateway itself.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::key::{Head, Proxies};
use tower_ratelimit::middleware::Deadline;
use tower_ratelimit::response::Refusal;
use tower_ratelimit_config::Config;

use crate::counted::Counted;
use crate::forward::{LATE, Sender, Upstream};
use crate::head::give_one_reading;
use crate::late::Late;
use crate::limits::Limits;
use crate::ratelimit::{Options, RateLimits, json};
use crate::refusals::{self, Refusals};
use crate::server::Client;
use crate::spans::{Limited, Span, Spans};
use crate::stall::{Arriving, Progress};
use crate::{Body, full, question, socket, text_response, trace};

/// The refusals in the log, in each second for each policy, if nothing else is configured.
pub(crate) const REFUSALS: u32 = 1;

/// A reverse proxy with rate limits.
#[derive(Clone)]
pub struct Gateway {
    limits: Limits,
    refusals: Refusals,
    /// Forwards a request within its limits.
    forwarding: Option<BoxCloneSyncService<Request<Arriving>, Response<Body>, Infallible>>,
    /// How long a client may send nothing of a body that the limits read.
    stalled_after: Duration,
    /// Shared, since each request has a copy of the gateway.
    asked: Arc<Asked>,
    rate_limits: Option<RateLimits>,
    spans: Option<Spans>,
}

/// What decides about questions.
#[derive(Clone)]
struct Asked {
    /// Answers whether a request is within its limits.
    decider: question::Decider,
    /// What answers in place of a store that has not, if it is elsewhere.
    late: Option<Arc<Late>>,
    /// How long a question of Envoy may take that says nothing of that.
    time: Duration,
}

impl Gateway {
    /// Forwards requests within these limits to an upstream. Without one, it only answers whether a request is within them.
    pub fn new(limits: impl Into<Limits>, upstream: impl Into<Option<Upstream>>) -> Self {
        let limits = limits.into();
        let upstream = upstream.into();
        let stalled_after = upstream.as_ref().map(Upstream::timeout);
        let forwarding = upstream.map(|upstream| {
            let upstream = Arc::new(upstream);
            let forward = service_fn(move |request| {
                let upstream = Arc::clone(&upstream);
                // It is large, and each layer around it would move it.
                Box::pin(async move { Ok(upstream.answer(request).await) })
            });
            let limited = limits.layer().layer(forward);
            let reading = limits.read_json().layer(limited);
            let limited = reading.map_response(|response| response.map(BodyExt::boxed_unsync));
            // Outside of the limits, so that a request that finds no slot is charged nothing.
            match limits.config().concurrency() {
                Some(concurrency) => {
                    let bounded = concurrency.layer(limited);
                    BoxCloneSyncService::new(
                        bounded.map_response(|response| response.map(BodyExt::boxed_unsync)),
                    )
                }
                None => BoxCloneSyncService::new(limited),
            }
        });
        Self {
            forwarding,
            stalled_after: stalled_after.unwrap_or_default(),
            asked: Arc::new(Asked {
                decider: question::decider(&limits.layer()),
                late: Late::of(&limits),
                time: Options::default().time,
            }),
            limits,
            refusals: Refusals::new(REFUSALS),
            rate_limits: None,
            spans: None,
        }
    }

    /// Answers about the descriptors that Envoy sends, by these files.
    pub fn answer_descriptors(self, rate_limits: impl Into<Option<RateLimits>>) -> Self {
        Self {
            rate_limits: rate_limits.into(),
            ..self
        }
    }

    pub(crate) fn rate_limits(&self) -> Option<&RateLimits> {
        self.rate_limits.as_ref()
    }

    /// Gives a question of Envoy that does not say its time this much: 15 ms, if nothing else is set.
    pub fn time(self, time: Duration) -> Self {
        let asked = Asked {
            time,
            ..Asked::clone(&self.asked)
        };
        Self {
            asked: Arc::new(asked),
            ..self
        }
    }

    /// Logs this many refusals in each second for each policy.
    pub fn log_refusals(self, most: u32) -> Self {
        Self {
            refusals: Refusals::new(most),
            ..self
        }
    }

    /// Begins a span for each request.
    pub fn trace(self, spans: impl Into<Option<Spans>>) -> Self {
        Self {
            spans: spans.into(),
            ..self
        }
    }

    pub(crate) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    pub(crate) fn spans(&self) -> Option<&Spans> {
        self.spans.as_ref()
    }

    /// Decides about a request that a proxy forwards by itself, in the time that it waits for the answer.
    pub(crate) async fn ask(
        &self,
        request: Request<question::SentBody>,
        counted: &Counted,
        deadline: Option<Deadline>,
    ) -> Response<Body> {
        let parent = trace::parent(request.headers());
        let (parts, body) = request.into_parts();
        let mut request = Request::from_parts(parts, ());
        let response = match body.read(&self.limits.read_json(), &mut request) {
            Ok(()) => {
                let deadline = deadline.unwrap_or_else(|| Deadline::after(self.asked.time));
                request.extensions_mut().insert(deadline);
                self.decide_in_time(request, counted, deadline).await
            }
            Err(why) => Refusal::Unread(why).into_http::<Bytes>().map(full),
        };
        self.refusals.note(&response, parent.as_ref());
        response
    }

    async fn decide_in_time(
        &self,
        request: Request<()>,
        counted: &Counted,
        deadline: Deadline,
    ) -> Response<Body> {
        let asked = |request| question::decide(self.asked.decider.clone(), request, counted);
        let (Some(late), Some(moment)) = (&self.asked.late, deadline.moment()) else {
            return asked(request).await;
        };
        let left = moment.saturating_duration_since(Instant::now());
        // As when a client goes away, the store may have charged the request.
        if let Ok(answer) = timeout(left, asked(request.clone())).await {
            return answer;
        }
        match late.decider() {
            Ok(decider) => question::decide(decider, request, counted).await,
            Err(error) => {
                tracing::warn!(
                    "a question that the store does not answer in time is refused: {error}"
                );
                let why = "the store has not answered in time";
                text_response(StatusCode::SERVICE_UNAVAILABLE, why)
            }
        }
    }

    /// Returns the fields that the limits in force read.
    pub(crate) fn counted(&self) -> Counted {
        Counted::of(&self.limits.config())
    }

    /// Returns whether this peer is a proxy, which sends the requests of many clients.
    pub(crate) fn is_proxy(&self, peer: SocketAddr) -> bool {
        let trust = Trust::of(&self.limits.config(), peer);
        trust.asks || trust.tells_clients
    }

    pub(crate) async fn answer(self, request: Request<Incoming>, client: Client) -> Response<Body> {
        let refusals = self.refusals.clone();
        let begin = |spans: &Spans| spans.request(&request, client.scheme);
        let span = self.spans.as_ref().map(begin);
        let own = span.as_ref().and_then(Span::traceparent);
        let parent = own.clone().or_else(|| trace::parent(request.headers()));
        let response = self.decide(request, client, own).await;
        refusals.note(&response, parent.as_ref());
        let Some(mut span) = span else {
            return response;
        };
        match (
            response.extensions().get::<Limited>(),
            refusals::cause(&response),
        ) {
            (Some(limited), _) => span.limited(limited.is_limited, limited.policy.as_deref()),
            (None, cause) => span.limited(cause.is_some(), cause.map(|(policy, _)| policy)),
        }
        span.answered(response)
    }

    /// Answers a request, whose span has this `traceparent`.
    async fn decide(
        self,
        request: Request<Incoming>,
        client: Client,
        span: Option<HeaderValue>,
    ) -> Response<Body> {
        let config = self.limits.config();
        let (mut parts, body) = request.into_parts();
        if let Err((status, why)) = give_one_reading(&mut parts) {
            let status = if question::is_for_nginx(&parts.uri) {
                StatusCode::FORBIDDEN
            } else {
                status
            };
            let mut refusal = text_response(status, why);
            if parts.version < Version::HTTP_2 {
                // The beginning of the next request is unknown.
                let close = HeaderValue::from_static("close");
                refusal.headers_mut().insert(CONNECTION, close);
            }
            return refusal;
        }
        let counted = Counted::of(&config);
        let mut request = Request::from_parts(parts, body);
        let trust = Trust::of(&config, client.peer);
        if !is_trusted_socket(&config, client.peer) {
            request.extensions_mut().insert(client.peer);
        }
        // Beside an upstream, the path is one of that.
        if let (Some(limits), None) = (&self.rate_limits, &self.forwarding)
            && (trust.asks && request.method() == Method::POST && request.uri().path() == "/json")
        {
            let parent = span.or_else(|| trace::parent(request.headers()));
            let refusals = (&self.refusals, parent);
            return json::answer(limits, refusals, request.into_body()).await;
        }
        if is_reserved(&request) {
            return self.answer_proxy(request, trust, &counted).await;
        }
        let (mut parts, body) = request.into_parts();
        if let Err((status, why)) = counted.leave(&mut parts) {
            return text_response(status, why);
        }
        let arrival = Progress::new();
        let mut request = Request::from_parts(parts, arrival.watch(body));
        request.extensions_mut().insert(Sender {
            client,
            is_proxy: trust.tells_clients,
            client_header: config.client_header().cloned(),
            counted,
            span,
            arrival: arrival.clone(),
        });
        let Some(forwarding) = self.forwarding else {
            return text_response(StatusCode::NOT_FOUND, "there is no upstream");
        };
        let response = forwarding.oneshot(request);
        match arrival.unless_it_stalls(self.stalled_after, response).await {
            Some(Ok(response)) => response,
            Some(Err(never)) => match never {},
            None => text_response(StatusCode::REQUEST_TIMEOUT, LATE),
        }
    }

    /// Answers requests that only a proxy may send.
    async fn answer_proxy(
        self,
        request: Request<Incoming>,
        trust: Trust,
        counted: &Counted,
    ) -> Response<Body> {
        let not_found = || text_response(StatusCode::NOT_FOUND, "not found");
        if !trust.asks {
            return not_found();
        }
        if question::is_one(request.uri()) {
            return question::answer(self.asked.decider.clone(), request.map(drop), counted).await;
        }
        match request.uri().path() {
            // If a proxy sends the address of a client, the client has sent the request.
            "/_limit/status" if !is_forwarded(request.headers()) => self.status(),
            _ => not_found(),
        }
    }

    fn status(&self) -> Response<Body> {
        let mut response = Response::new(full(self.limits.status().to_string()));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }
}

/// The rights of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trust {
    /// The right to send requests to `/_limit/*`.
    asks: bool,
    /// The right to tell the client's address in `X-Forwarded-For`.
    tells_clients: bool,
}

impl Trust {
    fn of(config: &Config, peer: SocketAddr) -> Self {
        let is_socket = is_trusted_socket(config, peer);
        let peer = peer.ip().to_canonical();
        let is_near = peer.is_loopback();
        match config.proxies() {
            None => Self {
                asks: is_near,
                tells_clients: is_near,
            },
            Some(proxies) => Self {
                // Hops are counted without regard to the peer, so a setting of hops names no peer.
                asks: is_near || proxies.name(peer),
                tells_clients: is_socket || proxies.trust(peer),
            },
        }
    }
}

/// Returns whether the file trusts this peer as the other end of a Unix socket. The limits see such a peer without an address.
fn is_trusted_socket(config: &Config, peer: SocketAddr) -> bool {
    let trusts = |proxies: &Proxies| proxies.trust_unix_socket();
    socket::is_unix(peer) && config.proxies().is_some_and(trusts)
}

/// Returns whether a path belongs to the gateway, in any reading of any server, in upper case too.
/// `/_limit/../x` does: not every upstream resolves the dots.
fn is_reserved<B>(request: &Request<B>) -> bool {
    Head::of(request).any_reading(|path| {
        let mut segments = path.split('/').filter(|segment| !segment.is_empty());
        let first = segments.next().unwrap_or_default();
        first.eq_ignore_ascii_case("_limit")
    })
}

fn is_forwarded(headers: &HeaderMap) -> bool {
    let mut names = ["x-forwarded-for", "x-real-ip", "forwarded"].into_iter();
    names.any(|name| headers.contains_key(name))
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_of_the_gateway_are_known_in_every_spelling() {
        for (path, expected) in [
            ("/_limit/check", true),
            ("/_limit", true),
            ("//_limit/check", true),
            ("/%5flimit/check", true),
            ("/a/../_limit/check", true),
            ("/./_limit%2fcheck", true),
            ("/_limit/../x", true),
            ("/a%2f..%5C_limit", true),
            ("/_limit;x/", true),
            ("/%255flimit/", true),
            ("/_LIMIT/check", true),
            ("/_limit%00/x", true),
            ("/_limit%3fx", true),
            ("/_limits", false),
            ("/a/_limit/check", false),
            ("/", false),
            ("*", false),
        ] {
            let request = Request::get(path).body(()).unwrap();
            assert_eq!(is_reserved(&request), expected, "{path}");
        }
    }

    #[test]
    fn loopback_peers_ask_and_so_do_the_proxies_of_the_file() {
        let file = |proxies: &str| -> Config {
            let policy = "[policies.a]\nquota = \"1/minute\"\nkey = \"client_ip\"\n";
            format!("{policy}{proxies}").parse().unwrap()
        };
        let networks = "[proxies]\nnetworks = [\"10.0.0.0/8\"]\nheader = \"x-forwarded-for\"";
        let hops = "[proxies]\nhops = 1\nheader = \"x-forwarded-for\"";
        let unix = "[proxies]\nunix_socket = true\nheader = \"x-forwarded-for\"";
        // The port of a Unix socket is 0.
        for (proxies, peer, asks, tells_clients) in [
            ("", "127.0.0.1:1", true, true),
            ("", "192.0.2.1:1", false, false),
            (networks, "127.0.0.1:1", true, false),
            (networks, "127.0.0.1:0", true, false),
            (networks, "[::ffff:10.1.1.1]:1", true, true),
            (networks, "192.0.2.1:1", false, false),
            (hops, "127.0.0.1:1", true, true),
            (hops, "192.0.2.1:1", false, true),
            (unix, "127.0.0.1:0", true, true),
            (unix, "127.0.0.1:1", true, false),
        ] {
            let trust = Trust::of(&file(proxies), peer.parse().unwrap());
            let expected = Trust {
                asks,
                tells_clients,
            };
            assert_eq!(trust, expected, "{proxies} {peer}");
        }
    }
}
