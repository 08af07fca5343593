//! Options of other limiters for HTTP, and what the pages on migrating make of them: which requests count, and by which key. Each
//! limiter is a model of its documentation; time stands still, so a limit of any of them is a number of requests.

use std::collections::HashMap;
use std::net::IpAddr;

use axum::extract::connect_info::ConnectInfo;
use http::{Method, Request};
use tower::{Layer, service_fn};
use tower_ratelimit::key::{self, Extractor, Forwarding, Proxies};
use tower_ratelimit::middleware::RateLimitLayerBuilder;
use tower_ratelimit::policy::{Http, OnMissingKey};
use tower_ratelimit::{
    AnchoredWindow, ManualClock, MemoryStore, Policy, RateLimitLayer, TokenBucket,
};

use crate::exchange::{Behind, Hello, ask, global, limit};
use crate::scene::passed;
use crate::{forwarding, soft};

/// How many requests of each key have passed.
#[derive(Default)]
struct Passed(HashMap<String, u32>);

impl Passed {
    /// Returns whether one more request passes. If it does not, it is not counted.
    fn one(&mut self, key: &impl ToString, limit: u32) -> bool {
        let count = self.0.entry(key.to_string()).or_default();
        let passes = *count < limit;
        *count += u32::from(passes);
        passes
    }
}

type Trusts = fn(&str, usize) -> bool;

type Theirs = Box<dyn FnMut(&Request<()>, &mut Passed) -> bool>;

/// Asks both about the requests several times.
#[track_caller]
fn assert_alike(
    option: &str,
    requests: &[Request<()>],
    ours: RateLimitLayerBuilder,
    theirs: &mut dyn FnMut(&Request<()>, &mut Passed) -> bool,
) {
    let store = MemoryStore::new().clock(ManualClock::new());
    let service = Hello::behind(&ours.store(store).build().unwrap());
    let (mut counted, mut told) = (Passed::default(), [0, 0]);
    for request in requests.iter().cycle().take(4 * requests.len()) {
        let passes = theirs(request, &mut counted);
        told[usize::from(passes)] += 1;
        let ours = passed(&ask(&service, request.clone()));
        assert_eq!(ours, passes, "{option}: {request:?}");
    }
    assert!(told.iter().all(|count| *count > 0), "{option}: {told:?}");
}

fn request(method: Method, path: &str, peer: &str) -> Request<()> {
    let mut request = forwarding::request(peer.parse().ok(), &[]);
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().unwrap();
    request
}

fn peer(request: &Request<()>) -> IpAddr {
    let peer: &ConnectInfo<std::net::SocketAddr> = request.extensions().get().unwrap();
    peer.0.ip()
}

fn layer(policies: impl IntoIterator<Item = Policy<Http>>) -> RateLimitLayerBuilder {
    policies
        .into_iter()
        .fold(RateLimitLayer::builder(), RateLimitLayerBuilder::policy)
}

fn by_address(name: &str, limit: u32) -> Policy<Http> {
    Policy::new(name, TokenBucket::per_minute(1).burst(limit)).key(key::client_ip())
}

/// `ipKeyGenerator`: the network of an IPv6 address, unless `ipv6Subnet` is `false`.
fn network(address: IpAddr, prefix: Option<u32>) -> String {
    match (address, prefix) {
        (IpAddr::V6(address), Some(prefix)) => {
            format!("{:x}/{prefix}", address.to_bits() >> (128 - prefix))
        }
        _ => address.to_string(),
    }
}

