//! The address of the peer, read from where servers put it.
//!
//! axum, tonic and servers of other kinds keep the address of a connection in different types in
//! the extensions of the request. This file is the only one that knows all of them.

use std::any::type_name;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::diagnostics::Diagnostic;

use super::{Extractor, Head, IntoKey, Key, Keyed, Missing, Origin, Typed};

/// The address at the other end of the socket: the client, or the last proxy before this server.
///
/// IPv4 is counted by address, also if it is mapped into IPv6; IPv6 by /64 network. For other
/// networks, and behind a translator (NAT64, SIIT), use [`client_ip`](super::client_ip()): without
/// proxies it is the same address.
///
/// The address is read from the extensions of the request, in this order:
///
/// 1. where axum puts it: `ConnectInfo<SocketAddr>`, or `MockConnectInfo<SocketAddr>` in tests;
/// 2. a plain [`SocketAddr`], for servers of your own;
/// 3. with feature `tonic`, where a tonic server puts it: `TcpConnectInfo`,
///    `TlsConnectInfo<TcpConnectInfo>`, `UdsConnectInfo`.
///
/// [`connect_info`](Extractor::connect_info) names another type. If there is no address, the server is
/// not set up to provide it: the answer is `500 Internal Server Error`, and the log says once which
/// line of code is missing (`TRL001`).
pub fn peer_ip() -> Extractor<PeerIp> {
    Extractor::of(PeerIp::default())
}

#[derive(Clone, Default)]
pub struct PeerIp {
    // `None` reads a `SocketAddr`.
    custom: Option<PeerSource>,
}

/// How a custom listener reports the peer.
#[derive(Clone)]
struct PeerSource {
    by: Arc<dyn Fn(&Head<'_>) -> Peer + Send + Sync>,
    type_name: &'static str,
}

/// The other end of a connection, as a listener tells it.
///
/// It converts from an address, with or without a port, and from an `Option` of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Peer {
    /// A peer with this address.
    Ip(IpAddr),
    /// The other end of a Unix socket, which has no address: usually a proxy on the same machine.
    /// See [`Proxies::unix_socket`](super::Proxies::unix_socket).
    UnixSocket,
    /// The listener does not know the peer.
    Unknown,
}

impl Extractor<PeerIp> {
    /// Reads the peer from a connection info type of your own, such as that of a listener for the
    /// PROXY protocol.
    ///
    /// The type is read as axum's `ConnectInfo<T>` (or `MockConnectInfo<T>`), then as a bare `T` in
    /// the extensions of the request. No other place is read.
    ///
    /// A listener for the PROXY protocol has to be configured to expect it; it must not guess. For
    /// a connection announced as `UNKNOWN` or `LOCAL`, the peer is the address of the socket.
    ///
    /// ```
    /// use std::net::SocketAddr;
    /// use tower_ratelimit::key::{self, Extract, Head, IntoKey};
    ///
    /// /// The connection info of a PROXY protocol listener.
    /// #[derive(Clone)]
    /// struct Connection {
    ///     socket: SocketAddr,
    ///     source: Option<SocketAddr>,
    /// }
    ///
    /// let key = key::peer_ip().connect_info(|at: &Connection| at.source.unwrap_or(at.socket));
    ///
    /// let mut request = http::Request::new(());
    /// request.extensions_mut().insert(Connection {
    ///     socket: "10.0.0.1:4711".parse()?,
    ///     source: Some("192.0.2.1:40000".parse()?),
    /// });
    /// let client = std::net::Ipv4Addr::new(192, 0, 2, 1);
    /// assert_eq!(key.extract(&Head::of(&request)), Ok(client.into_key()));
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn connect_info<T, P>(mut self, peer: impl Fn(&T) -> P + Send + Sync + 'static) -> Self
    where
        T: Clone + Send + Sync + 'static,
        P: Into<Peer>,
    {
        self.source = PeerIp::read_by(peer);
        self
    }
}

impl PeerIp {
    pub(super) fn read_by<T, P>(peer: impl Fn(&T) -> P + Send + Sync + 'static) -> Self
    where
        T: Clone + Send + Sync + 'static,
        P: Into<Peer>,
    {
        let by = move |head: &Head<'_>| {
            let info = connection::<T>(head);
            info.map_or(Peer::Unknown, |info| peer(info).into())
        };
        Self {
            custom: Some(PeerSource {
                by: Arc::new(by),
                type_name: type_name::<T>(),
            }),
        }
    }

