//! A client does not choose its key, whatever it writes into forwarding headers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::Request;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tower_ratelimit::key::{self, ClientIp, Extractor, Forwarding, IntoKey, Proxies};

use crate::forwarding::{PROXY, extract, in_networks, key_of, request};

const FIELDS: [&str; 9] = [
    "x-forwarded-for",
    "forwarded",
    "cf-connecting-ip",
    "true-client-ip",
    "x-real-ip",
    "fly-client-ip",
    "cloudfront-viewer-address",
    "x-envoy-external-address",
    "fastly-client-ip",
];

fn forwarding() -> impl Strategy<Value = Forwarding> {
    prop::sample::select(vec![
        Forwarding::XForwardedFor,
        Forwarding::Forwarded,
        Forwarding::CF_CONNECTING_IP,
        Forwarding::TRUE_CLIENT_IP,
        Forwarding::X_REAL_IP,
        Forwarding::FLY_CLIENT_IP,
        Forwarding::CLOUDFRONT_VIEWER_ADDRESS,
        Forwarding::X_ENVOY_EXTERNAL_ADDRESS,
        Forwarding::FASTLY_CLIENT_IP,
    ])
}

/// Bytes of a header, most of which have a meaning in these headers.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let meaningful = prop::sample::select(b"for=FOR;by\"\\,:[]._ \t0123456789abcdef%/".to_vec());
    // All bytes but controls, which a header cannot contain.
    let any = prop_oneof![Just(b'\t'), 32..127_u8, 128..=255_u8];
    vec(prop_oneof![4 => meaningful, 1 => any], 0..200)
}

/// Returns the headers of an attacker: addresses, trusted proxies, names, and garbage.
fn forged() -> impl Strategy<Value = Vec<u8>> {
    let text = prop::sample::select(vec![
        "10.0.0.1",
        "fd00::1",
        "198.51.100.9",
        "[2001:db8::9]:80",
        "unknown",
        "_hidden",
        "",
        "for=10.0.0.1",
        "for=198.51.100.9;by=\"x, y\"",
        "for=\"[2001:db8::9]:80\"",
        "for=unknown",
        "proto=https",
        "for=\"\\\"\"",
    ]);
    prop_oneof![3 => text.prop_map(|text| text.as_bytes().to_vec()), 1 => bytes()]
}

/// Returns a client that no configuration here trusts.
fn client() -> impl Strategy<Value = IpAddr> {
    let v4 = any::<[u8; 3]>().prop_map(|[b, c, d]| Ipv4Addr::new(203, b, c, d).into());
    let v6 =
        any::<u64>().prop_map(|low| Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(low)).into());
    prop_oneof![v4, v6]
}

/// Returns an address as an element of `X-Forwarded-For`, in one of its spellings.
fn element(address: IpAddr, spelling: u8, port: u16) -> String {
    match (address, spelling % 3) {
        (IpAddr::V4(_), 0) => format!("{address}:{port}"),
        (IpAddr::V6(_), 0) => format!("[{address}]:{port}"),
        (IpAddr::V4(v4), 1) => format!("::ffff:{v4}"),
        (IpAddr::V6(_), 1) => format!("[{address}]"),
        _ => address.to_string(),
    }
}

/// Returns the same address as an element of `Forwarded`.
fn forwarded(address: IpAddr, spelling: u8, port: u16) -> String {
    match (address, spelling % 3) {
        (IpAddr::V4(_), 0) => format!("for=\"{address}:{port}\";proto=https"),
        (IpAddr::V6(_), 0) => format!("by=_x;for=\"[{address}]:{port}\""),
        (IpAddr::V4(_), 1) => format!("For=\"{address}\""),
        (IpAddr::V4(_), _) => format!("for={address}"),
        (IpAddr::V6(_), _) => format!("host=\"a,\\\"b\";for=\"[{address}]\""),
    }
}

fn from_proxy(lines: &[(&str, &[u8])]) -> Request<()> {
    request(PROXY.parse().ok(), lines)
}

fn by_hops(hops: u8, forwarding: Forwarding) -> Extractor<ClientIp> {
    key::client_ip().behind(Proxies::hops(hops), forwarding)
}

