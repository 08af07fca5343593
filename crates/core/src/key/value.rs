//! The key itself: six words on the stack.
//!
//! A key is made, copied and hashed for each decision, so it has a fixed size and no allocation.
//! Kind and length are part of it, so keys of different kinds are never equal, and the parts of a
//! pair cannot run together.

use std::array;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::slice;

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use super::{IntoKey, KeyName};

/// The identity that a limit counts: up to 46 bytes, and their kind.
///
/// Longer input becomes its SHA-256 digest, so a client cannot make a key large. Keys of different
/// kinds are never equal: the text `"192.0.2.1"` is not the address 192.0.2.1, and the pair
/// `("a", "bc")` is not the pair `("ab", "c")`.
///
/// [`IntoKey`](super::IntoKey) makes a key of a value. The `Debug` form shows an address or a
/// number. Of text and bytes it shows only the length, because they may be secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key([u64; WORDS]);

/// The lowest byte of the first word is the kind, and the second byte is the length. The rest is
/// the value, padded with zeros. Words are faster than bytes to make, copy and hash.
const WORDS: usize = 6;
const WORD: usize = size_of::<u64>();
pub(super) const HEAD: usize = 2;
const CAPACITY: usize = WORDS * WORD - HEAD;

/// The numbers go into keyed hashes, which nodes share: add new kinds at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Missing,
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
    Global,
    Secret,
    First,
    Second,
    DigestOfFirst,
    DigestOfSecond,
    Branch,
    DigestOfKey,
    DigestWithoutOwnPart,
}

impl Kind {
    const ALL: [Self; 20] = [
        Self::Missing,
        Self::Bytes,
        Self::Text,
        Self::Number,
        Self::Negative,
        Self::Ipv4,
        Self::Ipv6,
        Self::Pair,
        Self::DigestOfBytes,
        Self::DigestOfText,
        Self::DigestOfPair,
        Self::Global,
        Self::Secret,
        Self::First,
        Self::Second,
        Self::DigestOfFirst,
        Self::DigestOfSecond,
        Self::Branch,
        Self::DigestOfKey,
        Self::DigestWithoutOwnPart,
    ];

    pub(super) fn numbered(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

impl Key {
    /// The key of all requests without a key, such as those of clients that do not send the header.
    ///
    /// No value that a client sends is this key.
    pub const MISSING: Self = Self([Kind::Missing as u64, 0, 0, 0, 0, 0]);

    /// The key of all requests, for a policy that does not tell clients apart.
    ///
    /// No value that a client sends is this key.
    pub const GLOBAL: Self = Self([Kind::Global as u64, 0, 0, 0, 0, 0]);

    /// Returns whether it is [`MISSING`](Self::MISSING), or the key of a level of a tree, or of a tenant, whose own part is that.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::key::Key;
    ///
    /// assert!(Key::branch("acme", &[Key::MISSING]).is_missing());
    /// assert!(!Key::branch("acme", &[]).is_missing());
    /// ```
    pub fn is_missing(&self) -> bool {
        let leaf = self.leaf();
        leaf == Self::MISSING || leaf.kind() == Kind::DigestWithoutOwnPart
    }

    /// Returns the name of this key in a store that several processes share.
    ///
    /// The name shows the key: take care where it goes. A hashed value shows only its hash, which
    /// is the same in all processes with the same [`Secret`](super::Secret).
    pub fn name(&self) -> KeyName {
        self.with_bytes(KeyName::of)
    }

    /// Returns the name of the key's kind, for the log.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self.kind() {
            Kind::Missing => "missing",
            Kind::Global => "global",
            Kind::Number | Kind::Negative => "number",
            Kind::Ipv4 | Kind::Ipv6 => "address",
            Kind::Secret => "secret",
            Kind::Text | Kind::DigestOfText => "text",
            Kind::Bytes | Kind::DigestOfBytes => "bytes",
            Kind::Pair | Kind::DigestOfPair => "pair",
            Kind::First | Kind::DigestOfFirst => "first source",
            Kind::Second | Kind::DigestOfSecond => "second source",
            Kind::Branch => "branch",
            Kind::DigestOfKey | Kind::DigestWithoutOwnPart => "digest",
        }
    }

