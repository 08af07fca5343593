use std::net::IpAddr;

use http::HeaderMap;

use tower_ratelimit_core::__internal::or_panic;

use super::proxies::{Element, Proxies};
use super::single_value::SingleValue;
use super::translation::Translation;
use super::{forwarded, x_forwarded_for};
use crate::error::ConfigError;

/// The header in which the proxies tell the address of the client: the one that your proxies
/// maintain.
///
/// Only this header is read. A proxy that maintains one header passes on what a client has written
/// into another.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Forwarding {
    /// `X-Forwarded-For`: a list of addresses, with or without ports. An IPv6 address with a port
    /// has brackets. Several headers are one list.
    XForwardedFor,
    /// `Forwarded` of RFC 7239. Each header line is read by itself, the last one first. An element
    /// whose `for` is missing or not an address (`unknown`, `_hidden`) is a hop without a name.
    ///
    /// If the proxy appends to the line of the client, a client that leaves a quote open makes the
    /// line unusable. The client is then counted as the proxy, and matches no `deny` list. To
    /// refuse such requests, use [`without_fallback`](super::super::Extractor::without_fallback) and
    /// [`OnMissingKey::Refuse`](crate::policy::OnMissingKey::Refuse).
    Forwarded,
    /// A header with one address, set by the proxy nearest to the client and passed on by the
    /// others. It is read if the peer is trusted, and the hops between are not counted. If it is
    /// there twice, it is unusable.
    Single(SingleValue),
}

impl Forwarding {
    /// Cloudflare's `CF-Connecting-IP`.
    ///
    /// Every client that reaches the server directly can write it: trust Cloudflare's networks
    /// only. With the setting "Pseudo IPv4: overwrite headers" it holds a made-up address.
    pub const CF_CONNECTING_IP: Self = Self::Single(SingleValue::address("cf-connecting-ip"));

    /// Akamai's `True-Client-IP`. Cloudflare sets it only if that is enabled, and otherwise passes
    /// on what a client sends.
    pub const TRUE_CLIENT_IP: Self = Self::Single(SingleValue::address("true-client-ip"));

    /// `X-Real-IP`, which nginx sets if configured: `proxy_set_header X-Real-IP $remote_addr`.
    pub const X_REAL_IP: Self = Self::Single(SingleValue::address("x-real-ip"));

    /// Fly's `Fly-Client-IP`. Behind the edge of another network it is the address of that edge.
    pub const FLY_CLIENT_IP: Self = Self::Single(SingleValue::address("fly-client-ip"));

    /// `CloudFront-Viewer-Address`, an address and a port, if the origin request policy of the
    /// distribution includes it.
    pub const CLOUDFRONT_VIEWER_ADDRESS: Self = Self::Single(SingleValue::address_before_port(
        "cloudfront-viewer-address",
    ));

    /// Envoy's `X-Envoy-External-Address`.
    pub const X_ENVOY_EXTERNAL_ADDRESS: Self =
        Self::Single(SingleValue::address("x-envoy-external-address"));

    /// Fastly's `Fastly-Client-IP`.
    pub const FASTLY_CLIENT_IP: Self = Self::Single(SingleValue::address("fastly-client-ip"));

    /// Another header with one address, with or without a port as in
    /// [`XForwardedFor`](Self::XForwardedFor).
    ///
    /// # Panics
    ///
    /// When `name` is not a valid header name. This is meant for a literal, at start-up;
    /// [`try_single`](Self::try_single) returns an error.
    #[track_caller]
    pub fn single(name: &str) -> Self {
        or_panic(Self::try_single(name))
    }

    /// Another header with one address; see [`single`](Self::single).
    ///
    /// # Errors
    ///
    /// When `name` is not a valid header name.
    pub fn try_single(name: &str) -> Result<Self, ConfigError> {
        Ok(Self::Single(SingleValue::try_named(name)?))
    }

    /// Returns the client, as these proxies tell it.
    pub(super) fn client(
        &self,
        proxies: &Proxies,
        headers: &HeaderMap,
        translation: &Translation,
    ) -> Option<IpAddr> {
        let canonical = |element| match element {
            Element::Address(address) => Element::Address(translation.canonical(address)),
            other => other,
        };
        match self {
            Self::XForwardedFor => {
                proxies.client(x_forwarded_for::elements(headers).map(canonical))
            }
            Self::Forwarded => proxies.client(forwarded::elements(headers).map(canonical)),
            Self::Single(field) => field
                .client(headers)
                .map(|address| translation.canonical(address)),
        }
    }
}
