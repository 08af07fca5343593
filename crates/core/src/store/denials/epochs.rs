use std::num::NonZeroU16;
use std::sync::atomic::{AtomicU64, Ordering};

use ahash::RandomState;

use crate::key::Key;
use crate::store::Charge;

/// Counts how often the state of a key was changed through any backend of the store. Many keys share a count.
#[derive(Debug)]
pub struct KeyEpochs {
    hasher: RandomState,
    numbers: [AtomicU64; NUMBERS],
}

/// The count of a key at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyEpoch {
    /// Begins at 1, so that an `Option` of it needs no more room.
    place: NonZeroU16,
    number: u64,
}

const NUMBERS: usize = 4_096;

impl Default for KeyEpochs {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            numbers: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl KeyEpochs {
    /// Begins another epoch of these keys, whose state is about to be changed or may have been.
    pub fn advance(&self, charges: &[Charge]) {
        for charge in charges {
            let number = self.number(self.place(&charge.key));
            number.fetch_add(1, Ordering::Release);
        }
    }

    /// Returns the epoch of a key.
    pub fn of(&self, key: &Key) -> KeyEpoch {
        let place = self.place(key);
        KeyEpoch {
            place,
            number: self.number(place).load(Ordering::Acquire),
        }
    }

    /// Returns whether the key has not been changed since.
    pub fn is_still(&self, epoch: KeyEpoch) -> bool {
        self.number(epoch.place).load(Ordering::Acquire) == epoch.number
    }

    #[expect(clippy::cast_possible_truncation, reason = "a place in a short list")]
    fn place(&self, key: &Key) -> NonZeroU16 {
        let place = (self.hasher.hash_one(key) % NUMBERS as u64) as u16;
        NonZeroU16::MIN.saturating_add(place)
    }

    fn number(&self, place: NonZeroU16) -> &AtomicU64 {
        &self.numbers[usize::from(place.get()) % NUMBERS]
    }
}
