//! A backend that answers repeated denials from the cache.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::cache::{DenialCache, Remembered, Sent};
use super::epochs::KeyEpochs;
use crate::algorithm::Replenishment;
use crate::clock::{Clock, Micros};
use crate::decision::{Outcome, Outcomes};
use crate::error::StoreError;
use crate::observe::{KeyStats, StoreStats};
use crate::policy::{Policy, guaranteed_below};
use crate::store::charged::mark;
use crate::store::sealed::Sealed;
use crate::store::{
    Amendment, Backend, Charge, Charged, Charges, Outlook, Reply, TenantShare, Wanted,
};

/// A backend whose denials this node remembers.
///
/// An outcome does not say what it will be a moment later. So a denial is remembered only if nothing but its
/// times can change before the first wait is over: every policy denies one unit, by a limit that is the same
/// at all hours and is no override, the key is not blocked, and no refusals are counted for a penalty. And no other node
/// can make the wait longer: all requests of a key have the same limit, and none is settled, unless the wait is to the end
/// of a fixed window. A tenant of a limit, and a key that is guaranteed a part of one, is active even if it is denied, so the store has
/// to hear of it.
pub(in crate::store) struct Remembering {
    backend: Arc<dyn Backend>,
    denials: Arc<DenialCache<AgingOutcome>>,
    shared: Arc<SharedDenials>,
    /// For each policy, whether its denials can be remembered.
    policies: Arc<[bool]>,
    /// For each policy, whether its requests are settled; `None` if that makes no wait longer.
    settled: Box<[Option<AtomicBool>]>,
}

/// The denials that all backends of a store share.
#[derive(Debug)]
pub(in crate::store) struct SharedDenials {
    epochs: Arc<KeyEpochs>,
    /// The number of denials that were repeated without a call.
    times: AtomicU64,
}

impl SharedDenials {
    pub(in crate::store) fn new() -> Self {
        Self {
            epochs: Arc::new(KeyEpochs::default()),
            times: AtomicU64::new(0),
        }
    }
}

/// An outcome in which only the times change.
#[derive(Debug)]
pub(super) struct AgingOutcome(pub(super) Outcome);

impl Remembered for AgingOutcome {
    type Policy = bool;

    fn replay(&self, (policy, _): (usize, &bool), later: Micros, outcomes: &mut Outcomes) {
        outcomes.push(policy, self.0.aged_by(later));
    }
}

impl Remembering {
    /// Remembers the denials of a backend that was opened for these policies, each for at most this time.
    pub(in crate::store) fn new(
        backend: Arc<dyn Backend>,
        policies: &[Policy],
        longest: Duration,
        shared: &Arc<SharedDenials>,
    ) -> Self {
        let is_fixed =
            |policy: &Policy| policy.algorithm().replenishment() == Some(Replenishment::Aligned);
        let guaranteeing = guaranteed_below(policies);
        let runs_down = |policy: &Policy| {
            let is_parted =
                guaranteeing.contains_key(policy.shown_name()) || policy.fairness().is_some();
            let algorithm = policy.algorithm();
            let changes = algorithm.depends_on_a_calendar() || algorithm.limits_concurrency();
            let is_exact = is_fixed(policy) || !policy.limits_differ();
            !changes && is_exact && !is_parted && policy.named_penalty().is_none()
        };
        let is_settled =
            |policy: &Policy| (!is_fixed(policy)).then(|| AtomicBool::new(policy.is_settled()));
        Self {
            backend,
            denials: Arc::new(DenialCache::new(longest, Arc::clone(&shared.epochs))),
            shared: Arc::clone(shared),
            policies: policies.iter().map(runs_down).collect(),
            settled: policies.iter().map(is_settled).collect(),
        }
    }

    /// Returns whether a denial of these charges can be remembered.
    fn can_remember(&self, charges: &[Charge]) -> bool {
        let runs_down = |charge: &Charge| {
            let is_settled = self.settled_flag(charge.policy);
            charge.cost == 1
                // Another policy may have room sooner.
                && charge.alternative.is_none()
                && self.policies.get(charge.policy).is_some_and(|runs| *runs)
                && !is_settled.is_some_and(|it| it.load(Ordering::Relaxed))
        };
        !charges.is_empty() && charges.iter().all(runs_down)
    }

    fn settled_flag(&self, policy: usize) -> Option<&AtomicBool> {
        self.settled.get(policy)?.as_ref()
    }

    fn changing(&self, charges: &[Charge]) -> Changing {
        Changing {
            epochs: Arc::clone(&self.shared.epochs),
            charges: Charges::from_slice(charges),
        }
    }
}

impl Sealed for Remembering {}

