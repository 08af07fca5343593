//! Where a listener listens, as a flag tells it.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use tokio::net::TcpListener;

use super::systemd::Handed;
use crate::socket::Socket;

/// The address of a listener, or `none`.
#[derive(Clone, Debug)]
pub(super) enum Address {
    Nowhere,
    Port(String),
    Unix(PathBuf),
    /// A socket that the service manager has opened, by its name.
    Handed(String),
}

impl Address {
    /// Opens the socket that this flag names.
    pub(super) async fn listen(
        &self,
        flag: &str,
        handed: &mut Handed,
    ) -> Result<Option<Socket>, String> {
        let wrong = |error: String| format!("--{flag}: {self}: {error}");
        let socket = match self {
            Self::Nowhere => return Ok(None),
            Self::Port(address) => {
                let listener = TcpListener::bind(address).await.map(Socket::Tcp);
                let remedy = "write an address and a free port, such as 127.0.0.1:0, a path such as unix:/run/x, or none";
                listener.map_err(|error| wrong(format!("{error}; {remedy}")))?
            }
            // The system would choose a name that nobody knows.
            Self::Unix(path) if path.as_os_str().is_empty() => {
                return Err(wrong("write the path, such as unix:/run/x".to_owned()));
            }
            Self::Unix(path) => {
                let remedy = "write a path that is free, in a folder that this user may write";
                Socket::at(path).map_err(|error| wrong(format!("{error}; {remedy}")))?
            }
            Self::Handed(name) => handed.take(name).map_err(wrong)?,
        };
        Ok(Some(socket))
    }
}

impl FromStr for Address {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(if text == "none" {
            Self::Nowhere
        } else if let Some(path) = text.strip_prefix("unix:") {
            Self::Unix(path.into())
        } else if let Some(name) = text.strip_prefix("fd:") {
            Self::Handed(name.to_owned())
        } else {
            Self::Port(text.to_owned())
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere => f.write_str("none"),
            Self::Port(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Handed(name) => write!(f, "fd:{name}"),
        }
    }
}
