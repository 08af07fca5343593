//! The denials that a node remembers, so that the same request is denied again without a call to the store.
//!
//! A denial with a wait of 20 seconds holds for 20 seconds, unless a limit, a block or the usage of the key
//! changes meanwhile. The [`DenialCache`] tells it again with the numbers of the moment, and [`KeyEpochs`]
//! end it when this process changes its key. A change by another node ends it after a bound that the store
//! sets. It ends as soon as a request at another node could be charged, since that may make the wait longer.
//!
//! The numbers depend on the store. The script of Redis returns the state of the key, from which every later denial is
//! computed (`crates/redis/src/numbers.rs`), so `RedisBackend` uses the cache by itself. Any other backend returns
//! [outcomes](crate::decision::Outcomes) alone, which do not say how much of another policy, or of a bucket that denies a large
//! cost, is free a moment later: [`Remembering`] is a wrapper that remembers denials in which only the times change.

pub(crate) mod cache;
pub(crate) mod epochs;
mod remembering;

pub(super) use self::remembering::{Remembering, SharedDenials};
