//! The state of a key, as stores keep it.

use smallvec::SmallVec;

/// The state of one key under one policy: words that the algorithm reads and writes.
///
/// A new key has no words. Up to three words are stored in place; a bucket needs four, and a sliding log and sliding
/// slots more. Every word that an algorithm writes before the year 2255 is below
/// 2^53, so that languages whose numbers are doubles hold it exactly.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub struct State(SmallVec<[u64; 3]>);

/// Copies the words at once; a derived clone adds them one by one.
impl Clone for State {
    fn clone(&self) -> Self {
        Self::from_words(&self.0)
    }
}

impl State {
    /// The state of a new key.
    pub const NEW: Self = Self(SmallVec::new_const());

    /// A state from words that were kept elsewhere.
    pub fn from_words(words: &[u64]) -> Self {
        Self(SmallVec::from_slice(words))
    }

    /// Returns the words, to keep elsewhere.
    pub fn words(&self) -> &[u64] {
        &self.0
    }

    /// The first words; those that are missing are 0.
    pub(super) fn first<const N: usize>(&self) -> [u64; N] {
        std::array::from_fn(|index| self.0.get(index).copied().unwrap_or(0))
    }

    /// These words, or no words if all are 0.
    pub(super) fn unless_new<const N: usize>(words: [u64; N]) -> Self {
        if words == [0; N] {
            return Self::NEW;
        }
        Self::from_words(&words)
    }

    pub(super) fn words_mut(&mut self) -> &mut SmallVec<[u64; 3]> {
        &mut self.0
    }
}
