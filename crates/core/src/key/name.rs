//! Keys as text, for stores that several processes share.
//!
//! Nodes of different versions share a store, so the form of a name never changes. It shows the
//! key, for people who look into the store, and it is short and without special characters, for the
//! limits of stores (memcached takes keys up to 250 bytes without spaces).

use std::fmt::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use super::value::{HEAD, Kind, number};

/// A [`Key`](super::Key) as text, for stores that several processes share: what
/// [`Key::name`](super::Key::name) returns.
///
/// Different keys have different names, and a key has the same name in all processes. A name has 1
/// to 120 characters from `A` to `Z`, `a` to `z`, `0` to `9` and `.`, `_`, `:`, `/`, `@`, `-`, `%`,
/// `,`. It has no space, brace or control character. Names are case-sensitive.
///
/// A name shows the kind and the key:
///
/// - `ip:203.0.113.7`, `ip:2001:db8::/64`, `n:42`, `t:ann`;
/// - text with other characters is percent-encoded;
/// - bytes are `b:` and hexadecimal digits;
/// - a pair is `p:`, the first part, a comma and the second part;
/// - a key of a [tree](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/trees/) is `u:` and its parts from the root down, with commas between them;
/// - a value longer than 46 bytes, or a key whose name would be too long, is the first 128 bits of
///   its SHA-256 digest;
/// - a value hashed with a [`Secret`](super::Secret) is the hash.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::key::IntoKey;
///
/// assert_eq!("ann smith".into_key().name().as_str(), "t:ann%20smith");
/// assert_eq!(("a,b", 7_u8).into_key().name().as_str(), "p:t:a%2Cb,n:7");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KeyName(SmallVec<[u8; KeyName::MAX_LEN]>);

impl KeyName {
    /// The maximum length of a name, in bytes.
    const MAX_LEN: usize = 120;

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        // Names are ASCII.
        str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Makes the name of the key with these bytes: kind, length and value.
    pub(super) fn of(key: &[u8]) -> Self {
        let mut name = Self(SmallVec::new_const());
        match name.key(key) {
            Ok([]) => name,
            _ => Self::of_branch(key).unwrap_or_else(|| Self::of_digest(key)),
        }
    }

    /// Makes the name of a key of a tree that is too long: a digest stands for what is below its root.
    fn of_branch(key: &[u8]) -> Option<Self> {
        let (&[kind, _], value) = key.split_first_chunk::<HEAD>()?;
        if Kind::numbered(kind)? != Kind::Branch {
            return None;
        }
        let mut name = Self(SmallVec::new_const());
        name.write_str("u:").ok()?;
        name.key(value).ok()?;
        name.write_str(",").ok()?;
        name.digest("d", &Sha256::digest(key)).ok()?;
        Some(name)
    }

    fn of_digest(key: &[u8]) -> Self {
        let mut name = Self(SmallVec::new_const());
        // A digest always fits.
        let _ = name.digest("d", &Sha256::digest(key));
        name
    }

