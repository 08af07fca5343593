//! The format of a snapshot: a magic number, the version of the format, sections, and the SHA-256 of all
//! that. A section is its name, its length in bytes (64 bits) and these bytes; a reader skips a section whose
//! name it does not know. Numbers are little-endian; text has its length (32 bits) before it.
//!
//! - `seed`: four words of 64 bits, and the fingerprints of some known keys
//! - `policy`, once for each: its name and its algorithm as text; then for each key, up to the section's end,
//!   its fingerprint (64 bits), a number of words (32 bits) and the words of its state
//! - `blocks`, once for each policy with blocked keys: its name; then for each blocked key, up to the
//!   section's end, its fingerprint, and the beginning and the end of the block (64 bits each)
//! - `overrides`, behind each `policy` that has overrides: the same two texts; then for each overridden key,
//!   up to the section's end, the beginning and the end of the override (64 bits each), the limit as text,
//!   and the key as above. Such a key is not in the section `policy`
//! - `children`, behind each `policy` that guarantees a part of its limits to the keys of another one: the same two texts; then for each
//!   key of which a child has asked within the last period, up to the section's end, its fingerprint, a number of words (32 bits) and the
//!   [words of its children](crate::store::guarantee::children::Children::words), which have fingerprints as names
//! - `tenants`, behind each `policy` whose limits are divided: the same two texts; then for each shared key of which tenants are active or
//!   have a debt, up to the section's end, its fingerprint, a number of words (32 bits) and the
//!   [words of its tenants](crate::store::fair::Shares::words), which have fingerprints as names

use sha2::{Digest, Sha256};

use crate::algorithm::State;
use crate::error::RestoreErrorKind;

const MAGIC: &[u8] = b"\x89TRLSNAP";
pub(super) const VERSION: u32 = 1;
const CHECKSUM: usize = 32;

pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new() -> Self {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        Self(bytes)
    }

    pub(super) fn section(&mut self, name: &str, write: impl FnOnce(&mut Self)) {
        self.text(name);
        let length = self.0.len();
        self.number(0);
        let start = self.0.len();
        write(self);
        let written = (self.0.len() - start) as u64;
        self.0[length..start].copy_from_slice(&written.to_le_bytes());
    }

    pub(super) fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    /// Names and algorithms are short: see `check_names`.
    #[expect(clippy::cast_possible_truncation, reason = "what is written is short")]
    pub(super) fn text(&mut self, text: &str) {
        self.0.extend((text.len() as u32).to_le_bytes());
        self.0.extend(text.as_bytes());
    }

    /// The longest state is a log of 2^32 entries, which fits no memory.
    #[expect(clippy::cast_possible_truncation, reason = "words are in memory")]
    pub(super) fn key(&mut self, fingerprint: u64, state: &State) {
        self.number(fingerprint);
        let words = state.words();
        self.0.extend((words.len() as u32).to_le_bytes());
        for word in words {
            self.number(*word);
        }
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let checksum = Sha256::digest(&self.0);
        self.0.extend_from_slice(&checksum);
        self.0
    }
}

/// The bytes left to read. Nothing is allocated for a length before that many bytes are there.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Returns the sections of a snapshot that is whole.
    pub(super) fn open(snapshot: &'a [u8]) -> Result<Self, RestoreErrorKind> {
        let Some(rest) = snapshot.strip_prefix(MAGIC) else {
            return Err(RestoreErrorKind::NotASnapshot);
        };
        // Another version may end in something other than a SHA-256.
        match Self(rest).number_of_32_bits() {
            None => return Err(RestoreErrorKind::Damaged),
            Some(VERSION) => {}
            Some(version) => return Err(RestoreErrorKind::AnotherVersion(version)),
        }
        let (all, checksum) = snapshot
            .split_last_chunk::<CHECKSUM>()
            .ok_or(RestoreErrorKind::Damaged)?;
        let sections = all.get(MAGIC.len() + size_of::<u32>()..);
        match sections {
            Some(sections) if Sha256::digest(all)[..] == checksum[..] => Ok(Self(sections)),
            _ => Err(RestoreErrorKind::Damaged),
        }
    }

    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_at_its_end(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(super) fn section(&mut self) -> Option<(&'a str, Reader<'a>)> {
        let name = self.text()?;
        let length = usize::try_from(self.number()?).ok()?;
        Some((name, Self(self.bytes(length)?)))
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    pub(super) fn numbers<const N: usize>(&mut self) -> Option<[u64; N]> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = self.number()?;
        }
        Some(numbers)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        let length = self.length()?;
        str::from_utf8(self.bytes(length)?).ok()
    }

    pub(super) fn key(&mut self) -> Option<(u64, State)> {
        let fingerprint = self.number()?;
        let length = self.length()?.checked_mul(size_of::<u64>())?;
        let (words, _) = self.bytes(length)?.as_chunks();
        let words: Vec<u64> = words.iter().copied().map(u64::from_le_bytes).collect();
        Some((fingerprint, State::from_words(&words)))
    }

    fn length(&mut self) -> Option<usize> {
        usize::try_from(self.number_of_32_bits()?).ok()
    }

    fn number_of_32_bits(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}
