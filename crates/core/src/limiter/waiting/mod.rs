//! Lets requests that were denied wait for their turn.
//!
//! A request asks again, with all of its policies, when it stands at the front and its wait is over. Until
//! then it is charged nothing. The other requests do not ask at all.

mod waiter;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use self::waiter::Waiter;
use super::{Charges, Limiter};
use crate::algorithm::Algorithm;
use crate::clock::{Micros, Timers};
use crate::decision::{Outcome, Outcomes};
use crate::diagnostics::Diagnostic;
use crate::error::StoreError;
use crate::line::{Estimate, Leaving, LineId, Number, QueuedCharges, WaitQueue, queued_charges};
use crate::policy::{Patience, Policy};
use crate::store::{Charge, Outlook, answered};

/// The number of requests that may wait under all policies of a limiter, and the function that makes their lines. It is a
/// pointer, so that a program in which no policy can let requests wait does not contain the code.
#[derive(Clone, Copy)]
pub(crate) struct WaitingRoom {
    places: u32,
    open: OpenLines,
}

/// Makes the lines for these policies, with so many places; `None` if no policy lets requests wait.
type OpenLines = fn(&[Policy], &Timers, u32) -> Option<Box<dyn LetWait>>;

impl WaitingRoom {
    /// Creates a room for policies of which none lets requests wait.
    pub(crate) fn closed() -> Self {
        Self {
            places: 0,
            open: |_, _, _| None,
        }
    }

    /// Creates a room in which at most `places` requests wait under all policies together.
    pub(crate) fn with(places: u32) -> Self {
        Self {
            places,
            open: Waits::open,
        }
    }

    /// Returns `None` if no policy lets requests wait.
    pub(super) fn open(self, policies: &[Policy], timers: &Timers) -> Option<Box<dyn LetWait>> {
        (self.open)(policies, timers, self.places)
    }
}

/// Lets requests wait.
pub(super) trait LetWait: fmt::Debug + Send + Sync {
    /// Lets a request wait that finds others waiting: it does not overtake them, whatever the store would say.
    fn wait_behind_others(
        &self,
        limiter: &Limiter,
        charges: &[Charge],
        caller: Caller,
    ) -> Option<Box<dyn Wait>>;

    /// Lets a denied request wait, unless it has to be refused at once.
    fn denied(
        &self,
        limiter: &Limiter,
        charges: &[Charge],
        caller: Caller,
        outcomes: &Outcomes,
    ) -> Option<Box<dyn Wait>>;

    /// Returns whether a request would wait after this denial. It takes no place.
    fn would_wait(&self, charges: &[Charge], caller: Caller, outcomes: &Outcomes) -> bool;
}

/// A waiting request, which is ready when it was allowed, or stops waiting.
pub(super) trait Wait: Send {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Ended, StoreError>>;
}

/// How the wait of a request ends.
pub(super) enum Ended {
    /// The request was charged, and goes on.
    Charged(Outcomes),
    /// The request is charged nothing, and is refused.
    Denied(Outcomes),
}

/// The policies of a limiter that let requests wait, and the waiting requests.
#[derive(Debug)]
struct Waits {
    /// By policy; `None` for a policy that refuses at once.
    of: Vec<Option<Patience>>,
    /// By policy.
    algorithms: Vec<Algorithm>,
    /// The number of requests that may wait under all of them.
    places: u32,
    queue: Arc<WaitQueue>,
    /// By policy.
    leaving: Vec<Leaving>,
}

/// The caller of a request.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pub arrived: Instant,
    /// Until when the caller waits.
    pub deadline: Option<Instant>,
}

impl Caller {
    /// Returns the time by which `delay` overruns the caller's deadline; `None` if it does not.
    pub(super) fn misses(&self, delay: Micros, now: Instant) -> Option<Micros> {
        let left = self.deadline?.saturating_duration_since(now);
        let late = delay.saturating_sub(left.into());
        (late > Micros::ZERO).then_some(late)
    }
}

enum Step {
    /// The request asks after this moment, if it is at the front.
    Stands {
        due: Instant,
        /// The request may ask after this moment already, if a slot is given back.
        may_ask: Instant,
        give_up: Instant,
    },
    Asks(StoreAnswer<Outcomes>),
    /// The request asks when its turn would be, beside the requests that wait.
    Estimates(StoreAnswer<Outlook>),
}

type StoreAnswer<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// There is no timer that could hold a request.
pub const NO_TIMER: Diagnostic = Diagnostic::new(
    "TRL009",
    "waiting",
    "a request has to wait for its turn, and there is no runtime of tokio's to wake it",
    "serve on tokio, with its timers enabled (`Builder::enable_time`), or take policies under which no request waits; \
     in a file of limits: leave out `wait_up_to`, and take another `algorithm` than `leaky-queue`",
);

