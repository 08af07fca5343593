//! What a store answers about a request: an [`Outcome`] for each policy, and all of them as a [`Decision`].
//!
//! An outcome is copied on each decision, so it is small: absent times take no room of their own, and the waits
//! of allowed and of denied requests share a field. [`Outcomes`] belongs to the stores; a `Decision` adds the
//! names of the policies for the caller.

#[cfg(feature = "calendar")]
mod hours_now;
mod limit_rule;
#[cfg(feature = "resolver")]
mod resolution;

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use smallvec::SmallVec;

#[cfg(feature = "calendar")]
pub use self::hours_now::HoursNow;
pub use self::limit_rule::LimitRule;
#[cfg(feature = "resolver")]
pub use self::resolution::{Resolution, Unresolved};

#[cfg(feature = "calendar")]
pub(crate) use self::hours_now::TellHours;
#[cfg(feature = "resolver")]
pub(crate) use self::resolution::ResolvedNames;

use crate::clock::Micros;
use crate::factor::{Explanation, FactorCell};

/// What one policy decides about one request, at one moment.
///
/// If the request was allowed, the numbers include its charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a request that is denied must not go on"]
pub struct Outcome {
    allowed: bool,
    counted_together: bool,
    weight: Weight,
    blocked: bool,
    limit: u32,
    remaining: u32,
    /// If the limit is not the policy's own, the time to which it applies, in seconds rounded up, or [`NO_WINDOW`] if
    /// it denies every request; [`OVERRIDDEN`] if it is an override; [`REDUCED`] if load has made it less. With
    /// [`PRESENT`], it is the length of the present window, under the policy's own limit.
    own_window: Option<NonZeroU32>,
    reset_after: Micros,
    effective_window: Option<Wait>,
    /// How long until a denied request would pass, or until an allowed request goes on.
    wait: Option<Wait>,
}

/// What a denial by one policy does to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    /// It is denied.
    Full,
    /// It goes on, marked.
    Soft,
    /// It goes on, even if the key is blocked.
    Shadow,
}

const OVERRIDDEN: u32 = 1 << 31;
const REDUCED: u32 = 1 << 30;
const PRESENT: u32 = 1 << 29;
const NO_WINDOW: u32 = PRESENT - 1;

/// Rounded up, and from 1 to what is less than [`NO_WINDOW`].
fn whole_seconds(window: Micros) -> u32 {
    let seconds = u32::try_from(window.ceil_secs()).unwrap_or(NO_WINDOW);
    seconds.clamp(1, NO_WINDOW - 1)
}

/// What an outcome tells in units; see [`Outcome::in_units`].
pub(crate) struct Units {
    pub(crate) limit: u32,
    pub(crate) remaining: u32,
    pub(crate) effective_window: Micros,
    /// Whether the limit is another one than the policy's, and the time to which that applies.
    pub(crate) is_scaled: bool,
    pub(crate) window: Option<Duration>,
    /// Whether it is less, because of the load.
    pub(crate) is_reduced: bool,
}

/// A time that is not zero, so that an `Option` of it is no larger.
type Wait = NonZeroU64;

