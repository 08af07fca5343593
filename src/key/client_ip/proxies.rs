use std::net::IpAddr;

use crate::error::{ConfigError, or_panic};
use crate::key::networks::Networks;

/// Which proxies are trusted to tell whom they speak for.
///
/// A proxy that is trusted has to append to the forwarding header field, or to overwrite it: one
/// that passes on what a client has sent lets each client choose who it is.
#[derive(Clone, Debug)]
pub struct Proxies {
    chain: Chain,
    unix_socket: bool,
}

#[derive(Clone, Debug)]
enum Chain {
    Networks(Networks),
    Hops(u8),
}

/// A chain longer than this is unusable: no request makes the work longer.
pub(super) const EXAMINED: usize = 32;

/// What a forwarding header field says of one hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    /// Nothing between two commas.
    Empty,
    Address(IpAddr),
    /// A hop whose address is not told: `unknown`, or a name.
    Unnamed,
    /// The text is out of order, and how many hops it stands for is not known.
    Broken,
}

impl Proxies {
    /// Those whose address is in one of these networks: `10.0.0.0/8`, `fd00::/8`, or a single
    /// address.
    ///
    /// The client is the last address of the chain that is in none of them, so that proxies may
    /// stand behind each other in any number up to 32. If all are in them, the first is the
    /// client. A network written as `::ffff:10.0.0.0/104` is `10.0.0.0/8`.
    ///
    /// A peer outside of these networks is a client: what it says of others is not read. An empty
    /// list trusts nobody.
    ///
    /// # Panics
    ///
    /// When one of them is not a network. This is meant for start-up;
    /// [`try_in_networks`](Self::try_in_networks) returns an error.
    #[track_caller]
    pub fn in_networks(networks: impl IntoIterator<Item: AsRef<str>>) -> Self {
        or_panic(Self::try_in_networks(networks))
    }

    /// Those whose address is in one of these networks; see [`in_networks`](Self::in_networks).
    ///
    /// # Errors
    ///
    /// When one of them is not a network, or has bits behind its prefix (`10.1.2.3/8`), or holds
    /// all addresses: whoever trusts everybody lets each client choose who it is.
    pub fn try_in_networks(
        networks: impl IntoIterator<Item: AsRef<str>>,
    ) -> Result<Self, ConfigError> {
        const FIELD: &str = "in_networks";
        let networks = Networks::parse(FIELD, networks)?;
        if networks.hold_all() {
            let remedy =
                "name the networks that your proxies are in, or count them: `Proxies::hops`";
            return Err(ConfigError::new(FIELD, "all addresses", remedy));
        }
        Ok(Self::of(Chain::Networks(networks)))
    }

    /// This many hops before the server, from 1 to 32; the first is the socket's peer, whoever it
    /// is.
    ///
    /// The client is the entry that the outermost of them has made: with `hops(1)` the last of
    /// the chain, with `hops(2)` the one before it, as behind a load balancer that adds its own
    /// address. For proxies whose addresses are not known. It cannot notice a peer that goes
    /// around them: whoever reaches the server directly chooses who it is.
    ///
    /// # Panics
    ///
    /// When `hops` is 0 or more than 32. This is meant for start-up; [`try_hops`](Self::try_hops)
    /// returns an error.
    #[track_caller]
    pub fn hops(hops: u8) -> Self {
        or_panic(Self::try_hops(hops))
    }

    /// This many hops before the server; see [`hops`](Self::hops).
    ///
    /// # Errors
    ///
    /// When `hops` is 0 or more than 32.
    pub fn try_hops(hops: u8) -> Result<Self, ConfigError> {
        if (1..=EXAMINED).contains(&usize::from(hops)) {
            Ok(Self::of(Chain::Hops(hops)))
        } else {
            let remedy = "count the socket's peer as the first: give 1 to 32";
            Err(ConfigError::new("hops", hops, remedy))
        }
    }

    /// The other end of the Unix socket that the server listens on, and nobody further out.
    ///
    /// A peer without an address is taken for it. A server that listens on TCP as well has to
    /// tell its peers' addresses, or all of them are trusted.
    pub fn unix_socket() -> Self {
        Self::of(Chain::Networks(Networks::none())).and_unix_socket()
    }

    /// Trusts the other end of a Unix socket too; it is the first of the [`hops`](Self::hops).
    ///
    /// A peer without an address is taken for it: see [`unix_socket`](Self::unix_socket).
    pub fn and_unix_socket(self) -> Self {
        Self {
            unix_socket: true,
            ..self
        }
    }

    fn of(chain: Chain) -> Self {
        Self {
            chain,
            unix_socket: false,
        }
    }

    /// Whether the socket's other end is one of them; without an address it may be a Unix socket.
    pub(super) fn have(&self, peer: Option<IpAddr>) -> bool {
        match (peer, &self.chain) {
            (None, _) => self.unix_socket,
            (Some(peer), Chain::Networks(networks)) => networks.contains(peer),
            (Some(_), Chain::Hops(_)) => true,
        }
    }

    /// The client at the other end of a chain, of which the last element comes first, its
    /// addresses in their canonical form.
    ///
    /// An element that cannot be used is never skipped: what is left of it, its sender may have
    /// made up.
    pub(super) fn client(&self, mut chain: impl Iterator<Item = Element>) -> Option<IpAddr> {
        let mut examined = 0;
        let mut next = || {
            let element = chain.next()?;
            examined += 1;
            Some(if examined > EXAMINED {
                Element::Broken
            } else {
                element
            })
        };
        match &self.chain {
            Chain::Networks(networks) => {
                let mut farthest = None;
                while let Some(element) = next() {
                    match element {
                        Element::Empty => {}
                        Element::Address(address) if networks.contains(address) => {
                            farthest = Some(address);
                        }
                        Element::Address(address) => return Some(address),
                        Element::Unnamed | Element::Broken => return None,
                    }
                }
                farthest
            }
            Chain::Hops(hops) => {
                let mut inner = hops - 1;
                loop {
                    match next()? {
                        Element::Empty => {}
                        Element::Address(_) | Element::Unnamed if inner > 0 => inner -= 1,
                        Element::Address(address) => return Some(address),
                        Element::Unnamed | Element::Broken => return None,
                    }
                }
            }
        }
    }
}
