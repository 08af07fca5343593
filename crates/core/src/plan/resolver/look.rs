//! The finding of a resolver for a request, at once or after a lookup.
//!
//! A request that waits does not own the lookup: it may go away without canceling it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::watch;

use super::known::{Found, LookupResult};
use super::own_limits::OwnLimits;
use crate::clock::Timer;
use crate::decision::{Resolution, Unresolved};
use crate::error::StoreErrorKind;

/// The result of a lookup for a request.
#[derive(Debug)]
pub enum PlanLookup {
    /// What is known already.
    Known(Finding),
    /// A lookup that the request may wait for.
    Pending(PendingLookup),
}

/// The answer of a resolver to a request.
#[derive(Clone, Debug)]
pub struct Finding {
    /// `None` for the default plan.
    found: Option<Arc<Found>>,
    how: Resolution,
    /// Whether the request is refused for lack of a plan.
    is_refused: bool,
}

impl PlanLookup {
    /// Returns the finding for a request that does not wait.
    pub fn now(self) -> Finding {
        let finding = match self {
            Self::Known(finding) => finding,
            Self::Pending(coming) => (coming.otherwise)(Unresolved::Pending),
        };
        Finding {
            is_refused: false,
            ..finding
        }
    }
}

impl Finding {
    pub(super) fn of(answer: &LookupResult) -> Self {
        match answer.found() {
            Some(found) => Self {
                found: Some(Arc::clone(found)),
                how: Resolution::Fresh,
                is_refused: false,
            },
            None => Self::not_found(),
        }
    }

    pub(super) fn stale(found: Arc<Found>, why: Unresolved) -> Self {
        Self {
            found: Some(found),
            how: Resolution::Stale(why),
            is_refused: false,
        }
    }

    pub(super) fn not_found() -> Self {
        Self::default_plan(Unresolved::NotFound, false)
    }

    pub(super) fn default_plan(why: Unresolved, is_refused: bool) -> Self {
        Self {
            found: None,
            how: Resolution::Default(why),
            is_refused,
        }
    }

    /// Returns the name of the plan that was found.
    pub(crate) fn plan(&self) -> Option<&str> {
        match self.found.as_deref()? {
            Found::Plan(name) => Some(name),
            Found::Limits(_) => None,
        }
    }

    /// Returns whether it is about the customer, and not about a lookup that has not landed.
    pub(crate) fn is_of_customer(&self) -> bool {
        match self.how {
            Resolution::Fresh | Resolution::Stale(_) => true,
            Resolution::Default(why) => why == Unresolved::NotFound,
        }
    }

    /// Returns whether a request that came lately, and waited for the lookup, has had the default plan as well.
    pub(crate) fn is_that_of_requests(&self) -> bool {
        let is_without = |why| matches!(why, Unresolved::Failed | Unresolved::NoRuntime);
        self.is_of_customer() || matches!(self.how, Resolution::Default(why) if is_without(why))
    }

    /// Returns whether the customer was found, by limits of its own.
    pub(crate) fn finds_limits(&self) -> bool {
        self.limits().is_some()
    }

    /// Returns the limits that were found.
    pub(in crate::plan) fn limits(&self) -> Option<&OwnLimits> {
        match self.found.as_deref()? {
            Found::Plan(_) => None,
            Found::Limits(limits) => Some(limits),
        }
    }

    /// Stores how this was found in the index of a rule.
    pub(crate) fn note(&self, rule: u32) -> u32 {
        self.how.note(rule)
    }

    /// Returns how a request is refused for lack of a plan.
    pub fn refusal(&self) -> Option<StoreErrorKind> {
        self.is_refused.then_some(StoreErrorKind::Unresolved)
    }
}

/// A request that waits for a lookup: until it lands, and no longer than the timeout.
pub struct PendingLookup {
    landed: Pin<Box<dyn Future<Output = Option<Finding>> + Send>>,
    timer: Timer,
    otherwise: Box<Otherwise>,
}

/// Returns the finding if the lookup does not land in time, or fails.
pub(super) type Otherwise = dyn Fn(Unresolved) -> Finding + Send;

impl PendingLookup {
    /// Waits for a lookup for at most this time. Without a timer no request waits.
    pub(super) fn look(
        mut landed: watch::Receiver<Option<Finding>>,
        timer: Option<Timer>,
        otherwise: Box<Otherwise>,
    ) -> PlanLookup {
        let Some(timer) = timer else {
            return PlanLookup::Known(otherwise(Unresolved::Pending));
        };
        let landed = async move {
            let landed = landed.wait_for(Option::is_some).await.ok()?;
            landed.clone()
        };
        PlanLookup::Pending(Self {
            landed: Box::pin(landed),
            timer,
            otherwise,
        })
    }
}

impl Future for PendingLookup {
    type Output = Finding;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Finding> {
        if let Poll::Ready(landed) = self.landed.as_mut().poll(cx) {
            // A lookup whose task has ended counts as failed.
            let failed = || (self.otherwise)(Unresolved::Failed);
            return Poll::Ready(landed.unwrap_or_else(failed));
        }
        let in_time = self.timer.poll(cx);
        in_time.map(|()| (self.otherwise)(Unresolved::Pending))
    }
}

impl fmt::Debug for PendingLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingLookup").finish_non_exhaustive()
    }
}