    /// Returns whether the key is text that begins with `prefix`.
    ///
    /// A text of more than 46 bytes is a digest in the key, and begins with nothing.
    pub fn starts_with(&self, prefix: &str) -> bool {
        self.with_text(|text| text.starts_with(prefix).then_some(()))
            .is_some()
    }

    /// Returns the text of a key that is text of at most 46 bytes; `None` for any other key.
    pub fn to_text(&self) -> Option<String> {
        self.with_text(|text| Some(text.to_owned()))
    }

    /// Reads the text of a key that is text; `None` for any other key.
    pub(crate) fn with_text<T>(&self, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        if self.kind() != Kind::Text {
            return None;
        }
        self.with_bytes(|bytes| read(str::from_utf8(bytes.get(HEAD..)?).ok()?))
    }

    pub(super) fn text(text: &str) -> Self {
        Self::of(Kind::Text, Kind::DigestOfText, text.as_bytes())
    }

    pub(super) fn bytes(bytes: &[u8]) -> Self {
        Self::of(Kind::Bytes, Kind::DigestOfBytes, bytes)
    }

    pub(super) fn number(number: u128) -> Self {
        Self::long(Kind::Number, number.to_be_bytes(), None)
    }

    /// A signed number; equal to the same unsigned number.
    pub(super) fn signed(number: i128) -> Self {
        match u128::try_from(number) {
            Ok(number) => Self::number(number),
            Err(_) => Self::long(Kind::Negative, number.unsigned_abs().to_be_bytes(), None),
        }
    }

    #[inline]
    pub(super) fn ipv4(address: Ipv4Addr) -> Self {
        let octets = address.octets();
        let address = u64::from(u32::from_le_bytes(octets));
        let first = head(Kind::Ipv4, octets.len()) | address << (8 * HEAD);
        Self([first, 0, 0, 0, 0, 0])
    }

    /// The network of this address with this prefix length: the address with the host bits cleared,
    /// then the length in bits.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    #[inline]
    pub fn ipv6(address: Ipv6Addr, prefix: u8) -> Self {
        let host = u128::MAX.checked_shr(prefix.into()).unwrap_or(0);
        let network = Ipv6Addr::from_bits(address.to_bits() & !host);
        Self::long(Kind::Ipv6, network.octets(), Some(prefix))
    }

    /// Two keys as one. Kind and length precede each part, so the parts cannot run together.
    pub(super) fn pair(first: &Self, second: &Self) -> Self {
        let mut joined = [0; 2 * WORDS * WORD];
        let mut len = 0;
        for part in [first.as_part(), second.as_part()] {
            let bytes = part.to_bytes();
            let end = HEAD + part.len();
            joined[len..][..end].copy_from_slice(&bytes[..end]);
            len += end;
        }
        Self::of(Kind::Pair, Kind::DigestOfPair, &joined[..len])
    }

    /// Makes the key of a level of a tree, for an operator: of the key of the root, and the keys of the levels below it, down to that
    /// level.
    ///
    /// Kind and length precede each part, so the parts cannot run together, and all keys of a tree show whose they are. A root of more than
    /// 28 bytes, and what is below it if both are too long together, are a digest. See [the page on trees][trees].
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::key::{IntoKey, Key};
    ///
    /// // Of organisation acme, of its team blue, and of the user ann of that team.
    /// let acme = Key::branch("acme", &[]);
    /// let blue = Key::branch("acme", &["blue".into_key()]);
    /// let ann = Key::branch("acme", &["blue".into_key(), "ann".into_key()]);
    /// assert_ne!(Key::branch("other", &["blue".into_key()]), blue);
    /// assert_eq!(ann.root(), acme);
    /// ```
    ///
    /// [trees]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/trees/
    pub fn branch(root: impl IntoKey, below: &[Self]) -> Self {
        const LONGEST_ROOT: usize = 28;
        let root = root.into_key().as_part().at_most(LONGEST_ROOT);
        if below.is_empty() {
            return root;
        }
        root.with_bytes(|bytes| Self::joined(bytes.len(), bytes, below))
    }

