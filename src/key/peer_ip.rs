use std::net::{IpAddr, SocketAddr};

use super::combinators::{combinators, hashed, map, within};
use super::take::Take;
use super::{Extract, Head, IntoKey, Key, Missing};
use crate::diagnostics::Diagnostic;

/// The address of the socket's other end: the client, or the last proxy before this server.
///
/// IPv4 is counted by address, also when it is mapped into IPv6; IPv6 by /64 network. Behind a
/// translator (NAT64, SIIT) all of IPv4 comes from one such network, `64:ff9b::/64` as a rule, and
/// shares one quota: there, make the key of the address yourself.
///
/// The address is looked for where axum puts it (`ConnectInfo<SocketAddr>`, or
/// `MockConnectInfo<SocketAddr>` in tests), then as a plain [`SocketAddr`] among the request's
/// extensions, for servers of your own. If it is not there, the server is not set up to provide
/// it: requests are answered with `500 Internal Server Error`, and the log says once what to
/// write (`TRL001`).
pub fn peer_ip() -> PeerIp {
    PeerIp(())
}

/// The extractor that [`peer_ip`] returns.
#[derive(Clone, Copy, Debug)]
pub struct PeerIp(());

const NO_PEER: Diagnostic = Diagnostic::new(
    "TRL001",
    "peer address",
    "the server does not tell the address of the peer, so clients cannot be told apart",
    "serve with `app.into_make_service_with_connect_info::<SocketAddr>()`, or in tests add `.layer(MockConnectInfo(SocketAddr::from(([127, 0, 0, 1], 0))))` after this layer",
);

impl Take for PeerIp {
    type Out<'a> = IpAddr;

    fn take(&self, head: &Head<'_>) -> Result<IpAddr, Missing> {
        peer(head).ok_or(Missing::ByServer(NO_PEER))
    }
}

impl Extract for PeerIp {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        Ok(self.take(head)?.into_key())
    }

    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}

fn peer(head: &Head<'_>) -> Option<IpAddr> {
    #[cfg(feature = "axum")]
    if let Some(address) = peer_from_axum(head) {
        return Some(address);
    }
    head.extension::<SocketAddr>().map(SocketAddr::ip)
}

#[cfg(feature = "axum")]
fn peer_from_axum(head: &Head<'_>) -> Option<IpAddr> {
    use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};

    head.extension()
        .map(|ConnectInfo(address): &ConnectInfo<SocketAddr>| address)
        .or_else(|| {
            head.extension()
                .map(|MockConnectInfo(address): &MockConnectInfo<SocketAddr>| address)
        })
        .map(SocketAddr::ip)
}

combinators!(PeerIp);
hashed!(PeerIp);
map!(PeerIp, IpAddr);
within!(PeerIp);
