//! The address of the client, directly or behind proxies.
//!
//! A forwarding header is true only from the right: the part that trusted proxies have written. So
//! [`Proxies`] says which hops are trusted, [`Forwarding`] which header they write, and the chain
//! is walked from the server to the first hop that is not trusted. There is a file for each header.

mod address;
mod forwarded;
mod forwarding;
mod proxies;
mod single_value;
mod translation;
mod warning;
mod x_forwarded_for;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::HeaderMap;

pub use self::forwarding::Forwarding;
pub use self::proxies::Proxies;
pub use self::single_value::SingleValue;

use tower_ratelimit_core::__internal::or_panic;

use self::translation::Translation;
use self::warning::{warn_of_local_proxy, warn_of_untrusted_proxy};
use super::{Extractor, Head, IntoKey, Key, KeyOf, Missing, Origin, Peer, PeerIp, Read, Typed};
use crate::error::ConfigError;

/// The address of the client.
///
/// By default:
///
/// - It is the address at the other end of the socket, as for [`peer_ip`](super::peer_ip()). No proxy is trusted, and
///   forwarding headers, which every client can write, are not read.
/// - IPv4 is counted by address, also if it is mapped into IPv6; IPv6 by /64 network.
/// - If a trusted proxy does not tell a client address, the proxy itself is counted.
///
/// If an untrusted private address sends forwarding headers, the log warns once that all clients
/// behind it share one quota (`TRL003`). See [behind a proxy](crate::key#behind-a-proxy).
pub fn client_ip() -> Extractor<ClientIp> {
    Extractor::of(ClientIp {
        peer: PeerIp::default(),
        behind: None,
        translation: Translation::default(),
        prefix: 64,
        falls_back: true,
    })
}

/// The source of [`client_ip`]: a function that prepares this extractor returns `Extractor<ClientIp>`.
#[derive(Clone, Debug)]
pub struct ClientIp {
    peer: PeerIp,
    behind: Option<Arc<dyn FindClient>>,
    translation: Translation,
    prefix: u8,
    falls_back: bool,
}

/// Finds the client behind a peer. It is called through a trait object, so that a program which trusts no proxy does
/// not contain the parsers of forwarding headers.
trait FindClient: fmt::Debug + Send + Sync {
    /// Returns whether this peer is trusted to tell the client; `None` is a Unix socket.
    fn trust(&self, peer: Option<IpAddr>) -> bool;

    /// Returns whether processes on this machine alone are trusted.
    fn trust_this_machine(&self) -> bool;

    fn client(&self, headers: &HeaderMap, translation: &Translation) -> Option<IpAddr>;
}

impl FindClient for (Proxies, Forwarding) {
    fn trust(&self, peer: Option<IpAddr>) -> bool {
        self.0.have(peer)
    }

    fn trust_this_machine(&self) -> bool {
        self.0.are_on_this_machine()
    }

    fn client(&self, headers: &HeaderMap, translation: &Translation) -> Option<IpAddr> {
        self.1.client(&self.0, headers, translation)
    }
}

impl Extractor<ClientIp> {
    /// Declares which proxies are trusted to tell the address of the client, and in which header.
    ///
    /// A second call replaces the first. If a trusted peer does not tell the address, the peer
    /// itself is counted, so all such requests through one proxy share a quota. These are the
    /// cases:
    ///
    /// - the header is absent;
    /// - an element that was reached is malformed or not an address;
    /// - the chain has fewer hops than declared;
    /// - the chain has more than 32 elements.
    ///
    /// If the networks contain the address of your own machine, a request of `curl` from there is one of a
    /// trusted proxy, and an `X-Forwarded-For` that you write is believed. This is no mistake: processes on the
    /// machine are trusted. The log warns of it once ([`TRL037`](crate::diagnostics)), unless all networks are loopback. To try
    /// what a client can forge, send the request from an address outside the networks.
    ///
    /// The other end of a Unix socket has no address to be counted by. For it, and [without a
    /// fallback](Self::without_fallback), the key is [`Missing::ByClient`].
    ///
    /// Lists and networks never match a peer that is counted in place of the client: a client that
    /// makes the header unusable does not match a network because its proxy does.
    ///
    /// ```
    /// use std::net::{Ipv4Addr, SocketAddr};
    /// use tower_ratelimit::key::{self, Extract, Forwarding, Head, IntoKey, Proxies};
    ///
    /// let proxies = Proxies::in_networks(["10.0.0.0/8", "fd00::/8"]);
    /// let key = key::client_ip().behind(proxies, Forwarding::XForwardedFor);
    ///
    /// // The client wrote the first address. The outer proxy added the second, and the inner
    /// // proxy the third.
    /// let request = http::Request::get("/")
    ///     .extension(SocketAddr::from(([10, 0, 0, 1], 4711)))
    ///     .header("x-forwarded-for", "198.51.100.9, 192.0.2.1, 10.0.0.2")
    ///     .body(())?;
    /// let client = Ipv4Addr::new(192, 0, 2, 1);
    /// assert_eq!(key.extract(&Head::of(&request)), Ok(client.into_key()));
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn behind(mut self, proxies: Proxies, forwarding: Forwarding) -> Self {
        self.source.behind = Some(Arc::new((proxies, forwarding)));
        self
    }

