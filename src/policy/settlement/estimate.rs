use std::sync::Arc;

use crate::key::Head;

/// The charge of a request on arrival.
#[derive(Clone)]
pub(crate) struct Estimate {
    /// Used unless the closure returns another estimate.
    pub(super) units: u32,
    pub(super) with: Option<Arc<With>>,
}

pub(super) type With = dyn Fn(&Head<'_>) -> Option<u32> + Send + Sync;

impl Estimate {
    /// Returns the estimate of a request, and whether it is the default, which is cut to the limit.
    ///
    /// It is one unit at least: a request that asks for nothing is never denied, however much is used.
    pub(in crate::policy) fn of(&self, head: &Head<'_>) -> (u32, bool) {
        let estimate = self.with.as_ref().and_then(|with| with(head));
        estimate.map_or((self.units, true), |units| (units.max(1), false))
    }

    /// Returns whether its default asks for nothing.
    pub(super) fn asks_for_nothing(&self) -> bool {
        self.units == 0
    }
}
