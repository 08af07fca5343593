//! Lets requests that were denied wait for their turn.
//!
//! Each asks again as a whole when it stands at the front and the wait that it was told is over;
//! until then it is charged nothing. The others ask nothing at all.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::{Answer as HeldAnswer, Charges, Limiter};
use crate::algorithm::Algorithm;
use crate::clock::{Micros, Timer, Timers};
use crate::decision::Outcomes;
use crate::diagnostics::{Diagnostic, diagnose};
use crate::error::StoreError;
use crate::line::{
    Leaving, LineId, OwnLimits, Stand, Vacancy, WaitPlace, WaitQueue, one_after_the_other,
    own_limits,
};
use crate::observe::Wait;
use crate::policy::{Patience, Policy};
use crate::store::{Charge, Ledger, Reply, answered};

/// The policies of a limiter that let requests wait, and the requests that do.
#[derive(Debug)]
pub(super) struct Waits {
    /// By the policies' places; `None` of one that refuses at once.
    of: Vec<Option<(Patience, Algorithm)>>,
    /// How many requests may wait under all of them.
    places: u32,
    queue: Arc<WaitQueue>,
    /// By the policies' places.
    leaving: Vec<Leaving>,
}

/// The caller of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) arrived: Instant,
    /// Until when the caller waits.
    pub(crate) deadline: Option<Instant>,
}

impl Caller {
    /// By how much `delay` overruns the caller's deadline; `None` if it does not.
    pub(super) fn misses(&self, delay: Micros, now: Instant) -> Option<Micros> {
        let left = self.deadline?.saturating_duration_since(now);
        let late = delay.saturating_sub(left.into());
        (late > Micros::ZERO).then_some(late)
    }
}

/// A request that waits: ready when it was allowed, or is not to wait any longer. Its place is that
/// of those behind it when this is dropped.
pub(super) struct Waiter {
    waits: Arc<Waits>,
    limiter: Limiter<dyn Ledger>,
    charges: Charges,
    caller: Caller,
    /// When it was first told how long to wait.
    told: Option<Instant>,
    /// By which its keys go, as far as the store has told.
    own: OwnLimits,
    /// Whether it has foreseen its turn anew, by another limit; once is enough.
    has_looked_again: bool,
    /// The line in which it stands, or in which there is no place for it.
    line: LineId,
    place: Option<WaitPlace>,
    /// Counts it among those that wait.
    wait: Option<Wait>,
    timer: Timer,
    /// Tells of slots that are given back, once it has asked for one.
    vacancy: Option<Vacancy>,
    /// How often it asks for a slot, whatever it is told.
    asks_every: Duration,
    step: Step,
    has_ended: bool,
}

/// How the wait of a request ends.
pub(super) enum Ended {
    /// It was charged, and goes on.
    Charged(Outcomes),
    /// It is charged nothing, and is refused.
    Denied(Outcomes),
}

enum Step {
    /// It asks after this moment, if it is at the front.
    Stands {
        due: Instant,
        /// It asks after this one already if a slot is given back.
        may_ask: Instant,
        give_up: Instant,
    },
    Asks(Answer),
    /// It asks when its turn would be, behind those who stand in the lines of these policies.
    Foresees(Answer, Extras),
}

type Answer = Pin<Box<dyn Future<Output = Result<Outcomes, StoreError>> + Send>>;

/// By policy, what is to be added to the wait that the store tells.
type Extras = SmallVec<[(usize, Micros); 2]>;

pub(crate) const NO_TIMER: Diagnostic = Diagnostic::new(
    "TRL009",
    "waiting",
    "a request has to wait for its turn, and there is no runtime of tokio's to wake it",
    "serve on tokio, with its timers enabled (`Builder::enable_time`), or take policies that let nobody wait",
);

/// Timers are late by a millisecond or so, and those of all who went before add up. Nobody is refused
/// because of that.
const LATE: Duration = Duration::from_millis(50);

/// Before this it is not asked again: a store whose clock stands still would be asked without end.
const SHORTEST: Duration = Duration::from_millis(1);

/// Nothing tells a process that another one has given back a slot of a [`Concurrency`](crate::Concurrency): the request at
/// the front asks a shared store so often.
const ASKS_SHARED_EVERY: Duration = Duration::from_millis(10);

/// In one process each slot that is given back is told. The request asks so often all the same, because the limit may
/// have grown.
const ASKS_EVERY: Duration = Duration::from_secs(1);

/// A time that the platform cannot hold is as good as this.
const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 86_400);