/// Timers are late by a millisecond or so, and the delays of all earlier requests add up. No request is
/// refused for that.
const LATE: Duration = Duration::from_millis(50);

/// The shortest time between two questions: a store whose clock stands still would be asked without end.
const SHORTEST: Duration = Duration::from_millis(1);

/// No process learns that another one has given back a slot of a [`Concurrency`](crate::Concurrency), so the
/// request at the front asks a shared store this often.
const ASKS_SHARED_EVERY: Duration = Duration::from_millis(10);

/// In one process each slot that is given back wakes a request. The request asks this often nevertheless,
/// because the limit may have grown.
const ASKS_EVERY: Duration = Duration::from_secs(1);

/// Stands for a time that the platform cannot hold.
const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 86_400);

impl Waits {
    /// Returns `None` if no policy lets requests wait.
    fn open(policies: &[Policy], timers: &Timers, places: u32) -> Option<Box<dyn LetWait>> {
        let of = policies.iter().map(|policy| {
            let patience = policy.patience();
            let waits = patience.is_any() && !policy.is_soft() && policy.is_limited();
            waits.then_some(patience)
        });
        let of: Vec<_> = of.collect();
        let is_any = of.iter().any(Option::is_some);
        is_any.then(|| -> Box<dyn LetWait> {
            Box::new(Arc::new(Self {
                of,
                algorithms: policies.iter().map(|it| *it.algorithm()).collect(),
                places,
                queue: Arc::new(WaitQueue::new(timers.clone())),
                leaving: policies.iter().map(|it| Leaving::new(it.name())).collect(),
            }))
        })
    }

    fn timers(&self) -> &Timers {
        self.queue.timers()
    }

    /// Returns the lines in which a request with these charges has to stand.
    fn lines(&self, charges: &[Charge]) -> impl Iterator<Item = LineId> {
        let waits = |charge: &&Charge| {
            charge.cost > 0 && !charge.is_shadow() && self.terms(charge.policy).is_some()
        };
        let charges = charges.iter().filter(waits);
        charges.map(|charge| (charge.policy, charge.key))
    }

    fn terms(&self, policy: usize) -> Option<&Patience> {
        self.of.get(policy)?.as_ref()
    }

    /// Returns how many requests may stand in this line.
    fn places_in(&self, (policy, _): LineId) -> u32 {
        self.terms(policy).map_or(0, |it| it.places())
    }

    /// Returns the line to wait in after this denial, and how, if waiting can help. `told` is the moment at
    /// which the request was first told to wait.
    fn line_for(
        &self,
        charges: &[Charge],
        caller: Caller,
        outcomes: &Outcomes,
        now: Instant,
        waits_since: Option<Instant>,
        asks_every: Duration,
    ) -> Option<(LineId, Step)> {
        let (mut policy, binding) = outcomes.binding()?;
        if waits_since.is_some() {
            // Another policy may bind as long.
            let waits_as_long = |(policy, outcome): &(usize, &Outcome)| {
                let is_as_long = outcome.retry_after() == binding.retry_after();
                outcome.denies() && is_as_long && self.terms(*policy).is_some()
            };
            (policy, _) = outcomes.iter().find(waits_as_long)?;
        }
        let (wait, at_the_latest) = if outcomes.are_too_many_at_once() {
            let wait = wait_beside_slots(outcomes);
            (wait, wait.max(asks_every))
        } else {
            let wait = outcomes.retry_after()?.to_duration();
            (wait, wait.max(SHORTEST))
        };
        let mut longest = FOR_EVER;
        for (denying, outcome) in outcomes.iter().filter(|(_, outcome)| outcome.denies()) {
            match self.terms(denying) {
                Some(patience) => longest = longest.min(patience.longest()),
                // A request that comes to the front before its turn waits for another policy.
                None if waits_since.is_some() && outcome.retry_after().is_some() => {}
                None => return None,
            }
        }
        let late = waits_since.map_or(Duration::ZERO, |_| LATE);
        let since = waits_since.unwrap_or(now);
        let last = [Some(since + longest + late), caller.deadline];
        let last = last.into_iter().flatten().min()?;
        if now + wait.min(FOR_EVER) > last || wait > FOR_EVER {
            return None;
        }
        let give_up = [Some(since + longest + LATE), caller.deadline];
        let step = Step::Stands {
            due: now + at_the_latest,
            may_ask: now + wait,
            give_up: give_up.into_iter().flatten().min()?,
        };
        let charge = charges.iter().find(|charge| charge.policy == policy)?;
        Some(((charge.policy, charge.key), step))
    }

