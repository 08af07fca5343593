use std::fmt;
use std::sync::Arc;

use super::Snapshot;

/// Reads the counters of a limiter or of a layer. Clones read the same.
///
/// It keeps the limiter alive, and nothing else. A monitor of a layer with [limits from a
/// file][watch] reads the limits in force: a reload does not reset the counts.
///
/// [watch]: https://docs.rs/tower-ratelimit-config/latest/tower_ratelimit_config/struct.Config.html#method.watch
#[derive(Clone)]
pub struct Monitor {
    of: Arc<dyn Monitored>,
}

/// A source of snapshots.
pub trait Monitored: Send + Sync {
    /// Reads its counters.
    fn snapshot(&self) -> Snapshot;
}

impl Monitor {
    /// Makes a monitor of this.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub fn new(of: impl Monitored + 'static) -> Self {
        Self { of: Arc::new(of) }
    }

    /// Reads all counters.
    ///
    /// No request waits for it. Requests that are decided meanwhile may be in one count and not yet in
    /// another.
    pub fn snapshot(&self) -> Snapshot {
        self.of.snapshot()
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}