    /// Sets how many bits of an IPv6 address tell clients apart, from 32 to 128; the default is 64.
    ///
    /// A /64 network is one LAN, whose hosts choose the other bits freely: more than 64 bits are no
    /// limit at all, unless each client is known to have one address. Homes often have a /56 and
    /// businesses a /48, which is 256 or 65,536 quotas of a /64 each. Fewer bits count neighbours
    /// as one where the customers of a host share a /64 or a /56. To bound the former without
    /// hurting the latter, add a wider policy to the narrow one:
    ///
    /// ```
    /// use tower_ratelimit::{Policy, RateLimitLayer, TokenBucket, key};
    ///
    /// let layer = RateLimitLayer::builder()
    ///     .policy(Policy::new("address", TokenBucket::per_second(10)).key(key::client_ip()))
    ///     .policy(
    ///         Policy::new("site", TokenBucket::per_second(200)).key(key::client_ip().ipv6_prefix(48)),
    ///     )
    ///     .build()?;
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// When `bits` is less than 32 or more than 128. This is meant for start-up;
    /// [`try_ipv6_prefix`](Self::try_ipv6_prefix) returns an error.
    #[track_caller]
    pub fn ipv6_prefix(self, bits: u8) -> Self {
        or_panic(self.try_ipv6_prefix(bits))
    }

    /// Sets how many bits of an IPv6 address tell clients apart; see
    /// [`ipv6_prefix`](Self::ipv6_prefix).
    ///
    /// # Errors
    ///
    /// When `bits` is less than 32 or more than 128.
    pub fn try_ipv6_prefix(mut self, bits: u8) -> Result<Self, ConfigError> {
        if (32..=128).contains(&bits) {
            self.source.prefix = bits;
            Ok(self)
        } else {
            let remedy = "give a length from 32 to 128";
            Err(ConfigError::new("ipv6_prefix", bits, remedy))
        }
    }

    /// Sets the prefixes under which translators (NAT64, SIIT) show IPv4 addresses as IPv6
    /// addresses.
    ///
    /// The default is none. A second call replaces the first. Behind a translator all of IPv4 comes
    /// from one /64 network, usually `64:ff9b::/64`, and shares one quota unless its prefix is
    /// given here. The IPv4 address is embedded as in RFC 6052, under a prefix of 32, 40, 48, 56,
    /// 64 or 96 bits. It replaces the IPv6 address everywhere, in the comparison with trusted
    /// networks too.
    ///
    /// ```
    /// use tower_ratelimit::key;
    ///
    /// let key = key::client_ip().unwrap_ipv4(["64:ff9b::/96"]);
    /// ```
    ///
    /// # Panics
    ///
    /// When one of them is not such a prefix. This is meant for start-up;
    /// [`try_unwrap_ipv4`](Self::try_unwrap_ipv4) returns an error.
    #[track_caller]
    pub fn unwrap_ipv4(self, prefixes: impl IntoIterator<Item: AsRef<str>>) -> Self {
        or_panic(self.try_unwrap_ipv4(prefixes))
    }

    /// Sets the prefixes of translators; see [`unwrap_ipv4`](Self::unwrap_ipv4).
    ///
    /// # Errors
    ///
    /// When one of them is not an IPv6 network with a length of RFC 6052.
    pub fn try_unwrap_ipv4(
        mut self,
        prefixes: impl IntoIterator<Item: AsRef<str>>,
    ) -> Result<Self, ConfigError> {
        self.source.translation = Translation::parse(prefixes)?;
        Ok(self)
    }