impl Outcome {
    pub(crate) fn allowed(limit: u32, remaining: u32, reset_after: Micros) -> Self {
        Self {
            allowed: true,
            counted_together: false,
            weight: Weight::Full,
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

    /// The same for an allowed request that is held for this time.
    pub(crate) fn held(self, delay: Micros) -> Self {
        Self {
            wait: Wait::new(delay.get()),
            ..self
        }
    }

    /// The same with another time until the whole limit is available again.
    #[cfg(feature = "calendar")]
    pub(crate) fn resetting(self, reset_after: Micros) -> Self {
        Self {
            reset_after,
            ..self
        }
    }

    pub(crate) fn lasting(self, effective_window: Micros) -> Self {
        Self {
            effective_window: Wait::new(effective_window.get()),
            ..self
        }
    }

    /// The same under a limit of the key's own, which applies to this time.
    ///
    /// For a [store](crate::store::Amendment::Override) that overrides limits.
    pub fn overridden(self, window: Option<Duration>) -> Self {
        let own = self.within(window);
        Self {
            own_window: own.own_window.map(|window| window | OVERRIDDEN),
            ..own
        }
    }

    /// The same under a limit that is not the policy's own and applies to this time. The length of the present window
    /// stays, where windows differ in length.
    pub(crate) fn within(self, window: Option<Duration>) -> Self {
        let present = self.present_window();
        let window = present.or_else(|| window.map(|window| whole_seconds(window.into())));
        Self {
            own_window: NonZeroU32::new(window.unwrap_or(NO_WINDOW)),
            ..self
        }
    }

    /// The same in a window of this length, where windows differ in length.
    pub(crate) fn in_window(self, window: Micros) -> Self {
        Self {
            own_window: NonZeroU32::new(whole_seconds(window) | PRESENT),
            ..self
        }
    }

    /// The length of the present window in seconds, where windows differ in length and no other limit is told.
    fn present_window(&self) -> Option<u32> {
        let window = self.flags();
        (window & PRESENT != 0).then_some(window & NO_WINDOW)
    }

    /// Whether the limit is not the policy's own: the key has an override, or the request a limit by plan, key or
    /// operation.
    pub(crate) fn has_another_limit(&self) -> bool {
        self.flags() & NO_WINDOW != 0 && self.present_window().is_none()
    }

    /// The limit and the number of seconds to which it applies, if they differ from what the policy says.
    #[cfg(feature = "http")]
    pub(crate) fn own_limit(&self) -> Option<(u32, Option<u32>)> {
        let window = self.flags() & NO_WINDOW;
        if window == 0 {
            return None;
        }
        let seconds = Some(window).filter(|_| window != NO_WINDOW);
        Some((self.limit, seconds))
    }

    pub(crate) fn counted_together(self) -> Self {
        Self {
            counted_together: true,
            ..self
        }
    }

    /// The same for a key that is [blocked](crate::Limiter::block_now) for the time `left`: denied, with
    /// nothing remaining. The wait is the longer of the block and the wait without it.
    ///
    /// For a [store](crate::store::Amendment::Block) that blocks keys. `self` is the outcome without a charge.
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

    /// The same for a request behind requests that wait: denied, with nothing remaining, until `longer`
    /// after these.
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

    /// The same after this time, if nothing but the times has changed.
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

    /// The same in units, of a policy whose store counts in parts of them.
    pub(crate) fn in_units(self, units: &Units) -> Self {
        let told = Self {
            limit: units.limit,
            remaining: units.remaining.min(units.limit),
            effective_window: Wait::new(units.effective_window.get())
                .filter(|_| self.effective_window.is_some()),
            own_window: self
                .present_window()
                .and_then(|window| NonZeroU32::new(window | PRESENT)),
            ..self
        };
        let told = match units.is_scaled {
            true if self.is_overridden() => told.overridden(units.window),
            true => told.within(units.window),
            false => told,
        };
        let flag = if units.is_reduced { REDUCED } else { 0 };
        Self {
            own_window: NonZeroU32::new(told.own_window.map_or(0, NonZeroU32::get) | flag),
            ..told
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

    /// [`reset_after`](Self::reset_after) in microseconds.
    pub(crate) fn reset_micros(&self) -> Micros {
        self.reset_after
    }

    /// [`delay`](Self::delay) in microseconds.
    pub(crate) fn delay_micros(&self) -> Micros {
        let wait = self.wait.filter(|_| self.allowed);
        wait.map_or(Micros::ZERO, |wait| Micros::new(wait.get()))
    }

    /// Whether the request is within the limit of this policy. If so, it was charged, unless another policy
    /// denied it. If not, it goes on all the same under a [soft](Self::is_soft) policy.
    pub fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// Whether the policy is [soft](crate::Policy::soft): it denies only the requests of blocked keys.
    pub fn is_soft(&self) -> bool {
        self.weight == Weight::Soft
    }

    /// Whether the policy is in [shadow](crate::policy::Mode::Shadow): it denies no request.
    pub fn is_shadow(&self) -> bool {
        self.weight == Weight::Shadow
    }

    /// Whether a request is denied because of this policy.
    pub(crate) fn denies(&self) -> bool {
        match self.weight {
            Weight::Full => !self.allowed,
            Weight::Soft => !self.allowed && self.is_blocked(),
            Weight::Shadow => false,
        }
    }

    /// Whether the key is [blocked](crate::Limiter::block_now) under this policy. If so, nothing remains, and
    /// the request is denied even if the policy is soft.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Whether the store had no room for this new key, could evict no other key, and counted it together
    /// with all such keys. The numbers are those of all of them.
    pub fn is_overflow(&self) -> bool {
        self.counted_together
    }

    /// Whether the policy's [factor](crate::Policy::factor) is below 1, so that only a part of its limit is in force. Not of a
    /// [blocked](Self::is_blocked) key, which is denied for another reason.
    pub fn is_reduced(&self) -> bool {
        self.flags() & REDUCED != 0 && !self.blocked
    }

    fn flags(&self) -> u32 {
        self.own_window.map_or(0, NonZeroU32::get)
    }

    /// Whether the key has an [override](crate::Limiter::override_limit_now), or the decision
    /// [is degraded](Decision::is_degraded) and this is the node's share of the limit.
    pub fn is_overridden(&self) -> bool {
        self.flags() & OVERRIDDEN != 0
    }

    /// The most that can be admitted at one instant: the limit of a window, the capacity of a bucket.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// How much of the limit is used.
    pub fn used(&self) -> u32 {
        self.limit - self.remaining
    }

    /// How many further requests of cost 1 would be allowed at the same instant.
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// How long until the whole limit is available again, if no other request arrives.
    pub fn reset_after(&self) -> Duration {
        self.reset_after.to_duration()
    }

    /// The shortest wait after which the same request would be allowed, if no other request arrives.
    ///
    /// `None` if the request was allowed, and if no wait can help, because the limit is 0 or the cost is above
    /// the limit. For a [blocked](Self::is_blocked) key it is the time to the end of the block, whatever the
    /// cost, or the wait without the block if that is longer.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_micros().map(Micros::to_duration)
    }

    /// How long an allowed request is held before it goes on: the time to its turn in a
    /// [`LeakyQueue`](crate::LeakyQueue), and zero under any other algorithm.
    pub fn delay(&self) -> Duration {
        self.delay_micros().to_duration()
    }

    /// How long a client has to make do with [`remaining`](Self::remaining) in order not to be refused: to the
    /// end of a window; for a bucket, `remaining` divided by its rate. If nothing remains, it is the wait for
    /// the next unit. `None` for a limit of 0.
    pub fn effective_window(&self) -> Option<Duration> {
        self.effective_micros().map(Micros::to_duration)
    }
}

/// The time to which a limit applies that is not the policy's own; `None` if it denies every request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnWindow(pub(crate) Option<Duration>);

/// The outcomes of all policies that were asked about one request, in the order in which the policies were
/// declared.
///
/// A [store](crate::store) answers with it; a [`Decision`] adds the names of the policies.
#[derive(Debug)]
#[must_use = "a request that is denied must not go on"]
pub struct Outcomes {
    at: Micros,
    is_degraded: bool,
    /// Four in place: more room would be copied with each decision, and few requests need it.
    each: SmallVec<[(Place, Outcome); 4]>,
}

/// Which policy an outcome is of, and which rule gave the limit, by their places in the limiter's lists.
#[derive(Clone, Copy, Debug)]
struct Place {
    policy: u32,
    rule: u32,
}

impl Place {
    #[inline]
    fn of(policy: usize) -> Self {
        let policy = u32::try_from(policy).unwrap_or(u32::MAX);
        Self { policy, rule: 0 }
    }

    #[inline]
    fn policy(self) -> usize {
        self.policy as usize
    }
}

impl Clone for Outcomes {
    /// Copies the outcomes, and not the unused room.
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

    /// Marks them as decided without the configured store. Policies that allow every request meanwhile have
    /// no outcome.
    pub(crate) fn degrade(&mut self) {
        self.is_degraded = true;
    }

    /// Whether they were decided without the configured store.
    pub fn is_degraded(&self) -> bool {
        self.is_degraded
    }

    /// Drops the outcomes for which `keeps` is false. It may change the others.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(usize, &mut Outcome) -> bool) {
        self.each
            .retain(|(place, outcome)| keeps(place.policy(), outcome));
    }

    /// Adds the outcome of the policy at the place `policy` in the limiter's list.
    pub fn push(&mut self, policy: usize, outcome: Outcome) {
        self.each.push((Place::of(policy), outcome));
    }

    /// Changes the outcome of this policy to that of a blocked key, for the time `left`.
    pub(crate) fn block(&mut self, policy: usize, left: Micros) {
        for (_, outcome) in self
            .each
            .iter_mut()
            .filter(|(place, _)| place.policy() == policy)
        {
            *outcome = outcome.blocked_for(left);
        }
    }

    /// Puts the request behind requests of this policy that wait, with a wait that is `longer`.
    #[cfg(feature = "http")]
    pub(crate) fn put_behind(&mut self, policy: usize, longer: Micros) {
        for (_, outcome) in self
            .each
            .iter_mut()
            .filter(|(place, _)| place.policy() == policy)
        {
            if !outcome.allowed || longer > Micros::ZERO {
                *outcome = outcome.behind(longer);
            }
        }
    }

    /// Denies a request that this policy would let go on too late, with a wait after which it is in time.
    #[cfg(feature = "http")]
    pub(crate) fn deny(&mut self, policy: usize, retry_after: Micros) {
        for (_, outcome) in self
            .each
            .iter_mut()
            .filter(|(place, _)| place.policy() == policy)
        {
            *outcome = outcome.denied(Some(retry_after));
        }
    }

    /// Changes each outcome.
    pub(crate) fn change_each(&mut self, mut change: impl FnMut(usize, &mut Outcome)) {
        for (place, outcome) in &mut self.each {
            change(place.policy(), outcome);
        }
    }

    pub(crate) fn decided_at(&mut self, at: Micros) {
        self.at = at;
    }

    /// Puts the outcomes into the order in which the policies were declared.
    pub(crate) fn put_in_order(&mut self) {
        self.each.sort_unstable_by_key(|(place, _)| place.policy);
    }

    /// Whether these are the outcomes of exactly these policies, in this order.
    #[inline]
    pub(crate) fn are_of(&self, policies: impl ExactSizeIterator<Item = usize>) -> bool {
        let are_as_many = self.each.len() == policies.len();
        let mut both = self.each.iter().zip(policies);
        are_as_many && both.all(|((place, _), asked)| place.policy() == asked)
    }

    pub(crate) fn at(&self) -> Micros {
        self.at
    }

    /// The outcomes, each with the place of its policy in the limiter's list.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (usize, &Outcome)> + Clone {
        let each = self.each.iter();
        each.map(|(place, outcome)| (place.policy(), outcome))
    }

    /// Notes which rule gave this policy its limit, and to which time that limit applies if it is not the policy's
    /// own. An override is told as such.
    pub(crate) fn ruled_by(&mut self, policy: usize, rule: u32, own: Option<OwnWindow>) {
        for (place, outcome) in &mut self.each {
            if place.policy() == policy && !outcome.is_overridden() {
                place.rule = rule;
                if let Some(OwnWindow(window)) = own {
                    *outcome = outcome.within(window);
                }
            }
        }
    }

    /// Marks the outcomes of soft policies, and of those in shadow.
    pub(crate) fn weigh(&mut self, weight: impl Fn(usize) -> Weight) {
        for (place, outcome) in &mut self.each {
            outcome.weight = weight(place.policy());
        }
    }

    /// Those of the policies that are not in shadow.
    #[cfg(feature = "http")]
    pub(crate) fn in_force(&self) -> Self {
        let mut in_force = self.clone();
        in_force.retain(|_, outcome| !outcome.is_shadow());
        in_force
    }

    /// The policies in shadow that would have denied the request.
    pub(crate) fn would_refuse(&self) -> impl Iterator<Item = usize> {
        let denied = self
            .iter()
            .filter(|(_, outcome)| outcome.is_shadow() && !outcome.is_allowed());
        denied.map(|(policy, _)| policy)
    }

    /// Whether every policy lets the request pass.
    pub fn is_allowed(&self) -> bool {
        !self.each.iter().any(|(_, outcome)| outcome.denies())
    }

    /// The shortest wait after which the same request would pass every policy.
    pub(crate) fn retry_after(&self) -> Option<Micros> {
        let (_, outcome) = self.binding()?;
        outcome.retry_micros().filter(|_| outcome.denies())
    }

    /// Whether the request is denied since it costs more than a policy ever admits.
    #[cfg(feature = "http")]
    pub(crate) fn are_too_large(&self) -> bool {
        let mut denying = self.each.iter().filter(|(_, outcome)| outcome.denies());
        // Of concurrency no time is told.
        let is_rate = |outcome: &Outcome| outcome.limit > 0 && outcome.effective_window.is_some();
        denying.any(|(_, outcome)| outcome.wait.is_none() && is_rate(outcome))
    }

    /// Whether the request is denied since too many are in flight, and would pass when some have ended.
    #[cfg(feature = "http")]
    pub(crate) fn are_too_many_at_once(&self) -> bool {
        let at_once = |outcome: &Outcome| {
            outcome.limit > 0 && outcome.effective_window.is_none() && !outcome.blocked
        };
        let mut denying = self.each.iter().filter(|(_, outcome)| outcome.denies());
        !self.are_too_large() && denying.any(|(_, outcome)| at_once(outcome))
    }

    /// Makes the wait of a denied request one after which all policies let it pass together, where their limits depend
    /// on the hour: what one of them gives can be gone when another gives it. `later` tells what these policies say
    /// after a wait, if nothing arrives meanwhile. Which of them are soft is known here and there.
    #[cfg(feature = "calendar")]
    #[cold]
    pub(crate) fn wait_for_all(&mut self, mut later: impl FnMut(Micros) -> Self) {
        /// So often may one take back what another waits for, before no wait is told: as if none of their hours had room
        /// for the request at the same time.
        const MOST: usize = 100;
        let Some(shortest) = self.retry_after() else {
            return;
        };
        // Whatever it costs, a request of a blocked key is told the end of the block.
        let is_blocked = self
            .binding()
            .is_some_and(|(_, outcome)| outcome.is_blocked());
        let mut waited = shortest;
        let mut next = || {
            let then = later(waited);
            if then.is_allowed() {
                return Some(Some(waited));
            }
            match then.retry_after() {
                None => Some(is_blocked.then_some(waited)),
                Some(more) => {
                    waited = waited.saturating_add(more);
                    None
                }
            }
        };
        let wait = (0..MOST).find_map(|_| next()).flatten();
        if wait != Some(shortest)
            && let Some((binding, _)) = self.binding()
        {
            self.change_each(|policy, outcome| {
                if policy == binding {
                    *outcome = outcome.denied(wait);
                }
            });
        }
    }

    /// How long the request is held, if it is allowed.
    pub(crate) fn delay(&self) -> Micros {
        if !self.is_allowed() {
            return Micros::ZERO;
        }
        let delays = self.each.iter().map(|(_, outcome)| outcome.delay_micros());
        delays.max().unwrap_or(Micros::ZERO)
    }

    /// The policy that binds: for an allowed request the one with the least remaining, for a denied request
    /// the one with the longest wait, where "never" is the longest. Ties go to the policy declared first.
    pub(crate) fn binding(&self) -> Option<(usize, &Outcome)> {
        let (place, outcome) = self.binding_place()?;
        Some((place.policy(), outcome))
    }

    fn binding_place(&self) -> Option<&(Place, Outcome)> {
        if self.is_allowed() {
            // A soft policy denies nothing, and so binds only if all policies are soft. One in shadow never binds.
            let in_force = self.each.iter().filter(|(_, outcome)| !outcome.is_shadow());
            return in_force.min_by_key(|(_, outcome)| (outcome.is_soft(), outcome.remaining));
        }
        let denied = self.each.iter().filter(|(_, outcome)| outcome.denies());
        // Not `max_by_key`, which returns the last of several equals.
        denied.min_by_key(|(_, outcome)| {
            let wait = outcome.wait.map_or(u64::MAX, Wait::get);
            std::cmp::Reverse(wait)
        })
    }
}

/// The answer of a [`Limiter`](crate::Limiter): allowed or denied, with the numbers of every policy that was
/// asked.
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
    names: Arc<Names>,
    outcomes: Outcomes,
}

