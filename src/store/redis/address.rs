use redis::{ConnectionAddr, ConnectionInfo};

/// The host's name or address; none of a socket.
#[cfg(feature = "redis-sentinel")]
pub(super) fn host(server: &ConnectionInfo) -> &str {
    match server.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
        _ => "",
    }
}

/// The same server elsewhere: user, password, database and TLS stay. So does a socket.
pub(super) fn moved(server: &ConnectionInfo, to: &str, at: u16) -> ConnectionInfo {
    let mut address = server.addr().clone();
    if let ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } =
        &mut address
    {
        to.clone_into(host);
        *port = at;
    }
    server.clone().set_addr(address)
}
