//! The denials that a node remembers, so that the same request is denied again without a call to the store.
//!
//! A denial that says "in 20 seconds" holds for 20 seconds, unless a limit, a block or what was used is changed
//! meanwhile. The [`DenialCache`] tells it again with the numbers of the moment, and [`KeyEpochs`] end it when this
//! process changes its key. Another node's change ends it at the latest after a bound that the store sets.
//!
//! What the numbers are made of depends on the store. Redis returns the state of the key, from which every denial is
//! counted out anew. Any other ledger tells [outcomes](crate::decision::Outcomes) alone: [`Remembering`] is a wrapper that
//! remembers those in which nothing but the times changes.

mod cache;
mod epochs;
mod remembering;

#[cfg(feature = "redis")]
pub(super) use self::cache::{DenialCache, Remembered, SHARDS, Sent};
#[cfg(feature = "redis")]
pub(super) use self::epochs::{KeyEpoch, KeyEpochs};
pub(super) use self::remembering::{Remembering, SharedDenials};
