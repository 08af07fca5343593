use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use ahash::RandomState;
use ipnet::{IpNet, Ipv4Net};

use super::take::Take;
use super::{Extract, Head, IntoKey, Key, Missing};
use crate::diagnostics::diagnose;
use crate::error::ConfigError;

/// Whether what an extractor reads is one of these.
pub(super) fn one_of<E: Extract, K: IntoKey>(
    extractor: E,
    listed: impl IntoIterator<Item = K>,
) -> impl Fn(&Head<'_>) -> bool + Clone + Send + Sync + 'static {
    let listed: HashSet<Key, RandomState> = listed.into_iter().map(IntoKey::into_key).collect();
    let list = Arc::new((extractor, listed));
    move |head: &Head<'_>| holds(list.0.plain(head), |key| list.1.contains(&key))
}

/// Whether the address that an extractor reads is in one of these networks.
pub(super) fn within<E, N>(
    extractor: E,
    networks: N,
) -> Result<impl Fn(&Head<'_>) -> bool + Clone + Send + Sync + 'static, ConfigError>
where
    E: for<'a> Take<Out<'a> = IpAddr>,
    N: IntoIterator<Item: AsRef<str>>,
{
    let networks = Networks::parse(networks)?;
    let list = Arc::new((extractor, networks));
    Ok(move |head: &Head<'_>| holds(list.0.take(head), |address| list.1.contain(address)))
}

/// A condition does not hold for what is not there; that the server has not provided it is said.
fn holds<T>(read: Result<T, Missing>, condition: impl FnOnce(T) -> bool) -> bool {
    match read {
        Ok(value) => condition(value),
        Err(Missing::ByClient) => false,
        Err(Missing::ByServer(diagnostic)) => {
            diagnose(&diagnostic);
            false
        }
    }
}

/// The first and the last address of each network; in order, none within another.
struct Networks(Vec<(IpAddr, IpAddr)>);

impl Networks {
    fn parse(networks: impl IntoIterator<Item: AsRef<str>>) -> Result<Self, ConfigError> {
        let networks = networks
            .into_iter()
            .map(|network| parse(network.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        let mut apart: Vec<_> = IpNet::aggregate(&networks)
            .iter()
            .map(|network| (network.network(), network.broadcast()))
            .collect();
        apart.sort_unstable();
        Ok(Self(apart))
    }

    fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let after = self.0.partition_point(|(first, _)| *first <= address);
        let nearest = after.checked_sub(1).and_then(|index| self.0.get(index));
        nearest.is_some_and(|(_, last)| address <= *last)
    }
}

/// A network, or an address as the network of itself alone.
fn parse(text: &str) -> Result<IpNet, ConfigError> {
    let network = match text.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address),
        Err(_) => text.parse::<IpNet>().map_err(|_| {
            let remedy = "give a network such as 10.0.0.0/8, or an address";
            ConfigError::quoting("network", text, remedy)
        })?,
    };
    if network.addr() != network.network() {
        let remedy = format!("did you mean {}?", network.trunc());
        return Err(ConfigError::quoting("network", text, remedy));
    }
    Ok(canonical(network))
}

/// A network of IPv4 that is written as one of IPv6 is that network of IPv4.
fn canonical(network: IpNet) -> IpNet {
    const MAPPED: u8 = 96;
    match network.network().to_canonical() {
        IpAddr::V4(address) => network
            .prefix_len()
            .checked_sub(if network.addr().is_ipv6() { MAPPED } else { 0 })
            .and_then(|len| Ipv4Net::new(address, len).ok())
            .map_or(network, IpNet::from),
        IpAddr::V6(_) => network,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(networks: &[&str], address: &str) -> bool {
        let networks = Networks::parse(networks).unwrap();
        networks.contain(address.parse().unwrap())
    }

    #[test]
    fn a_network_contains_its_first_and_its_last_address_and_no_other() {
        let networks = ["10.1.0.0/16", "192.0.2.7", "2001:db8::/32"];
        for inside in [
            "10.1.0.0",
            "10.1.255.255",
            "192.0.2.7",
            "::ffff:10.1.2.3",
            "2001:db8::",
            "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
        ] {
            assert!(within(&networks, inside), "{inside}");
        }
        for outside in [
            "10.0.255.255",
            "10.2.0.0",
            "192.0.2.6",
            "192.0.2.8",
            "::10.1.2.3",
            "2001:db7:ffff::",
            "2001:db9::",
        ] {
            assert!(!within(&networks, outside), "{outside}");
        }
    }

    #[test]
    fn a_network_inside_another_hides_nothing_of_it() {
        let networks = ["10.1.2.0/24", "10.0.0.0/8", "10.1.2.3", "0.0.0.0/32"];
        assert!(within(&networks, "10.200.0.1"));
        assert!(within(&networks, "10.1.2.4"));
        assert!(!within(&networks, "11.0.0.0"));
    }

    #[test]
    fn all_addresses_of_a_family_are_a_network_and_an_empty_list_has_none() {
        assert!(within(&["0.0.0.0/0"], "255.255.255.255"));
        assert!(within(&["0.0.0.0/0"], "::ffff:192.0.2.1"));
        assert!(!within(&["0.0.0.0/0"], "2001:db8::1"));
        assert!(within(&["::/0"], "2001:db8::1"));
        assert!(!within(&["::/0"], "192.0.2.1"));
        assert!(!within(&[], "192.0.2.1"));
    }

    #[test]
    fn f49_networks_of_mapped_addresses_are_the_networks_of_ipv4_that_they_are() {
        assert!(within(&["::ffff:10.0.0.0/104"], "10.1.2.3"));
        assert!(within(&["::ffff:10.0.0.1"], "10.0.0.1"));
        assert!(!within(&["::ffff:10.0.0.0/104"], "11.1.2.3"));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for wrong in ["", "10.0.0.0/33", "10.0.0/8", "example.org", "10.0.0.0/8 "] {
            let error = Networks::parse([wrong]).err().unwrap();
            assert_eq!(error.field(), "network", "{wrong:?}");
        }
        let error = Networks::parse(["10.1.2.3/8"]).err().unwrap();
        assert_eq!(
            error.to_string(),
            r#"`network` cannot be "10.1.2.3/8": did you mean 10.0.0.0/8?"#,
        );
    }
}
