//! The connection info that tonic puts into the extensions of each request.

use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::key::extract::{Head, Peer};

/// The connection info of a socket: `TcpConnectInfo`, `UdsConnectInfo`.
type Info<S> = <S as Connected>::ConnectInfo;

/// The connection info over TLS: `TlsConnectInfo<…>`. tonic exports that type only with a feature that also
/// chooses the cryptography; through the trait it is always available.
type TlsInfo<S> = Info<TlsStream<S>>;

/// Returns the other end of the connection, if it is a connection of tonic, with or without TLS.
pub(in crate::key::extract) fn peer(head: &Head<'_>) -> Peer {
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

/// The certificate of a client, on a TLS connection of tonic.
#[derive(Debug)]
pub(super) enum Certificate<D> {
    /// No TLS, as far as tonic knows.
    NoTls,
    /// The client has shown none, or was not asked for one.
    NotShown,
    /// The value that the closure has read from its DER encoding.
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
