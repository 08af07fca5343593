//! Addresses behind proxies: the trusted addresses, and the fallback without one.

use std::net::{IpAddr, SocketAddr};

use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
use http::{HeaderName, HeaderValue, Request};
use tower_ratelimit::key::{
    self, ClientIp, Extract, Extractor, Forwarding, Head, IntoKey, Key, Missing, Peer, Proxies,
};

use crate::exchange::get;

/// A proxy that the configurations below trust.
pub(crate) const PROXY: &str = "10.0.0.1";

pub(crate) fn in_networks(forwarding: Forwarding) -> Extractor<ClientIp> {
    let proxies = Proxies::in_networks(["10.0.0.0/8", "fd00::/8"]);
    key::client_ip().behind(proxies, forwarding)
}

/// `GET /` from this peer, none for a Unix socket, with these header lines.
pub(crate) fn request(peer: Option<IpAddr>, lines: &[(&str, &[u8])]) -> Request<()> {
    let mut request = get();
    if let Some(peer) = peer {
        let peer = ConnectInfo(SocketAddr::new(peer, 40_000));
        request.extensions_mut().insert(peer);
    }
    for (name, value) in lines {
        let name: HeaderName = name.parse().unwrap();
        let value = HeaderValue::from_bytes(value).unwrap();
        request.headers_mut().append(name, value);
    }
    request
}

pub(crate) fn extract(key: &impl Extract, request: &Request<()>) -> Result<Key, Missing> {
    key.extract(&Head::of(request))
}

pub(crate) fn key_of(address: &str) -> Key {
    address.parse::<IpAddr>().unwrap().into_key()
}

/// Returns the proxies (`nobody`, or some of `networks`, `mapped`, `unix`, `hops:2`; none are declared with
/// `peer`), the field they maintain, and `strict` without a fallback.
fn configuration(text: &str) -> Extractor<ClientIp> {
    let mut words = text.split(' ');
    let key = match words.next().unwrap() {
        "peer" => key::client_ip(),
        proxies => key::client_ip().behind(trusted(proxies), field(words.next().unwrap())),
    };
    words.fold(key, |key, word| match word {
        "strict" => key.without_fallback(),
        "nat64" => key.unwrap_ipv4(["64:ff9b::/96"]),
        other => panic!("{other}"),
    })
}

fn trusted(text: &str) -> Proxies {
    let (is_unix, chain) = match text.split_once('+') {
        Some(("unix", chain)) => (true, chain),
        _ => (false, text),
    };
    let proxies = match (chain, chain.strip_prefix("hops:")) {
        (_, Some(hops)) => Proxies::hops(hops.parse().unwrap()),
        ("networks", _) => Proxies::in_networks(["10.0.0.0/8", "fd00::/8"]),
        ("mapped", _) => Proxies::in_networks(["::ffff:10.0.0.0/104"]),
        ("nobody", _) => Proxies::in_networks([""; 0]),
        ("unix", _) => Proxies::unix_socket(),
        (other, _) => panic!("{other}"),
    };
    if is_unix {
        proxies.and_unix_socket()
    } else {
        proxies
    }
}

fn field(name: &str) -> Forwarding {
    match name {
        "x-forwarded-for" => Forwarding::XForwardedFor,
        "forwarded" => Forwarding::Forwarded,
        "cf-connecting-ip" => Forwarding::CF_CONNECTING_IP,
        "true-client-ip" => Forwarding::TRUE_CLIENT_IP,
        "x-real-ip" => Forwarding::X_REAL_IP,
        "fly-client-ip" => Forwarding::FLY_CLIENT_IP,
        "cloudfront-viewer-address" => Forwarding::CLOUDFRONT_VIEWER_ADDRESS,
        "x-envoy-external-address" => Forwarding::X_ENVOY_EXTERNAL_ADDRESS,
        "fastly-client-ip" => Forwarding::FASTLY_CLIENT_IP,
        other => Forwarding::single(other),
    }
}

