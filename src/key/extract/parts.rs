//! The parts of the key of a tree's level, each of which is read once for all levels.

use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use crate::key::Key;

/// What the levels of a tree have read of a request.
#[derive(Debug, Default)]
pub(crate) struct SharedParts(Mutex<Parts>);

/// The parts of the keys of one tree, from the root down.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// A number that no other tree has.
    tree: usize,
    keys: SmallVec<[Key; 4]>,
    /// How many of them are there before the first that is missing.
    whole: usize,
}

impl SharedParts {
    /// Returns the parts of this tree.
    pub(crate) fn of(&self, tree: usize) -> MutexGuard<'_, Parts> {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if parts.tree != tree {
            *parts = Parts {
                tree,
                ..Parts::default()
            };
        }
        parts
    }
}

impl Parts {
    /// Returns how many parts have been read.
    pub(crate) fn read(&self) -> usize {
        self.keys.len()
    }

    /// Adds the next part, or notes that the client has left it out.
    pub(crate) fn push(&mut self, part: Option<Key>) {
        if part.is_some() && self.whole == self.keys.len() {
            self.whole += 1;
        }
        self.keys.push(part.unwrap_or(Key::MISSING));
    }

    /// Returns the parts down to this depth, if none of them is missing.
    pub(crate) fn down_to(&self, depth: usize) -> Option<&[Key]> {
        self.keys.get(..depth).filter(|_| depth <= self.whole)
    }
}
