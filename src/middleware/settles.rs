use std::fmt;
use std::sync::Arc;

use crate::diagnostics::{Diagnostic, warn_once_of};
use crate::policy::{Http, Policy, Settling};

const UNREPORTED: Diagnostic = Diagnostic::new(
    "TRL025",
    "",
    "a successful response did not report its cost, so the estimate is charged",
    "let the handler tell it where `settle` looks, or look elsewhere too, `Settle::or`; \
     in a file of limits: a list, `settle = [{ header = \"x-cost\" }, \"bytes\"]`",
);

/// How the policies of a layer settle requests at their end.
pub(super) struct Settles {
    /// By policy; `None` for a policy whose charges stay as they are.
    policies: Box<[Option<Settled>]>,
    takes_a_spend: bool,
    asks_about_the_end: bool,
}

pub(super) struct Settled {
    name: String,
    /// `None` if only an end without an answer matters.
    pub(super) settling: Option<Arc<Settling>>,
}

impl Settles {
    /// Returns `None` if no policy holds a request until its end.
    pub(super) fn new(policies: &[Policy], readers: &[Http], holds: &[bool]) -> Option<Arc<Self>> {
        let each = policies.iter().zip(readers).zip(holds);
        let each = each.map(|((policy, reader), holds)| {
            (*holds && policy.is_limited()).then(|| Settled {
                name: policy.shown_name().to_owned(),
                settling: reader.settling().cloned(),
            })
        });
        let policies: Box<[_]> = each.collect();
        let are_any = policies.iter().any(Option::is_some);
        let any = |says: fn(&Settling) -> bool| {
            let mut settlings = policies.iter().flatten();
            settlings.any(|policy| policy.settling.as_deref().is_some_and(says))
        };
        let takes_a_spend = any(Settling::takes_a_spend);
        let asks_about_the_end = any(Settling::asks_about_the_end);
        are_any.then(|| {
            Arc::new(Self {
                policies,
                takes_a_spend,
                asks_about_the_end,
            })
        })
    }

    pub(super) fn of(&self, policy: usize) -> Option<&Settled> {
        self.policies.get(policy)?.as_ref()
    }

    /// Returns whether a closure looks at the end, so that the headers are kept for it.
    pub(super) fn asks_about_the_end(&self) -> bool {
        self.asks_about_the_end
    }

    /// Returns whether a handler gets a [`Spend`](crate::policy::Spend).
    pub(super) fn takes_a_spend(&self) -> bool {
        self.takes_a_spend
    }
}

impl Settled {
    /// Warns that a response should have reported the cost and has not.
    #[cold]
    pub(super) fn is_unreported(&self) {
        warn_once_of(&UNREPORTED, format!("policy {:?}", self.name));
    }
}

impl fmt::Debug for Settles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settles").finish_non_exhaustive()
    }
}