/// Checks a table. Each row has a name, a configuration, the peer (`unix` for none), header lines with ` + ` between
/// them (`-` for none), and the key: an address, `peer`, `nobody` if the client left it out, or `none` if the server
/// does not provide it.
#[track_caller]
fn check(table: &str) {
    let rows: Vec<_> = table.lines().filter(|row| !row.is_empty()).collect();
    assert!(rows.len() > 2);
    let mistakes: Vec<_> = rows.into_iter().filter_map(mistake).collect();
    assert!(mistakes.is_empty(), "{mistakes:#?}");
}

/// Returns the mistake in this row, if there is one.
fn mistake(row: &str) -> Option<String> {
    let row = row.replace("<tab>", "\t");
    let columns: Vec<_> = row.split(" | ").collect();
    let &[name, key, peer, lines, expected] = &columns[..] else {
        panic!("{row}");
    };
    let lines = lines.split(" + ").filter(|line| *line != "-");
    let lines: Vec<_> = lines
        .map(|line| line.split_once(':').unwrap())
        .map(|(name, value)| (name, value.trim_start_matches(' ').as_bytes()))
        .collect();
    let request = request(peer.parse().ok(), &lines);
    let found = extract(&configuration(key), &request);
    let is_right = match expected {
        "nobody" => found == Err(Missing::ByClient),
        "none" => matches!(found, Err(Missing::ByServer(_))),
        "peer" => found == Ok(key_of(peer)),
        address => found == Ok(key_of(address)),
    };
    (!is_right).then(|| format!("{name}: expected {expected}, found {found:?}"))
}

#[test]
fn x_forwarded_for_is_read_from_the_right_up_to_the_first_untrusted_address() {
    check(
        r#"
one address | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 203.0.113.7 | 203.0.113.7
a forged address before it | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 198.51.100.9, 203.0.113.7 | 203.0.113.7
a forged proxy before it | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 10.0.0.9, 203.0.113.7 | 203.0.113.7
forged garbage before it | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: "<;, 203.0.113.7 | 203.0.113.7
two proxies | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 198.51.100.9, 203.0.113.7, 10.2.0.1 | 203.0.113.7
a proxy of the other family | networks x-forwarded-for | fd00::1 | x-forwarded-for: 203.0.113.7, fd00::2, 10.2.0.1 | 203.0.113.7
untrusted in between | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 203.0.113.7, 192.0.2.1, 10.2.0.1 | 192.0.2.1
all trusted: the first | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 10.3.0.1, 10.2.0.1 | 10.3.0.1
an untrusted peer | networks x-forwarded-for | 192.0.2.1 | x-forwarded-for: 203.0.113.7 | peer
an untrusted peer of IPv6 | networks x-forwarded-for | 2001:db8::1 | x-forwarded-for: 203.0.113.7 | peer
no proxies | peer | 10.0.0.1 | x-forwarded-for: 203.0.113.7 | peer
an empty list of proxies | nobody x-forwarded-for | 10.0.0.1 | x-forwarded-for: 203.0.113.7 | peer
no field | networks x-forwarded-for | 10.0.0.1 | - | peer
an empty field | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: | peer
nothing but commas | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: , ,, | peer
another field than was chosen | networks x-forwarded-for | 10.0.0.1 | forwarded: for=203.0.113.7 + x-real-ip: 203.0.113.7 | peer
no peer is told | networks x-forwarded-for | unix | x-forwarded-for: 203.0.113.7 | none
without a fallback | networks x-forwarded-for strict | 10.0.0.1 | x-forwarded-for: unknown | nobody
without a fallback, no field | networks x-forwarded-for strict | 10.0.0.1 | - | nobody
without a fallback, a client | networks x-forwarded-for strict | 10.0.0.1 | x-forwarded-for: 203.0.113.7 | 203.0.113.7
without a fallback, an untrusted peer | networks x-forwarded-for strict | 192.0.2.1 | - | peer
"#,
    );
}

