use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::address::Address;
use crate::BoxError;

/// The time for the server to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Ask the server on this machine whether it is ready, for a container without a shell
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The exit code is 0 if the server is ready, and 1 if it is not or does not answer within 3s."
)]
pub(super) struct Healthcheck {
    /// The address of the running server for operators and probes, as its own flag has it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3001")]
    ops: Address,
}

impl Healthcheck {
    pub(super) fn run(self) -> Result<(), BoxError> {
        let Address::At(address) = &self.ops else {
            return Err("--ops: none; without this listener nothing answers".into());
        };
        let wrong = |error: std::io::Error| format!("--ops: {address:?}: {error}");
        let mut found = address.to_socket_addrs().map_err(wrong)?;
        let at = found.next().ok_or("--ops: this name has no address")?;
        let answer = ask(near(at)).map_err(wrong)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        if head.starts_with("HTTP/1.1 200 ") {
            return Ok(());
        }
        Err(format!("not ready: {}", body.trim()).into())
    }
}

/// Returns where a listener answers on this machine that listens on all of its addresses.
fn near(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

fn ask(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    // A few lines; another server might send for ever.
    stream.take(16 * 1024).read_to_string(&mut answer)?;
    Ok(answer)
}