    /// Returns the key of a part below that of a level of a tree. The root stays that of the level.
    pub(crate) fn below(&self, level: &Self) -> Self {
        let part = slice::from_ref(self);
        if level.kind() != Kind::Branch {
            return Self::branch(*level, part);
        }
        level.with_bytes(|bytes| {
            let above = bytes.get(HEAD..).unwrap_or_default();
            let of_root = above.get(1).map_or(0, |len| HEAD + usize::from(*len));
            Self::joined(of_root, above, part)
        })
    }

    /// Joins these parts to those above them, of which the root has the first bytes.
    fn joined(of_root: usize, above: &[u8], parts: &[Self]) -> Self {
        let mut joined: SmallVec<[u8; 4 * WORDS * WORD]> = SmallVec::from_slice(above);
        for part in parts {
            part.as_part()
                .with_bytes(|bytes| joined.extend_from_slice(bytes));
        }
        if joined.len() > CAPACITY {
            let kind = match parts.last() {
                Some(&Self::MISSING) => Kind::DigestWithoutOwnPart,
                _ => Kind::DigestOfKey,
            };
            let digest = Self::digest_of(kind, joined.get(of_root..).unwrap_or_default());
            joined.truncate(of_root);
            digest.with_bytes(|bytes| joined.extend_from_slice(bytes));
        }
        Self::short(Kind::Branch, &joined)
    }

    /// Returns the key of the root of the tree, or the key itself if it is not one [of a tree](Self::branch). A store keeps together what
    /// has one root.
    pub fn root(&self) -> Self {
        if self.kind() != Kind::Branch {
            return *self;
        }
        self.with_bytes(|bytes| {
            let root = bytes.get(HEAD..).unwrap_or_default();
            match root.split_first_chunk() {
                Some((&[kind, len], value)) => {
                    match (Kind::numbered(kind), value.get(..len.into())) {
                        (Some(kind), Some(value)) => Self::short(kind, value),
                        _ => *self,
                    }
                }
                None => *self,
            }
        })
    }

    /// Returns the last part of a key [of a tree](Self::branch), such as the team without its organisation, or the key itself if it is
    /// not one. A path of which only a digest is kept is that digest.
    pub(crate) fn leaf(&self) -> Self {
        if self.kind() != Kind::Branch {
            return *self;
        }
        self.with_bytes(|bytes| {
            let mut rest = bytes.get(HEAD..).unwrap_or_default();
            let mut leaf = *self;
            while let Some((&[kind, len], value)) = rest.split_first_chunk() {
                match (Kind::numbered(kind), value.split_at_checked(len.into())) {
                    (Some(kind), Some((value, more))) => {
                        leaf = Self::short(kind, value);
                        rest = more;
                    }
                    _ => return *self,
                }
            }
            leaf
        })
    }

    /// Returns the key as a part of another: of a branch the digest, since its parts would run into what follows them.
    fn as_part(&self) -> Self {
        match self.kind() {
            Kind::Branch => self.at_most(0),
            _ => *self,
        }
    }

    /// Returns the key, or its digest if it takes more bytes.
    fn at_most(&self, bytes: usize) -> Self {
        if HEAD + self.len() <= bytes {
            return *self;
        }
        self.with_bytes(|bytes| Self::digest_of(Kind::DigestOfKey, bytes))
    }

    fn digest_of(kind: Kind, bytes: &[u8]) -> Self {
        let mut short = [0; 16];
        for (to, from) in short.iter_mut().zip(Sha256::digest(bytes)) {
            *to = from;
        }
        Self::long(kind, short, None)
    }

    /// 128 bits of a keyed hash.
    pub(super) fn secret(hash: [u8; 16]) -> Self {
        Self::long(Kind::Secret, hash, None)
    }