/// What a limiter's policies are called, in the order in which they were declared.
#[derive(Debug)]
pub(crate) struct Names {
    policies: Box<[Rule]>,
    /// The rules that can give them limits.
    rules: RuleNames,
}

/// What the rules are called that can give limits, by the places with which charges refer to them.
#[derive(Debug, Default)]
pub(crate) struct RuleNames {
    listed: Box<[LimitRule]>,
    /// The plans whose limits a resolver gives. Their places are those after the listed rules.
    #[cfg(feature = "resolver")]
    resolved: Arc<ResolvedNames>,
}

impl RuleNames {
    pub(crate) fn new(listed: impl Into<Box<[LimitRule]>>) -> Self {
        Self {
            listed: listed.into(),
            #[cfg(feature = "resolver")]
            resolved: Arc::default(),
        }
    }

    /// The first place of a plan of a resolver, and their names.
    #[cfg(feature = "resolver")]
    pub(crate) fn resolved(&self) -> (usize, Arc<ResolvedNames>) {
        (self.listed.len(), Arc::clone(&self.resolved))
    }

    fn get(&self, rule: u32) -> LimitRule {
        #[cfg(feature = "resolver")]
        let rule = resolution::place(rule);
        let listed = self.listed.get(rule as usize);
        #[cfg(feature = "resolver")]
        if listed.is_none()
            && let Some(place) = (rule as usize).checked_sub(self.listed.len())
            && !self.listed.is_empty()
        {
            return LimitRule::Resolver(self.resolved.name(place));
        }
        listed.cloned().unwrap_or(LimitRule::Policy)
    }
}