impl Waits {
    /// `None` if no policy lets requests wait. No more than `places` wait under all policies together.
    pub(super) fn new(policies: &[Policy], timers: &Timers, places: u32) -> Option<Arc<Self>> {
        let of = policies.iter().map(|policy| {
            let patience = policy.patience();
            let waits = patience.is_any() && !policy.is_soft() && policy.is_limited();
            waits.then(|| (patience, *policy.algorithm()))
        });
        let of: Vec<_> = of.collect();
        let is_any = of.iter().any(Option::is_some);
        is_any.then(|| {
            Arc::new(Self {
                of,
                places,
                queue: Arc::new(WaitQueue::new(timers.clone())),
                leaving: policies.iter().map(|it| Leaving::new(it.name())).collect(),
            })
        })
    }

    fn timers(&self) -> &Timers {
        self.queue.timers()
    }

    /// The lines to which a request that is charged this belongs.
    fn lines(&self, charges: &[Charge]) -> impl Iterator<Item = LineId> {
        let waits = |charge: &&Charge| {
            charge.cost > 0 && !charge.is_shadow() && self.terms(charge.policy).is_some()
        };
        let charges = charges.iter().filter(waits);
        charges.map(|charge| (charge.policy, charge.key))
    }

    fn terms(&self, policy: usize) -> Option<&(Patience, Algorithm)> {
        self.of.get(policy)?.as_ref()
    }

    /// How many may stand in this line.
    fn places_in(&self, (policy, _): LineId) -> u32 {
        self.terms(policy).map_or(0, |(it, _)| it.places())
    }

    /// A request that finds others waiting does not overtake them, whatever the store would say.
    pub(super) fn behind_others(
        self: &Arc<Self>,
        limiter: &Limiter<dyn Ledger>,
        charges: &[Charge],
        caller: Caller,
    ) -> Option<Box<Waiter>> {
        if self.queue.is_empty() {
            return None;
        }
        let line = self.lines(charges).find(|line| self.queue.has_line(line));
        let mut waiter = Waiter::new(self, limiter, charges, caller, line?)?;
        waiter.foresee();
        waiter.begins_to_wait();
        Some(waiter)
    }

    /// A request that was denied, unless it is to be refused at once.
    pub(super) fn denied(
        self: &Arc<Self>,
        limiter: &Limiter<dyn Ledger>,
        charges: &[Charge],
        caller: Caller,
        outcomes: &Outcomes,
    ) -> Option<Box<Waiter>> {
        let now = self.timers().now();
        let (line, step) = self.hope(charges, caller, outcomes, now, None, Duration::ZERO)?;
        let mut waiter = Waiter::new(self, limiter, charges, caller, line)?;
        waiter.own = own_limits(outcomes);
        let is_first = waiter
            .place
            .as_ref()
            .is_some_and(|place| self.queue.costs(&line, Some(place)).is_empty());
        if is_first {
            waiter.told = Some(now);
            waiter.step = step;
        } else if waiter.place.is_none() && !self.queue.has_line(&line) {
            // There is no place in all lines, and what was told is true.
            return None;
        } else {
            waiter.foresee();
        }
        waiter.begins_to_wait();
        Some(waiter)
    }