    /// Writes the key at the beginning of `bytes`, and returns the rest. An error means that there
    /// was no room, or no key.
    fn key<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], fmt::Error> {
        let (&[kind, len], rest) = bytes.split_first_chunk::<HEAD>().ok_or(fmt::Error)?;
        let (value, rest) = rest.split_at_checked(len.into()).ok_or(fmt::Error)?;
        match Kind::numbered(kind).ok_or(fmt::Error)? {
            Kind::Missing => self.write_str("missing"),
            Kind::Global => self.write_str("global"),
            Kind::Bytes => self.hex("b", value),
            Kind::Text => self.text(value),
            Kind::Number => write!(self, "n:{}", number(value)),
            Kind::Negative => write!(self, "n:-{}", number(value)),
            Kind::Ipv4 => match <[u8; 4]>::try_from(value) {
                Ok(octets) => write!(self, "ip:{}", Ipv4Addr::from(octets)),
                Err(_) => Err(fmt::Error),
            },
            Kind::Ipv6 => match value.split_first_chunk::<16>() {
                Some((octets, [prefix])) => {
                    write!(self, "ip:{}/{prefix}", Ipv6Addr::from(*octets))
                }
                _ => Err(fmt::Error),
            },
            Kind::Pair => self.pair(value),
            Kind::Branch => self.branch(value),
            Kind::Secret => self.hex("s", value),
            Kind::First => self.of_source("1:", value),
            Kind::Second => self.of_source("2:", value),
            Kind::DigestOfBytes => self.digest("db", value),
            Kind::DigestOfText => self.digest("dt", value),
            Kind::DigestOfPair => self.digest("dp", value),
            Kind::DigestOfFirst => self.digest("d1", value),
            Kind::DigestOfSecond => self.digest("d2", value),
            Kind::DigestOfKey => self.digest("dk", value),
            Kind::DigestWithoutOwnPart => self.digest("dm", value),
        }?;
        Ok(rest)
    }

    /// A comma separates the parts, and commas inside the parts are encoded or belong to nested
    /// pairs, so the parts cannot run together.
    fn pair(&mut self, value: &[u8]) -> fmt::Result {
        self.write_str("p:")?;
        let second = self.key(value)?;
        self.write_str(",")?;
        self.whole(second)
    }

    /// The parts of a key of a tree, with commas between them.
    fn branch(&mut self, value: &[u8]) -> fmt::Result {
        self.write_str("u:")?;
        let mut rest = self.key(value)?;
        while !rest.is_empty() {
            self.write_str(",")?;
            rest = self.key(rest)?;
        }
        Ok(())
    }

    fn of_source(&mut self, source: &str, key: &[u8]) -> fmt::Result {
        self.write_str(source)?;
        self.whole(key)
    }

    fn whole(&mut self, key: &[u8]) -> fmt::Result {
        match self.key(key)? {
            [] => Ok(()),
            _ => Err(fmt::Error),
        }
    }

    fn text(&mut self, text: &[u8]) -> fmt::Result {
        self.write_str("t:")?;
        for &byte in text {
            match byte {
                b'A'..=b'Z'
                | b'a'..=b'z'
                | b'0'..=b'9'
                | b'.'
                | b'_'
                | b':'
                | b'/'
                | b'@'
                | b'-' => self.append(&[byte]),
                _ => self.append(&[b'%', hex(byte >> 4), hex(byte & 15)]),
            }?;
        }
        Ok(())
    }

    fn digest(&mut self, kind: &str, digest: &[u8]) -> fmt::Result {
        const LEN: usize = 16;
        self.hex(kind, digest.get(..LEN).unwrap_or(digest))
    }

    fn hex(&mut self, kind: &str, bytes: &[u8]) -> fmt::Result {
        self.write_str(kind)?;
        self.write_str(":")?;
        bytes
            .iter()
            .try_for_each(|byte| self.append(&[hex(byte >> 4), hex(byte & 15)]))
    }

    fn append(&mut self, bytes: &[u8]) -> fmt::Result {
        if self.0.len() + bytes.len() > Self::MAX_LEN {
            return Err(fmt::Error);
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// Returns the hexadecimal digit of a number below 16.
fn hex(nibble: u8) -> u8 {
    b"0123456789ABCDEF"[usize::from(nibble & 15)]
}

impl Write for KeyName {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.append(text.as_bytes())
    }
}

impl AsRef<str> for KeyName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Shows only the length, because the key may be secret.
impl fmt::Debug for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyName({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::IpAddr;

    use super::*;
    use crate::key::{IntoKey, Key, Secret};

    #[track_caller]
    fn assert_name(key: impl IntoKey, name: &str) {
        assert_eq!(key.into_key().name().as_str(), name);
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Nodes of different versions share a store, so these names never change.
    #[test]
    fn names_stay_the_same_from_version_to_version() {
        assert_name(ip("203.0.113.7"), "ip:203.0.113.7");
        assert_name(ip("2001:db8::1"), "ip:2001:db8::/64");
        assert_name("ann@example.com", "t:ann@example.com");
        assert_name("", "t:");
        assert_name("a b{c}\r\n%é,*", "t:a%20b%7Bc%7D%0D%0A%25%C3%A9%2C%2A");
        assert_name([0, 255], "b:00FF");
        assert_name(u128::MAX, "n:340282366920938463463374607431768211455");
        assert_name(-7_i8, "n:-7");
        assert_name(("a", ("b", 1_u8)), "p:t:a,p:t:b,n:1");
        assert_name(Key::MISSING, "missing");
        assert_name(Key::GLOBAL, "global");
        assert_name(
            Key::secret([0xab; 16]),
            "s:ABABABABABABABABABABABABABABABAB",
        );
        assert_name("x".repeat(46), &format!("t:{}", "x".repeat(46)));
        assert_name("x".repeat(47), "dt:B35F3728761A26A57EC3E6E948981AE7");
        assert_name(" ".repeat(46), "d:346B3562DF971AC1CD95182E11681208");
        {
            assert_name("ann".into_key().of_first(), "1:t:ann");
            assert_name("ann".into_key().of_second(), "2:t:ann");
        }
    }

    #[test]
    fn a_key_of_a_tree_shows_its_root_however_long_it_is() {
        let branch = |parts: &[&str]| {
            let keys: Vec<Key> = parts.iter().map(|part| part.into_key()).collect();
            Key::branch(keys[0], &keys[1..])
        };
        let uuid = "3f2504e0-4f89-11d3-9a0c-0305e82c3301";
        for (parts, name) in [
            (&["acme"][..], "t:acme"),
            (&["acme", "blue"], "u:t:acme,t:blue"),
            (&["acme", "blue", "ann"], "u:t:acme,t:blue,t:ann"),
            (&["acme", "blue", "ann", "k"], "u:t:acme,t:blue,t:ann,t:k"),
            (
                &["acme", uuid],
                "u:t:acme,t:3f2504e0-4f89-11d3-9a0c-0305e82c3301",
            ),
            (&["acme", uuid, uuid], "u:t:acme,dk:"),
            (&[uuid], "dk:"),
            (&[uuid, uuid], "u:dk:"),
        ] {
            let key = branch(parts);
            assert!(
                key.name().as_str().starts_with(name),
                "{:?}",
                key.name().as_str()
            );
            assert_eq!(key.root(), branch(&parts[..1]), "{parts:?}");
        }
        // The parts of a branch do not run into those of one that it is a part of.
        let (b, c, d) = ("b".into_key(), "c".into_key(), "d".into_key());
        let name = |below: &[Key]| Key::branch("a", below).name();
        assert_ne!(
            name(&[Key::branch(b, &[c]), d]),
            name(&[Key::branch(b, &[c, d])])
        );
        let root = |root: Key| Key::branch(root, &[d]).name();
        assert_ne!(root(Key::branch(b, &[c])), root(Key::branch(b, &[])));
        // Names that would be too long keep their root, too.
        let wide = "é".repeat(13);
        let key = branch(&[&wide, "{}{}{}{}"]);
        let root = branch(&[&wide]).name();
        assert!(
            key.name()
                .as_str()
                .starts_with(&format!("u:{},", root.as_str()))
        );
        assert_eq!(key.root().name(), root);
    }

    #[test]
    fn no_two_paths_of_a_tree_have_one_key() {
        let parts = [
            "",
            "a",
            "b",
            "ab",
            ",",
            "a,t:b",
            "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
            "é{}{}{}{}{}{}{}{}",
        ];
        let mut known = HashMap::new();
        let mut check = |path: Vec<&'static str>| {
            let keys: Vec<Key> = path.iter().map(|part| part.into_key()).collect();
            let key = Key::branch(keys[0], &keys[1..]);
            let name = key.name().as_str().to_owned();
            assert!(name.len() <= KeyName::MAX_LEN);
            assert_eq!(known.insert(name, path.clone()), None, "{path:?}");
        };
        for a in parts {
            check(vec![a]);
            for b in parts {
                check(vec![a, b]);
                for c in parts {
                    check(vec![a, b, c]);
                }
            }
        }
    }

    #[test]
    fn no_two_keys_have_one_name_and_every_name_is_plain_and_short() {
        let long = ["x", " ", "{"].map(|part| part.repeat(46));
        let texts = [
            "",
            "missing",
            "global",
            "203.0.113.7",
            "ip:203.0.113.7",
            "t:ann",
            "ann",
            "Ann",
            "1",
            "n:1",
            "-1",
            "b:00",
            "p:t:a,t:b",
            "a,t:b",
            "a%2Ct:b",
            "a",
            "b",
            "t:b",
            ",",
            "%",
            "%2C",
            "{}",
            "{a}",
            "}{",
            "*",
            "\0",
            "a\r\nset b",
            "d:00",
            "é",
            " ",
            "  ",
        ];
        let texts = texts.into_iter().chain(long.iter().map(String::as_str));
        let mut keys = vec![Key::MISSING, Key::GLOBAL];
        for text in texts {
            let twice = text.repeat(2);
            let secret = Secret::new([7; 16]).unwrap();
            keys.extend([
                text.into_key(),
                text.as_bytes().into_key(),
                secret.hash(text),
            ]);
            keys.extend([
                (text, twice.as_str()).into_key(),
                (twice.as_str(), text).into_key(),
            ]);
            keys.extend([(text, ("a", "b")).into_key(), ((text, "a"), "b").into_key()]);
            keys.push(text.repeat(47).into_key());
        }
        keys.extend(["203.0.113.7", "::1", "::ffff:1.2.3.4"].map(|text| ip(text).into_key()));
        keys.extend([0_i128, 1, -1, i128::MAX, i128::MIN].map(IntoKey::into_key));
        for key in keys.clone() {
            keys.extend([key.of_first(), key.of_second()]);
        }
        let mut named: HashMap<KeyName, Key> = HashMap::new();
        for key in keys {
            let name = key.name();
            let text = name.as_str();
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/@-,%".contains(&byte);
            assert!((1..=KeyName::MAX_LEN).contains(&text.len()), "{text}");
            assert!(text.bytes().all(plain), "{text}");
            let other = *named.entry(name.clone()).or_insert(key);
            assert_eq!(other, key, "both are {text}");
        }
        assert!(named.len() > 200, "{}", named.len());
    }

    /// The parts of a branch have no end of their own, wherever it is a part.
    #[test]
    fn no_two_keys_have_one_name_however_branches_and_pairs_are_nested() {
        let mut keys: Vec<Key> = ["a", "b"].map(IntoKey::into_key).into();
        for _ in 0..2 {
            let known = keys.clone();
            for one in &known {
                keys.extend([one.of_first(), one.of_second()]);
                for other in &known {
                    keys.extend([
                        (*one, *other).into_key(),
                        Key::branch(*one, &[*other]),
                        other.below(one),
                    ]);
                    let with_third = |third| Key::branch(*one, &[*other, third]);
                    keys.extend(known.iter().take(8).map(|third| with_third(*third)));
                }
            }
            keys.sort_by_key(|key| key.name().as_str().to_owned());
            keys.dedup();
        }
        let (a, b, c, d) = ("a", "b", "c".into_key(), "d".into_key());
        let branch = |below: &[Key]| Key::branch(b, below);
        keys.extend([
            Key::branch(a, &[(a, branch(&[c])).into_key(), d]),
            Key::branch(a, &[(a, branch(&[c, d])).into_key()]),
            Key::branch(a, &[branch(&[c]).of_first(), d]),
            Key::branch(a, &[branch(&[c, d]).of_first()]),
        ]);
        let mut named: HashMap<KeyName, Key> = HashMap::new();
        for key in keys {
            let name = key.name();
            let other = *named.entry(name.clone()).or_insert(key);
            assert_eq!(other, key, "both are {}", name.as_str());
        }
        assert!(named.len() > 1_000, "{}", named.len());
    }

    #[test]
    fn a_part_below_a_level_has_the_root_of_the_level() {
        let (acme, blue, write) = ("acme".into_key(), "blue".into_key(), "write".into_key());
        let below = |level: Key| write.below(&level);
        assert_eq!(below(acme), Key::branch("acme", &[write]));
        let team = Key::branch("acme", &[blue]);
        assert_eq!(below(team), Key::branch("acme", &[blue, write]));
        // A path that has no room is a digest, with the part and without it.
        let long = Key::branch("acme", &["x".repeat(30).into_key(), blue]);
        assert_eq!(below(long).root(), acme);
        assert_ne!(below(long), long);
        let root = Key::branch("x".repeat(40), &[]);
        assert_eq!(below(root).root(), root);
    }

    #[test]
    fn bytes_that_are_no_key_still_have_a_name() {
        for bytes in [
            &[][..],
            &[2],
            &[99, 0],
            &[2, 9, b'a'],
            &[7, 3, 2, 1, b'a'],
            &[5, 1, 0],
        ] {
            assert!(KeyName::of(bytes).as_str().starts_with("d:"), "{bytes:?}");
        }
    }

    #[test]
    fn the_debug_form_shows_no_text() {
        let name = "sekret".into_key().name();
        assert_eq!(format!("{name:?}"), "KeyName(8 bytes)");
    }
}