/// What decisions and responses tell of a policy, whatever they say of a request.
#[derive(Clone)]
pub(crate) struct Rule {
    name: String,
    factor: Option<FactorCell>,
    #[cfg(feature = "calendar")]
    hours: Option<TellHours>,
    #[cfg(feature = "http")]
    limit: Option<u32>,
    #[cfg(feature = "http")]
    period: Option<Duration>,
    /// Whether the limit is on requests at once.
    #[cfg(feature = "http")]
    is_at_once: bool,
}

impl Rule {
    /// A policy without a limit has neither a number nor a period, and one whose limit is 0 has no
    /// period.
    #[cfg_attr(
        not(feature = "http"),
        expect(unused_variables, reason = "responses alone tell a limit")
    )]
    pub(crate) fn new(name: &str, limit: Option<u32>, period: Option<Duration>) -> Self {
        Self {
            name: name.to_owned(),
            factor: None,
            #[cfg(feature = "calendar")]
            hours: None,
            #[cfg(feature = "http")]
            limit,
            #[cfg(feature = "http")]
            period,
            #[cfg(feature = "http")]
            is_at_once: false,
        }
    }

    /// The same of a policy with this factor.
    pub(crate) fn scaled_by(self, factor: Option<FactorCell>) -> Self {
        Self { factor, ..self }
    }

    /// The same of a policy with these hours.
    #[cfg(feature = "calendar")]
    pub(crate) fn by_hours(self, hours: Option<TellHours>) -> Self {
        Self { hours, ..self }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rule").field(&self.name).finish()
    }
}

