use std::num::NonZeroU64;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ahash::RandomState;

/// The identity under which a request holds slots of a [`Concurrency`](crate::Concurrency), unique among all
/// requests of all nodes.
///
/// A charge of a policy on concurrency without a slot asks, and takes nothing.
// Stores have it, and a user of them does not.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(NonZeroU64);

/// The number of bits that Redis reads exactly in a number.
const BITS: u32 = 52;

impl Slot {
    /// Creates a slot that no other request has.
    pub fn unique() -> Self {
        static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = SECRET.hash_one(MADE.fetch_add(1, Ordering::Relaxed));
        let number = NonZeroU64::new(number >> (u64::BITS - BITS));
        Self(number.unwrap_or(NonZeroU64::MIN))
    }

    /// Returns the number of the slot, which has 52 bits.
    pub fn number(self) -> u64 {
        self.0.get()
    }
}
