//! Access to the page, and to changes of limits.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::{HOST, HeaderName, ORIGIN, VIA};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue};
use tower_ratelimit::__internal::diagnose;
use tower_ratelimit::diagnostics::Diagnostic;
use tower_ratelimit::key::{Head, peer_ip};

const NO_PEER: Diagnostic = Diagnostic::new(
    "TRL034",
    "peer address",
    "the operator's page serves loopback alone, and the server does not tell the address of the peer, so it refuses every request",
    "serve with `app.into_make_service_with_connect_info::<SocketAddr>()`, or name operators with `Access::check`",
);

/// Access to the operator's [router](super::router), and the host names of the service.
///
/// There is no access for everyone: it is limited to the machine itself, or to operators that a closure
/// names.
///
/// # Defaults
///
/// - the page is read-only, until [`writable`](Self::writable)
/// - host names: `localhost` and the addresses of loopback, with any port
#[derive(Clone)]
#[must_use = "access admits no request until a router has it"]
pub struct Access {
    /// Whether requests from this machine are admitted.
    is_for_loopback: bool,
    check: Option<Arc<Check>>,
    is_writable: bool,
    /// In lower case; `None` for loopback.
    hosts: Option<Arc<[String]>>,
}

type Check = dyn Fn(&Head<'_>) -> Option<String> + Send + Sync;

/// The name of an operator, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Operator(pub(super) String);

impl Access {
    /// Admits requests from this machine: the peer of the socket is a loopback address, and no proxy has passed the request
    /// on.
    ///
    /// A request with `Forwarded`, `Via`, `X-Real-IP` or any `X-Forwarded-*` header is refused, because the peer is then a
    /// proxy and not the client. **A proxy on the same machine that adds none of these headers makes all its clients
    /// local:** use [`check`](Self::check) there. The address is read from axum's `ConnectInfo<SocketAddr>`; without it every
    /// request is refused, and the log says so ([`TRL034`](tower_ratelimit::diagnostics)).
    pub fn loopback() -> Self {
        Self::of(true, None)
    }

    /// Admits requests for which the closure returns the name of the operator, for example from the extension
    /// that authentication adds. The name is logged with each change. A request for which it returns `None`
    /// gets a 403.
    ///
    /// [`hosts`](Self::hosts) adds the host names of the service.
    pub fn check<N: Into<String>>(
        operator: impl Fn(&Head<'_>) -> Option<N> + Send + Sync + 'static,
    ) -> Self {
        Self::of(false, None).or_check(operator)
    }

    /// Admits the requests for which the closure returns the name of the operator too, beside those that are admitted
    /// already: operators with a token beside [this machine](Self::loopback).
    pub fn or_check<N: Into<String>>(
        self,
        operator: impl Fn(&Head<'_>) -> Option<N> + Send + Sync + 'static,
    ) -> Self {
        let before = self.check;
        let check = move |head: &Head<'_>| {
            let earlier = before.as_ref().and_then(|check| check(head));
            earlier.or_else(|| operator(head).map(Into::into))
        };
        Self {
            check: Some(Arc::new(check)),
            ..self
        }
    }

    fn of(is_for_loopback: bool, check: Option<Arc<Check>>) -> Self {
        Self {
            is_for_loopback,
            check,
            is_writable: false,
            hosts: None,
        }
    }

    /// Lets operators block keys, end blocks, and change limits. Every change is logged.
    pub fn writable(self) -> Self {
        Self {
            is_writable: true,
            ..self
        }
    }

    /// Sets the host names of the service, in place of those of loopback: `"admin.example.com"` with any
    /// port, or `"admin.example.com:8443"`. Other values of `Host` get a 403.
    ///
    /// A page of another site cannot forge `Host`, even if its name resolves to this service (DNS rebinding).
    pub fn hosts<H: AsRef<str>>(self, hosts: impl IntoIterator<Item = H>) -> Self {
        let hosts = hosts.into_iter();
        Self {
            hosts: Some(
                hosts
                    .map(|host| host.as_ref().to_ascii_lowercase())
                    .collect(),
            ),
            ..self
        }
    }

    pub(super) fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Returns the name of the operator of this request, or why it is refused: for routes beside the page that are for its
    /// operators alone.
    ///
    /// # Errors
    ///
    /// When the host or the origin of the request is none of the service, and when it is of no operator.
    pub fn operator(&self, head: &Head<'_>) -> Result<String, &'static str> {
        self.admit(head).map(|Operator(name)| name)
    }

    /// Returns the operator of this request, or why it is refused.
    pub(super) fn admit(&self, head: &Head<'_>) -> Result<Operator, &'static str> {
        let host = host(head).ok_or("the request names no host, or several")?;
        if !self.serves(&host) {
            return Err("the page is not served under this host name: see `Access::hosts`");
        }
        if !is_of_the_same_origin(head.headers(), &host) {
            return Err("a page of another origin cannot use this one");
        }
        if let Some(name) = self.check.as_ref().and_then(|check| check(head)) {
            return Ok(Operator(name));
        }
        if self.is_for_loopback {
            loopback(head)
        } else {
            Err("this request names no operator")
        }
    }

    fn serves(&self, host: &Authority) -> bool {
        match &self.hosts {
            Some(hosts) => {
                let with_port = host.as_str().to_ascii_lowercase();
                let name = host.host().to_ascii_lowercase();
                hosts.iter().any(|host| *host == with_port || *host == name)
            }
            None => is_loopback(host.host()),
        }
    }
}

fn is_loopback(name: &str) -> bool {
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Returns the host of a request: the authority of its target, as in HTTP/2, or otherwise its only `Host`.
fn host(head: &Head<'_>) -> Option<Authority> {
    let mut hosts = head.headers().get_all(HOST).iter();
    let first = hosts.next().map(|host| parsed(host.as_bytes()));
    if hosts.next().is_some() {
        return None;
    }
    let host = match (head.uri().authority(), first) {
        (Some(target), None) => target.clone(),
        (Some(target), Some(host)) => host.filter(|host| host == target)?,
        (None, host) => host??,
    };
    // `user@name` is not a host.
    (!host.as_str().contains('@')).then_some(host)
}

fn parsed(text: &[u8]) -> Option<Authority> {
    Authority::try_from(text).ok()
}

/// Returns whether no page of another origin has sent the request. A browser sends the origin with each
/// request that changes something, and with each stream of events that another origin opens.
fn is_of_the_same_origin(headers: &HeaderMap, host: &Authority) -> bool {
    let is_same = |origin: &HeaderValue| {
        let origin = origin.to_str().ok();
        let rest = origin.and_then(|origin| {
            origin
                .strip_prefix("https://")
                .or_else(|| origin.strip_prefix("http://"))
        });
        rest.and_then(|rest| parsed(rest.as_bytes()))
            .is_some_and(|origin| origin == *host)
    };
    headers.get_all(ORIGIN).iter().all(is_same)
}

fn loopback(head: &Head<'_>) -> Result<Operator, &'static str> {
    if head.headers().keys().any(is_set_by_proxies) {
        return Err(
            "a proxy has passed the request on, and the page serves this machine alone: see `Access::check`",
        );
    }
    let Some(peer) = peer(head) else {
        diagnose(&NO_PEER);
        return Err("the server does not tell the address of the peer");
    };
    if peer.is_loopback() {
        Ok(Operator(format!("loopback {peer}")))
    } else {
        Err("the page serves this machine alone: see `Access::check`")
    }
}

fn is_set_by_proxies(name: &HeaderName) -> bool {
    let text = name.as_str();
    name == VIA || text == "forwarded" || text == "x-real-ip" || text.starts_with("x-forwarded-")
}

fn peer(head: &Head<'_>) -> Option<IpAddr> {
    peer_ip().address(head).ok()
}

/// Leaves out closures.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("is_for_loopback", &self.is_for_loopback)
            .field("has_check", &self.check.is_some())
            .field("is_writable", &self.is_writable)
            .field("hosts", &self.hosts)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use std::net::SocketAddr;

    use super::*;

    fn admit(
        access: &Access,
        peer: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Operator, &'static str> {
        let mut request = Request::get("/events").body(()).unwrap();
        let peer: SocketAddr = peer.parse().unwrap();
        request.extensions_mut().insert(peer);
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        access.admit(&Head::of(&request))
    }

    const HERE: &str = "127.0.0.1:40000";

    #[test]
    fn loopback_admits_the_peer_of_this_machine_alone() {
        let access = Access::loopback();
        let host = ("host", "localhost:3000");
        for peer in [HERE, "[::1]:40000", "[::ffff:127.0.0.1]:40000"] {
            assert!(admit(&access, peer, &[host]).is_ok(), "{peer}");
        }
        for peer in [
            "192.0.2.1:40000",
            "10.0.0.1:40000",
            "[2001:db8::1]:40000",
            "0.0.0.0:40000",
        ] {
            assert!(admit(&access, peer, &[host]).is_err(), "{peer}");
        }
    }

    #[test]
    fn loopback_refuses_what_a_proxy_has_passed_on() {
        for name in [
            "forwarded",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-anything",
            "via",
            "x-real-ip",
        ] {
            let headers = [("host", "localhost"), (name, "127.0.0.1")];
            assert!(
                admit(&Access::loopback(), HERE, &headers).is_err(),
                "{name}"
            );
        }
    }

    #[test]
    fn loopback_without_the_address_of_the_peer_refuses_all() {
        let request = Request::get("/")
            .header("host", "localhost")
            .body(())
            .unwrap();
        let refused = Access::loopback().admit(&Head::of(&request));
        assert_eq!(
            refused,
            Err("the server does not tell the address of the peer")
        );
    }

    #[test]
    fn a_name_that_resolves_to_this_machine_is_no_name_of_it() {
        let access = Access::loopback();
        for host in [
            "localhost",
            "localhost:3000",
            "LOCALHOST:1",
            "127.0.0.1:3000",
            "127.1.2.3",
            "[::1]:3000",
        ] {
            assert!(admit(&access, HERE, &[("host", host)]).is_ok(), "{host}");
        }
        let wrong = [
            "evil.example",
            "evil.example:3000",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "user@localhost",
            "localhost@evil.example",
            "10.0.0.1",
            "0.0.0.0:3000",
            "",
            "local host",
        ];
        for host in wrong {
            assert!(admit(&access, HERE, &[("host", host)]).is_err(), "{host}");
        }
        assert!(admit(&access, HERE, &[]).is_err(), "no host");
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert!(admit(&access, HERE, &two).is_err(), "two hosts");
    }

    #[test]
    fn the_target_and_the_host_of_a_request_are_one() {
        let of = |target: &str, host: Option<&str>| {
            let mut request = Request::get(target);
            if let Some(host) = host {
                request = request.header("host", host);
            }
            let peer: SocketAddr = HERE.parse().unwrap();
            let request = request.extension(peer).body(()).unwrap();
            Access::loopback().admit(&Head::of(&request))
        };
        assert!(of("http://localhost:3000/", None).is_ok());
        assert!(of("http://localhost:3000/", Some("localhost:3000")).is_ok());
        assert!(of("http://evil.example/", None).is_err());
        assert!(of("http://evil.example/", Some("localhost:3000")).is_err());
        assert!(of("http://localhost:3000/", Some("evil.example")).is_err());
    }

    #[test]
    fn a_page_of_another_origin_is_refused() {
        let access = Access::loopback();
        let of = |origin: &str| {
            admit(
                &access,
                HERE,
                &[("host", "localhost:3000"), ("origin", origin)],
            )
        };
        for origin in ["http://localhost:3000", "https://localhost:3000"] {
            assert!(of(origin).is_ok(), "{origin}");
        }
        let others = [
            "http://evil.example",
            "http://localhost:3001",
            "http://localhost",
            "http://127.0.0.1:3000",
            "null",
            "",
            "localhost:3000",
            "file://localhost:3000",
        ];
        for origin in others {
            assert!(of(origin).is_err(), "{origin}");
        }
    }

    #[test]
    fn a_closure_names_operators_beside_those_of_this_machine() {
        let access = Access::loopback()
            .or_check(|head: &Head<'_>| head.header("x-operator").map(str::to_owned));
        let host = ("host", "localhost:3000");
        let away = "192.0.2.1:40000";
        let named = [host, ("x-operator", "ann")];
        assert_eq!(admit(&access, away, &named).unwrap().0, "ann");
        assert!(admit(&access, HERE, &[host]).is_ok());
        assert!(admit(&access, away, &[host]).is_err());
        let evil = [("host", "evil.example"), ("x-operator", "ann")];
        assert!(admit(&access, away, &evil).is_err());
    }

    #[test]
    fn other_hosts_are_named_and_a_closure_names_the_operator() {
        let access = Access::check(|head: &Head<'_>| head.header("x-operator").map(str::to_owned))
            .hosts(["Admin.example.com", "other.example:8443"]);
        let of = |host: &str| {
            admit(
                &access,
                "192.0.2.1:4000",
                &[("host", host), ("x-operator", "ann")],
            )
        };
        for host in [
            "admin.example.com",
            "ADMIN.example.com:443",
            "other.example:8443",
        ] {
            assert_eq!(of(host), Ok(Operator("ann".to_owned())), "{host}");
        }
        for host in [
            "localhost",
            "example.com",
            "other.example",
            "other.example:1",
        ] {
            assert!(of(host).is_err(), "{host}");
        }
        assert!(
            admit(&access, HERE, &[("host", "admin.example.com")]).is_err(),
            "no operator"
        );
    }
}