    /// This key, marked as that of the first of two sources.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub fn of_first(&self) -> Self {
        self.of_source(Kind::First, Kind::DigestOfFirst)
    }

    /// This key, marked as that of the second of two sources.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub fn of_second(&self) -> Self {
        self.of_source(Kind::Second, Kind::DigestOfSecond)
    }

    fn of_source(&self, kind: Kind, digest: Kind) -> Self {
        let part = self.as_part();
        part.with_bytes(|bytes| Self::of(kind, digest, bytes))
    }

    /// Returns whether it contains these bytes, of which there is at least one.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub fn shows(&self, part: &[u8]) -> bool {
        self.with_bytes(|bytes| {
            bytes
                .windows(part.len().max(1))
                .any(|window| window == part)
        })
    }

    /// Kind, length and value.
    pub(super) fn with_bytes<T>(&self, read: impl FnOnce(&[u8]) -> T) -> T {
        read(&self.to_bytes()[..HEAD + self.len()])
    }

    fn of(kind: Kind, digest: Kind, bytes: &[u8]) -> Self {
        if bytes.len() <= CAPACITY {
            Self::short(kind, bytes)
        } else {
            Self::short(digest, &Sha256::digest(bytes))
        }
    }

    /// Makes a key of an `input` of at most `CAPACITY` bytes.
    fn short(kind: Kind, input: &[u8]) -> Self {
        let mut bytes = [0; WORDS * WORD];
        bytes[HEAD..][..input.len()].copy_from_slice(input);
        let mut words = array::from_fn(|word| {
            let mut part = [0; WORD];
            part.copy_from_slice(&bytes[word * WORD..][..WORD]);
            u64::from_le_bytes(part)
        });
        words[0] |= head(kind, input.len());
        Self(words)
    }

    /// Makes a key of sixteen bytes, and an optional one after them.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the rest is in the next word"
    )]
    fn long(kind: Kind, bytes: [u8; 16], last: Option<u8>) -> Self {
        let len = bytes.len() + usize::from(last.is_some());
        let bytes = u128::from_le_bytes(bytes);
        let first = head(kind, len) | (bytes << (8 * HEAD)) as u64;
        let second = (bytes >> (8 * (WORD - HEAD))) as u64;
        let third = (bytes >> (8 * (2 * WORD - HEAD))) as u64 | u64::from(last.unwrap_or(0)) << 16;
        Self([first, second, third, 0, 0, 0])
    }

    fn kind(&self) -> Kind {
        Kind::numbered(self.0[0].to_le_bytes()[0]).unwrap_or(Kind::Missing)
    }

    fn len(&self) -> usize {
        self.0[0].to_le_bytes()[1].into()
    }

    fn to_bytes(self) -> [u8; WORDS * WORD] {
        let mut bytes = [0; WORDS * WORD];
        for (part, word) in bytes.chunks_exact_mut(WORD).zip(self.0) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// Returns the lowest bits of the first word.
#[inline]
fn head(kind: Kind, len: usize) -> u64 {
    kind as u64 | (len as u64) << 8
}

impl Hash for Key {
    /// Hashes only the words in use. All bytes behind the value are zero, so equal keys hash alike.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let words = (HEAD + self.len()).div_ceil(WORD);
        for word in self.0.iter().take(words) {
            state.write_u64(*word);
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = &self.to_bytes()[HEAD..][..self.len()];
        match self.kind() {
            Kind::Missing => f.write_str("Key(missing)"),
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
            Kind::Global => f.write_str("Key(global)"),
            Kind::Secret => f.write_str("Key(secret)"),
            Kind::First => f.write_str("Key(of the first source)"),
            Kind::Second => f.write_str("Key(of the second source)"),
            Kind::Pair => f.write_str("Key(pair)"),
            Kind::Branch => f.write_str("Key(branch)"),
            Kind::Text => write!(f, "Key(text of {} bytes)", self.len()),
            Kind::Bytes => write!(f, "Key({} bytes)", self.len()),
            Kind::DigestOfBytes
            | Kind::DigestOfText
            | Kind::DigestOfPair
            | Kind::DigestOfFirst
            | Kind::DigestOfSecond
            | Kind::DigestOfKey
            | Kind::DigestWithoutOwnPart => f.write_str("Key(digest)"),
        }
    }
}

pub(super) fn number(bytes: &[u8]) -> u128 {
    bytes
        .iter()
        .fold(0, |number, byte| (number << 8) | u128::from(*byte))
}