#[test]
fn elements_are_read_in_their_spellings_and_never_skipped() {
    check(
        r#"
several lines are one list | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 198.51.100.9 + x-forwarded-for: 203.0.113.7 | 203.0.113.7
proxies on lines of their own | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 203.0.113.7 + x-forwarded-for: 10.2.0.1 + x-forwarded-for: 10.3.0.1 | 203.0.113.7
spaces and tabs | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 203.0.113.7 <tab>,<tab>10.2.0.1 | 203.0.113.7
no spaces | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 203.0.113.7,10.2.0.1 | 203.0.113.7
empty elements | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 203.0.113.7,, ,10.2.0.1, | 203.0.113.7
an empty line | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 203.0.113.7 + x-forwarded-for: | 203.0.113.7
a port | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 203.0.113.7:40000, 10.2.0.1:80 | 203.0.113.7
brackets | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: [2001:db8::1] | 2001:db8::1
brackets and a port | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: [2001:db8::1]:443, [fd00::2]:80 | 2001:db8::1
IPv6 without brackets | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 2001:db8::1:443 | 2001:db8::1:443
IPv6 in capitals | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 2001:DB8::A | 2001:db8::a
unknown | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 203.0.113.7, unknown | peer
a hidden name | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 203.0.113.7, _hidden | peer
a host name | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 203.0.113.7, example.com, 10.2.0.1 | peer
a leading zero | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 203.0.113.7, 203.0.113.007 | peer
a short form | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 203.0.113.7, 127.1 | peer
a zone | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 203.0.113.7, fe80::1%eth0 | peer
quotes | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 203.0.113.7, "10.2.0.1" | peer
a port too high | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 203.0.113.7:65536 | peer
not UTF-8 in spirit | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 203.0.113.7, ü | peer
not ASCII, to the left | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: ü, 203.0.113.7 | 203.0.113.7
unreadable, to the left on its own line | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: ü + x-forwarded-for: 203.0.113.7 | 203.0.113.7
"#,
    );
    let lines: [(_, &[u8]); 2] = [
        ("x-forwarded-for", b"203.0.113.7"),
        ("x-forwarded-for", b"\xff\xfe"),
    ];
    let request = request(PROXY.parse().ok(), &lines);
    let key = in_networks(Forwarding::XForwardedFor);
    assert_eq!(extract(&key, &request), Ok(key_of(PROXY)), "not UTF-8");
}

#[test]
fn hops_are_counted_from_the_peer_and_fewer_fall_back_to_it() {
    check(
        "
one hop | hops:1 x-forwarded-for | 192.0.2.1 | x-forwarded-for: 203.0.113.7 | 203.0.113.7
one hop, a forged address | hops:1 x-forwarded-for | 192.0.2.1 | x-forwarded-for: 198.51.100.9, 203.0.113.7 | 203.0.113.7
two hops | hops:2 x-forwarded-for | 192.0.2.1 | x-forwarded-for: 203.0.113.7, 192.0.2.2 | 203.0.113.7
two hops, forged addresses | hops:2 x-forwarded-for | 192.0.2.1 | x-forwarded-for: 10.0.0.1, 198.51.100.9, 203.0.113.7, 192.0.2.2 | 203.0.113.7
two hops on two lines | hops:2 x-forwarded-for | 192.0.2.1 | x-forwarded-for: 198.51.100.9, 203.0.113.7 + x-forwarded-for: 192.0.2.2 | 203.0.113.7
blanks are no hops | hops:2 x-forwarded-for | 192.0.2.1 | x-forwarded-for: 203.0.113.7,, 192.0.2.2, | 203.0.113.7
a hop without a name is a hop | hops:2 x-forwarded-for | 192.0.2.1 | x-forwarded-for: 203.0.113.7, unknown | 203.0.113.7
the client has no name | hops:2 x-forwarded-for | 192.0.2.1 | x-forwarded-for: 198.51.100.9, unknown, 192.0.2.2 | peer
a direct hit | hops:2 x-forwarded-for | 192.0.2.1 | x-forwarded-for: 198.51.100.9 | peer
a direct hit without the field | hops:2 x-forwarded-for | 192.0.2.1 | - | peer
a direct hit without a fallback | hops:2 x-forwarded-for strict | 192.0.2.1 | x-forwarded-for: 198.51.100.9 | nobody
Forwarded, two hops | hops:2 forwarded | 192.0.2.1 | forwarded: for=198.51.100.9, for=203.0.113.7, for=192.0.2.2 | 203.0.113.7
Forwarded, a hidden hop | hops:2 forwarded | 192.0.2.1 | forwarded: for=203.0.113.7, for=_proxy | 203.0.113.7
Forwarded, a broken hop may be several | hops:2 forwarded | 192.0.2.1 | forwarded: for=203.0.113.7, for 192.0.2.2 | peer
no peer is told | hops:1 x-forwarded-for | unix | x-forwarded-for: 203.0.113.7 | none
",
    );
}

