use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{Ipv4Addr, Ipv6Addr};

use sha2::{Digest, Sha256};

/// Who is being counted: up to 46 bytes and what kind of thing they are.
///
/// Longer input becomes its SHA-256 digest, so that no client makes a key large. Keys of
/// different kinds are never equal: the text `"192.0.2.1"` is not the address 192.0.2.1, and
/// the pair `("a", "bc")` is not the pair `("ab", "c")`.
///
/// Make one from a value by [`IntoKey`](super::IntoKey). Its `Debug` form shows an address or a
/// number, and of text and bytes only the length, since they may be secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    kind: Kind,
    len: u8,
    bytes: [u8; CAPACITY],
}

const CAPACITY: usize = 46;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Nobody,
    Bytes,
    Text,
    Number,
    Negative,
    Ipv4,
    Ipv6,
    Pair,
    DigestOfBytes,
    DigestOfText,
    DigestOfPair,
}

impl Key {
    /// All who left their key out, such as clients that do not send the header it is made of.
    ///
    /// No value that a client sends is this key.
    pub const NOBODY: Self = Self {
        kind: Kind::Nobody,
        len: 0,
        bytes: [0; CAPACITY],
    };

    pub(super) fn text(text: &str) -> Self {
        Self::of(Kind::Text, Kind::DigestOfText, text.as_bytes())
    }

    pub(super) fn bytes(bytes: &[u8]) -> Self {
        Self::of(Kind::Bytes, Kind::DigestOfBytes, bytes)
    }

    pub(super) fn number(number: u128) -> Self {
        Self::short(Kind::Number, &number.to_be_bytes())
    }

    /// A number of a signed type; equal to the same number of an unsigned one.
    pub(super) fn signed(number: i128) -> Self {
        match u128::try_from(number) {
            Ok(number) => Self::number(number),
            Err(_) => Self::short(Kind::Negative, &number.unsigned_abs().to_be_bytes()),
        }
    }

    pub(super) fn ipv4(address: Ipv4Addr) -> Self {
        Self::short(Kind::Ipv4, &address.octets())
    }

    /// A network of IPv6, its host part cleared and its length in bits behind it.
    pub(super) fn ipv6(network: Ipv6Addr, prefix: u8) -> Self {
        let mut bytes = [prefix; 17];
        bytes[..16].copy_from_slice(&network.octets());
        Self::short(Kind::Ipv6, &bytes)
    }

    /// Two keys as one. Kind and length stand before each part, so that parts cannot run
    /// together.
    pub(super) fn pair(first: &Self, second: &Self) -> Self {
        let mut joined = [0; 2 * (2 + CAPACITY)];
        let mut len = 0;
        for part in [first, second] {
            joined[len] = part.kind as u8;
            joined[len + 1] = part.len;
            joined[len + 2..][..part.as_bytes().len()].copy_from_slice(part.as_bytes());
            len += 2 + part.as_bytes().len();
        }
        Self::of(Kind::Pair, Kind::DigestOfPair, &joined[..len])
    }

    fn of(kind: Kind, digest: Kind, bytes: &[u8]) -> Self {
        if bytes.len() <= CAPACITY {
            Self::short(kind, bytes)
        } else {
            Self::short(digest, &Sha256::digest(bytes))
        }
    }

    /// `input` is at most `CAPACITY` long.
    #[expect(clippy::cast_possible_truncation, reason = "CAPACITY fits in a byte")]
    fn short(kind: Kind, input: &[u8]) -> Self {
        let mut bytes = [0; CAPACITY];
        bytes[..input.len()].copy_from_slice(input);
        Self {
            kind,
            len: input.len() as u8,
            bytes,
        }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl Hash for Key {
    /// The bytes behind the length are all zero, so equal keys hash alike without most of them,
    /// and whole words are hashed faster than single bytes.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (head, rest) = self.bytes.split_at(WORD - 2);
        let mut first = [0; WORD];
        first[0] = self.kind as u8;
        first[1] = self.len;
        first[2..].copy_from_slice(head);
        state.write_u64(u64::from_ne_bytes(first));
        let words = usize::from(self.len)
            .saturating_sub(head.len())
            .div_ceil(WORD);
        for word in rest.as_chunks().0.iter().take(words) {
            state.write_u64(u64::from_ne_bytes(*word));
        }
    }
}

const WORD: usize = size_of::<u64>();

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.as_bytes();
        match self.kind {
            Kind::Nobody => f.write_str("Key(nobody)"),
            Kind::Number => write!(f, "Key(number {})", number(bytes)),
            Kind::Negative => write!(f, "Key(number -{})", number(bytes)),
            Kind::Ipv4 => match <[u8; 4]>::try_from(bytes) {
                Ok(octets) => write!(f, "Key({})", Ipv4Addr::from(octets)),
                Err(_) => f.write_str("Key(address)"),
            },
            Kind::Ipv6 => match bytes.split_last_chunk::<1>() {
                Some((octets, [prefix])) => match <[u8; 16]>::try_from(octets) {
                    Ok(octets) => write!(f, "Key({}/{prefix})", Ipv6Addr::from(octets)),
                    Err(_) => f.write_str("Key(address)"),
                },
                None => f.write_str("Key(address)"),
            },
            Kind::Pair => f.write_str("Key(pair)"),
            Kind::Text => write!(f, "Key(text of {} bytes)", self.len),
            Kind::Bytes => write!(f, "Key({} bytes)", self.len),
            Kind::DigestOfBytes | Kind::DigestOfText | Kind::DigestOfPair => {
                f.write_str("Key(digest)")
            }
        }
    }
}

fn number(bytes: &[u8]) -> u128 {
    bytes
        .iter()
        .fold(0, |number, byte| (number << 8) | u128::from(*byte))
}
