mod address;
mod forwarded;
mod forwarding;
mod proxies;
mod single_value;
mod translation;
mod warning;
mod x_forwarded_for;

use std::net::{IpAddr, SocketAddr};

pub use self::forwarding::Forwarding;
pub use self::proxies::Proxies;
pub use self::single_value::SingleValue;

use self::translation::Translation;
use self::warning::warn_of_untrusted_proxy;
use super::combinators::{combinators, hashed, map, within};
use super::take::Take;
use super::{Extract, Head, IntoKey, Key, KeyOf, Missing, Peer, PeerIp, peer_ip};
use crate::error::{ConfigError, or_panic};

/// The address of the client.
///
/// Unless said otherwise:
///
/// - it is the address of the socket's other end, as [`peer_ip`] finds it: no proxy is trusted,
///   and forwarding header fields, which any client can write, are not read;
/// - IPv4 is counted by address, also when it is mapped into IPv6; IPv6 by /64 network;
/// - where a trusted proxy does not tell a client, the proxy itself is counted.
///
/// If a private address sends forwarding header fields and is not trusted, the log warns once that
/// all clients behind it share one quota (`TRL003`). See
/// [behind a proxy](crate::key#behind-a-proxy).
pub fn client_ip() -> ClientIp {
    ClientIp {
        peer: peer_ip(),
        behind: None,
        translation: Translation::default(),
        prefix: 64,
        falls_back: true,
    }
}

/// The extractor that [`client_ip`] returns.
#[derive(Clone, Debug)]
pub struct ClientIp {
    peer: PeerIp,
    behind: Option<(Proxies, Forwarding)>,
    translation: Translation,
    prefix: u8,
    falls_back: bool,
}

impl ClientIp {
    /// Which proxies are trusted to tell the client's address, and in which header field they do.
    /// What was said before is replaced.
    ///
    /// Where a trusted peer does not tell it (the field is not there, an element that was reached
    /// cannot be read or is not an address, the chain has fewer hops than it should or more than
    /// 32 elements), the peer itself is counted, so that all such requests through one proxy share
    /// a quota. The other end of a Unix socket has no address to be counted by: then, and
    /// [without a fallback](Self::without_fallback), it is [`Missing::ByClient`].
    ///
    /// Lists and networks are never compared with a peer that is counted in the client's place: a
    /// client that makes the field unusable is not inside because its proxy is.
    ///
    /// ```
    /// use std::net::{Ipv4Addr, SocketAddr};
    /// use tower_ratelimit::key::{self, Extract, Forwarding, Head, IntoKey, Proxies};
    ///
    /// let proxies = Proxies::in_networks(["10.0.0.0/8", "fd00::/8"]);
    /// let key = key::client_ip().behind(proxies, Forwarding::XForwardedFor);
    ///
    /// // The client has written the first address itself; the outer proxy has added the second,
    /// // and the inner one the third.
    /// let request = http::Request::get("/")
    ///     .extension(SocketAddr::from(([10, 0, 0, 1], 4711)))
    ///     .header("x-forwarded-for", "198.51.100.9, 192.0.2.1, 10.0.0.2")
    ///     .body(())?;
    /// let client = Ipv4Addr::new(192, 0, 2, 1);
    /// assert_eq!(key.extract(&Head::of(&request)), Ok(client.into_key()));
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn behind(self, proxies: Proxies, forwarding: Forwarding) -> Self {
        Self {
            behind: Some((proxies, forwarding)),
            ..self
        }
    }

    /// How many bits of an address of IPv6 tell clients apart, from 32 to 128; 64 unless said.
    ///
    /// A /64 network is one LAN, whose hosts choose the rest of their address freely: more bits
    /// are no limit at all, unless each client is known to have one address. Homes are often given
    /// a /56, businesses a /48, so that one of them has 256 or 65,536 quotas of a /64 each; fewer
    /// bits in turn put neighbours together where customers of a host share a /64 or a /56. To
    /// bound the first without hurting the second, add a wider policy to the narrow one:
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

    /// How many bits of an address of IPv6 tell clients apart; see
    /// [`ipv6_prefix`](Self::ipv6_prefix).
    ///
    /// # Errors
    ///
    /// When `bits` is less than 32 or more than 128.
    pub fn try_ipv6_prefix(self, bits: u8) -> Result<Self, ConfigError> {
        if (32..=128).contains(&bits) {
            Ok(Self {
                prefix: bits,
                ..self
            })
        } else {
            let remedy = "give a length from 32 to 128";
            Err(ConfigError::new("ipv6_prefix", bits, remedy))
        }
    }

