//! The outcome of asking.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use smallvec::SmallVec;

use crate::clock::Micros;

/// What one policy says about one request, at one moment.
///
/// The numbers are after the charge if the request was allowed, and as they were if not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a request that is denied must not go on"]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each answers a question of its own, and in any combination"
)]
pub struct Outcome {
    allowed: bool,
    counted_together: bool,
    soft: bool,
    blocked: bool,
    limit: u32,
    remaining: u32,
    /// Of a key with a limit of its own, the time for which that is meant, in seconds rounded up;
    /// [`NO_WINDOW`] if nothing is ever to be had.
    own_window: Option<NonZeroU32>,
    reset_after: Micros,
    effective_window: Option<Wait>,
    /// Of a request that was denied, until it passes; of one that is allowed, until it goes on.
    wait: Option<Wait>,
}

const NO_WINDOW: NonZeroU32 = NonZeroU32::MAX;

/// A time that is not zero, so that an `Option` of it is no larger: an [`Outcome`] is copied on
/// each decision.
type Wait = NonZeroU64;

impl Outcome {
    pub(crate) fn allowed(limit: u32, remaining: u32, reset_after: Micros) -> Self {
        Self {
            allowed: true,
            counted_together: false,
            soft: false,
            blocked: false,
            limit,
            remaining,
            own_window: None,
            reset_after,
            effective_window: None,
            wait: None,
        }
    }

    pub(crate) fn denied(self, retry_after: Option<Micros>) -> Self {
        Self {
            allowed: false,
            wait: retry_after.and_then(|wait| Wait::new(wait.get())),
            ..self
        }
    }

    /// Of a request that is allowed: to go on after this time only.
    pub(crate) fn held(self, delay: Micros) -> Self {
        Self {
            wait: Wait::new(delay.get()),
            ..self
        }
    }

    pub(crate) fn lasting(self, effective_window: Micros) -> Self {
        Self {
            effective_window: Wait::new(effective_window.get()),
            ..self
        }
    }

