//! Conversion of values into keys.
//!
//! The conversions are here, apart from [`Key`], because they decide which values share a quota:
//! signed and unsigned numbers, mapped addresses, IPv6 networks.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::Key;

/// Converts a value into a key, without allocating.
///
/// It is implemented for text, bytes, integers, addresses, and pairs of these (nest pairs for more
/// parts). Implement it for a type of your own through a type that has it:
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::key::{IntoKey, Key};
///
/// struct UserId(u64);
///
/// impl IntoKey for UserId {
///     fn into_key(self) -> Key {
///         self.0.into_key()
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be used as a rate limit key",
    label = "not a key",
    note = "return text, bytes, a whole number, an address, a pair of these, or an `Option` of one; of a struct, return the field that tells clients apart, such as `user.id`",
    note = "or implement `tower_ratelimit::key::IntoKey` for it"
)]
pub trait IntoKey {
    /// Returns the key.
    fn into_key(self) -> Key;
}

impl IntoKey for Key {
    fn into_key(self) -> Key {
        self
    }
}

impl IntoKey for &str {
    #[inline]
    fn into_key(self) -> Key {
        Key::text(self)
    }
}

impl IntoKey for &[u8] {
    #[inline]
    fn into_key(self) -> Key {
        Key::bytes(self)
    }
}

impl<const N: usize> IntoKey for [u8; N] {
    fn into_key(self) -> Key {
        Key::bytes(&self)
    }
}

impl<const N: usize> IntoKey for &[u8; N] {
    fn into_key(self) -> Key {
        Key::bytes(self)
    }
}

macro_rules! into_key_as_text {
    ($($text:ty)+) => {$(
        impl IntoKey for $text {
            fn into_key(self) -> Key {
                Key::text(&self)
            }
        }

        impl IntoKey for &$text {
            fn into_key(self) -> Key {
                Key::text(self)
            }
        }
    )+};
}
into_key_as_text!(String Box<str> Arc<str> Cow<'_, str>);

impl IntoKey for Vec<u8> {
    fn into_key(self) -> Key {
        Key::bytes(&self)
    }
}

impl IntoKey for &Vec<u8> {
    fn into_key(self) -> Key {
        Key::bytes(self)
    }
}

macro_rules! into_key_as_number {
    ($($number:ty)+) => {$(
        impl IntoKey for $number {
            fn into_key(self) -> Key {
                Key::number(self.into())
            }
        }
    )+};
}
into_key_as_number!(u8 u16 u32 u64 u128);

macro_rules! into_key_as_signed {
    ($($number:ty)+) => {$(
        impl IntoKey for $number {
            fn into_key(self) -> Key {
                Key::signed(self.into())
            }
        }
    )+};
}
into_key_as_signed!(i8 i16 i32 i64 i128);

impl IntoKey for usize {
    fn into_key(self) -> Key {
        Key::number(self as u128)
    }
}

/// The key is the address itself.
impl IntoKey for Ipv4Addr {
    #[inline]
    fn into_key(self) -> Key {
        Key::ipv4(self)
    }
}

/// The key is the /64 network. That is the least that one subscriber has, and the subscriber
/// chooses the other bits freely. An IPv4-mapped address is the IPv4 address.
impl IntoKey for Ipv6Addr {
    #[inline]
    fn into_key(self) -> Key {
        const PREFIX: u8 = 64;
        if let Some(address) = self.to_ipv4_mapped() {
            return Key::ipv4(address);
        }
        Key::ipv6(self, PREFIX)
    }
}

/// The key is an IPv4 address itself, or the /64 network of an IPv6 address. To count single IPv6
/// addresses, use their octets.
impl IntoKey for IpAddr {
    #[inline]
    fn into_key(self) -> Key {
        match self {
            Self::V4(address) => address.into_key(),
            Self::V6(address) => address.into_key(),
        }
    }
}

impl<A: IntoKey, B: IntoKey> IntoKey for (A, B) {
    fn into_key(self) -> Key {
        Key::pair(&self.0.into_key(), &self.1.into_key())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use sha2::{Digest, Sha256};

    use super::*;

    fn ip(text: &str) -> Key {
        text.parse::<IpAddr>().unwrap().into_key()
    }

    #[test]
    fn an_address_of_ipv4_mapped_into_ipv6_is_the_address_of_ipv4() {
        assert_eq!(ip("::ffff:192.0.2.1"), ip("192.0.2.1"));
        assert_ne!(ip("::ffff:192.0.2.1"), ip("::ffff:192.0.2.2"));
        assert_ne!(ip("::1"), ip("0.0.0.1"));
    }

    #[test]
    fn addresses_of_ipv6_are_counted_by_their_64_bit_network() {
        assert_eq!(ip("2001:db8::1"), ip("2001:db8::ffff:ffff:ffff:ffff"));
        assert_ne!(ip("2001:db8::1"), ip("2001:db8:0:1::1"));
        assert_eq!(format!("{:?}", ip("2001:db8::1")), "Key(2001:db8::/64)");
    }

    #[test]
    fn things_of_different_kinds_are_different_keys() {
        let long = "x".repeat(100);
        let keys = [
            Key::MISSING,
            "".into_key(),
            [].into_key(),
            "192.0.2.1".into_key(),
            ip("192.0.2.1"),
            [192, 0, 2, 1].into_key(),
            "1".into_key(),
            1_u64.into_key(),
            long.as_str().into_key(),
            long.as_bytes().into_key(),
            (long.as_str(), "").into_key(),
            Sha256::digest(&long).as_slice().into_key(),
        ];
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
    }

    #[test]
    fn numbers_of_different_widths_are_the_same_number() {
        assert_eq!(7_u8.into_key(), 7_u128.into_key());
        assert_eq!(7_u8.into_key(), 7_i64.into_key());
        assert_eq!((-7_i32).into_key(), (-7_i128).into_key());
        assert_ne!((-7_i32).into_key(), 7_i32.into_key());
        assert_eq!(
            format!("{:?}", i128::MIN.into_key()),
            format!("Key(number {})", i128::MIN)
        );
    }

    #[test]
    fn the_parts_of_a_pair_cannot_run_together() {
        assert_ne!(("a", "b:c").into_key(), ("a:b", "c").into_key());
        assert_ne!(("ab", "").into_key(), ("", "ab").into_key());
        assert_ne!((("a", "b"), "c").into_key(), ("a", ("b", "c")).into_key());
    }

    #[test]
    fn long_text_differs_by_its_last_byte() {
        let text = |last| format!("{}{last}", "x".repeat(1_000_000)).into_key();
        assert_eq!(text('a'), text('a'));
        assert_ne!(text('a'), text('b'));
    }

    #[test]
    fn text_up_to_46_bytes_is_kept_as_it_is_and_longer_text_is_another_key() {
        let keys: HashSet<Key> = (0..100).map(|len| "x".repeat(len).into_key()).collect();
        assert_eq!(keys.len(), 100);
    }

    #[test]
    fn the_debug_form_shows_no_text() {
        let shown = format!(
            "{:?} {:?}",
            "sekret".into_key(),
            ("sekret", 1_u8).into_key()
        );
        assert!(!shown.contains("sekret"), "{shown}");
        assert_eq!(format!("{:?}", 300_u16.into_key()), "Key(number 300)");
    }
}