/// As many cases as `PROPTEST_CASES` says, or 2,000.
fn config() -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/http/proptest-regressions/forged.txt"
        )))),
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 2_000;
    }
    config
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn entries_to_the_left_in_x_forwarded_for_change_nothing(
        forged in vec(forged(), 0..150),
        lines in any::<bool>(),
        client in client(),
        proxies in 0_u8..4,
        spelling in any::<u8>(),
        port in any::<u16>(),
    ) {
        let told = element(client, spelling, port) + &", 10.0.1.1".repeat(proxies.into());
        let forged = forged.join(&b", "[..]);
        let joined = [&forged, &b","[..], told.as_bytes()].concat();
        let apart = [("x-forwarded-for", &forged[..]), ("x-forwarded-for", told.as_bytes())];
        let together = [("x-forwarded-for", &joined[..])];
        let request = from_proxy(if lines { &apart } else { &together });

        let key = in_networks(Forwarding::XForwardedFor).without_fallback();
        prop_assert_eq!(extract(&key, &request), Ok(client.into_key()));
        let key = by_hops(proxies + 1, Forwarding::XForwardedFor).without_fallback();
        prop_assert_eq!(extract(&key, &request), Ok(client.into_key()));
    }

    #[test]
    fn entries_to_the_left_in_forwarded_make_no_other_client(
        forged in vec(forged(), 0..150),
        lines in any::<bool>(),
        client in client(),
        proxies in 0_u8..4,
        spelling in any::<u8>(),
        port in any::<u16>(),
    ) {
        let through = r#", for=10.0.1.1;by="_p""#.repeat(proxies.into());
        let told = forwarded(client, spelling, port) + &through;
        let forged = forged.join(&b", "[..]);
        let joined = [&forged, &b", "[..], told.as_bytes()].concat();
        let apart = [("forwarded", &forged[..]), ("forwarded", told.as_bytes())];
        let together = [("forwarded", &joined[..])];
        let request = from_proxy(if lines { &apart } else { &together });

        for key in [in_networks(Forwarding::Forwarded), by_hops(proxies + 1, Forwarding::Forwarded)] {
            let found = extract(&key, &request);
            // A quote that stays open in the line of the proxy makes that line unusable, and has no other effect.
            let may_fall_back = !lines && is_open(&forged);
            let expected = if may_fall_back { key_of(PROXY) } else { client.into_key() };
            prop_assert_eq!(found, Ok(expected));
        }
    }

    #[test]
    fn an_untrusted_peer_counts_under_its_own_address(
        fields in vec((prop::sample::select(FIELDS.to_vec()), forged()), 0..10),
        forwarding in forwarding(),
        peer in client(),
    ) {
        let lines: Vec<_> = fields.iter().map(|(name, value)| (*name, &value[..])).collect();
        let request = request(Some(peer), &lines);
        for key in [in_networks(forwarding.clone()), in_networks(forwarding).without_fallback(), key::client_ip()] {
            prop_assert_eq!(extract(&key, &request), Ok(peer.into_key()));
        }
    }

    #[test]
    fn no_bytes_make_it_panic_or_blame_the_server(
        values in vec(bytes(), 1..5),
        forwarding in forwarding(),
        hops in 1_u8..=32,
    ) {
        let fields = FIELDS.iter().flat_map(|name| values.iter().map(|value| (*name, &value[..])));
        let fields: Vec<_> = fields.collect();
        let request = from_proxy(&fields);
        for key in [in_networks(forwarding.clone()), by_hops(hops, forwarding)] {
            prop_assert!(extract(&key, &request).is_ok());
            let without = extract(&key.without_fallback(), &request);
            prop_assert!(matches!(without, Ok(_) | Err(key::Missing::ByClient)));
        }
    }

    #[test]
    fn an_address_that_is_printed_is_read_again(
        octets in any::<[u8; 16]>(),
        is_v4 in any::<bool>(),
        spelling in any::<u8>(),
        port in any::<u16>(),
    ) {
        let [a, b, c, d, ..] = octets;
        let address = if is_v4 { Ipv4Addr::new(a, b, c, d).into() } else { IpAddr::from(octets) };
        let viewer = format!("{address}:{port}");
        let xff = element(address, spelling, port);
        let of_rfc_7239 = forwarded(address, spelling, port);
        for (forwarding, name, value) in [
            (Forwarding::XForwardedFor, "x-forwarded-for", &xff),
            (Forwarding::X_REAL_IP, "x-real-ip", &xff),
            (Forwarding::Forwarded, "forwarded", &of_rfc_7239),
            (Forwarding::CLOUDFRONT_VIEWER_ADDRESS, "cloudfront-viewer-address", &viewer),
        ] {
            let request = from_proxy(&[(name, value.as_bytes())]);
            let key = in_networks(forwarding).without_fallback().ipv6_prefix(128);
            let peer = request_of_peer(address);
            prop_assert_eq!(extract(&key, &request), extract(&key::client_ip().ipv6_prefix(128), &peer));
        }
    }
}

fn request_of_peer(peer: IpAddr) -> Request<()> {
    request(Some(peer), &[])
}

/// Returns whether a quote is open at the end.
fn is_open(text: &[u8]) -> bool {
    let mut is_open = false;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_open = !is_open,
            b'\\' if is_open => drop(bytes.next()),
            _ => {}
        }
    }
    is_open
}