    /// The same under a limit that the key has of its own, and that is meant for this time.
    ///
    /// A [store](crate::store::Ledger::override_limit) that overrides limits tells it so.
    pub fn overridden(self, window: Option<Duration>) -> Self {
        let window = window.map_or(NO_WINDOW, |window| {
            let seconds = Micros::from(window).ceil_secs();
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX - 1);
            NonZeroU32::new(seconds).unwrap_or(NonZeroU32::MIN)
        });
        Self {
            own_window: Some(window),
            ..self
        }
    }

    /// The limit of a key that has one of its own, and for how many seconds it is meant.
    #[cfg(feature = "http")]
    pub(crate) fn own_limit(&self) -> Option<(u32, Option<u32>)> {
        let window = self.own_window?;
        let seconds = Some(window.get()).filter(|_| window != NO_WINDOW);
        Some((self.limit, seconds))
    }

    pub(crate) fn counted_together(self) -> Self {
        Self {
            counted_together: true,
            ..self
        }
    }

    /// The same for a key that is [blocked](crate::Limiter::block_now) so much longer: denied, with
    /// nothing remaining. The wait is the longer one of the block and its own.
    ///
    /// A [store](crate::store::Ledger::block) that blocks keys tells it so. What it is made of is the
    /// outcome without a charge.
    pub fn blocked_for(self, left: Micros) -> Self {
        let left = left.min(Micros::LONGEST);
        let at_least = |wait: Micros| Wait::new(wait.max(left).get());
        let next_unit = self.effective_micros().filter(|_| self.remaining == 0);
        Self {
            allowed: false,
            blocked: true,
            remaining: 0,
            reset_after: self.reset_after.max(left),
            effective_window: self
                .effective_window
                .and_then(|_| at_least(next_unit.unwrap_or(left))),
            wait: at_least(self.retry_micros().unwrap_or(left)),
            ..self
        }
    }

    /// The same for a request that has to let others go first: denied, with nothing remaining for it,
    /// for so much longer than those others wait.
    #[cfg(feature = "http")]
    fn behind(self, longer: Micros) -> Self {
        if !self.allowed && self.wait.is_none() {
            return self;
        }
        let wait = self.retry_micros().unwrap_or(Micros::ZERO);
        let wait = Wait::new(wait.saturating_add(longer).get());
        Self {
            allowed: false,
            remaining: 0,
            effective_window: self.effective_window.and(wait),
            wait,
            ..self
        }
    }

    /// The same so much later, if nothing has changed but its times.
    #[cfg(feature = "redis")]
    pub(crate) fn run_down(self, by: Micros) -> Self {
        let left = |time: Wait| Wait::new(time.get().saturating_sub(by.get()));
        Self {
            reset_after: self.reset_after.saturating_sub(by),
            effective_window: self.effective_window.and_then(left),
            wait: self.wait.and_then(left),
            ..self
        }
    }

    /// [`effective_window`](Self::effective_window) in microseconds.
    pub(crate) fn effective_micros(&self) -> Option<Micros> {
        self.effective_window.map(|time| Micros::new(time.get()))
    }

    /// [`retry_after`](Self::retry_after) in microseconds.
    pub(crate) fn retry_micros(&self) -> Option<Micros> {
        let wait = self.wait.filter(|_| !self.allowed)?;
        Some(Micros::new(wait.get()))
    }

    /// [`delay`](Self::delay) in microseconds.
    pub(crate) fn delay_micros(&self) -> Micros {
        let wait = self.wait.filter(|_| self.allowed);
        wait.map_or(Micros::ZERO, |wait| Micros::new(wait.get()))
    }

    /// Whether the request is within this policy's limit, and was charged to it unless another
    /// policy denied it. One that is not may go on all the same if the policy
    /// [is soft](Self::is_soft).
    pub fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// Whether the policy is [soft](crate::Policy::soft): it denies nobody but who is blocked.
    pub fn is_soft(&self) -> bool {
        self.soft
    }

    /// Whether a request is denied because of this policy.
    pub(crate) fn denies(&self) -> bool {
        !self.allowed && (!self.soft || self.blocked)
    }

    /// Whether the key is [blocked](crate::Limiter::block_now) under this policy. Then
    /// nothing remains, and the request is denied even if the policy is soft.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Whether the store had no room for the key, and found none that could go, and counted it
    /// together with every other newcomer: the numbers are those of all of them.
    pub fn is_overflow(&self) -> bool {
        self.counted_together
    }

    /// Whether the limit is another than the policy's: that which the key
    /// [was given for a while](crate::Limiter::override_limit_now), or this node's share of it while the
    /// decision [is degraded](Decision::is_degraded).
    pub fn is_overridden(&self) -> bool {
        self.own_window.is_some()
    }

    /// The most that can be admitted at one instant: a window's limit, a bucket's capacity.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// How much of the limit is used.
    pub fn used(&self) -> u32 {
        self.limit - self.remaining
    }

    /// How many further requests of cost 1 would be allowed at this same instant.
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// How long until the whole limit is available again if nothing else arrives.
    pub fn reset_after(&self) -> Duration {
        self.reset_after.to_duration()
    }

    /// For a request that was denied: the shortest wait after which the same request would be
    /// allowed if nothing else arrives. `None` when it was allowed, and when no wait can help:
    /// the limit is 0, or the cost is above the limit. Of a key that [is blocked](Self::is_blocked)
    /// it is the time to the block's end, whatever the cost, or its own wait if that is longer.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_micros().map(Micros::to_duration)
    }

    /// How long a request that was allowed is held before it goes on: its turn in a
    /// [`LeakyQueue`](crate::LeakyQueue), and zero under any other algorithm.
    pub fn delay(&self) -> Duration {
        self.delay_micros().to_duration()
    }

    /// How long [`remaining`](Self::remaining) has to last for a client that wants no refusal:
    /// to the end of a window; for a bucket, remaining divided by its rate. With nothing
    /// remaining, the wait for the next unit. `None` for a limit of 0.
    pub fn effective_window(&self) -> Option<Duration> {
        self.effective_micros().map(Micros::to_duration)
    }
}

/// The outcomes of all policies that were asked about one request, in the order in which they
/// were declared.
///
/// This is what a [store](crate::store) answers; a [`Decision`] adds the policies' names.
#[derive(Debug)]
#[must_use = "a request that is denied must not go on"]
pub struct Outcomes {
    at: Micros,
    is_degraded: bool,
    /// Room for more would be copied with each decision, mostly for nothing.
    each: SmallVec<[(usize, Outcome); 4]>,
}

impl Clone for Outcomes {
    /// Copies those that are there, and not the room for the others.
    fn clone(&self) -> Self {
        Self {
            at: self.at,
            is_degraded: self.is_degraded,
            each: SmallVec::from_slice(&self.each),
        }
    }
}

impl Outcomes {
    /// No outcomes yet, for a decision at this moment.
    pub fn new(at: Micros) -> Self {
        Self {
            at,
            is_degraded: false,
            each: SmallVec::new(),
        }
    }

    /// Decided without the store that was asked for: policies that let everything go on meanwhile have no
    /// outcome.
    #[cfg(feature = "redis")]
    pub(crate) fn degrade(&mut self) {
        self.is_degraded = true;
    }

    /// Whether they were made without the store that was asked for.
    pub fn is_degraded(&self) -> bool {
        self.is_degraded
    }