impl Backend for Remembering {
    fn charge(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> Charged {
        let now = Instant::now().into_std();
        let can_remember = self.can_remember(charges);
        let question = (charges, &*self.policies);
        if can_remember && self.denials.replay(question, now, false, outcomes) {
            self.shared.times.fetch_add(1, Ordering::Relaxed);
            mark(charges, outcomes);
            return Charged::Now(Ok(false));
        }
        let sent = can_remember.then(|| self.denials.send(charges, now));
        let changing = self.changing(charges);
        match self
            .backend
            .charge(charges, wanted.with_refusals(), outcomes)
        {
            Charged::Now(answer) => {
                if let Ok(false) = answer {
                    learn(&self.denials, &changing.not_at_all(), sent, outcomes);
                }
                Charged::Now(answer)
            }
            Charged::Later(answer) => {
                let denials = Arc::clone(&self.denials);
                Charged::later(async move {
                    let outcomes = answer.await?;
                    if !outcomes.is_allowed() {
                        learn(&denials, &changing.not_at_all(), sent, &outcomes);
                    }
                    Ok(outcomes)
                })
            }
        }
    }

    fn acquire_up_to(&self, charges: &[Charge]) -> Reply<Result<(u32, Outcomes), StoreError>> {
        let changing = self.changing(charges);
        self.backend.acquire_up_to(charges).map(move |taken| {
            drop(changing);
            taken
        })
    }

    fn peek(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        self.backend.peek(charges)
    }

    fn outlook(&self, charges: &[Charge]) -> Reply<Result<Outlook, StoreError>> {
        self.backend.outlook(charges)
    }

    fn refusals(&self, charge: &Charge) -> Reply<Result<u32, StoreError>> {
        self.backend.refusals(charge)
    }

    fn leased(&self, charge: &Charge) -> Reply<Result<u32, StoreError>> {
        self.backend.leased(charge)
    }

    fn tenant_share(&self, charge: &Charge) -> Reply<Result<Option<TenantShare>, StoreError>> {
        self.backend.tenant_share(charge)
    }

    fn amend(&self, charges: &[Charge], amendment: Amendment) -> Reply<Result<bool, StoreError>> {
        if amendment.settles() {
            // Other nodes probably do the same.
            let policies = charges.iter().map(|charge| charge.policy);
            let settled = policies.filter_map(|policy| self.settled_flag(policy));
            settled.for_each(|flag| flag.store(true, Ordering::Relaxed));
        }
        let changing = self.changing(charges);
        self.backend.amend(charges, amendment).map(move |amended| {
            drop(changing);
            amended
        })
    }

    fn stats(&self) -> StoreStats {
        let mut stats = self.backend.stats();
        stats.remembered_denials += self.shared.times.load(Ordering::Relaxed);
        stats
    }

    fn keys(&self, policy: usize) -> Option<KeyStats> {
        self.backend.keys(policy)
    }

    fn holds_for(&self, policy: usize) -> Duration {
        self.backend.holds_for(policy)
    }

    fn runtime(&self) -> Option<Handle> {
        self.backend.runtime()
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.backend.clock()
    }
}

/// Remembers a denial, if that is possible.
fn learn(
    denials: &DenialCache<AgingOutcome>,
    charges: &[Charge],
    sent: Option<Sent>,
    outcomes: &Outcomes,
) {
    let Some(sent) = sent else {
        return;
    };
    let is_complete = outcomes.are_of(charges.iter().map(|charge| charge.policy));
    if outcomes.is_degraded() || !is_complete {
        return;
    }
    let mut waits = outcomes.iter().map(|(_, outcome)| {
        let runs_down = !outcome.is_allowed() && !outcome.is_blocked() && !outcome.is_overridden();
        outcome.retry_micros().filter(|_| runs_down)
    });
    // The numbers of a policy are known until its own wait is over.
    let first = waits.try_fold(Micros::LONGEST, |first, wait| Some(first.min(wait?)));
    let now = Instant::now().into_std();
    if let Some(first) = first
        && let Some(lasts) = sent.lasts(Some(first), now)
    {
        let numbers = outcomes.iter();
        let numbers = numbers.map(|(_, outcome)| (AgingOutcome(*outcome), true));
        denials.remember(charges, sent, (outcomes.at(), lasts), numbers);
    }
}

/// Ends the remembered denials of some keys when it is dropped, since their state may have changed.
struct Changing {
    epochs: Arc<KeyEpochs>,
    charges: Charges,
}

impl Changing {
    /// Returns the charges, whose state has not changed.
    fn not_at_all(mut self) -> Charges {
        std::mem::take(&mut self.charges)
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.epochs.advance(&self.charges);
    }
}

impl fmt::Debug for Remembering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.backend, f)
    }
}