    /// In which line to wait, and how, after this denial, if that can help; `told` is when the
    /// request was told to wait first.
    fn hope(
        &self,
        charges: &[Charge],
        caller: Caller,
        outcomes: &Outcomes,
        now: Instant,
        told: Option<Instant>,
        asks_every: Duration,
    ) -> Option<(LineId, Step)> {
        let (policy, _) = outcomes.binding()?;
        let (wait, at_the_latest) = if outcomes.are_too_many_at_once() {
            let wait = wait_beside_slots(outcomes);
            (wait, wait.max(asks_every))
        } else {
            let wait = outcomes.retry_after()?.to_duration();
            (wait, wait.max(SHORTEST))
        };
        let mut longest = FOR_EVER;
        for (policy, _) in outcomes.iter().filter(|(_, outcome)| outcome.denies()) {
            let (patience, _) = self.terms(policy)?;
            longest = longest.min(patience.longest());
        }
        let late = told.map_or(Duration::ZERO, |_| LATE);
        let since = told.unwrap_or(now);
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

    /// Asks when those before `place`, or all who wait, and then this request would have had
    /// their turns, charging nothing.
    fn foresee(
        &self,
        limiter: &Limiter<dyn Ledger>,
        charges: &[Charge],
        own: &OwnLimits,
        place: Option<&WaitPlace>,
    ) -> (Answer, Extras) {
        let mut extras = Extras::new();
        let mut asked = Charges::from_slice(charges);
        for charge in &mut asked {
            let line = (charge.policy, charge.key);
            let Some((_, algorithm)) = self.terms(charge.policy).filter(|_| charge.cost > 0) else {
                continue;
            };
            let before = self.queue.costs(&line, place);
            if !before.is_empty() {
                let own = own.iter().find(|(policy, _)| *policy == charge.policy);
                let own = own.map(|(_, limit)| *limit);
                let (cost, longer) = one_after_the_other(algorithm, own, &before, charge.cost);
                charge.cost = cost;
                extras.push((charge.policy, longer));
            }
        }
        let reply = limiter.peek_charges(&asked);
        let answer = async move { answered(&asked, reply.wait().await) };
        (Box::pin(answer), extras)
    }
}

/// How long the policies on rates make a request wait that finds no free slot.
fn wait_beside_slots(outcomes: &Outcomes) -> Duration {
    let denied = outcomes.iter().filter(|(_, outcome)| outcome.denies());
    let waits = denied.filter_map(|(_, outcome)| outcome.retry_after());
    waits.max().unwrap_or_default()
}

impl Waiter {
    /// In this line, if there is a place in it; `None` where nothing would wake it.
    fn new(
        waits: &Arc<Waits>,
        limiter: &Limiter<dyn Ledger>,
        charges: &[Charge],
        caller: Caller,
        line: LineId,
    ) -> Option<Box<Self>> {
        let Some(timer) = waits.timers().after(Duration::ZERO) else {
            diagnose(&NO_TIMER);
            return None;
        };
        let now = waits.timers().now();
        let mut waiter = Box::new(Self {
            waits: Arc::clone(waits),
            limiter: limiter.clone(),
            charges: Charges::from_slice(charges),
            caller,
            told: None,
            own: OwnLimits::new(),
            has_looked_again: false,
            line,
            place: None,
            wait: None,
            timer,
            vacancy: None,
            asks_every: ASKS_SHARED_EVERY,
            step: Step::Stands {
                due: now,
                may_ask: now,
                give_up: now,
            },
            has_ended: false,
        });
        let bounds = (waits.places_in(line), waits.places);
        let cost = waiter.cost_in(line);
        waiter.place = waits.queue.stand(line, cost, caller.arrived, bounds);
        Some(waiter)
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Ended, StoreError>> {
        let ended = ready!(self.wait(cx));
        self.has_ended = true;
        Poll::Ready(ended)
    }

    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Result<Ended, StoreError>> {
        loop {
            match &mut self.step {
                Step::Stands {
                    due,
                    may_ask,
                    give_up,
                } => {
                    let (due, may_ask, give_up) = (*due, *may_ask, *give_up);
                    let is_freed = self
                        .vacancy
                        .as_ref()
                        .is_some_and(|it| it.poll(cx).is_ready());
                    let due = if is_freed { may_ask.min(due) } else { due };
                    ready!(self.stand(due, give_up, cx));
                }
                Step::Asks(answer) => {
                    let outcomes = ready!(answer.as_mut().poll(cx))?;
                    if outcomes.is_allowed() {
                        return Poll::Ready(Ok(Ended::Charged(outcomes)));
                    }
                    if self.place.is_none() {
                        return Poll::Ready(Ok(Ended::Denied(outcomes)));
                    }
                    if !self.goes_on(&outcomes) {
                        self.give_up();
                    }
                }
                Step::Foresees(answer, extras) => {
                    let mut outcomes = ready!(answer.as_mut().poll(cx))?;
                    let own = own_limits(&outcomes);
                    if own != self.own && !mem::replace(&mut self.has_looked_again, true) {
                        self.own = own;
                        self.foresee();
                        continue;
                    }
                    let extras = mem::take(extras);
                    for (policy, longer) in &extras {
                        outcomes.put_behind(*policy, *longer);
                    }
                    if outcomes.is_allowed() {
                        // Those before it are about to ask.
                        let lines = extras.iter().map(|(policy, _)| *policy);
                        for policy in lines.chain([self.line.0]) {
                            outcomes.put_behind(policy, SHORTEST.into());
                        }
                    }
                    if outcomes.is_allowed() {
                        // The store is away, and the policies that let it wait let everything go on. It
                        // need not wait, but what it has foreseen was not charged.
                        self.ask();
                        continue;
                    }
                    if !self.goes_on(&outcomes) {
                        return Poll::Ready(Ok(Ended::Denied(outcomes)));
                    }
                    if let Step::Stands { due, .. } = &mut self.step {
                        // It may come to the front earlier, if others go away.
                        *due = self.waits.timers().now();
                    }
                }
            }
        }
    }

    /// At the front and after its wait it asks; otherwise it stays until something changes.
    fn stand(&mut self, due: Instant, give_up: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.waits.timers().now();
        // A step may pass over its turn, and over the end of its wait as well.
        let steps = self.waits.timers().are_stepped();
        let patience = self.waits.queue.patience();
        let stand = self.place.as_ref().map(|place| place.look(cx, now, due));
        let again = match stand {
            Some(Stand::Front) if due <= now && (now <= give_up || steps) => {
                match self.who_goes_first(now) {
                    Some(line) if self.move_to(line) => {}
                    Some(_) => self.give_up(),
                    None => self.ask(),
                }
                return Poll::Ready(());
            }
            Some(Stand::Front) => due.min(give_up),
            // The request before it is about to ask, and wakes this one then.
            Some(Stand::Behind(acts_by)) if steps && acts_by <= now + patience => acts_by,
            Some(Stand::Behind(acts_by)) => acts_by.min(now + patience).min(give_up),
            None => now,
        };
        if now >= give_up && again <= now {
            self.give_up();
            return Poll::Ready(());
        }
        self.timer.reset(again);
        self.timer.poll(cx)
    }

    fn who_goes_first(&self, now: Instant) -> Option<LineId> {
        let lines = self.waits.lines(&self.charges);
        self.place.as_ref()?.is_behind_in(lines, now)
    }

    fn ask(&mut self) {
        let charges = self.charges.clone();
        // Before it asks, so that no slot is given back unseen.
        match &self.vacancy {
            Some(vacancy) => vacancy.look_ahead(),
            None => self.vacancy = Vacancy::watch(&charges),
        }
        let reply = self.limiter.ask(&charges);
        self.asks_every = match reply {
            Reply::Now(_) => ASKS_EVERY,
            Reply::Later(_) => ASKS_SHARED_EVERY,
        };
        let reply = match reply {
            // If the client goes away now, what the store charges has to end as well.
            Reply::Later(coming) if self.limiter.holds_any(&charges) => {
                Reply::Later(Box::pin(HeldAnswer::new(&self.limiter, &charges, coming)))
            }
            reply => reply,
        };
        self.step = Step::Asks(Box::pin(
            async move { answered(&charges, reply.wait().await) },
        ));
    }

    fn foresee(&mut self) {
        let place = self.place.as_ref();
        let (limiter, charges) = (&self.limiter, &self.charges);
        let (answer, extras) = self.waits.foresee(limiter, charges, &self.own, place);
        self.step = Step::Foresees(answer, extras);
    }

    /// It is counted as waiting, if it stands in a line.
    fn begins_to_wait(&mut self) {
        if self.place.is_some() {
            self.wait = Some(self.limiter.begin_to_wait(self.line.0));
        }
    }

    /// Waits no longer, and asks what it is to be told.
    fn give_up(&mut self) {
        self.place = None;
        self.wait = None;
        self.has_looked_again = false;
        self.foresee();
    }

    /// Whether it waits on after such a denial.
    fn goes_on(&mut self, outcomes: &Outcomes) -> bool {
        let now = self.waits.timers().now();
        let hope = self.waits.hope(
            &self.charges,
            self.caller,
            outcomes,
            now,
            self.told,
            self.asks_every,
        );
        let (Some((line, step)), true) = (hope, self.place.is_some()) else {
            return false;
        };
        if !self.move_to(line) {
            return false;
        }
        self.told.get_or_insert(now);
        self.step = step;
        true
    }

    /// Goes to another line, if there is a place in it.
    fn move_to(&mut self, line: LineId) -> bool {
        let (cost, places) = (self.cost_in(line), self.waits.places_in(line));
        let Some(place) = &mut self.place else {
            return false;
        };
        let has_moved = place.move_to(line, cost, places);
        if has_moved {
            self.line = line;
            if let Some(wait) = &mut self.wait {
                wait.move_to(line.0);
            }
        }
        has_moved
    }

    /// What it is charged under the policy of this line.
    fn cost_in(&self, (policy, _): LineId) -> u32 {
        let mut charges = self.charges.iter();
        let charge = charges.find(|charge| charge.policy == policy);
        charge.map_or(0, |charge| charge.cost)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let has_waited = self.told.is_some();
        if has_waited && let Some(leaving) = self.waits.leaving.get(self.line.0) {
            leaving.ended(self.has_ended);
        }
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").finish_non_exhaustive()
    }
}