#[test]
fn networks_of_express_rate_limit_are_counted_alike() {
    let clients = [
        "2001:db8:1:200::1",
        "2001:db8:1:200::2",
        "2001:db8:1:201::1",
        "2001:db8:1:300::1",
        "2001:db8:2:200::1",
    ];
    let both = clients.into_iter().chain(["192.0.2.1", "192.0.2.2"]);
    let both: Vec<_> = both.map(|it| request(Method::GET, "/", it)).collect();
    let window = || AnchoredWindow::per_minute(3);
    for (option, bits) in [
        ("ipv6Subnet: 56", 56),
        ("ipv6Subnet: 48", 48),
        ("ipv6Subnet: false", 128),
    ] {
        let key = key::client_ip().ipv6_prefix(bits);
        let ours = layer([Policy::new("all", window()).key(key)]);
        let prefix = (bits < 128).then_some(bits.into());
        assert_alike(option, &both, ours, &mut |request, passed| {
            passed.one(&network(peer(request), prefix), 3)
        });
    }

    // By the request; the page says that a client of IPv4 has a limit under each policy here.
    let paths = ["/", "/login"].into_iter();
    let requests = paths.flat_map(|path| clients.map(|it| request(Method::GET, path, it)));
    let of = |name, bits| Policy::new(name, window()).key(key::client_ip().ipv6_prefix(bits));
    let ours = layer([
        of("login", 48).when(|head| head.path() == "/login"),
        of("other", 64).when(|head| head.path() != "/login"),
    ]);
    let requests: Vec<_> = requests.collect();
    let option = "ipv6Subnet: (req) => ..";
    assert_alike(option, &requests, ours, &mut |request, passed| {
        let is_login = request.uri().path() == "/login";
        let prefix = if is_login { 48 } else { 64 };
        passed.one(&network(peer(request), Some(prefix)), 3)
    });
}

/// `req.ip` of Express: the first address, from the peer on, that `trust proxy` does not trust, or else the last.
fn address(request: &Request<()>, trusts: &dyn Fn(&str, usize) -> bool) -> String {
    let chain = request.headers().get("x-forwarded-for");
    let chain = chain.map_or("", |chain| chain.to_str().unwrap());
    let sent = chain.rsplit(", ").filter(|it| !it.is_empty());
    let mut addresses: Vec<String> = vec![peer(request).to_string()];
    addresses.extend(sent.map(str::to_owned));
    let mut indices = addresses.iter().enumerate();
    let untrusted = indices.position(|(index, address)| !trusts(address, index));
    addresses.swap_remove(untrusted.unwrap_or(addresses.len() - 1))
}

#[test]
fn proxies_that_express_trusts_are_trusted_alike() {
    let chains = [
        "",
        "203.0.113.7",
        "203.0.113.8",
        "198.51.100.9, 203.0.113.7",
        "203.0.113.8, 10.2.0.1",
        "203.0.113.7, 192.0.2.1, 10.2.0.1",
        "10.3.0.1, 10.2.0.1",
    ];
    let requests = ["10.0.0.1", "192.0.2.1"].into_iter().flat_map(|peer| {
        chains.map(|chain| {
            let lines = [("x-forwarded-for", chain.as_bytes())];
            let lines = &lines[usize::from(chain.is_empty())..];
            forwarding::request(peer.parse().ok(), lines)
        })
    });
    let requests: Vec<_> = requests.collect();
    let behind = |proxies: Proxies| key::client_ip().behind(proxies, Forwarding::XForwardedFor);
    let rows: [(&str, Extractor<key::ClientIp>, Trusts); 3] = [
        ("no trust proxy", key::client_ip(), |_, _| false),
        ("'trust proxy', 1", behind(Proxies::hops(1)), |_, index| {
            index < 1
        }),
        (
            "'trust proxy', '10.0.0.0/8'",
            behind(Proxies::in_networks(["10.0.0.0/8"])),
            |address, _| address.starts_with("10."),
        ),
    ];
    for (option, key, trusts) in rows {
        let ours = layer([Policy::new("all", AnchoredWindow::per_minute(5)).key(key)]);
        assert_alike(option, &requests, ours, &mut |request, passed| {
            passed.one(&address(request, &trusts), 5)
        });
    }
}

/// Three methods, on several paths, of three clients.
fn mixed() -> Vec<Request<()>> {
    let mut requests = Vec::new();
    for peer in ["203.0.113.7", "203.0.113.8", "192.0.2.1"] {
        for path in ["/", "/health", "/healthy", "/internal/a/b", "/internals"] {
            for method in [Method::GET, Method::POST, Method::OPTIONS] {
                requests.push(request(method, path, peer));
            }
        }
    }
    requests
}