#[cfg(feature = "http")]
impl Rule {
    /// `None` for a policy that is never asked.
    pub(crate) fn limit(&self) -> Option<u32> {
        self.limit
    }

    pub(crate) fn period(&self) -> Option<Duration> {
        self.period
    }

    /// The same of a limit on requests at once, if it is one.
    pub(crate) fn at_once(self, is_at_once: bool) -> Self {
        Self { is_at_once, ..self }
    }

    pub(crate) fn is_at_once(&self) -> bool {
        self.is_at_once
    }
}

impl Names {
    pub(crate) fn new(policies: impl IntoIterator<Item = Rule>, rules: RuleNames) -> Self {
        Self {
            policies: policies.into_iter().collect(),
            rules,
        }
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.policies.iter().map(Rule::name)
    }

    /// The rule with this place.
    #[cfg(feature = "config")]
    pub(crate) fn rule(&self, place: u32) -> LimitRule {
        self.rules.get(place)
    }

    fn get(&self, policy: usize) -> &str {
        self.name(policy).unwrap_or_default()
    }

    pub(crate) fn name(&self, policy: usize) -> Option<&str> {
        self.policies.get(policy).map(Rule::name)
    }
}

impl Decision {
    #[inline]
    pub(crate) fn new(names: Arc<Names>, outcomes: Outcomes) -> Self {
        Self { names, outcomes }
    }

