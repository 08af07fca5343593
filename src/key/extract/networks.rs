//! Sets of addresses, written as networks: trusted proxies, translators and the networks of lists.
//!
//! All addresses are compared in their canonical form. An IPv4-mapped IPv6 network is an IPv4
//! network, so a client cannot leave a list by the way it connects.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::error::ConfigError;

/// A set of addresses, written as networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Networks {
    // Sorted and disjoint, so that bisection finds an address: the published lists of clouds have
    // thousands of networks.
    v4: Arc<[Ipv4Net]>,
    v6: Arc<[Ipv6Net]>,
}

impl Networks {
    pub(super) fn none() -> Self {
        Self {
            v4: Arc::default(),
            v6: Arc::default(),
        }
    }

    /// Parses networks. `field` is their name in errors.
    pub(super) fn parse(
        field: &'static str,
        networks: impl IntoIterator<Item: AsRef<str>>,
    ) -> Result<Self, ConfigError> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for text in networks {
            match parse(field, text.as_ref())? {
                IpNet::V4(network) => v4.push(network),
                IpNet::V6(network) => v6.push(network),
            }
        }
        let (mut v4, mut v6) = (Ipv4Net::aggregate(&v4), Ipv6Net::aggregate(&v6));
        v4.sort_unstable();
        v6.sort_unstable();
        Ok(Self {
            v4: v4.into(),
            v6: v6.into(),
        })
    }

    /// Returns whether the set contains all IPv4 addresses or all IPv6 addresses.
    pub(super) fn hold_all(&self) -> bool {
        let v4 = self.v4.iter().any(|network| network.prefix_len() == 0);
        v4 || self.v6.iter().any(|network| network.prefix_len() == 0)
    }

    /// Returns whether the set contains nothing but addresses of this machine.
    pub(super) fn are_loopback(&self) -> bool {
        // A wider network begins at another address.
        let mut v4 = self.v4.iter();
        v4.all(|network| network.network().is_loopback())
            && self
                .v6
                .iter()
                .all(|network| network.network().is_loopback())
    }

    /// Returns whether the set contains this address, which is in canonical form.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        // The networks are disjoint: only the last one that begins at or before the address can
        // contain it.
        match address {
            IpAddr::V4(address) => {
                let behind = self.v4.partition_point(|net| net.network() <= address);
                let nearest = self.v4[..behind].last();
                nearest.is_some_and(|network| network.contains(&address))
            }
            IpAddr::V6(address) => {
                let behind = self.v6.partition_point(|net| net.network() <= address);
                let nearest = self.v6[..behind].last();
                nearest.is_some_and(|network| network.contains(&address))
            }
        }
    }
}

/// Parses a network, or a single address, into its canonical form: `::ffff:10.0.0.0/104` is
/// `10.0.0.0/8`.
pub(super) fn parse(field: &'static str, text: &str) -> Result<IpNet, ConfigError> {
    const REMEDY: &str = "give a network such as 10.0.0.0/8 or fd00::/8, or an address";
    /// The bits before the IPv4 address in an IPv4-mapped address.
    const MAPPED: u8 = 96;

    let wrong = || ConfigError::quoting(field, text, REMEDY);
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => {
            let is_number = prefix.bytes().all(|byte| byte.is_ascii_digit());
            let prefix = prefix.parse::<u8>().ok().filter(|_| is_number);
            (address, Some(prefix.ok_or_else(wrong)?))
        }
        None => (text, None),
    };
    let written: IpAddr = address.parse().map_err(|_| wrong())?;
    let (address, prefix) = match (written, written.to_canonical()) {
        (IpAddr::V6(_), IpAddr::V4(address)) => {
            // An IPv6 network with a shorter prefix contains more than the mapped addresses.
            let prefix = prefix.map(|prefix| prefix.checked_sub(MAPPED).ok_or_else(wrong));
            (IpAddr::V4(address), prefix.transpose()?)
        }
        (_, address) => (address, prefix),
    };
    let network = match prefix {
        Some(prefix) => IpNet::new(address, prefix).map_err(|_| wrong())?,
        None => IpNet::from(address),
    };
    if network.addr() != network.network() {
        let remedy = format!(
            "there are bits behind its prefix: give {} or {}",
            network.trunc(),
            network.addr()
        );
        return Err(ConfigError::quoting(field, text, remedy));
    }
    Ok(network)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(list: &[&str]) -> Networks {
        Networks::parse("networks", list).unwrap()
    }

    #[track_caller]
    fn assert_contains(list: &[&str], address: &str, expected: bool) {
        let contains = networks(list).contains(address.parse().unwrap());
        assert_eq!(contains, expected, "{list:?} {address}");
    }

    #[test]
    fn an_address_is_found_among_many_networks_in_any_order() {
        let list = [
            "fd00::/8",
            "192.168.0.0/16",
            "10.0.0.0/8",
            "10.1.0.0/16",
            "172.16.0.0/12",
            "203.0.113.7",
            "2001:db8::/32",
        ];
        for address in [
            "10.0.0.0",
            "10.1.2.3",
            "10.255.255.255",
            "172.31.255.255",
            "192.168.0.1",
            "203.0.113.7",
            "2001:db8::",
            "fdff::1",
        ] {
            assert_contains(&list, address, true);
        }
        for address in [
            "9.255.255.255",
            "11.0.0.0",
            "172.32.0.0",
            "0.0.0.0",
            "255.255.255.255",
            "203.0.113.6",
            "203.0.113.8",
            "::",
            "::10.0.0.1",
            "2001:db9::",
            "fe00::",
        ] {
            assert_contains(&list, address, false);
        }
    }

    #[test]
    fn no_networks_contain_nothing() {
        assert_contains(&[], "10.0.0.1", false);
        assert_contains(&[], "::1", false);
        assert_eq!(networks(&[]), Networks::none());
    }

    #[test]
    fn mapped_networks_are_the_networks_of_ipv4_that_they_are() {
        assert_eq!(
            networks(&["::ffff:10.0.0.0/104"]),
            networks(&["10.0.0.0/8"])
        );
        assert_eq!(networks(&["::ffff:10.0.0.1"]), networks(&["10.0.0.1/32"]));
        assert_eq!(networks(&["::ffff:0:0/97"]), networks(&["0.0.0.0/1"]));
    }

    #[test]
    fn an_invalid_network_is_an_error_with_the_remedy() {
        for text in [
            "",
            "/8",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0.0/256",
            "10.0.0.0/8/8",
            "10.0.0/8",
            "010.0.0.0/8",
            " 10.0.0.0/8",
            "fd00::/129",
            "::ffff:10.0.0.0/8",
            "localhost",
        ] {
            let error = Networks::parse("networks", [text]).unwrap_err();
            assert_eq!(error.field(), "networks");
            assert_eq!(error.value(), format!("{text:?}"));
            assert!(error.remedy().contains("10.0.0.0/8"), "{error}");
        }
        let error = Networks::parse("networks", ["10.1.2.3/8"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`networks` cannot be \"10.1.2.3/8\": there are bits behind its prefix: give 10.0.0.0/8 or 10.1.2.3"
        );
    }
}