#[test]
fn forwarded_is_read_from_the_right_and_line_by_line() {
    check(
        r#"
one element | networks forwarded | 10.0.0.1 | forwarded: for=203.0.113.7 | 203.0.113.7
all parameters | networks forwarded | 10.0.0.1 | forwarded: by=10.0.0.1;FOR=203.0.113.7;host=example.com;proto=https | 203.0.113.7
a forged element before it | networks forwarded | 10.0.0.1 | forwarded: for=198.51.100.9, for=203.0.113.7 | 203.0.113.7
two proxies | networks forwarded | 10.0.0.1 | forwarded: for=198.51.100.9, for=203.0.113.7, for=10.2.0.1 | 203.0.113.7
quoted IPv6 | networks forwarded | 10.0.0.1 | forwarded: for="[2001:db8::1]" | 2001:db8::1
quoted IPv6 and a port | networks forwarded | 10.0.0.1 | forwarded: for="[2001:db8::1]:443", for="10.2.0.1:_x" | 2001:db8::1
a comma in quotes | networks forwarded | 10.0.0.1 | forwarded: for=203.0.113.7;by="a, for=10.9.9.9" | 203.0.113.7
a forged comma in quotes | networks forwarded | 10.0.0.1 | forwarded: by=", for=198.51.100.9, ", for=203.0.113.7 | 203.0.113.7
unknown | networks forwarded | 10.0.0.1 | forwarded: for=198.51.100.9, for=unknown | peer
hidden, after an address | networks forwarded | 10.0.0.1 | forwarded: for="198.51.100.9", for="_obfuscated" | peer
hidden, before an address | networks forwarded | 10.0.0.1 | forwarded: for=_hidden, for=203.0.113.7 | 203.0.113.7
no for | networks forwarded | 10.0.0.1 | forwarded: for=198.51.100.9, proto=https | peer
two fors | networks forwarded | 10.0.0.1 | forwarded: for=203.0.113.7;for=198.51.100.9 | peer
IPv6 without quotes | networks forwarded | 10.0.0.1 | forwarded: for=[2001:db8::1] | peer
a quote left open on the line of a proxy | networks forwarded | 10.0.0.1 | forwarded: for="198.51.100.9, for=203.0.113.7 | peer
a quote left open on the client's line | networks forwarded | 10.0.0.1 | forwarded: for="198.51.100.9 + forwarded: for=203.0.113.7 | 203.0.113.7
a quote opened on one line and closed on the next | networks forwarded | 10.0.0.1 | forwarded: for=198.51.100.9;by=" + forwarded: ", for=203.0.113.7;by="x" | peer
an empty line | networks forwarded | 10.0.0.1 | forwarded: for=203.0.113.7 + forwarded: | 203.0.113.7
an untrusted peer | networks forwarded | 192.0.2.1 | forwarded: for=203.0.113.7 | peer
no field | networks forwarded | 10.0.0.1 | x-forwarded-for: 203.0.113.7 | peer
"#,
    );
}

