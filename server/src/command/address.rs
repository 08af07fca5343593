//! Where a listener listens, as a flag tells it.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use tokio::net::TcpListener;

/// The address of a listener, or `none`.
#[derive(Clone, Debug)]
pub(super) enum Address {
    Nowhere,
    At(String),
}

impl Address {
    /// Opens the listener that this flag names.
    pub(super) async fn listen(&self, flag: &str) -> Result<Option<TcpListener>, String> {
        let Self::At(address) = self else {
            return Ok(None);
        };
        let listener = TcpListener::bind(address).await.map_err(|error| {
            format!("--{flag}: {address:?}: {error}; write an address and a free port, such as 127.0.0.1:0, or none")
        });
        listener.map(Some)
    }
}

impl FromStr for Address {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "none" => Self::Nowhere,
            address => Self::At(address.to_owned()),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere => f.write_str("none"),
            Self::At(address) => f.write_str(address),
        }
    }
}
