use std::fmt;
use std::sync::Arc;

use tower_ratelimit_core::__internal::warn_once_of;

use crate::diagnostics::Diagnostic;
use crate::policy::{Http, Rule, Settlement};

const UNREPORTED: Diagnostic = Diagnostic::new(
    "TRL025",
    "",
    "a successful response did not report its cost, so the estimate is charged",
    "let the handler tell it where `settle` looks, or look elsewhere too, `Settle::or`; \
     in a file of limits: a list, `settle = [{ header = \"x-cost\" }, \"bytes\"]`",
);

const GUESSED: Diagnostic = Diagnostic::new(
    "TRL038",
    "",
    "the usage in the body of a response could not be read, so a guess by its bytes is charged",
    "let the service answer as JSON or server-sent events, plain or by gzip, with the numbers that `settle` names; \
     a stream of OpenAI tells them if the request has `stream_options: { include_usage: true }`; look elsewhere too, \
     `Settle::or`; in a file of limits: a list, `settle = [\"openai\", { header = \"x-tokens\" }]`",
);

/// How the policies of a layer settle requests at their end.
pub(super) struct Settlements {
    /// By policy; `None` for a policy whose charges stay as they are.
    policies: Box<[Option<NamedSettlement>]>,
    takes_a_spend: bool,
    asks_about_the_end: bool,
    bodies: Bodies,
}

/// What the bodies of responses tell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bodies {
    Nothing,
    Usage,
    /// A usage that has a price, by the model.
    PricedUsage,
}

struct NamedSettlement {
    name: String,
    /// `None` if only an end without an answer matters.
    settlement: Option<Arc<Settlement>>,
}

impl Settlements {
    /// Returns `None` if no policy holds a request until its end.
    pub(super) fn new(policies: &[Rule], readers: &[Http]) -> Option<Arc<Self>> {
        let each = policies.iter().zip(readers);
        let each = each.map(|(policy, reader)| {
            reader.holds_requests().then(|| NamedSettlement {
                name: policy.shown_name().to_owned(),
                settlement: reader.settlement().cloned(),
            })
        });
        let policies: Box<[_]> = each.collect();
        let are_any = policies.iter().any(Option::is_some);
        let any = |says: fn(&Settlement) -> bool| {
            let mut settlements = policies.iter().flatten();
            settlements.any(|policy| policy.settlement.as_deref().is_some_and(says))
        };
        let takes_a_spend = any(Settlement::takes_a_spend);
        let asks_about_the_end = any(Settlement::asks_about_the_end);
        let bodies = if any(Settlement::is_priced) {
            Bodies::PricedUsage
        } else if any(|settlement| settlement.usage().is_some()) {
            Bodies::Usage
        } else {
            Bodies::Nothing
        };
        are_any.then(|| {
            Arc::new(Self {
                policies,
                takes_a_spend,
                asks_about_the_end,
                bodies,
            })
        })
    }

    fn of(&self, policy: usize) -> Option<&NamedSettlement> {
        self.policies.get(policy)?.as_ref()
    }

    /// Returns how the policy finds the cost of a request, if it looks for it.
    pub(super) fn settlement(&self, policy: usize) -> Option<&Settlement> {
        self.of(policy)?.settlement.as_deref()
    }

    /// Returns whether a closure looks at the end, so that the headers are kept for it.
    pub(super) fn asks_about_the_end(&self) -> bool {
        self.asks_about_the_end
    }

    /// Returns whether a handler gets a [`Spend`](crate::policy::Spend).
    pub(super) fn takes_a_spend(&self) -> bool {
        self.takes_a_spend
    }

    /// Warns that a response should have reported the cost and has not.
    #[cold]
    pub(super) fn warn_of_no_report(&self, policy: usize) {
        let name = self.of(policy).map_or("", |policy| &policy.name);
        warn_once_of(&UNREPORTED, format!("policy {name:?}"));
    }

    /// Returns whether a body tells a cost.
    pub(super) fn reads_bodies(&self) -> bool {
        self.bodies != Bodies::Nothing
    }

    /// Returns whether the model that a request asks for matters.
    pub(super) fn are_priced(&self) -> bool {
        self.bodies == Bodies::PricedUsage
    }

    /// Warns that a response has not reported its usage.
    #[cold]
    pub(super) fn warn_of_a_guess(&self, policy: usize) {
        let name = self.of(policy).map_or("", |policy| &policy.name);
        warn_once_of(&GUESSED, format!("policy {name:?}"));
    }
}

impl fmt::Debug for Settlements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settlements").finish_non_exhaustive()
    }
}
