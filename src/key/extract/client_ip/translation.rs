use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv6Net};

use crate::error::ConfigError;
use crate::key::extract::networks;

/// The prefixes under which translators show IPv4 addresses as IPv6 addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct Translation {
    prefixes: Arc<[Ipv6Net]>,
}

/// The prefix lengths of RFC 6052, section 2.2.
const LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];

/// The octet that the embedded address skips.
const UNUSED: usize = 8;

impl Translation {
    pub(super) fn parse(
        prefixes: impl IntoIterator<Item: AsRef<str>>,
    ) -> Result<Self, ConfigError> {
        const FIELD: &str = "unwrap_ipv4";
        let parse = |text: &str| match networks::parse(FIELD, text)? {
            IpNet::V6(prefix) if LENGTHS.contains(&prefix.prefix_len()) => Ok(prefix),
            _ => Err(ConfigError::quoting(
                FIELD,
                text,
                "give a translator's prefix such as 64:ff9b::/96, of 32, 40, 48, 56, 64 or 96 bits",
            )),
        };
        let prefixes = prefixes.into_iter().map(|prefix| parse(prefix.as_ref()));
        Ok(Self {
            prefixes: prefixes.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the canonical form of an address: a mapped or translated IPv4 address is the IPv4
    /// address.
    #[inline]
    pub(super) fn canonical(&self, address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V6(address) => self.embedded(address).map_or(address.into(), IpAddr::V4),
            address @ IpAddr::V4(_) => address,
        }
    }

    fn embedded(&self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let prefix = self.prefixes.iter().find(|net| net.contains(&address))?;
        let first = usize::from(prefix.prefix_len() / 8);
        let octets = address.octets();
        let mut behind = (first..octets.len()).filter(|at| *at != UNUSED);
        let mut embedded = [0; 4];
        for octet in &mut embedded {
            *octet = octets[behind.next()?];
        }
        Some(embedded.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_examples_of_rfc_6052_are_unwrapped() {
        for (prefix, address) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
            ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
        ] {
            let translation = Translation::parse([prefix]).unwrap();
            assert_eq!(
                translation.canonical(ip(address)),
                ip("192.0.2.33"),
                "{prefix}"
            );
        }
    }

    #[test]
    fn an_address_under_no_prefix_stays_what_it_is() {
        let translation = Translation::parse(["64:ff9b::/96", "2001:db8:64::/96"]).unwrap();
        for address in ["64:ff9b::1:192.0.2.1", "2001:db8::1", "::1", "::192.0.2.1"] {
            assert_eq!(translation.canonical(ip(address)), ip(address));
        }
        let none = Translation::default();
        assert_eq!(
            none.canonical(ip("64:ff9b::192.0.2.1")),
            ip("64:ff9b::c000:201")
        );
        assert_eq!(none.canonical(ip("::ffff:192.0.2.1")), ip("192.0.2.1"));
    }

    #[test]
    fn a_prefix_that_no_translator_has_is_an_error() {
        for text in [
            "64:ff9b::/95",
            "64:ff9b::/128",
            "10.0.0.0/8",
            "::ffff:0:0/96",
            "x",
        ] {
            let error = Translation::parse([text]).unwrap_err();
            assert_eq!(error.field(), "unwrap_ipv4", "{error}");
            assert_eq!(error.value(), format!("{text:?}"));
        }
    }
}
