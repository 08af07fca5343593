//! The servers of a run: on this machine, unless an option names another one.
//!
//! A name is resolved once, and the address is stored. Proxies in the environment and redirects are not followed.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::Uri;
use tokio::net::TcpStream;

/// A server, with the address of the whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The address.
    pub address: SocketAddr,
    /// The header `Host`.
    pub host: String,
    /// The path with the query.
    pub path: String,
    /// Whether the address belongs to another machine.
    pub is_remote: bool,
}

/// The reason why there is no target.
#[derive(Debug)]
pub enum AimError {
    /// The URL cannot be used.
    Usage(String),
    /// Nothing answers there.
    NoAnswer(String),
}

/// Finds the servers of all URLs.
///
/// # Errors
///
/// A URL that is no plain `http` URL, an address that is neither loopback nor allowed, or a server that accepts no
/// connection.
pub async fn aim(
    urls: &[String],
    allowed: &[String],
    timeout: Duration,
) -> Result<Vec<Target>, AimError> {
    let mut targets = Vec::new();
    for url in urls {
        targets.push(target(url, allowed, timeout).await?);
    }
    Ok(targets)
}

async fn target(url: &str, allowed: &[String], timeout: Duration) -> Result<Target, AimError> {
    let (host, port, authority, path) = parts(url)?;
    let is_allowed = allowed.iter().any(|name| name.eq_ignore_ascii_case(&host));
    let addresses = tokio::net::lookup_host((host.as_str(), port)).await;
    let addresses: Vec<SocketAddr> = addresses
        .map_err(|error| AimError::NoAnswer(format!("{url}: {error}")))?
        .collect();
    let remote = addresses.iter().find(|address| !is_loopback(address.ip()));
    if let Some(remote) = remote
        && !is_allowed
    {
        let ip = remote.ip();
        return Err(AimError::Usage(format!(
            "{url} is at {ip}, which is not this machine: with permission to load it, add --allow-remote {host}"
        )));
    }
    let is_remote = remote.is_some();
    let mut failure = String::from("the name has no address");
    for address in addresses {
        match tokio::time::timeout(timeout, TcpStream::connect(address)).await {
            Ok(Ok(_)) => {
                return Ok(Target {
                    address,
                    host: authority,
                    path,
                    is_remote,
                });
            }
            Ok(Err(error)) => failure = format!("{address}: {error}"),
            Err(_) => failure = format!("{address}: no connection within {timeout:?}"),
        }
    }
    Err(AimError::NoAnswer(format!("{url}: {failure}")))
}

/// Returns the host, port, authority, and path with query.
fn parts(url: &str) -> Result<(String, u16, String, String), AimError> {
    let wrong = |why: &str| AimError::Usage(format!("{url}: {why}"));
    let uri: Uri = url
        .parse()
        .map_err(|_| wrong("write a URL such as http://127.0.0.1:3000/"))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => return Err(wrong("write http: the tester speaks no TLS")),
        _ => return Err(wrong("write a URL such as http://127.0.0.1:3000/")),
    }
    let authority = uri
        .authority()
        .ok_or_else(|| wrong("the host is missing"))?;
    if authority.as_str().contains('@') {
        return Err(wrong(
            "leave out the user, and send --header 'authorization: …'",
        ));
    }
    let host = authority
        .host()
        .trim_start_matches('[')
        .trim_end_matches(']');
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let port = authority.port_u16().unwrap_or(80);
    Ok((
        host.to_owned(),
        port,
        authority.to_string(),
        path.to_owned(),
    ))
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

impl fmt::Display for AimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::NoAnswer(text) => f.write_str(text),
        }
    }
}

impl Error for AimError {}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    async fn aimed(url: &str, allowed: &[&str]) -> Result<Target, AimError> {
        let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        target(url, &allowed, SOON).await
    }

    #[tokio::test]
    async fn only_this_machine_is_asked() {
        for url in [
            "http://192.0.2.1/",
            "http://0.0.0.0:3000/",
            "http://[2001:db8::1]/",
            "http://[::ffff:192.0.2.1]/",
            "http://user@127.0.0.1/",
            "https://127.0.0.1/",
            "ftp://127.0.0.1/",
            "127.0.0.1:3000",
            "/path",
        ] {
            let error = aimed(url, &["example.com"]).await.unwrap_err();
            assert!(matches!(error, AimError::Usage(_)), "{url}: {error}");
        }
    }

    #[tokio::test]
    async fn a_name_is_resolved_once_and_its_address_kept() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let port = address.port();
        let target = aimed(&format!("http://localhost:{port}/a?b=c"), &[])
            .await
            .unwrap();
        assert_eq!(target.address, address);
        assert_eq!(target.host, format!("localhost:{port}"));
        assert_eq!(target.path, "/a?b=c");
        assert!(!target.is_remote);
        // Loopback written as IPv6.
        aimed(&format!("http://[::ffff:127.0.0.1]:{port}/"), &[])
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_gives_no_answer() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let error = aimed(&format!("http://127.0.0.1:{port}/"), &[]).await;
        assert!(matches!(error, Err(AimError::NoAnswer(_))));
    }
}
