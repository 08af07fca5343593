use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::diagnostics::{Diagnostic, warn_once_of};
use crate::key::Head;
use crate::plan::PlanLookup;
#[cfg(feature = "config")]
use crate::policy::Logged;

const UNVERIFIED: Diagnostic = Diagnostic::new(
    "TRL019",
    "",
    "the plan of a request is the value of a header, which its client can choose",
    "take it from what authentication has verified, such as an extension of the request; in a file of limits: \
     `plan_of = { header = \"x-plan\", from = \"10.0.0.0/8\" }` for a gateway in this network, or \
     `plan_of = { key = \"api_key\", plans = { … } }`",
);

/// The number of requests whose plan is compared with their headers. Comparing all of them would slow each
/// request down.
const LOOKS: u32 = 1_000;

/// How the plan or the limits of a request are found.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources {
    pub(super) plan_of: Option<PlanOf>,
    pub(super) resolver: Option<ResolverOf>,
}

/// Looks up the customer of a request.
#[derive(Clone)]
pub(crate) struct ResolverOf(Arc<LookUp>);

type LookUp = dyn Fn(&Head<'_>) -> Option<PlanLookup> + Send + Sync;

impl ResolverOf {
    #[cfg(feature = "resolver")]
    pub(crate) fn new(
        look_up: impl Fn(&Head<'_>) -> Option<PlanLookup> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(look_up))
    }

    /// Answers at once with what is known, for requests that cannot wait.
    #[cfg(feature = "tonic")]
    pub(super) fn without_waiting(self) -> Self {
        let Self(look_up) = self;
        Self(Arc::new(move |head| {
            Some(PlanLookup::Known(look_up(head)?.now()))
        }))
    }

    pub(super) fn look(&self, head: &Head<'_>) -> Option<PlanLookup> {
        (self.0)(head)
    }
}

/// Returns the name of a request's plan, if the request has one.
#[derive(Clone)]
pub(super) struct PlanOf {
    read: Arc<Read>,
    /// The number of requests that are left to compare with their headers.
    looks: Arc<AtomicU32>,
}

type Read = dyn Fn(&Head<'_>, &mut dyn FnMut(Option<&str>)) + Send + Sync;

impl PlanOf {
    pub(super) fn new<R: AsRef<str>>(
        plan_of: impl Fn(&Head<'_>) -> Option<R> + Send + Sync + 'static,
    ) -> Self {
        let read = move |head: &Head<'_>, found: &mut dyn FnMut(Option<&str>)| {
            let name = plan_of(head);
            found(name.as_ref().map(AsRef::as_ref));
        };
        Self {
            read: Arc::new(read),
            looks: Arc::new(AtomicU32::new(LOOKS)),
        }
    }

    /// Does not compare plans with headers.
    #[cfg(feature = "config")]
    pub(super) fn verified(self) -> Self {
        Self {
            looks: Arc::default(),
            ..self
        }
    }

    /// Prefers the plan that a log has for a request.
    #[cfg(feature = "config")]
    pub(super) fn or_logged(self) -> Self {
        let Self { read, .. } = self;
        let read = move |head: &Head<'_>, found: &mut dyn FnMut(Option<&str>)| {
            let logged = head.extension::<Logged>();
            match logged.and_then(|logged| logged.plan.as_deref()) {
                Some(plan) => found(Some(plan)),
                None => read(head, found),
            }
        };
        Self {
            read: Arc::new(read),
            looks: Arc::default(),
        }
    }

    pub(super) fn read(&self, head: &Head<'_>, mut found: impl FnMut(Option<&str>)) {
        (self.read)(head, &mut |name| {
            if let Some(name) = name
                && self.looks.load(Ordering::Relaxed) > 0
            {
                self.look(head, name);
            }
            found(name);
        });
    }

    #[cold]
    fn look(&self, head: &Head<'_>, plan: &str) {
        let one_less = |looks: u32| looks.checked_sub(1);
        let order = Ordering::Relaxed;
        if plan.is_empty() || self.looks.fetch_update(order, order, one_less).is_err() {
            return;
        }
        let mut headers = head.headers().iter();
        if let Some((name, _)) = headers.find(|(_, value)| value.as_bytes() == plan.as_bytes()) {
            self.looks.store(0, order);
            warn_once_of(&UNVERIFIED, format!("header {name}"));
        }
    }
}

impl fmt::Debug for PlanOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlanOf(closure)")
    }
}

impl fmt::Debug for ResolverOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResolverOf(closure)")
    }
}