#[test]
fn fields_of_vendors_hold_one_address_and_are_read_from_trusted_peers_only() {
    check(
        "
Cloudflare | networks cf-connecting-ip | 10.0.0.1 | CF-Connecting-IP: 203.0.113.7 | 203.0.113.7
Cloudflare, IPv6 | networks cf-connecting-ip | 10.0.0.1 | cf-connecting-ip: 2001:db8::1 | 2001:db8::1
Cloudflare, behind other hops | networks cf-connecting-ip | 10.0.0.1 | cf-connecting-ip: 203.0.113.7 + x-forwarded-for: 192.0.2.1 | 203.0.113.7
Cloudflare, an untrusted peer | networks cf-connecting-ip | 192.0.2.1 | cf-connecting-ip: 203.0.113.7 | peer
Cloudflare, twice | networks cf-connecting-ip | 10.0.0.1 | cf-connecting-ip: 198.51.100.9 + cf-connecting-ip: 203.0.113.7 | peer
Cloudflare, twice the same | networks cf-connecting-ip | 10.0.0.1 | cf-connecting-ip: 203.0.113.7 + cf-connecting-ip: 203.0.113.7 | peer
Cloudflare, a list | networks cf-connecting-ip | 10.0.0.1 | cf-connecting-ip: 198.51.100.9, 203.0.113.7 | peer
Cloudflare, not there | networks cf-connecting-ip | 10.0.0.1 | x-forwarded-for: 203.0.113.7 | peer
Cloudflare, by hops | hops:1 cf-connecting-ip | 192.0.2.1 | cf-connecting-ip: 203.0.113.7 | 203.0.113.7
Akamai | networks true-client-ip | 10.0.0.1 | True-Client-IP: 203.0.113.7 | 203.0.113.7
nginx | networks x-real-ip | 10.0.0.1 | X-Real-IP: 203.0.113.7 | 203.0.113.7
Fly | networks fly-client-ip | 10.0.0.1 | Fly-Client-IP: 203.0.113.7 | 203.0.113.7
Envoy | networks x-envoy-external-address | 10.0.0.1 | X-Envoy-External-Address: 203.0.113.7 | 203.0.113.7
Fastly | networks fastly-client-ip | 10.0.0.1 | Fastly-Client-IP: 203.0.113.7 | 203.0.113.7
CloudFront | networks cloudfront-viewer-address | 10.0.0.1 | CloudFront-Viewer-Address: 203.0.113.7:443 | 203.0.113.7
CloudFront, IPv6 | networks cloudfront-viewer-address | 10.0.0.1 | CloudFront-Viewer-Address: 2001:db8:1234::5:443 | 2001:db8:1234::5
CloudFront, no port | networks cloudfront-viewer-address | 10.0.0.1 | CloudFront-Viewer-Address: 203.0.113.7 | peer
another field | networks x-client | 10.0.0.1 | x-client: [2001:db8::1]:443 | 2001:db8::1
another field, without a fallback | networks x-client strict | 10.0.0.1 | x-client: x | nobody
",
    );
}

#[test]
fn a_unix_socket_is_trusted_only_if_it_is_declared() {
    check(
        "
declared | unix x-forwarded-for | unix | x-forwarded-for: 198.51.100.9, 203.0.113.7 | 203.0.113.7
declared, but a peer with an address | unix x-forwarded-for | 192.0.2.1 | x-forwarded-for: 203.0.113.7 | peer
nobody further out is trusted | unix x-forwarded-for | unix | x-forwarded-for: 198.51.100.9, 10.0.0.1 | 10.0.0.1
networks further out | unix+networks x-forwarded-for | unix | x-forwarded-for: 203.0.113.7, 10.0.0.1 | 203.0.113.7
networks beside it | unix+networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 203.0.113.7 | 203.0.113.7
hops further out | unix+hops:2 x-forwarded-for | unix | x-forwarded-for: 203.0.113.7, 192.0.2.2 | 203.0.113.7
a hop is missing | unix+hops:2 x-forwarded-for | unix | x-forwarded-for: 203.0.113.7 | nobody
unusable, and no address to fall back to | unix x-forwarded-for | unix | x-forwarded-for: unknown | nobody
not declared | peer | unix | x-forwarded-for: 203.0.113.7 | none
",
    );
}

#[test]
fn mapped_addresses_are_the_ipv4_addresses_that_they_are() {
    check(
        "
the peer | peer | ::ffff:192.0.2.1 | - | 192.0.2.1
another peer | peer | ::ffff:192.0.2.2 | - | 192.0.2.2
a trusted peer | networks x-forwarded-for | ::ffff:10.0.0.1 | x-forwarded-for: 203.0.113.7 | 203.0.113.7
a client | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: ::ffff:203.0.113.7 | 203.0.113.7
a proxy in the chain | networks x-forwarded-for | 10.0.0.1 | x-forwarded-for: 203.0.113.7, [::ffff:10.2.0.1]:80 | 203.0.113.7
a trusted network | mapped x-forwarded-for | 10.0.0.1 | x-forwarded-for: 203.0.113.7 | 203.0.113.7
a vendor's | networks x-real-ip | 10.0.0.1 | x-real-ip: ::ffff:203.0.113.7 | 203.0.113.7
a loopback is not mapped | peer | ::1 | - | ::1
",
    );
}