    /// Asks for what the turn of this request is computed from. It charges nothing.
    fn outlook(&self, limiter: &Limiter, charges: &[Charge], own: Number) -> StoreAnswer<Outlook> {
        let mut probes = Charges::from_slice(charges);
        for charge in probes.iter_mut().filter(|charge| charge.slot.is_some()) {
            // Slots come back at unknown moments: those before the request have to be free too.
            let before = self.queue.cost_before(&(charge.policy, charge.key), own);
            let limit = self
                .algorithms
                .get(charge.policy)
                .and_then(Algorithm::limit);
            let most = limit.unwrap_or(u32::MAX).max(charge.cost);
            charge.cost = charge.cost.saturating_add(before).min(most);
        }
        let reply = limiter.outlook(&probes);
        Box::pin(async move {
            let Outlook { outcomes, keys } = reply.wait().await?;
            let outcomes = answered(&probes, Ok(outcomes))?;
            Ok(Outlook { outcomes, keys })
        })
    }

    /// Returns the outcomes of a request that waits beside others.
    fn estimate(&self, outlook: &Outlook, (own, asks): (Number, &QueuedCharges)) -> Outcomes {
        let now = self.timers().now();
        let others = self.queue.beside(asks, own);
        if others.is_empty() {
            return outlook.outcomes.clone();
        }
        let mut outlook = outlook.clone();
        for ask in asks {
            let policy = ask.line.0;
            if let Some(algorithm) = self.algorithms.get(policy) {
                outlook.complete(policy, *algorithm, ask.cost);
            }
        }
        let Outlook { mut outcomes, keys } = outlook;
        let is_patient = |policy| self.terms(policy).is_some();
        let estimate = Estimate::new((own, asks), keys, is_patient, others, now);
        for (policy, wait) in estimate.waits() {
            outcomes.put_behind(policy, wait);
        }
        outcomes
    }
}

impl LetWait for Arc<Waits> {
    fn wait_behind_others(
        &self,
        limiter: &Limiter,
        charges: &[Charge],
        caller: Caller,
    ) -> Option<Box<dyn Wait>> {
        if self.queue.is_empty() {
            return None;
        }
        let is_low = is_low(charges);
        let mut lines = self.lines(charges);
        let line = lines.find(|line| self.queue.has_before(line, is_low))?;
        let mut waiter = Waiter::new(self, limiter, charges, caller, line)?;
        waiter.take_place();
        waiter.estimate();
        Some(waiter)
    }

    fn denied(
        &self,
        limiter: &Limiter,
        charges: &[Charge],
        caller: Caller,
        outcomes: &Outcomes,
    ) -> Option<Box<dyn Wait>> {
        let now = self.timers().now();
        let turn = self.line_for(charges, caller, outcomes, now, None, Duration::ZERO);
        let can_never_pass = turn.is_none() && outcomes.retry_after().is_none();
        let is_alone = can_never_pass
            || self.queue.is_empty()
            || !self.queue.asks_about(&queued_charges(charges, now));
        if is_alone && turn.is_none() {
            return None;
        }
        let (policy, _) = outcomes.binding()?;
        let binding = charges.iter().find(|charge| charge.policy == policy)?;
        let line = (binding.policy, binding.key);
        let mut waiter = Waiter::new(self, limiter, charges, caller, line)?;
        if turn.is_some() {
            waiter.take_place();
        }
        if is_alone {
            // The told numbers are true.
            let (_, step) = turn?;
            return waiter.waits(step, outcomes).then_some(waiter);
        }
        waiter.estimate();
        Some(waiter)
    }

    fn would_wait(&self, charges: &[Charge], caller: Caller, outcomes: &Outcomes) -> bool {
        let now = self.timers().now();
        self.line_for(charges, caller, outcomes, now, None, Duration::ZERO)
            .is_some()
    }
}

/// Returns whether a request leaves the reserve of a policy to others. All others go before it then.
fn is_low(charges: &[Charge]) -> bool {
    charges.iter().any(|charge| charge.leaves > 0)
}

/// Returns how long the policies on rates let a request wait that finds no free slot.
fn wait_beside_slots(outcomes: &Outcomes) -> Duration {
    let denied = outcomes.iter().filter(|(_, outcome)| outcome.denies());
    let waits = denied.filter_map(|(_, outcome)| outcome.retry_after());
    waits.max().unwrap_or_default()
}
