use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::diagnostics::{Diagnostic, warn_once_of};
use crate::key::Head;
use crate::plan::{self, ChosenPlan, Limits, ResolverOf};
#[cfg(feature = "reload")]
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
    pub(super) resolver: Option<ResolverOf<Head<'static>>>,
}

/// Returns the name of a request's plan, and compares the first ones with the headers of their requests.
#[derive(Clone, Debug)]
pub(super) struct PlanOf {
    source: plan::PlanOf<Head<'static>>,
    /// The number of requests that are left to compare.
    looks: Arc<AtomicU32>,
}

impl PlanOf {
    pub(super) fn new<R: AsRef<str>>(
        plan_of: impl Fn(&Head<'_>) -> Option<R> + Send + Sync + 'static,
    ) -> Self {
        Self {
            source: plan::PlanOf::<Head<'_>>::new(plan_of),
            looks: Arc::new(AtomicU32::new(LOOKS)),
        }
    }

    /// Does not compare plans with headers.
    #[cfg(feature = "reload")]
    pub(super) fn verified(self) -> Self {
        Self {
            looks: Arc::default(),
            ..self
        }
    }

    /// Prefers the plan that a log has for a request.
    #[cfg(feature = "reload")]
    pub(super) fn or_logged(self) -> Self {
        let Self { source, .. } = self;
        let read = move |head: &Head<'_>, found: &mut dyn FnMut(Option<&str>)| {
            let logged = head.extension::<Logged>();
            match logged.and_then(|logged| logged.plan.as_deref()) {
                Some(plan) => found(Some(plan)),
                None => source.read(head, found),
            }
        };
        Self {
            source: plan::PlanOf::<Head<'_>>::passing(read),
            looks: Arc::default(),
        }
    }

    /// Returns the plan of a request: the default plan, if the request has none.
    pub(super) fn choose(&self, head: &Head<'_>, limits: &Limits) -> Option<ChosenPlan> {
        let mut plan = None;
        self.source.read(head, &mut |name| {
            if let Some(name) = name
                && self.looks.load(Ordering::Relaxed) > 0
            {
                self.look(head, name);
            }
            plan = limits.plan(name);
        });
        plan
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