    /// Treats the key as [`Missing::ByClient`] if a trusted proxy does not tell the client, in
    /// place of counting the proxy.
    ///
    /// The policy's [`OnMissingKey`](crate::policy::OnMissingKey) decides about the request: it shares a quota
    /// with all such requests, is not counted, or is refused.
    pub fn without_fallback(mut self) -> Self {
        self.source.falls_back = false;
        self
    }

    /// Reads the peer from a connection info type of your own, as it does for [`peer_ip`](super::peer_ip()).
    pub fn connect_info<T, P>(mut self, peer: impl Fn(&T) -> P + Send + Sync + 'static) -> Self
    where
        T: Clone + Send + Sync + 'static,
        P: Into<Peer>,
    {
        self.source.peer = PeerIp::read_by(peer);
        self
    }
}

impl ClientIp {
    /// Returns the whole address in canonical form: an IPv4 address is neither mapped nor
    /// translated into IPv6.
    #[inline]
    fn address(&self, head: &Head<'_>, falls_back: bool) -> Result<IpAddr, NoAddress> {
        let found = self.peer.peer(head);
        let peer = match found {
            Peer::Ip(address) => Some(self.translation.canonical(address)),
            Peer::UnixSocket | Peer::Unknown => None,
        };
        // A custom listener that does not know a peer is not a Unix socket.
        if let Some(proxies) = &self.behind
            && (found != Peer::Unknown || !self.peer.is_custom())
            && proxies.trust(peer)
        {
            let client = proxies.client(head.headers(), &self.translation);
            if let (Some(peer), Some(_)) = (peer, client) {
                warn_of_local_proxy(peer, || proxies.trust_this_machine());
            }
            let fallback = peer.filter(|_| falls_back);
            return client.or(fallback).ok_or(NoAddress::OfTheClient);
        }
        let peer = peer.ok_or(NoAddress::OfThePeer(found))?;
        warn_of_untrusted_proxy(peer, head.headers());
        Ok(peer)
    }

    #[inline(never)]
    fn read_any(&self, head: &Head<'_>) -> Result<Key, Missing> {
        match self.address(head, self.falls_back) {
            Ok(address) => Ok(self.key(address)),
            Err(address) => Err(self.missing(address)),
        }
    }

    /// Of an address in its canonical form.
    fn key(&self, address: IpAddr) -> Key {
        match address {
            IpAddr::V4(address) => address.into_key(),
            IpAddr::V6(address) => Key::ipv6(address, self.prefix),
        }
    }

    #[cold]
    fn missing(&self, address: NoAddress) -> Missing {
        match address {
            NoAddress::OfTheClient => Missing::ByClient,
            NoAddress::OfThePeer(peer) => self.peer.missing(peer),
        }
    }
}

/// Which address is missing. It is small, because nearly every request makes one.
#[derive(Clone, Copy)]
enum NoAddress {
    OfTheClient,
    OfThePeer(Peer),
}

impl Origin for ClientIp {
    fn identity(&self) -> Option<String> {
        Some(format!("{self:?} of {}", self.peer.identity()?))
    }
}

impl Typed for ClientIp {
    type Value<'a> = IpAddr;

    fn value(&self, head: &Head<'_>) -> Result<IpAddr, Missing> {
        self.address(head, self.falls_back)
            .map_err(|address| self.missing(address))
    }

    /// Ignores the fallback: a client that makes the header unusable is not the proxy.
    fn list_value(&self, head: &Head<'_>) -> Result<IpAddr, Missing> {
        self.address(head, false)
            .map_err(|address| self.missing(address))
    }
}

impl Read for ClientIp {
    #[inline]
    fn read(&self, head: &Head<'_>) -> Result<Key, Missing> {
        // The short path for most requests, which skips all checks for proxies.
        if self.behind.is_none()
            && let Some(SocketAddr::V4(peer)) = self.peer.socket(head)
        {
            let address = *peer.ip();
            warn_of_untrusted_proxy(address.into(), head.headers());
            return Ok(address.into_key());
        }
        self.read_any(head)
    }

    /// Returns the address as lists have it, whatever the prefix of this extractor.
    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.list_value(head).map(IntoKey::into_key)
    }
}

impl KeyOf for ClientIp {
    /// The client's address: proxies are not asked.
    type Value<'a> = IpAddr;

    fn make(&self, address: IpAddr) -> Result<Key, Missing> {
        Ok(self.key(self.translation.canonical(address)))
    }
}