    /// What responses tell of the policies, and of what they decided.
    #[cfg(feature = "http")]
    pub(crate) fn told(&self) -> (&[Rule], &Outcomes) {
        (&self.names.policies, &self.outcomes)
    }

    pub(crate) fn outcomes(&self) -> &Outcomes {
        &self.outcomes
    }

    /// Changes the outcomes where they are.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Outcomes)) {
        change(&mut self.outcomes);
    }

    /// Whether the request may go on: every policy that was asked allows it.
    pub fn is_allowed(&self) -> bool {
        self.outcomes.is_allowed()
    }

    /// The shortest wait after which the same request would be allowed, if no other request arrives.
    ///
    /// `None` if it was allowed, and if no wait can help.
    pub fn retry_after(&self) -> Option<Duration> {
        self.outcomes.retry_after().map(Micros::to_duration)
    }

    /// How long an allowed request is held before it goes on; zero for a denied request, and zero unless a
    /// policy is a [`LeakyQueue`](crate::LeakyQueue).
    pub fn delay(&self) -> Duration {
        self.outcomes.delay().to_duration()
    }

    /// Whether it was decided without the configured store, as while Redis is away. Each policy then follows
    /// its [`OnStoreFailure`](crate::OnStoreFailure); policies that allow every request are not among
    /// [`policies`](Self::policies).
    pub fn is_degraded(&self) -> bool {
        self.outcomes.is_degraded
    }

    /// The policies that were not asked, by name.
    pub(crate) fn not_asked(&self) -> impl Iterator<Item = &str> {
        let names = self.names.iter().enumerate();
        let was_asked = |policy| self.outcomes.iter().any(|(asked, _)| asked == policy);
        names
            .filter(move |(policy, _)| !was_asked(*policy))
            .map(|(_, name)| name)
    }

    /// Each policy that was asked, by name, in the order of declaration.
    pub fn policies(&self) -> impl ExactSizeIterator<Item = (&str, &Outcome)> {
        self.outcomes
            .iter()
            .map(|(policy, outcome)| (self.name(policy), outcome))
    }

    /// The soft policies whose limit the request exceeds, in the order of declaration. If there are any, the
    /// service may do less for this request.
    pub fn over_limit(&self) -> impl Iterator<Item = (&str, &Outcome)> {
        self.policies()
            .filter(|(_, outcome)| outcome.is_soft() && !outcome.allowed && !outcome.is_blocked())
    }

    /// The policies in [shadow](crate::policy::Mode::Shadow) that would have denied the request, in the order of
    /// declaration.
    pub fn would_refuse(&self) -> impl Iterator<Item = (&str, &Outcome)> {
        self.policies()
            .filter(|(_, outcome)| outcome.is_shadow() && !outcome.is_allowed())
    }

    /// The policies whose limits are [reduced](Outcome::is_reduced), in the order of declaration, each with its factor:
    /// how much of the limit is in force, why and since when. These are as of now, and not as of the decision.
    ///
    /// ```
    /// use tower_ratelimit::factor::{Factor, FactorCell};
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let factor = FactorCell::new();
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("api", FixedWindow::per_hour(100)).factor(&factor))
    ///     .build()?;
    /// assert_eq!(limiter.check_now("ann", 1).reduced().count(), 0);
    ///
    /// factor.set(Factor::thousandths(500), "memory 83 %");
    /// let decision = limiter.check_now("ann", 1);
    /// let (policy, why) = decision.reduced().next().unwrap();
    /// assert_eq!((policy, why.factor().to_string(), why.cause()), ("api", "0.5".into(), Some("memory 83 %")));
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn reduced(&self) -> impl Iterator<Item = (&str, Explanation)> {
        let reduced = self
            .outcomes
            .iter()
            .filter(|(_, outcome)| outcome.is_reduced());
        reduced.filter_map(|(policy, _)| {
            let rule = self.names.policies.get(policy)?;
            Some((rule.name(), rule.factor.as_ref()?.explain()))
        })
    }

    /// The policies with [hours](crate::Hours), in the order of declaration, each with the interval in which it decided.
    /// Not those under which the key has an override, which holds at all hours.
    ///
    /// ```
    /// use tower_ratelimit::factor::Factor;
    /// use tower_ratelimit::{FixedWindow, Hours, Limiter, Policy};
    ///
    /// let nights = Hours::in_zone("UTC")?.at("00:00-24:00", Factor::thousandths(2_000))?;
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("api", FixedWindow::per_hour(100)).hours(&nights)?)
    ///     .build()?;
    /// let decision = limiter.check_now("ann", 1);
    /// let (policy, hours) = decision.hours().next().unwrap();
    /// assert_eq!((policy, hours.interval()), ("api", Some("00:00-24:00")));
    /// assert_eq!(decision.binding().unwrap().1.limit(), 200);
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    #[cfg(feature = "calendar")]
    pub fn hours(&self) -> impl Iterator<Item = (&str, HoursNow)> {
        let at = self.outcomes.at();
        let all = self.outcomes.iter();
        let by_policy = all.filter(|(_, outcome)| !outcome.is_overridden());
        by_policy.filter_map(move |(policy, _)| {
            let rule = self.names.policies.get(policy)?;
            Some((rule.name(), rule.hours.as_ref()?(at)))
        })
    }

    /// The policy that binds. `None` if no policy was asked, for example because all are unlimited.
    ///
    /// For an allowed request this is the policy with the least remaining, and a soft policy only if all are
    /// soft. A policy in [shadow](crate::policy::Mode::Shadow) never binds. For a denied request it is the policy with the longest wait, where "never" is the longest. Ties
    /// go to the policy declared first.
    pub fn binding(&self) -> Option<(&str, &Outcome)> {
        let (policy, outcome) = self.outcomes.binding()?;
        Some((self.name(policy), outcome))
    }

    /// Which rule gave the policy that [binds](Self::binding) its limit.
    pub fn rule(&self) -> Option<LimitRule> {
        let (place, outcome) = self.outcomes.binding_place()?;
        Some(self.rule_of(*place, outcome))
    }

    /// Each policy that was asked, by name, with the rule that gave its limit, in the order of declaration.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = (&str, LimitRule)> {
        let each = self.outcomes.each.iter();
        each.map(|(place, outcome)| (self.name(place.policy()), self.rule_of(*place, outcome)))
    }

    fn rule_of(&self, place: Place, outcome: &Outcome) -> LimitRule {
        if outcome.is_overridden() {
            return LimitRule::Override;
        }
        let rule = self.names.rules.get(place.rule);
        #[cfg(feature = "calendar")]
        if rule == LimitRule::Policy
            && let Some(tell) = self
                .names
                .policies
                .get(place.policy())
                .and_then(|rule| rule.hours.as_ref())
            && let hours = tell(self.outcomes.at())
            && hours.gives_limit
            && let Some(interval) = hours.interval
        {
            return LimitRule::Hours(interval.into());
        }
        rule
    }

    /// How the plan or the limits of the request were found, if a [`Resolver`](crate::plan::Resolver) was asked.
    #[cfg(feature = "resolver")]
    pub fn resolution(&self) -> Option<Resolution> {
        let mut each = self.outcomes.each.iter();
        each.find_map(|(place, _)| Resolution::noted(place.rule))
    }

    /// When it was decided, by the store's clock; `None` if the platform cannot represent the moment.
    pub fn at(&self) -> Option<SystemTime> {
        self.outcomes.at().to_system_time()
    }

    /// When the whole limit of this outcome is available again, if no other request arrives, by the store's
    /// clock; `None` if the platform cannot represent the moment.
    pub fn reset_at(&self, outcome: &Outcome) -> Option<SystemTime> {
        self.outcomes
            .at()
            .saturating_add(outcome.reset_after)
            .to_system_time()
    }

    pub(crate) fn name(&self, policy: usize) -> &str {
        self.names.get(policy)
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
