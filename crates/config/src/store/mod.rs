//! The store of a file.
//!
//! - `read.rs` reads the table `store`, and is the store that it names.
//! - `redis.rs` reads a store in Redis. Without feature `redis`, `absent.rs` has the same names, and no store is ever read.

mod read;
#[cfg(feature = "redis")]
mod redis;
#[cfg(not(feature = "redis"))]
#[path = "absent.rs"]
mod redis;
mod words;

pub(crate) use self::read::{ReadStore, store};
pub(crate) use self::words::STORE;
