//! What tonic tells of a connection, among the extensions of each request that comes over it.

use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::{Head, Peer};

/// What tonic tells of a connection over this: `TcpConnectInfo`, `UdsConnectInfo`.
type Info<S> = <S as Connected>::ConnectInfo;

/// The same with TLS: `TlsConnectInfo<…>`, which tonic shows by this way only, unless a feature has
/// chosen the cryptography too.
type TlsInfo<S> = Info<TlsStream<S>>;

/// The other end of the connection, if it is one of tonic's own kinds, with TLS or without.
pub(super) fn peer(head: &Head<'_>) -> Peer {
    if let Some(tcp) = connection::<TcpStream>(head) {
        return tcp.remote_addr().into();
    }
    #[cfg(unix)]
    if connection::<UnixStream>(head).is_some() {
        return Peer::UnixSocket;
    }
    Peer::Unknown
}

fn connection<'a, S: Connected>(head: &Head<'a>) -> Option<&'a Info<S>> {
    let plain = head.extension::<Info<S>>();
    plain.or_else(|| Some(head.extension::<TlsInfo<S>>()?.get_ref()))
}

/// What a client's certificate is, if the connection is one of TLS over one of tonic's own kinds.
#[derive(Debug)]
pub(super) enum Certificate<D> {
    /// There is no TLS, as far as tonic has told.
    NoTls,
    /// The client has shown none, or was not asked for one.
    NotShown,
    /// Its encoding (DER), as the closure has read it.
    Shown(D),
}

/// Reads the certificate that the client has shown as its own.
pub(super) fn certificate<D>(head: &Head<'_>, read: impl FnOnce(&[u8]) -> D) -> Certificate<D> {
    let chain = head
        .extension::<TlsInfo<TcpStream>>()
        .map(<TlsInfo<TcpStream>>::peer_certs);
    #[cfg(unix)]
    let chain = chain.or_else(|| Some(head.extension::<TlsInfo<UnixStream>>()?.peer_certs()));
    match chain {
        None => Certificate::NoTls,
        Some(chain) => match chain.as_deref().and_then(|chain| chain.first()) {
            None => Certificate::NotShown,
            Some(own) => Certificate::Shown(read(own)),
        },
    }
}
