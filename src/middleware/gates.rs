use std::sync::Arc;

#[cfg(feature = "config")]
use arc_swap::ArcSwap;

use super::gate::Gate;
use crate::observe::{Monitored, Snapshot};

/// The gate of a layer: always the same, or that of the newest configuration.
#[derive(Clone, Debug)]
pub(super) enum Gates {
    One(Arc<Gate>),
    #[cfg(feature = "config")]
    Newest(Arc<ArcSwap<Gate>>),
}

impl Gates {
    /// The gate for one request. The request keeps to it until its end, whatever configuration comes meanwhile.
    #[inline]
    pub(super) fn with<R>(&self, act: impl FnOnce(&Arc<Gate>) -> R) -> R {
        match self {
            Self::One(gate) => act(gate),
            // A guard in place of an `Arc` would be faster, and the inner service is called while it is held: a thread
            // has few guards.
            #[cfg(feature = "config")]
            Self::Newest(newest) => act(&newest.load_full()),
        }
    }
}

impl Monitored for Gates {
    fn snapshot(&self) -> Snapshot {
        self.with(|gate| gate.limiter().snapshot())
    }
}