#[test]
fn a_chain_is_examined_to_a_bound_and_unusable_beyond_it() {
    let ask = |forwarding: &Forwarding, line: &str, times: usize| {
        let name = match forwarding {
            Forwarding::Forwarded => "forwarded",
            _ => "x-forwarded-for",
        };
        let request = request(PROXY.parse().ok(), &vec![(name, line.as_bytes()); times]);
        let found = extract(&in_networks(forwarding.clone()), &request);
        let hops = key::client_ip().behind(Proxies::hops(32), forwarding.clone());
        (found.unwrap(), extract(&hops, &request).unwrap())
    };
    let (client, first, peer) = (key_of("203.0.113.7"), key_of("10.0.0.3"), key_of(PROXY));
    for (forwarding, prefix) in [
        (Forwarding::XForwardedFor, ""),
        (Forwarding::Forwarded, "for="),
    ] {
        let element = |address: &str| format!("{prefix}{address}");
        let line = |many: &str, count, last: &str| {
            format!("{},", element(many)).repeat(count) + &element(last)
        };
        let forged = line("198.51.100.9", 1_000, "203.0.113.7");
        assert_eq!(ask(&forwarding, &forged, 1).0, client, "many forged");
        let within = line("10.0.0.3", 31, "10.0.0.2");
        assert_eq!(ask(&forwarding, &within, 1), (first, first), "32 trusted");
        let beyond = line("10.0.0.3", 32, "10.0.0.2");
        assert_eq!(ask(&forwarding, &beyond, 1), (peer, first), "33 trusted");
        let short = line("10.0.0.3", 30, "10.0.0.2");
        assert_eq!(ask(&forwarding, &short, 1), (first, peer), "31 trusted");
        let blanks = element("203.0.113.7") + &",".repeat(32);
        assert_eq!(ask(&forwarding, &blanks, 1), (peer, peer), "blanks");
        let trusted = element("10.0.0.2");
        let (networks, _) = ask(&forwarding, &trusted, 200);
        assert_eq!(networks, peer, "200 lines");
    }
}

#[test]
fn ipv6_is_counted_by_network_and_translated_ipv4_by_address() {
    let network = |key: &Extractor<ClientIp>, address: &str| {
        let key = extract(key, &request(address.parse().ok(), &[]));
        format!("{:?}", key.unwrap())
    };
    let address = "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff";
    for (bits, expected) in [
        (32, "Key(2001:db8::/32)"),
        (48, "Key(2001:db8:ffff::/48)"),
        (56, "Key(2001:db8:ffff:ff00::/56)"),
        (64, "Key(2001:db8:ffff:ffff::/64)"),
        (127, "Key(2001:db8:ffff:ffff:ffff:ffff:ffff:fffe/127)"),
        (128, "Key(2001:db8:ffff:ffff:ffff:ffff:ffff:ffff/128)"),
    ] {
        let key = key::client_ip().ipv6_prefix(bits);
        assert_eq!(network(&key, address), expected);
        assert_eq!(network(&key, "::ffff:192.0.2.1"), "Key(192.0.2.1)");
    }
    assert_eq!(
        network(&key::client_ip(), address),
        "Key(2001:db8:ffff:ffff::/64)"
    );

    check(
        "
a translated peer | peer nat64 | 64:ff9b::192.0.2.1 | - | 192.0.2.1
not under the prefix | peer nat64 | 64:ff9b:1::192.0.2.1 | - | peer
a translated proxy and client | networks x-forwarded-for nat64 | 64:ff9b::10.0.0.1 | x-forwarded-for: 64:ff9b::203.0.113.7 | 203.0.113.7
",
    );
}

/// The connection as a PROXY protocol listener reports it, or a listener on two sockets.
#[derive(Clone)]
struct Connection(Peer);

