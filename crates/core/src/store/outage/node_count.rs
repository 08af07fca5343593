//! How many nodes share a store.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::ConfigError;

/// How many nodes share a store. While the store is away, each of them enforces its share of every limit.
///
/// Clones are handles of the same number, so a program that learns how many nodes there are, from its platform or a service
/// registry, can tell the store:
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::store::NodeCount;
///
/// let nodes = NodeCount::new(12);
/// let handle = nodes.clone();
/// // `RedisStore::builder().nodes(nodes)`, `SharedStore::new(items).nodes(nodes)`
///
/// // Later, in the task that watches the platform:
/// handle.set(15)?;
/// assert_eq!(handle.get(), 15);
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
///
/// A node that decides by itself when the number changes keeps what it has counted, and goes on under the new share.
#[derive(Clone, Debug)]
pub struct NodeCount(Arc<AtomicU32>);

const REMEDY: &str = "give the number of nodes that share the store, 1 or more";

impl NodeCount {
    /// Creates a number of nodes, from 1. The store that is built with it refuses 0.
    pub fn new(nodes: u32) -> Self {
        Self(Arc::new(nodes.into()))
    }

    /// Sets the number of nodes, from 1. It holds from the next decision on.
    ///
    /// # Errors
    ///
    /// When it is 0. The number stays as it was.
    pub fn set(&self, nodes: u32) -> Result<(), ConfigError> {
        if nodes == 0 {
            return Err(ConfigError::new("nodes", nodes, REMEDY));
        }
        self.0.store(nodes, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the number of nodes.
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the number that divides limits.
    pub(super) fn divisor(&self) -> NonZeroU32 {
        NonZeroU32::new(self.get()).unwrap_or(NonZeroU32::MIN)
    }

    /// Rejects 0, which an option of this name has set.
    // For `tower-ratelimit-redis`.
    #[doc(hidden)]
    pub fn check(&self, option: &'static str) -> Result<(), ConfigError> {
        match self.get() {
            0 => Err(ConfigError::new(option, 0, REMEDY)),
            _ => Ok(()),
        }
    }
}

impl From<u32> for NodeCount {
    fn from(nodes: u32) -> Self {
        Self::new(nodes)
    }
}
