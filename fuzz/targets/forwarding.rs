//! The client's address behind proxies: a client does not choose it, whatever it writes into forwarding fields.

#![no_main]

use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use axum::extract::ConnectInfo;
use http::{HeaderMap, HeaderValue, Request};
use libfuzzer_sys::fuzz_target;
use tower_ratelimit::key::{self, ClientIp, Extractor, Forwarding, Head, Proxies};
use tower_ratelimit_fuzz::{fields, joined};

const PROXY: &str = "10.0.0.1";
const CLIENT: &str = "203.0.113.9";

/// Each field, by networks, and by hops with the number of proxies.
static KEYS: LazyLock<Vec<Extractor<ClientIp>>> = LazyLock::new(|| {
    let fields = [
        Forwarding::XForwardedFor,
        Forwarding::Forwarded,
        Forwarding::CF_CONNECTING_IP,
        Forwarding::CLOUDFRONT_VIEWER_ADDRESS,
        Forwarding::X_REAL_IP,
    ];
    let behind = |field: Forwarding| {
        let networks = Proxies::in_networks(["10.0.0.0/8", "fd00::/8"]);
        let client = key::client_ip().unwrap_ipv4(["64:ff9b::/96"]);
        [
            client.behind(networks, field.clone()),
            key::client_ip().behind(Proxies::hops(1), field.clone()),
            key::client_ip().behind(Proxies::hops(2), field),
        ]
    };
    fields.into_iter().flat_map(behind).collect()
});

fuzz_target!(|text: &[u8]| {
    let sent = fields(text);
    let told = addresses(PROXY, &sent);
    for address in &told {
        let read = address.to_string().parse::<IpAddr>();
        assert_eq!(read, Ok(*address));
    }

    // Who is no proxy is counted under its own address. Hops trust the peer, whoever it is.
    let stranger = addresses(CLIENT, &sent);
    for (index, address) in stranger.iter().enumerate() {
        assert!(
            index % 3 != 0 || address.to_string() == CLIENT,
            "{address}: key {index}"
        );
    }

    // Several lines are one list.
    let one_line = addresses(PROXY, &joined(&sent));
    assert_eq!(told[..3], one_line[..3]);

    // What a proxy has appended counts, and not what stands before it.
    let mut forged = sent;
    forged.append("x-forwarded-for", HeaderValue::from_static(CLIENT));
    forged.append("forwarded", HeaderValue::from_static("for=203.0.113.9"));
    let told = addresses(PROXY, &forged);
    for index in [0, 1, 3, 4] {
        assert_eq!(told[index].to_string(), CLIENT, "key {index}");
    }
});

fn addresses(peer: &str, sent: &HeaderMap) -> Vec<IpAddr> {
    let mut request = Request::new(());
    *request.headers_mut() = sent.clone();
    let peer = SocketAddr::new(peer.parse().expect("it is an address"), 40_000);
    request.extensions_mut().insert(ConnectInfo(peer));
    let head = Head::of(&request);
    let address = |key: &Extractor<ClientIp>| key.address(&head).expect("the peer has one");
    KEYS.iter().map(address).collect()
}
