//! What a resolver finds for the keys of a verb.

use smallvec::SmallVec;

use super::{Limiter, require_plan};
use crate::error::StoreError;
use crate::key::Key;
use crate::plan::{Finding, PlanLookup};
use crate::store::Reply;

/// The lookups of the keys of a verb by a resolver; none without a resolver.
#[derive(Debug)]
pub struct Looks(SmallVec<[Option<PlanLookup>; 1]>);

/// What a resolver has found for the keys of a verb; nothing without a resolver.
#[derive(Clone, Debug)]
pub struct Findings(SmallVec<[Option<Finding>; 1]>);

impl Looks {
    #[inline]
    pub(super) fn none() -> Self {
        Self(SmallVec::new())
    }

    pub(super) fn of<'a, L: ?Sized>(
        keys: impl IntoIterator<Item = &'a Key>,
        limiter: &Limiter<L>,
    ) -> Self {
        Self(keys.into_iter().map(|key| limiter.look(key)).collect())
    }

    /// Returns what is known now.
    #[inline]
    pub(super) fn now(self) -> Findings {
        let findings = self.0.into_iter().map(|look| look.map(PlanLookup::now));
        Findings(findings.collect())
    }

    /// Waits until all keys are looked up.
    #[inline]
    pub(super) fn wait(self) -> Reply<Findings> {
        let is_pending = |look: &_| matches!(look, Some(PlanLookup::Pending(_)));
        if self.0.iter().any(is_pending) {
            return Reply::later(self.found());
        }
        let known = self.0.into_iter().map(|look| match look? {
            PlanLookup::Known(finding) => Some(finding),
            pending @ PlanLookup::Pending(_) => Some(pending.now()),
        });
        Reply::Now(Findings(known.collect()))
    }

    async fn found(self) -> Findings {
        let mut findings = SmallVec::new();
        // All lookups run at the same time.
        for look in self.0 {
            findings.push(match look {
                Some(PlanLookup::Pending(coming)) => Some(coming.await),
                Some(PlanLookup::Known(finding)) => Some(finding),
                None => None,
            });
        }
        Findings(findings)
    }
}

impl Findings {
    /// Returns the finding for the key at this place.
    #[inline]
    pub(super) fn of(&self, place: usize) -> Option<&Finding> {
        self.0.get(place)?.as_ref()
    }

    /// Returns an error if a resolver has failed, and is configured to fail such requests.
    #[inline]
    pub(super) fn require_plans(&self) -> Result<(), StoreError> {
        self.0.iter().flatten().try_for_each(require_plan)
    }
}