/// `.methods(vec![Method::POST])` of `tower_governor` and `actix-governor`: requests of other methods have no limit.
#[test]
fn methods_of_tower_governor_and_actix_governor_are_limited_alike() {
    let ours = layer([by_address("writes", 2).when(|head| head.method() == "POST")]);
    assert_alike(".methods(..)", &mixed(), ours, &mut |request, passed| {
        request.method() != Method::POST || passed.one(&peer(request), 2)
    });
}

/// The default key of `actix-limitation` is a cookie, and without it a request passes. `RateLimiter::scoped` is a limit of some routes.
#[test]
fn options_of_actix_limitation_decide_alike() {
    let cookies = [
        None,
        Some("sid=a"),
        Some("sid=b"),
        Some("other=a"),
        Some("x=1; sid=a"),
    ];
    let requests = ["/", "/api"].into_iter().flat_map(|path| {
        cookies.map(|cookie| {
            let mut request = request(Method::GET, path, "203.0.113.1");
            if let Some(cookie) = cookie {
                request
                    .headers_mut()
                    .insert("cookie", cookie.parse().unwrap());
            }
            request
        })
    });
    let requests: Vec<_> = requests.collect();
    let sid = |request: &Request<()>| {
        let cookie = request.headers().get("cookie")?.to_str().ok()?;
        let sid = cookie.split("; ").find_map(|one| one.strip_prefix("sid="));
        sid.map(str::to_owned)
    };
    let by_cookie = || {
        let policy = Policy::new("hourly", AnchoredWindow::per_hour(3)).key(key::cookie("sid"));
        policy.on_missing_key(OnMissingKey::Skip)
    };
    let scoped = by_cookie().when(|head| head.path().starts_with("/api"));
    assert_alike(
        ".cookie_name(..)",
        &requests,
        layer([by_cookie()]),
        &mut |request, passed| sid(request).is_none_or(|sid| passed.one(&sid, 3)),
    );
    assert_alike(
        "scoped(..)",
        &requests,
        layer([scoped]),
        &mut |request, passed| {
            let is_scoped = request.uri().path().starts_with("/api");
            !is_scoped || sid(request).is_none_or(|sid| passed.one(&sid, 3))
        },
    );
}

/// `PeerIpKeyExtractor` of `actix-governor` counts IPv6 clients by /56, and `whitelisted_keys` of an extractor are not counted.
#[test]
fn keys_of_actix_governor_are_counted_alike() {
    let clients = [
        "2001:db8:1:200::1",
        "2001:db8:1:2ff::1",
        "2001:db8:1:300::1",
        "192.0.2.1",
        "203.0.113.1",
    ];
    let requests: Vec<_> = clients.map(|it| request(Method::GET, "/", it)).into();
    let key = key::client_ip().ipv6_prefix(56);
    let policy = Policy::new("address", TokenBucket::per_minute(1).burst(2)).key(key);
    let listed: IpAddr = "192.0.2.1".parse().unwrap();
    let ours = layer([policy]).allow(key::client_ip().within(["192.0.2.1"]));
    assert_alike(
        "PeerIpKeyExtractor",
        &requests,
        ours,
        &mut |request, passed| {
            let peer = peer(request);
            peer == listed || passed.one(&network(peer, Some(56)), 2)
        },
    );
}

/// `.permissive(true)` of `actix-governor`: a request over the limit passes, and finds the result among its extensions.
#[test]
fn requests_over_a_permissive_limit_of_actix_governor_are_marked_alike() {
    let (_, layer) = limit([by_address("address", 2).soft()]);
    let service = layer.layer(service_fn(soft::over));
    let mut counted = Passed::default();
    for client in [1, 1, 2, 1, 2, 2, 1, 2, 3] {
        let request = request(Method::GET, "/", &format!("203.0.113.{client}"));
        let marked = if counted.one(&client, 2) {
            "none"
        } else {
            "address"
        };
        let answer = ask(&service, request);
        assert!(passed(&answer));
        assert_eq!(answer.text(), marked, "{client}");
    }
}

