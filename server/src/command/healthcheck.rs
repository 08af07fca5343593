use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConnection, StreamOwned};

use super::address::Address;
use crate::{BoxError, tls};

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
    /// As its own flag has it, if it speaks TLS; the file is not read, and any certificate is trusted
    #[arg(long, value_name = "FILE")]
    ops_certificate: Option<PathBuf>,
    /// A file in PEM: the certificate that this command shows, where the server has `--ops-client-ca`
    #[arg(long, value_name = "FILE", requires_all = ["client_key", "ops_certificate"])]
    client_certificate: Option<PathBuf>,
    /// A file in PEM: the key of that certificate
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    client_key: Option<PathBuf>,
}

impl Healthcheck {
    pub(super) fn run(self) -> Result<(), BoxError> {
        let at = self.ops.to_string();
        let (tell, told) = mpsc::channel();
        // Names, connections and answers have one time together. The process ends with the first thread.
        thread::spawn(move || tell.send(self.asked()));
        told.recv_timeout(PATIENCE)
            .unwrap_or_else(|error| match error {
                RecvTimeoutError::Timeout => {
                    Err(format!("--ops: {at}: it has not answered within {PATIENCE:?}").into())
                }
                RecvTimeoutError::Disconnected => Err("the check has broken off".into()),
            })
    }

    fn asked(&self) -> Result<(), BoxError> {
        let wrong = |error: io::Error| format!("--ops: {}: {error}", self.ops);
        let answer = match &self.ops {
            Address::Nowhere => {
                return Err("--ops: none; without this listener nothing answers".into());
            }
            Address::Handed(_) => {
                return Err(format!(
                    "--ops: {} is a socket of the server alone; write the address of its unit",
                    self.ops
                )
                .into());
            }
            Address::Port(address) => {
                let found = address.to_socket_addrs().map_err(wrong)?;
                self.ask(connect(found).map_err(wrong)?)
            }
            Address::Unix(path) => self.ask(UnixStream::connect(path).map_err(wrong)?),
        };
        let answer = answer.map_err(|error| format!("--ops: {}: {error}", self.ops))?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        if head.starts_with("HTTP/1.1 200 ") {
            return Ok(());
        }
        Err(format!("not ready: {}", body.trim()).into())
    }

    fn ask(&self, stream: impl Read + Write) -> Result<String, BoxError> {
        if self.ops_certificate.is_none() {
            return Ok(ask(stream)?);
        }
        let config = tls::of_any()?;
        let config = match (&self.client_certificate, &self.client_key) {
            (Some(chain), Some(key)) => {
                let (chain, key) = (shown(chain)?, key_of(key)?);
                let config = config.with_client_auth_cert(chain, key);
                config.map_err(|error| format!("--client-key: {error}"))?
            }
            _ => config.with_no_client_auth(),
        };
        let name = ServerName::from(IpAddr::from(Ipv4Addr::LOCALHOST));
        let connection = ClientConnection::new(config.into(), name)?;
        Ok(ask(StreamOwned::new(connection, stream))?)
    }
}

/// Returns the certificates of this file, which are shown to the server.
fn shown(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error| format!("--client-certificate: {}: {error}", file.display());
    let chain = CertificateDer::pem_file_iter(file).map_err(wrong)?;
    let chain: Vec<_> = chain.collect::<Result<_, _>>().map_err(wrong)?;
    if chain.is_empty() {
        return Err(wrong(pem::Error::NoItemsFound));
    }
    Ok(chain)
}

fn key_of(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(file)
        .map_err(|error| format!("--client-key: {}: {error}", file.display()))
}

/// Connects to the first of these that takes a connection. Each has its part of the time.
fn connect(found: impl ExactSizeIterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "this name has no address");
    let patience = PATIENCE / u32::try_from(found.len().max(1)).unwrap_or(u32::MAX);
    for at in found {
        match TcpStream::connect_timeout(&near(at), patience) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
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

fn ask(mut stream: impl Read + Write) -> io::Result<String> {
    stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    // A few lines; another server might send for ever.
    stream.take(16 * 1024).read_to_string(&mut answer)?;
    Ok(answer)
}