#[test]
fn the_peer_is_read_from_connection_info_of_ones_own() {
    let with = |extension: fn(Connection, &mut http::Extensions), peer: Peer| {
        let mut request = request(None, &[("x-forwarded-for", b"203.0.113.7")]);
        // The layer does not read an address that another layer has put there.
        request
            .extensions_mut()
            .insert(SocketAddr::from(([192, 0, 2, 99], 0)));
        extension(Connection(peer), request.extensions_mut());
        request
    };
    let places: [fn(Connection, &mut http::Extensions); 3] = [
        |info, extensions| {
            extensions.insert(ConnectInfo(info));
        },
        |info, extensions| {
            extensions.insert(MockConnectInfo(info));
        },
        |info, extensions| {
            extensions.insert(info);
        },
    ];
    let peer = key::peer_ip().connect_info(|info: &Connection| info.0);
    let client = key::client_ip().connect_info(|info: &Connection| info.0);
    let proxies = Proxies::in_networks(["10.0.0.0/8"]).and_unix_socket();
    let behind = client.clone().behind(proxies, Forwarding::XForwardedFor);
    let ip = |text: &str| Peer::Ip(text.parse().unwrap());
    for place in places {
        let outside = with(place, ip("::ffff:192.0.2.1"));
        assert_eq!(extract(&peer, &outside), Ok(key_of("192.0.2.1")));
        assert_eq!(extract(&client, &outside), Ok(key_of("192.0.2.1")));
        assert_eq!(extract(&behind, &outside), Ok(key_of("192.0.2.1")));
        for trusted in [ip("10.0.0.1"), Peer::UnixSocket] {
            let inside = with(place, trusted);
            assert_eq!(extract(&behind, &inside), Ok(key_of("203.0.113.7")));
        }
        for unnamed in [Peer::UnixSocket, Peer::Unknown] {
            let request = with(place, unnamed);
            let found = (extract(&peer, &request), extract(&client, &request));
            let (Err(Missing::ByServer(one)), Err(Missing::ByServer(other))) = found else {
                panic!("{found:?}");
            };
            assert_eq!(one, other);
            assert_eq!(one.code(), "TRL001");
        }
    }
    let nowhere = request(PROXY.parse().ok(), &[]);
    let Err(Missing::ByServer(diagnostic)) = extract(&peer, &nowhere) else {
        panic!("a type that was not asked for was read");
    };
    assert!(diagnostic.subject().ends_with("Connection"), "{diagnostic}");

    let sometimes = key::peer_ip().connect_info(|info: &Option<IpAddr>| *info);
    let mut request = get();
    request
        .extensions_mut()
        .insert(PROXY.parse::<IpAddr>().ok());
    assert_eq!(extract(&sometimes, &request), Ok(key_of(PROXY)));
}

#[test]
fn a_configuration_that_cannot_be_is_an_error_or_a_panic_at_start_up() {
    let everybody = Proxies::try_in_networks(["10.0.0.0/8", "128.0.0.0/1", "0.0.0.0/1"]);
    for (error, field, value) in [
        (
            Proxies::try_in_networks(["10.0.0.0/33"]).err(),
            "in_networks",
            "\"10.0.0.0/33\"",
        ),
        (everybody.err(), "in_networks", "all addresses"),
        (
            Proxies::try_in_networks(["::/0"]).err(),
            "in_networks",
            "all addresses",
        ),
        (Proxies::try_hops(0).err(), "hops", "0"),
        (Proxies::try_hops(33).err(), "hops", "33"),
        (Forwarding::try_single("x y").err(), "single", "\"x y\""),
        (
            key::client_ip().try_ipv6_prefix(31).err(),
            "ipv6_prefix",
            "31",
        ),
        (
            key::client_ip().try_ipv6_prefix(129).err(),
            "ipv6_prefix",
            "129",
        ),
        (
            key::client_ip().try_unwrap_ipv4(["64:ff9b::/95"]).err(),
            "unwrap_ipv4",
            "\"64:ff9b::/95\"",
        ),
    ] {
        let error = error.unwrap_or_else(|| panic!("{field} {value} is taken"));
        assert_eq!((error.field(), error.value()), (field, value));
    }
    assert!(Proxies::try_hops(32).is_ok());
    let panics: [fn(); 5] = [
        || drop(Proxies::in_networks(["x"])),
        || drop(Proxies::hops(0)),
        || drop(Forwarding::single("")),
        || drop(key::client_ip().ipv6_prefix(0)),
        || drop(key::client_ip().unwrap_ipv4(["x"])),
    ];
    for panic in panics {
        assert!(std::panic::catch_unwind(panic).is_err());
    }
}