/// Returns whether the client is in the network of the whitelist, which has a quota of its own in another row.
fn is_listed(request: &Request<()>) -> bool {
    peer(request).to_string().starts_with("192.0.2.")
}

#[test]
fn options_of_axum_governor_decide_alike() {
    // .quota_default(Quota::requests_per_minute(nz!(1)).burst(nz!(3)))
    let default = || by_address("default", 3);
    let by_default = |request: &Request<()>, passed: &mut Passed| passed.one(&peer(request), 3);
    let rows: [(&str, RateLimitLayerBuilder, Theirs); 8] = [
        (
            ".quota_for(Method::POST, ..)",
            layer([
                by_address("writes", 5).when(|head| head.method() == "POST"),
                default().when(|head| head.method() != "POST"),
            ]),
            Box::new(|request, passed| match *request.method() {
                Method::POST => passed.one(&format!("POST {}", peer(request)), 5),
                _ => passed.one(&peer(request), 3),
            }),
        ),
        (
            ".stack(\"all\", Global, ..)",
            layer([
                default(),
                global("all", TokenBucket::per_minute(1).burst(7)),
            ]),
            Box::new(move |request, passed| by_default(request, passed) && passed.one(&"all", 7)),
        ),
        (
            ".quotas(\"address\", PeerIp, [..])",
            layer([by_address("more", 4), by_address("fewer", 2)]),
            Box::new(|request, passed| {
                let address = peer(request);
                passed.one(&format!("more {address}"), 4) && passed.one(&address, 2)
            }),
        ),
        (
            "with_quota_override",
            layer([default().limit_by(|head| {
                let is_listed = key::client_ip().within(["192.0.2.0/24"]);
                is_listed(head).then(|| TokenBucket::per_minute(1).burst(9))
            })]),
            Box::new(|request, passed| {
                passed.one(&peer(request), if is_listed(request) { 9 } else { 3 })
            }),
        ),
        (
            ".whitelist_methods([Method::OPTIONS])",
            layer([default().when(|head| head.method() != "OPTIONS")]),
            Box::new(move |request, passed| {
                request.method() == Method::OPTIONS || by_default(request, passed)
            }),
        ),
        (
            ".whitelist_paths([\"/health\"])",
            layer([default()]).exempt_paths(["/health"]),
            Box::new(move |request, passed| {
                request.uri().path() == "/health" || by_default(request, passed)
            }),
        ),
        (
            ".whitelist_paths([\"/internal/**\"])",
            layer([default()]).allow(|head| head.path().starts_with("/internal/")),
            Box::new(move |request, passed| {
                let segments: Vec<_> = request.uri().path().split('/').collect();
                segments.starts_with(&["", "internal"]) || by_default(request, passed)
            }),
        ),
        (
            ".whitelist_ips([\"192.0.2.0/24\"])",
            layer([default()]).allow(key::client_ip().within(["192.0.2.0/24"])),
            Box::new(move |request, passed| is_listed(request) || by_default(request, passed)),
        ),
    ];
    for (option, ours, mut theirs) in rows {
        assert_alike(option, &mixed(), ours, &mut theirs);
    }
}

/// The page says so: there, the limits before the one that refuses have been charged.
#[test]
fn a_request_that_the_stack_of_axum_governor_refuses_is_charged_to_no_limit_here() {
    let (_, layer) = limit([
        global("all", TokenBucket::per_minute(1).burst(4)),
        by_address("address", 2),
    ]);
    let service = Hello::behind(&layer);
    let mut counted = Passed::default();
    let told = [1, 1, 1, 2, 2].map(|client| {
        let request = request(Method::GET, "/", &format!("203.0.113.{client}"));
        let theirs = counted.one(&"all", 4) && counted.one(&client, 2);
        (theirs, passed(&ask(&service, request)))
    });
    let both = [(true, true), (true, true), (false, false), (true, true)];
    assert_eq!(told[..4], both);
    assert_eq!(told[4], (false, true));
}
