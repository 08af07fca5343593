use std::net::IpAddr;

use crate::diagnostics::Diagnostic;
use tower_ratelimit_core::__internal::Warning;

use http::{HeaderMap, HeaderName};

static UNTRUSTED_PROXY: Warning = Warning::new(Diagnostic::new(
    "TRL003",
    "forwarding header fields",
    "the proxy at this private address is not declared as trusted: all clients behind it share one quota",
    "say which proxies to trust and which field they maintain, wherever `client_ip` is used, in lists too: `key::client_ip().behind(Proxies::in_networks([\"10.0.0.0/8\"]), Forwarding::XForwardedFor)`; in a file of limits: `[proxies]` with `networks = [\"10.0.0.0/8\"]` and `header = \"x-forwarded-for\"`",
));

static LOCAL_PROXY: Warning = Warning::new(Diagnostic::new(
    "TRL037",
    "forwarding header fields",
    "a peer on this machine is trusted to tell the address of the client, as if it were a proxy: `curl` on this machine can be any client",
    "nothing if a proxy runs on this machine; else leave its address out: `Proxies::in_networks([\"10.0.0.0/8\"])` in place of `127.0.0.0/8` or of hops; in a file of limits: `networks = [\"10.0.0.0/8\"]` under `[proxies]`",
));

/// Warns once if this peer, which has sent the header, is no proxy but a process of a developer. `means_it` says that the trusted
/// networks are those of this machine alone.
#[inline]
pub(super) fn warn_of_local_proxy(peer: IpAddr, means_it: impl FnOnce() -> bool) {
    LOCAL_PROXY.log_for(|| {
        let is_local = peer.is_loopback() && !means_it();
        is_local.then(|| format!("forwarding header fields of {peer}"))
    });
}

/// Warns once if the headers of this peer look like those of an undeclared proxy.
#[inline]
pub(super) fn warn_of_untrusted_proxy(peer: IpAddr, headers: &HeaderMap) {
    if is_private(peer) {
        UNTRUSTED_PROXY.log_for(|| {
            let is_proxy = headers.keys().any(is_forwarding);
            is_proxy.then(|| format!("forwarding header fields of {peer}"))
        });
    }
}

/// Clients on the internet have no such address.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            // The last range is RFC 6598, which clouds give to load balancers and pods.
            address.is_private()
                || address.is_loopback()
                || address.is_link_local()
                || matches!(address.octets(), [100, 64..=127, ..])
        }
        IpAddr::V6(address) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
    }
}

/// One pass over the headers costs less than a lookup for each of these names.
fn is_forwarding(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "x-forwarded-for"
            | "forwarded"
            | "x-real-ip"
            | "cf-connecting-ip"
            | "true-client-ip"
            | "fly-client-ip"
            | "cloudfront-viewer-address"
            | "x-envoy-external-address"
            | "fastly-client-ip"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::extract::client_ip::{Forwarding, x_forwarded_for};

    #[test]
    fn addresses_that_no_client_in_the_internet_has_are_private() {
        for (address, expected) in [
            ("10.0.0.1", true),
            ("172.16.0.1", true),
            ("192.168.0.1", true),
            ("127.0.0.1", true),
            ("169.254.1.1", true),
            ("100.64.0.1", true),
            ("100.127.255.255", true),
            ("::1", true),
            ("fd00::1", true),
            ("fe80::1", true),
            ("100.63.255.255", false),
            ("100.128.0.0", false),
            ("172.32.0.1", false),
            ("192.0.2.1", false),
            ("2001:db8::1", false),
            ("::", false),
        ] {
            assert_eq!(is_private(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn every_field_that_can_be_chosen_by_name_is_a_forwarding_field() {
        let single = [
            Forwarding::CF_CONNECTING_IP,
            Forwarding::TRUE_CLIENT_IP,
            Forwarding::X_REAL_IP,
            Forwarding::FLY_CLIENT_IP,
            Forwarding::CLOUDFRONT_VIEWER_ADDRESS,
            Forwarding::X_ENVOY_EXTERNAL_ADDRESS,
            Forwarding::FASTLY_CLIENT_IP,
        ];
        let names = single.map(|forwarding| match forwarding {
            Forwarding::Single(field) => field.name().clone(),
            other => panic!("{other:?}"),
        });
        assert!(names.iter().all(is_forwarding), "{names:?}");
        assert!(is_forwarding(&x_forwarded_for::NAME));
        assert!(is_forwarding(&http::header::FORWARDED));
        assert!(!is_forwarding(&http::header::VIA));
    }
}
