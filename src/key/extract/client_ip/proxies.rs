//! Which hops of a chain are trusted.
//!
//! The chain is read from the server outwards. Each hop is trusted by its network, its number or
//! its socket. The first address that is not trusted is the client; all elements beyond it may be
//! forged, so an unusable element is never skipped.

use std::net::IpAddr;

use tower_ratelimit_core::__internal::or_panic;

use crate::error::ConfigError;
use crate::key::extract::networks::Networks;

/// The proxies that are trusted to tell the address of the client.
///
/// A trusted proxy has to append to the forwarding header, or to overwrite it. A proxy that passes
/// on what a client has sent lets each client choose its own address.
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

/// The maximum length of a chain; a longer one is unusable. It bounds the work for a request.
pub(super) const EXAMINED: usize = 32;

/// One hop in a forwarding header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    /// Nothing between two commas.
    Empty,
    Address(IpAddr),
    /// A hop without an address: `unknown`, or a name.
    Unnamed,
    /// The text is malformed, and the number of its hops is unknown.
    Broken,
}

impl Proxies {
    /// Trusts the proxies whose address is in one of these networks: `10.0.0.0/8`, `fd00::/8`, or a
    /// single address.
    ///
    /// The client is the last address of the chain that is in none of the networks, so up to 32
    /// proxies may stand behind each other. If all addresses are in the networks, the first is the
    /// client. A network written as `::ffff:10.0.0.0/104` is `10.0.0.0/8`.
    ///
    /// A peer outside of these networks is a client, and its forwarding header is not read. With an
    /// empty list no proxy is trusted.
    ///
    /// # Panics
    ///
    /// When one of them is not a network. This is meant for start-up;
    /// [`try_in_networks`](Self::try_in_networks) returns an error.
    #[track_caller]
    pub fn in_networks(networks: impl IntoIterator<Item: AsRef<str>>) -> Self {
        or_panic(Self::try_in_networks(networks))
    }

    /// Trusts the proxies in these networks; see [`in_networks`](Self::in_networks).
    ///
    /// # Errors
    ///
    /// When one of them
    ///
    /// - is not a network,
    /// - has bits behind its prefix (`10.1.2.3/8`), or
    /// - contains all addresses: each client could then choose its own address.
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

    /// Trusts this many hops before the server, from 1 to 32; the first is the peer of the socket,
    /// whatever its address.
    ///
    /// The client is the entry that the outermost of these hops has made: with `hops(1)` the last
    /// of the chain, with `hops(2)` the one before it, as behind a load balancer that adds its own
    /// address. Use it for proxies with unknown addresses. It cannot detect a peer that bypasses
    /// the proxies: such a client chooses its own address.
    ///
    /// # Panics
    ///
    /// When `hops` is 0 or more than 32. This is meant for start-up; [`try_hops`](Self::try_hops)
    /// returns an error.
    #[track_caller]
    pub fn hops(hops: u8) -> Self {
        or_panic(Self::try_hops(hops))
    }

    /// Trusts this many hops before the server; see [`hops`](Self::hops).
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

    /// Trusts the other end of the Unix socket that the server listens on, and no further hop.
    ///
    /// A peer without an address counts as the Unix socket. A server that also listens on TCP has
    /// to provide the addresses of its peers; otherwise all of them are trusted.
    pub fn unix_socket() -> Self {
        Self::of(Chain::Networks(Networks::none())).and_unix_socket()
    }

    /// Trusts the other end of a Unix socket too; it is the first of the [`hops`](Self::hops).
    ///
    /// A peer without an address counts as the Unix socket: see [`unix_socket`](Self::unix_socket).
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

    /// Returns whether a peer with this address is trusted to tell the address of the client.
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use tower_ratelimit::key::Proxies;
    ///
    /// let proxies = Proxies::in_networks(["10.0.0.0/8"]);
    /// assert!(proxies.trust(Ipv4Addr::new(10, 1, 1, 1).into()));
    /// assert!(!proxies.trust(Ipv4Addr::new(192, 0, 2, 1).into()));
    /// // Hops are counted, whatever their addresses.
    /// assert!(Proxies::hops(1).trust(Ipv4Addr::new(192, 0, 2, 1).into()));
    /// ```
    pub fn trust(&self, peer: IpAddr) -> bool {
        self.have(Some(peer.to_canonical()))
    }

    /// Returns whether this address is in one of the [networks](Self::in_networks). [Hops](Self::hops) name no address.
    pub fn name(&self, peer: IpAddr) -> bool {
        match &self.chain {
            Chain::Networks(networks) => networks.contains(peer.to_canonical()),
            Chain::Hops(_) => false,
        }
    }

    /// Returns whether the other end of a [Unix socket](Self::unix_socket) is trusted, which has no address.
    pub fn trust_unix_socket(&self) -> bool {
        self.unix_socket
    }

    /// Returns whether they are named by loopback addresses alone.
    pub(super) fn are_on_this_machine(&self) -> bool {
        match &self.chain {
            Chain::Networks(networks) => networks.are_loopback(),
            Chain::Hops(_) => false,
        }
    }

    /// Returns whether the other end of the socket is trusted. A peer without an address may be a Unix
    /// socket.
    pub(super) fn have(&self, peer: Option<IpAddr>) -> bool {
        match (peer, &self.chain) {
            (None, _) => self.unix_socket,
            (Some(peer), Chain::Networks(networks)) => networks.contains(peer),
            (Some(_), Chain::Hops(_)) => true,
        }
    }

    /// Returns the client at the other end of a chain. The chain begins with its last element, and
    /// its addresses are canonical.
    ///
    /// An unusable element is never skipped: its sender may have made up all elements to the left
    /// of it.
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
