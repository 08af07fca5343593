//! Lists of whole addresses, which a client cannot avoid by making its address unreadable.

use std::net::{IpAddr, SocketAddr};

use http::{Request, StatusCode};
use tower_ratelimit::key::{self, ClientIp, Extractor, Forwarding, Head, Proxies};
use tower_ratelimit::{AnchoredWindow, RateLimitLayer};

use crate::exchange::{Behind, Hello, ask, global};

const PROXY: [u8; 4] = [10, 0, 0, 1];

/// Behind a proxy in 10.0.0.0/8, which appends to the header of the client.
fn behind_a_proxy() -> Extractor<ClientIp> {
    let proxies = Proxies::in_networks(["10.0.0.0/8"]);
    key::client_ip().behind(proxies, Forwarding::Forwarded)
}

/// Through the proxy, from 203.0.113.7.
fn appended_to(line: &str) -> Request<()> {
    Request::get("/")
        .extension(SocketAddr::from((PROXY, 4711)))
        .header("forwarded", format!("{line}for=203.0.113.7"))
        .body(())
        .unwrap()
}

#[test]
fn a_client_that_breaks_the_chain_is_not_taken_for_the_proxy_on_a_list_of_those_allowed() {
    let proxy = IpAddr::from(PROXY);
    let inside = "10.0.0.0/8";
    let builder = || RateLimitLayer::builder().policy(global("all", AnchoredWindow::per_day(1)));
    for (list, layer) in [
        ("within", builder().allow(behind_a_proxy().within([inside]))),
        ("one_of", builder().allow(behind_a_proxy().one_of([proxy]))),
        (
            "map",
            builder().allow(behind_a_proxy().map(|ip: IpAddr| ip).one_of([proxy])),
        ),
        (
            "prefix",
            builder().allow(behind_a_proxy().prefix("a").one_of([proxy])),
        ),
    ] {
        let service = Hello::behind(&layer.build().unwrap());
        for line in ["", "for=\"", "for=10.0.0.9, x=\""] {
            ask(&service, appended_to(line));
            let answer = ask(&service, appended_to(line));
            assert_eq!(
                answer.status,
                StatusCode::TOO_MANY_REQUESTS,
                "{list} {line}"
            );
        }
    }
}

#[test]
fn a_listed_address_is_found_whatever_the_prefix_by_which_clients_are_counted() {
    let listed: IpAddr = "2001:db8:1:2::7".parse().unwrap();
    let request = Request::get("/")
        .extension(SocketAddr::from((listed, 4711)))
        .body(())
        .unwrap();
    for bits in [32, 48, 56, 64, 128] {
        let is_listed = key::client_ip().ipv6_prefix(bits).one_of([listed]);
        assert!(is_listed(&Head::of(&request)), "/{bits}");
    }
}