    /// The prefixes under which translators (NAT64, SIIT) show addresses of IPv4 as addresses of
    /// IPv6; none unless said. What was said before is replaced.
    ///
    /// Behind a translator all of IPv4 comes from one /64 network, `64:ff9b::/64` as a rule, and
    /// shares one quota unless its prefix is given here. The address of IPv4 is embedded as
    /// RFC 6052 says, under a prefix of 32, 40, 48, 56, 64 or 96 bits. It takes the place of the
    /// address of IPv6 everywhere: it is compared with trusted networks too.
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

    /// The prefixes of translators; see [`unwrap_ipv4`](Self::unwrap_ipv4).
    ///
    /// # Errors
    ///
    /// When one of them is not a network of IPv6 with a length that RFC 6052 has.
    pub fn try_unwrap_ipv4(
        self,
        prefixes: impl IntoIterator<Item: AsRef<str>>,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            translation: Translation::parse(prefixes)?,
            ..self
        })
    }

    /// Where a trusted proxy does not tell the client, the key is [`Missing::ByClient`], in place
    /// of the proxy's own. The policy's [`NoKey`](crate::policy::NoKey) says what becomes of the
    /// request: it shares a quota with others like it, is not counted, or is refused.
    pub fn without_fallback(self) -> Self {
        Self {
            falls_back: false,
            ..self
        }
    }

    /// Reads the peer from connection info of a type of yours; see [`PeerIp::connect_info`].
    pub fn connect_info<T, P>(self, peer: impl Fn(&T) -> P + Send + Sync + 'static) -> Self
    where
        T: Clone + Send + Sync + 'static,
        P: Into<Peer>,
    {
        Self {
            peer: self.peer.connect_info(peer),
            ..self
        }
    }

    /// The whole address in its canonical form: one of IPv4 is neither mapped nor translated into
    /// IPv6.
    #[inline]
    fn address(&self, head: &Head<'_>, falls_back: bool) -> Result<IpAddr, NoAddress> {
        let found = self.peer.peer(head);
        let peer = match found {
            Peer::Ip(address) => Some(self.translation.canonical(address)),
            Peer::UnixSocket | Peer::Unknown => None,
        };
        // Of a listener that tells its peers, one that it does not know is not taken for a socket.
        if let Some((proxies, forwarding)) = &self.behind
            && (found != Peer::Unknown || !self.peer.is_told())
            && proxies.have(peer)
        {
            let client = forwarding.client(proxies, head.headers(), &self.translation);
            let fallback = peer.filter(|_| falls_back);
            return client.or(fallback).ok_or(NoAddress::OfTheClient);
        }
        let peer = peer.ok_or(NoAddress::OfThePeer(found))?;
        warn_of_untrusted_proxy(peer, head.headers());
        Ok(peer)
    }

    #[inline(never)]
    fn extract_any(&self, head: &Head<'_>) -> Result<Key, Missing> {
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

/// Which address is not there: said in few bytes, since nearly every request has one.
#[derive(Clone, Copy)]
enum NoAddress {
    OfTheClient,
    OfThePeer(Peer),
}

impl Take for ClientIp {
    type Out<'a> = IpAddr;

    fn take(&self, head: &Head<'_>) -> Result<IpAddr, Missing> {
        self.address(head, self.falls_back)
            .map_err(|address| self.missing(address))
    }

    /// Without the fallback: a client that makes the field unusable is not the proxy.
    fn told(&self, head: &Head<'_>) -> Result<IpAddr, Missing> {
        self.address(head, false)
            .map_err(|address| self.missing(address))
    }

    fn reads(&self) -> Option<String> {
        self.identity()
    }
}

impl Extract for ClientIp {
    #[inline]
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        // Most requests, and none of what could be asked about the others.
        if self.behind.is_none()
            && let Some(SocketAddr::V4(peer)) = self.peer.socket(head)
        {
            let address = *peer.ip();
            warn_of_untrusted_proxy(address.into(), head.headers());
            return Ok(Key::ipv4(address));
        }
        self.extract_any(head)
    }

    /// As an address is listed, whatever the prefix.
    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.told(head).map(IntoKey::into_key)
    }

    fn identity(&self) -> Option<String> {
        self.peer.identity()?;
        Some(format!("{self:?}"))
    }
}

impl KeyOf for ClientIp {
    /// The client's address: proxies are not asked.
    type Value<'a> = IpAddr;

    fn make(&self, address: IpAddr) -> Result<Key, Missing> {
        Ok(self.key(self.translation.canonical(address)))
    }
}

combinators!(ClientIp);
hashed!(ClientIp);
map!(ClientIp, IpAddr);
within!(ClientIp);