    /// Leaves those out for which this does not hold, and may change the others.
    #[cfg(feature = "redis")]
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(usize, &mut Outcome) -> bool) {
        self.each
            .retain(|(policy, outcome)| keeps(*policy, outcome));
    }

    /// Adds the outcome of the policy that stands at `policy` in the limiter's list.
    pub fn push(&mut self, policy: usize, outcome: Outcome) {
        self.each.push((policy, outcome));
    }

    /// The key of this policy is blocked so much longer.
    pub(crate) fn block(&mut self, policy: usize, left: Micros) {
        for (_, outcome) in self.each.iter_mut().filter(|(each, _)| *each == policy) {
            *outcome = outcome.blocked_for(left);
        }
    }

    /// The request would have to let others go first, and wait for so much longer.
    #[cfg(feature = "http")]
    pub(crate) fn put_behind(&mut self, policy: usize, longer: Micros) {
        for (_, outcome) in self.each.iter_mut().filter(|(each, _)| *each == policy) {
            if !outcome.allowed || longer > Micros::ZERO {
                *outcome = outcome.behind(longer);
            }
        }
    }

    /// This policy would have let the request go on too late, and in time after this wait.
    #[cfg(feature = "http")]
    pub(crate) fn deny(&mut self, policy: usize, retry_after: Micros) {
        for (_, outcome) in self.each.iter_mut().filter(|(each, _)| *each == policy) {
            *outcome = outcome.denied(Some(retry_after));
        }
    }

    pub(crate) fn decided_at(&mut self, at: Micros) {
        self.at = at;
    }

    /// Puts the outcomes into the order in which the policies were declared.
    pub(crate) fn put_in_order(&mut self) {
        self.each.sort_unstable_by_key(|(policy, _)| *policy);
    }

    /// Whether these are the outcomes of exactly these policies, in this order.
    #[cfg(feature = "http")]
    #[inline]
    pub(crate) fn are_of(&self, policies: impl ExactSizeIterator<Item = usize>) -> bool {
        let are_as_many = self.each.len() == policies.len();
        let mut both = self.each.iter().zip(policies);
        are_as_many && both.all(|((policy, _), asked)| *policy == asked)
    }

    pub(crate) fn at(&self) -> Micros {
        self.at
    }

    /// The outcomes, each with its policy's place in the limiter's list.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (usize, &Outcome)> + Clone {
        self.each.iter().map(|(policy, outcome)| (*policy, outcome))
    }

    /// Marks the outcomes of policies that deny nothing.
    pub(crate) fn soften(&mut self, is_soft: impl Fn(usize) -> bool) {
        for (policy, outcome) in &mut self.each {
            outcome.soft = is_soft(*policy);
        }
    }

    /// Whether every policy lets the request pass.
    pub fn is_allowed(&self) -> bool {
        !self.each.iter().any(|(_, outcome)| outcome.denies())
    }

    /// The shortest wait after which the same request passes every policy.
    pub(crate) fn retry_after(&self) -> Option<Micros> {
        let (_, outcome) = self.binding()?;
        outcome.retry_micros().filter(|_| outcome.denies())
    }

    /// How long the request is held, if it is allowed.
    pub(crate) fn delay(&self) -> Micros {
        if !self.is_allowed() {
            return Micros::ZERO;
        }
        let delays = self.each.iter().map(|(_, outcome)| outcome.delay_micros());
        delays.max().unwrap_or(Micros::ZERO)
    }

    /// The policy that binds: when allowed, the least remaining; when denied, the longest
    /// retry, where never is the longest of all. Ties go to the first declared.
    pub(crate) fn binding(&self) -> Option<&(usize, Outcome)> {
        if self.is_allowed() {
            // What is over a soft limit goes on: it binds only where nothing else does.
            return self
                .each
                .iter()
                .min_by_key(|(_, outcome)| (outcome.soft, outcome.remaining));
        }
        let denied = self.each.iter().filter(|(_, outcome)| outcome.denies());
        // `max_by_key` would return the last of several equals.
        denied.min_by_key(|(_, outcome)| {
            let wait = outcome.wait.map_or(u64::MAX, Wait::get);
            std::cmp::Reverse(wait)
        })
    }
}

