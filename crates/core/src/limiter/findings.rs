//! What a resolver finds for the keys of a verb.

use smallvec::SmallVec;

use super::{Limiter, require_plan};
use crate::error::StoreError;
use crate::key::Key;
use crate::plan::{Finding, PlanLookup};
use crate::store::Reply;

/// The lookups of the keys of a verb by a resolver; none without a resolver.
#[derive(Debug)]
pub struct Looks(Option<SmallVec<[Option<PlanLookup>; 1]>>);

/// What a resolver has found for the keys of a verb; nothing without a resolver.
#[derive(Clone, Debug)]
pub struct Findings(Option<SmallVec<[Option<Finding>; 1]>>);

impl Looks {
    #[inline]
    pub(super) fn none() -> Self {
        Self(None)
    }

    pub(super) fn of<'a, L: ?Sized>(
        keys: impl IntoIterator<Item = Option<&'a Key>>,
        limiter: &Limiter<L>,
    ) -> Self {
        let looks = keys.into_iter().map(|key| limiter.look(key?));
        Self(Some(looks.collect()))
    }

    /// Returns what is known now.
    #[inline]
    pub(super) fn now(self) -> Findings {
        let known = |look: Option<PlanLookup>| look.map(PlanLookup::now);
        Findings(self.0.map(|looks| looks.into_iter().map(known).collect()))
    }

    /// Waits until all keys are looked up.
    #[inline]
    pub(super) fn wait(self) -> Reply<Findings> {
        let is_pending = |look: &_| matches!(look, Some(PlanLookup::Pending(_)));
        match self.0 {
            Some(looks) if looks.iter().any(is_pending) => Reply::later(found(looks)),
            looks => {
                let known = |look: Option<PlanLookup>| match look? {
                    // For a request that does not wait, `now` would refuse nothing.
                    PlanLookup::Known(finding) => Some(finding),
                    pending @ PlanLookup::Pending(_) => Some(pending.now()),
                };
                let findings = looks.map(|looks| looks.into_iter().map(known).collect());
                Reply::Now(Findings(findings))
            }
        }
    }
}

async fn found(looks: SmallVec<[Option<PlanLookup>; 1]>) -> Findings {
    let mut findings = SmallVec::new();
    // All lookups run at the same time.
    for look in looks {
        findings.push(match look {
            Some(PlanLookup::Pending(coming)) => Some(coming.await),
            Some(PlanLookup::Known(finding)) => Some(finding),
            None => None,
        });
    }
    Findings(Some(findings))
}

impl Findings {
    /// Returns the finding for the key at this place.
    #[inline]
    pub(super) fn of(&self, place: usize) -> Option<&Finding> {
        self.0.as_ref()?.get(place)?.as_ref()
    }

    /// Returns an error if a resolver has failed, and is configured to fail such requests.
    #[inline]
    pub(super) fn require_plans(&self) -> Result<(), StoreError> {
        match &self.0 {
            None => Ok(()),
            Some(findings) => findings.iter().flatten().try_for_each(require_plan),
        }
    }
}
