use std::net::IpAddr;

use http::HeaderMap;

use super::proxies::{Element, Proxies};
use super::single_value::SingleValue;
use super::translation::Translation;
use super::{forwarded, x_forwarded_for};
use crate::error::{ConfigError, or_panic};

/// The header field in which proxies tell whom they speak for: the one that yours maintain.
///
/// Only this one is read. A proxy that maintains one field passes on what a client has written
/// into another.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Forwarding {
    /// `X-Forwarded-For`: a list of addresses, each with or without a port, an address of IPv6 in
    /// brackets then. Several lines are one list.
    XForwardedFor,
    /// `Forwarded`, of RFC 7239. Each line is read by itself, the last first. An element whose
    /// `for` is not an address (`unknown`, `_hidden`) or is not there is a hop that cannot be
    /// named.
    ///
    /// If the proxy appends to the line that a client has sent, a client that leaves a quote open
    /// makes it unusable: it is counted as the proxy, and found on no list of those denied. Where
    /// it must not go on, refuse it by
    /// [`without_fallback`](super::ClientIp::without_fallback) and
    /// [`NoKey::Refuse`](crate::policy::NoKey::Refuse).
    Forwarded,
    /// A field that holds one address, set by the proxy nearest to the client and passed on by
    /// the others: it is read as soon as the peer is trusted, and the hops between are not
    /// counted. If it is there twice, it is unusable.
    Single(SingleValue),
}

impl Forwarding {
    /// Cloudflare's `CF-Connecting-IP`.
    ///
    /// Anybody who reaches the server directly can write it: trust Cloudflare's networks only.
    /// With the setting "Pseudo IPv4: overwrite headers" it holds a made-up address.
    pub const CF_CONNECTING_IP: Self = Self::Single(SingleValue::address("cf-connecting-ip"));

    /// Akamai's `True-Client-IP`; Cloudflare sets it only if that is enabled, and passes on what a
    /// client sends otherwise.
    pub const TRUE_CLIENT_IP: Self = Self::Single(SingleValue::address("true-client-ip"));

    /// `X-Real-IP`, that nginx sets where its configuration says so:
    /// `proxy_set_header X-Real-IP $remote_addr`.
    pub const X_REAL_IP: Self = Self::Single(SingleValue::address("x-real-ip"));

    /// Fly's `Fly-Client-IP`. Behind another network's edge it is that edge's address.
    pub const FLY_CLIENT_IP: Self = Self::Single(SingleValue::address("fly-client-ip"));

    /// `CloudFront-Viewer-Address`, an address and a port, if the origin request policy of the
    /// distribution has it.
    pub const CLOUDFRONT_VIEWER_ADDRESS: Self = Self::Single(SingleValue::address_before_port(
        "cloudfront-viewer-address",
    ));

    /// Envoy's `X-Envoy-External-Address`.
    pub const X_ENVOY_EXTERNAL_ADDRESS: Self =
        Self::Single(SingleValue::address("x-envoy-external-address"));

    /// Fastly's `Fastly-Client-IP`.
    pub const FASTLY_CLIENT_IP: Self = Self::Single(SingleValue::address("fastly-client-ip"));

    /// Another field that holds one address, with or without a port as in
    /// [`XForwardedFor`](Self::XForwardedFor).
    ///
    /// # Panics
    ///
    /// When `name` is not a valid name of a header field. This is meant for a literal, at
    /// start-up; [`try_single`](Self::try_single) returns an error.
    #[track_caller]
    pub fn single(name: &str) -> Self {
        or_panic(Self::try_single(name))
    }

    /// Another field that holds one address; see [`single`](Self::single).
    ///
    /// # Errors
    ///
    /// When `name` is not a valid name of a header field.
    pub fn try_single(name: &str) -> Result<Self, ConfigError> {
        Ok(Self::Single(SingleValue::try_named(name)?))
    }

    /// The client, as these proxies tell it.
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
