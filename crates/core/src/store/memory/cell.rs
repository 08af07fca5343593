//! The cells of a table: one word, three words, or any number.
//!
//! A table is generic over its cells, because a word is read without a lock and a list is not.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::algorithm::{Algorithm, AnyLong, AnyRule, Fixed, Limit, Pack, State, Step};
use crate::clock::Micros;

/// Holds the state of one key; guarded by the seqlock of its page.
pub(super) trait Cell: Default + Send + Sync + 'static {
    /// The number of pages of such cells that one newcomer searches at most, which takes less than a
    /// millisecond.
    const PAGES_SEARCHED: usize;

    /// Whether a copy for each reader costs less than a reference that the fast path carries along.
    const IS_SHORT: bool = true;

    /// Moves the state to another cell.
    fn move_to(&self, other: &Self);

    /// Releases the memory of the state, since its key is removed.
    fn clear(&self) {}
}

/// A cell for the states of this rule. `latest` is the time of the page's latest charge, or a later time up
/// to now.
pub(super) trait Keeps<S: Step>: Cell {
    /// The state that was read, and may be changed.
    type Seen<'a>: DerefMut<Target = S::Form>;

    fn see(&self, rule: &S, latest: Micros) -> Self::Seen<'_>;

    fn put(&self, rule: &S, state: S::Form);

    /// Writes a changed state back.
    fn keep(&self, rule: &S, seen: Self::Seen<'_>);

    /// Returns whether the cell can hold this state, which was charged after the fact or elsewhere.
    fn holds(_: &S, _: &S::Form, _: Micros) -> bool {
        true
    }
}

/// A rule of a table.
pub(super) trait OfTable: Step {
    /// Whether the table holds states under any limit.
    const VARIES: bool = true;

    /// Returns the rule under the limit of this algorithm, which has the frame of the rule.
    fn under(&self, own: &Algorithm) -> Cow<'_, Self>;

    /// Returns the rule under this limit.
    fn limited(&self, limit: Limit) -> Self;
}

impl<S: Pack> OfTable for S {
    const VARIES: bool = false;

    fn under(&self, _: &Algorithm) -> Cow<'_, Self> {
        Cow::Borrowed(self)
    }

    fn limited(&self, _: Limit) -> Self {
        self.clone()
    }
}

impl OfTable for AnyRule {
    fn under(&self, own: &Algorithm) -> Cow<'_, Self> {
        Cow::Owned(Self::new(*own))
    }

    fn limited(&self, limit: Limit) -> Self {
        Self::limited(*self, limit)
    }
}

impl OfTable for AnyLong {
    fn under(&self, own: &Algorithm) -> Cow<'_, Self> {
        Cow::Owned(Self::new(*own))
    }

    fn limited(&self, limit: Limit) -> Self {
        Self::limited(*self, limit)
    }
}

/// A copy of a state.
pub(super) struct Copied<K>(K);

impl<K> Deref for Copied<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.0
    }
}

impl<K> DerefMut for Copied<K> {
    fn deref_mut(&mut self) -> &mut K {
        &mut self.0
    }
}

/// One word, for rules whose numbers fit.
#[derive(Debug, Default)]
pub(super) struct Word(AtomicU64);

impl Cell for Word {
    const PAGES_SEARCHED: usize = 2_500;

    fn move_to(&self, other: &Self) {
        let word = self.0.load(Ordering::Relaxed);
        other.0.store(word, Ordering::Relaxed);
    }
}

impl<S: Pack> Keeps<S> for Word {
    type Seen<'a> = Copied<S::Form>;

    #[inline]
    fn see(&self, rule: &S, latest: Micros) -> Copied<S::Form> {
        Copied(rule.unpack(self.0.load(Ordering::Relaxed), latest))
    }

    #[inline]
    fn put(&self, rule: &S, state: S::Form) {
        self.0.store(rule.pack(state), Ordering::Relaxed);
    }

    #[inline]
    fn keep(&self, rule: &S, Copied(state): Copied<S::Form>) {
        self.0.store(rule.pack(state), Ordering::Relaxed);
    }

    fn holds(rule: &S, state: &S::Form, now: Micros) -> bool {
        rule.packs(*state, now)
    }
}

/// Three words, which are enough for every rule with a fixed number of them.
#[derive(Debug, Default)]
pub(super) struct Words([AtomicU64; 3]);

impl Words {
    fn load(&self) -> [u64; 3] {
        self.0.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    fn store(&self, words: [u64; 3]) {
        for (place, word) in self.0.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
    }
}

impl Cell for Words {
    const PAGES_SEARCHED: usize = 2_500;

    fn move_to(&self, other: &Self) {
        other.store(self.load());
    }
}

/// The words of a rule of any type are those of the same algorithm as [`AnyRule`].
impl<S: Fixed> Keeps<S> for Words {
    type Seen<'a> = Copied<S::Form>;

    #[inline]
    fn see(&self, rule: &S, _: Micros) -> Copied<S::Form> {
        Copied(rule.of_words(self.load()))
    }

    #[inline]
    fn put(&self, rule: &S, state: S::Form) {
        self.store(rule.words(state));
    }

    #[inline]
    fn keep(&self, rule: &S, Copied(state): Copied<S::Form>) {
        self.store(rule.words(state));
    }
}

/// A state of any length.
#[derive(Debug, Default)]
pub(super) struct Long(Mutex<State>);

impl Long {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cell for Long {
    const PAGES_SEARCHED: usize = 16;
    const IS_SHORT: bool = false;

    fn move_to(&self, other: &Self) {
        *other.lock() = std::mem::take(&mut *self.lock());
    }

    fn clear(&self) {
        *self.lock() = State::NEW;
    }
}

impl Keeps<AnyLong> for Long {
    type Seen<'a> = MutexGuard<'a, State>;

    #[inline]
    fn see(&self, _: &AnyLong, _: Micros) -> MutexGuard<'_, State> {
        self.lock()
    }

    #[inline]
    fn put(&self, _: &AnyLong, state: State) {
        *self.lock() = state;
    }

    #[inline]
    fn keep(&self, _: &AnyLong, _: MutexGuard<'_, State>) {}
}
