//! Addresses as proxies write them, with and without ports.
//!
//! Each header has its own grammar. A text that does not match it exactly is no address: a lenient
//! parser would let a client choose how it is counted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest address with a port: `[`, 45 characters and `]:65535`.
const LONGEST: usize = 53;

/// Parses an element of `X-Forwarded-For`: IPv4, IPv6, `IPv4:port`, `[IPv6]` or `[IPv6]:port`.
///
/// IPv6 without brackets is an address without a port, because the end of `2001:db8::1:443` is
/// ambiguous.
pub(super) fn address(text: &[u8]) -> Option<IpAddr> {
    let text = short(text)?;
    with_port(text, is_port).or_else(|| Some(text.parse::<Ipv6Addr>().ok()?.into()))
}

/// Parses a node of RFC 7239, section 6, if it is an address. The port may be obfuscated.
pub(super) fn node(text: &[u8]) -> Option<IpAddr> {
    with_port(short(text)?, |port| {
        is_port_number(port) || port.strip_prefix('_').is_some_and(is_obfuscated)
    })
}

/// Parses an address, a colon and a port. An IPv6 address has no brackets here.
pub(super) fn address_before_port(text: &[u8]) -> Option<IpAddr> {
    let (address, port) = short(text)?.rsplit_once(':')?;
    if is_port(port) {
        address.parse().ok()
    } else {
        None
    }
}

fn short(text: &[u8]) -> Option<&str> {
    if text.len() > LONGEST {
        return None;
    }
    std::str::from_utf8(text).ok()
}

/// Parses IPv4, or IPv6 in brackets, with an optional port.
fn with_port(text: &str, is_port: fn(&str) -> bool) -> Option<IpAddr> {
    let (address, port): (IpAddr, _) = if let Some(text) = text.strip_prefix('[') {
        let (address, behind) = text.split_once(']')?;
        let port = match behind.strip_prefix(':') {
            None if behind.is_empty() => None,
            None => return None,
            port => port,
        };
        (address.parse::<Ipv6Addr>().ok()?.into(), port)
    } else {
        let (address, port) = match text.split_once(':') {
            Some((address, port)) => (address, Some(port)),
            None => (text, None),
        };
        (address.parse::<Ipv4Addr>().ok()?.into(), port)
    };
    port.is_none_or(is_port).then_some(address)
}

fn is_port(text: &str) -> bool {
    is_port_number(text) && text.parse::<u16>().is_ok()
}

fn is_port_number(text: &str) -> bool {
    (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `text` is the part after the `_` of an obfuscated name.
fn is_obfuscated(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_is_read_in_every_spelling_that_proxies_write() {
        for (text, expected) in [
            ("203.0.113.7", "203.0.113.7"),
            ("203.0.113.7:0", "203.0.113.7"),
            ("203.0.113.7:65535", "203.0.113.7"),
            ("2001:db8::1", "2001:db8::1"),
            ("2001:DB8:0:0::1", "2001:db8::1"),
            ("2001:db8::1:443", "2001:db8::1:443"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("::ffff:203.0.113.7", "::ffff:203.0.113.7"),
            ("[::ffff:203.0.113.7]:1", "::ffff:203.0.113.7"),
        ] {
            assert_eq!(address(text.as_bytes()), Some(ip(expected)), "{text}");
        }
    }

    #[test]
    fn malformed_addresses_are_refused() {
        let long = format!("{}1", "0".repeat(1_000_000));
        for text in [
            "",
            " ",
            "unknown",
            "_hidden",
            "localhost",
            "example.com",
            "203.0.113.007",
            "127.1",
            "0x7f.0.0.1",
            "2130706433",
            "203.0.113.7.",
            "203.0.113.256",
            "203.0.113.7:",
            "203.0.113.7:65536",
            "203.0.113.7:+80",
            "203.0.113.7:080000",
            "203.0.113.7:80:80",
            "203.0.113.7/32",
            "203.0.113.7 ",
            "fe80::1%eth0",
            "[fe80::1%1]",
            "[2001:db8::1",
            "2001:db8::1]",
            "[2001:db8::1]443",
            "[2001:db8::1]:",
            "[2001:db8::1]:65536",
            "[2001:db8::1]:_x",
            "[203.0.113.7]",
            "[203.0.113.7]:80",
            "[]",
            "[]:80",
            ":80",
            "\"203.0.113.7\"",
            &long,
        ] {
            assert_eq!(address(text.as_bytes()), None, "{text}");
            assert_eq!(address_before_port(text.as_bytes()), None, "{text}");
        }
        assert_eq!(address(b"203.0.113.7\xff"), None);
    }

    #[test]
    fn a_node_has_its_ipv6_in_brackets_and_may_hide_its_port() {
        for (text, expected) in [
            ("203.0.113.7", Some(ip("203.0.113.7"))),
            ("203.0.113.7:99999", Some(ip("203.0.113.7"))),
            ("203.0.113.7:_p.o-r_t9", Some(ip("203.0.113.7"))),
            ("[2001:db8::1]", Some(ip("2001:db8::1"))),
            ("[2001:db8::1]:_x", Some(ip("2001:db8::1"))),
            ("2001:db8::1", None),
            ("203.0.113.7:_", None),
            ("203.0.113.7:x", None),
            ("203.0.113.7:_ü", None),
            ("203.0.113.7:123456", None),
            ("_hidden:80", None),
        ] {
            assert_eq!(node(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn an_address_before_a_port_ends_at_the_last_colon() {
        for (text, expected) in [
            ("203.0.113.7:443", Some(ip("203.0.113.7"))),
            ("2001:db8:1234::5:443", Some(ip("2001:db8:1234::5"))),
            ("::1:443", Some(ip("::1"))),
            ("203.0.113.7", None),
            ("2001:db8:1:2:3:4:5:6", None),
            ("[2001:db8::5]:443", None),
            ("2001:db8::5:fff", None),
        ] {
            assert_eq!(address_before_port(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn the_longest_address_with_its_port_is_read() {
        let longest = "[2001:0db8:0000:0000:0000:ffff:192.168.100.228]:65535";
        assert_eq!(longest.len(), LONGEST);
        assert!(address(longest.as_bytes()).is_some());
    }
}
