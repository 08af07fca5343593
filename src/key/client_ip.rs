use std::net::IpAddr;

use super::combinators::{combinators, hashed, map, within};
use super::take::Take;
use super::{Extract, Head, Key, Missing, PeerIp, peer_ip};

/// The address of the client.
///
/// This version trusts no proxy: it is the address of the socket's other end, exactly as
/// [`peer_ip`] has it, and forwarding headers, which any client can write, are not read. Behind
/// a proxy that means that all clients of the proxy share one quota.
pub fn client_ip() -> ClientIp {
    ClientIp { peer: peer_ip() }
}

/// The extractor that [`client_ip`] returns.
#[derive(Clone, Copy, Debug)]
pub struct ClientIp {
    peer: PeerIp,
}

impl Take for ClientIp {
    type Out<'a> = IpAddr;

    fn take(&self, head: &Head<'_>) -> Result<IpAddr, Missing> {
        self.peer.take(head)
    }
}

impl Extract for ClientIp {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.peer.extract(head)
    }

    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}

combinators!(ClientIp);
hashed!(ClientIp);
map!(ClientIp, IpAddr);
within!(ClientIp);