    /// Returns the address in canonical form: an IPv4 address is never mapped into IPv6.
    pub(super) fn address(&self, head: &Head<'_>) -> Result<IpAddr, Missing> {
        match self.peer(head) {
            Peer::Ip(address) => Ok(address.to_canonical()),
            peer => Err(self.missing(peer)),
        }
    }

    /// Returns the address from axum or from a custom server.
    #[inline]
    pub(super) fn socket<'a>(&self, head: &Head<'a>) -> Option<&'a SocketAddr> {
        if self.is_custom() {
            return None;
        }
        connection(head)
    }

    #[inline]
    pub(super) fn peer(&self, head: &Head<'_>) -> Peer {
        match &self.custom {
            Some(custom) => (custom.by)(head),
            None => match self.socket(head) {
                Some(address) => Peer::Ip(address.ip()),
                #[cfg(feature = "tonic")]
                None => super::tonic::peer(head),
                #[cfg(not(feature = "tonic"))]
                None => Peer::Unknown,
            },
        }
    }

    /// Returns whether a closure of the application reads the peer.
    #[inline]
    pub(super) fn is_custom(&self) -> bool {
        self.custom.is_some()
    }

    /// Returns why a peer has no address.
    pub(super) fn missing(&self, peer: Peer) -> Missing {
        const PROBLEM: &str =
            "the server does not tell the address of the peer, so clients cannot be told apart";
        let (subject, remedy) = match (peer, &self.custom) {
            (Peer::UnixSocket, _) => (
                "Unix socket",
                "trust the socket's other end to tell it: `key::client_ip().behind(Proxies::unix_socket(), Forwarding::XForwardedFor)`; in a file of limits: `[proxies]` with `unix_socket = true` and `header = \"x-forwarded-for\"`",
            ),
            (_, Some(custom)) => (
                custom.type_name,
                "serve with `app.into_make_service_with_connect_info::<T>()` of this type, and let the closure of `.connect_info(..)` return an address",
            ),
            (_, None) => (
                "peer address",
                "serve with `app.into_make_service_with_connect_info::<SocketAddr>()`, or in tests add `.layer(MockConnectInfo(SocketAddr::from(([127, 0, 0, 1], 0))))` after this layer",
            ),
        };
        Missing::ByServer(Diagnostic::new("TRL001", subject, PROBLEM, remedy))
    }
}

impl Origin for PeerIp {
    /// Clones have one closure.
    fn identity(&self) -> Option<String> {
        let custom = self.custom.as_ref();
        let by = custom.map_or_else(String::new, |custom| {
            format!(" by {:p}", Arc::as_ptr(&custom.by))
        });
        Some(format!("{self:?}{by}"))
    }
}

impl Typed for PeerIp {
    type Value<'a> = IpAddr;

    fn value(&self, head: &Head<'_>) -> Result<IpAddr, Missing> {
        self.address(head)
    }
}

impl Keyed for PeerIp {
    fn key(&self, address: IpAddr) -> Result<Key, Missing> {
        Ok(address.into_key())
    }
}

impl fmt::Debug for PeerIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let custom = self.custom.as_ref().map(|custom| custom.type_name);
        f.debug_struct("PeerIp")
            .field("connect_info", &custom.unwrap_or(type_name::<SocketAddr>()))
            .finish()
    }
}

/// Returns what a listener has recorded about the connection.
#[inline]
fn connection<'a, T: Clone + Send + Sync + 'static>(head: &Head<'a>) -> Option<&'a T> {
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(info)) = head.extension() {
        return Some(info);
    }
    connection_elsewhere(head)
}

#[inline(never)]
fn connection_elsewhere<'a, T: Clone + Send + Sync + 'static>(head: &Head<'a>) -> Option<&'a T> {
    #[cfg(feature = "axum")]
    if let Some(axum::extract::connect_info::MockConnectInfo(info)) = head.extension() {
        return Some(info);
    }
    head.extension()
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        Self::Ip(address)
    }
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address.ip())
    }
}

/// `None` is [`Peer::Unknown`].
impl<T: Into<Peer>> From<Option<T>> for Peer {
    fn from(address: Option<T>) -> Self {
        address.map_or(Self::Unknown, Into::into)
    }
}
