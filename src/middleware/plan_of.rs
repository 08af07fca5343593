use std::fmt;
use std::sync::Arc;

use crate::key::Head;

/// Passes the name of a request's plan on, if the request has one.
#[derive(Clone)]
pub(super) struct PlanOf(Arc<Read>);

type Read = dyn Fn(&Head<'_>, &mut dyn FnMut(Option<&str>)) + Send + Sync;

impl PlanOf {
    pub(super) fn new<R: AsRef<str>>(
        plan_of: impl Fn(&Head<'_>) -> Option<R> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |head, found| {
            let name = plan_of(head);
            found(name.as_ref().map(AsRef::as_ref));
        }))
    }

    pub(super) fn read(&self, head: &Head<'_>, found: &mut dyn FnMut(Option<&str>)) {
        (self.0)(head, found);
    }
}

impl fmt::Debug for PlanOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlanOf(closure)")
    }
}