/// The outcome of asking a [`Limiter`](crate::Limiter): allowed or denied, with the numbers of
/// every policy that was asked.
///
/// ```
/// use std::time::Duration;
/// use tower_ratelimit::{FixedWindow, Limiter, ManualClock, MemoryStore, Policy, TokenBucket};
///
/// let limiter = Limiter::builder()
///     .policy(Policy::new("burst", TokenBucket::per_second(1).burst(2)))
///     .policy(Policy::new("hourly", FixedWindow::per_hour(100)))
///     .store(MemoryStore::new().clock(ManualClock::new()))
///     .build()?;
///
/// let decision = limiter.check_now("ann", 2);
/// assert!(decision.is_allowed());
/// let remaining: Vec<_> = decision
///     .policies()
///     .map(|(name, outcome)| (name, outcome.remaining()))
///     .collect();
/// assert_eq!(remaining, [("burst", 0), ("hourly", 98)]);
///
/// let decision = limiter.check_now("ann", 1);
/// assert!(!decision.is_allowed());
/// let (name, outcome) = decision.binding().unwrap();
/// assert_eq!(name, "burst");
/// assert_eq!(outcome.retry_after(), Some(Duration::from_secs(1)));
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use = "a request that is denied must not go on"]
pub struct Decision {
    names: Arc<[String]>,
    outcomes: Outcomes,
}

impl Decision {
    #[inline]
    pub(crate) fn new(names: Arc<[String]>, outcomes: Outcomes) -> Self {
        Self { names, outcomes }
    }

    pub(crate) fn outcomes(&self) -> &Outcomes {
        &self.outcomes
    }

    /// Whether the request may go on: every policy that was asked allows it.
    pub fn is_allowed(&self) -> bool {
        self.outcomes.is_allowed()
    }

    /// How long to wait before the same request passes, if nothing else arrives.
    ///
    /// `None` when it was allowed, and when no wait can help.
    pub fn retry_after(&self) -> Option<Duration> {
        self.outcomes.retry_after().map(Micros::to_duration)
    }

    /// How long a request that was allowed is held before it goes on; zero unless a policy is a
    /// [`LeakyQueue`](crate::LeakyQueue). One that was denied is not held.
    pub fn delay(&self) -> Duration {
        self.outcomes.delay().to_duration()
    }

    /// Whether it was made without the store that was asked for, as while Redis is away: each policy
    /// then goes by its [`OnStoreFailure`](crate::OnStoreFailure), and those that let everything go on are not
    /// among [`policies`](Self::policies).
    pub fn is_degraded(&self) -> bool {
        self.outcomes.is_degraded
    }

    /// The policies that were not asked, by name.
    pub(crate) fn not_asked(&self) -> impl Iterator<Item = &str> {
        let names = self.names.iter().enumerate();
        let was_asked = |policy| self.outcomes.iter().any(|(asked, _)| asked == policy);
        names
            .filter(move |(policy, _)| !was_asked(*policy))
            .map(|(_, name)| name.as_str())
    }

    /// Each policy that was asked, by name, in the order of declaration.
    pub fn policies(&self) -> impl ExactSizeIterator<Item = (&str, &Outcome)> {
        self.outcomes
            .iter()
            .map(|(policy, outcome)| (self.name(policy), outcome))
    }

    /// The soft policies whose limit the request is over, in the order of declaration: none if the
    /// service need not serve less.
    pub fn over_limit(&self) -> impl Iterator<Item = (&str, &Outcome)> {
        self.policies()
            .filter(|(_, outcome)| outcome.soft && !outcome.allowed && !outcome.blocked)
    }

    /// The policy that binds: when allowed, the one with the least remaining, and a soft one only
    /// where all are soft; when denied, the one with the longest wait, where "never" is the longest of all. Ties go to the first
    /// declared. `None` when no policy was asked, as when all of them are unlimited.
    pub fn binding(&self) -> Option<(&str, &Outcome)> {
        let (policy, outcome) = self.outcomes.binding()?;
        Some((self.name(*policy), outcome))
    }

    /// How much every policy that can deny would grant.
    pub(crate) fn grants(&self) -> u32 {
        let hard = self
            .policies()
            .filter(|(_, outcome)| !outcome.is_soft() || outcome.is_blocked());
        hard.map(|(_, outcome)| outcome.remaining())
            .min()
            .unwrap_or(0)
    }

    /// When it was decided, by the store's clock; `None` where the platform cannot hold the
    /// moment.
    pub fn at(&self) -> Option<SystemTime> {
        self.outcomes.at().to_system_time()
    }

    /// When the whole limit of this outcome is available again if nothing else arrives, by the
    /// store's clock; `None` where the platform cannot hold the moment.
    pub fn reset_at(&self, outcome: &Outcome) -> Option<SystemTime> {
        self.outcomes
            .at()
            .saturating_add(outcome.reset_after)
            .to_system_time()
    }

    fn name(&self, policy: usize) -> &str {
        self.names.get(policy).map_or("", String::as_str)
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("allowed", &self.is_allowed())
            .field("at", &self.outcomes.at())
            .field("policies", &self.policies().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
