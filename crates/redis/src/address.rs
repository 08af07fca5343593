use redis::{ConnectionAddr, ConnectionInfo};

/// Returns the host's name or address, which is empty for a socket.
pub(super) fn host(server: &ConnectionInfo) -> &str {
    match server.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
        _ => "",
    }
}

/// Returns the address of another server with the user, password, database and TLS of this one. A socket
/// stays as it is.
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

/// Returns a server and its database, or its socket: `127.0.0.1:6379/0`, `/run/redis.sock`. The text has
/// neither a user nor a password.
pub(super) fn server(info: &ConnectionInfo) -> String {
    let database = info.redis_settings().db();
    match info.addr() {
        ConnectionAddr::Unix(path) => path.display().to_string(),
        address => format!("{}/{database}", place(address)),
    }
}

/// Returns the address of a server, of a cluster or of a master: `127.0.0.1:6379`.
pub(super) fn place(address: &ConnectionAddr) -> String {
    match address {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            // An IPv6 address, as in a URL.
            if host.contains(':') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            }
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;

    use super::*;

    #[test]
    fn a_server_is_named_without_what_is_needed_to_log_in() {
        for (url, named) in [
            ("redis://10.0.0.7", "10.0.0.7:6379/0"),
            (
                "redis://limiter:passw0rd@redis.internal:6380/2",
                "redis.internal:6380/2",
            ),
            ("redis://:passw0rd@[::1]:7000/", "[::1]:7000/0"),
            (
                "redis+unix:///run/redis.sock?db=3&user=limiter&pass=passw0rd",
                "/run/redis.sock",
            ),
        ] {
            assert_eq!(server(&url.into_connection_info().unwrap()), named);
        }
    }
}
