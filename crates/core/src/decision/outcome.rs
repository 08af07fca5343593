//! The outcome of one policy.
//!
//! An outcome is copied several times for each decision. So absent times take no room of their own, and rare
//! facts share a field.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use crate::clock::Micros;

/// The decision of one policy on one request, at one moment.
///
/// If the request was allowed, the numbers include its charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a request that is denied must not go on"]
pub struct Outcome {
    pub(super) allowed: bool,
    pub(super) overflowed: bool,
    pub(super) effect: DenialEffect,
    pub(super) blocked: Blocked,
    pub(super) limit: u32,
    pub(super) remaining: u32,
    /// If the limit is not the policy's own, the time to which it applies, in seconds rounded up, or [`NO_WINDOW`] if
    /// it denies every request; [`OVERRIDDEN`] if it is an override; [`REDUCED`] if load has made it less. With
    /// [`PRESENT`], it is the length of the present window, under the policy's own limit.
    pub(super) own_window: Option<NonZeroU32>,
    pub(super) reset_after: Micros,
    pub(super) effective_window: Option<Wait>,
    /// How long until a denied request would pass, or until an allowed request goes on.
    pub(super) wait: Option<Wait>,
}

/// The effect of a denial by one policy on the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DenialEffect {
    /// It is denied.
    Full,
    /// It goes on, marked.
    Soft,
    /// It goes on, even if the key is blocked.
    Shadow,
}

/// Whether the key is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    No,
    Yes,
    /// From this refusal on, because of a penalty.
    FromNowOn,
}

const OVERRIDDEN: u32 = 1 << 31;
const REDUCED: u32 = 1 << 30;
const PRESENT: u32 = 1 << 29;
const NO_WINDOW: u32 = PRESENT - 1;

/// The time to which a limit applies, in seconds, from 1 up to less than [`NO_WINDOW`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSecs(NonZeroU32);

impl WindowSecs {
    /// Rounds up. A duration has its seconds apart, so this divides nothing.
    pub(crate) fn of(window: Duration) -> Self {
        Self::clamped(window.as_secs() + u64::from(window.subsec_nanos() > 0))
    }

    fn clamped(seconds: u64) -> Self {
        let seconds = u32::try_from(seconds).unwrap_or(NO_WINDOW);
        let seconds = NonZeroU32::new(seconds.min(NO_WINDOW - 1));
        Self(seconds.unwrap_or(NonZeroU32::MIN))
    }
}

/// Returns the code of a window, or of none.
fn code(window: Option<WindowSecs>) -> NonZeroU32 {
    const NONE: NonZeroU32 = NonZeroU32::new(NO_WINDOW).expect("it is not 0");
    window.map_or(NONE, |window| window.0)
}

/// The numbers of an outcome in units; see [`Outcome::in_units`].
pub(crate) struct Units {
    pub(crate) limit: u32,
    pub(crate) remaining: u32,
    pub(crate) effective_window: Micros,
    /// Whether the limit is not the policy's, and the time to which it applies.
    pub(crate) is_scaled: bool,
    pub(crate) window: Option<WindowSecs>,
    /// Whether the limit is reduced because of the load.
    pub(crate) is_reduced: bool,
}

/// A time that is not zero, so that an `Option` of it is no larger.
pub(super) type Wait = NonZeroU64;

impl Outcome {
    pub(crate) fn allowed(limit: u32, remaining: u32, reset_after: Micros) -> Self {
        Self {
            allowed: true,
            overflowed: false,
            effect: DenialEffect::Full,
            blocked: Blocked::No,
            limit,
            remaining,
            own_window: None,
            reset_after,
            effective_window: None,
            wait: None,
        }
    }

    /// Returns it as a denial.
    // For `tower-ratelimit-redis`.
    #[doc(hidden)]
    pub fn denied(self, retry_after: Option<Micros>) -> Self {
        Self {
            allowed: false,
            wait: retry_after.and_then(|wait| Wait::new(wait.get())),
            ..self
        }
    }

    /// Holds the allowed request for this time.
    pub(crate) fn delayed(self, delay: Micros) -> Self {
        Self {
            wait: Wait::new(delay.get()),
            ..self
        }
    }

    /// Replaces the time until the whole limit is available again.
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

    /// Marks the limit as one of the key's own, with this period.
    ///
    /// For a [store](crate::store::Amendment::Override) that overrides limits.
    pub fn overridden(self, window: Option<Duration>) -> Self {
        let mut own = self.within(window);
        own.mark_overridden();
        own
    }

    fn mark_overridden(&mut self) {
        self.own_window = self.own_window.map(|window| window | OVERRIDDEN);
    }

    /// Marks the limit as one that is not the policy's own, with this period. The length of the present
    /// window stays, where windows differ in length.
    // For `tower-ratelimit-redis`.
    #[doc(hidden)]
    pub fn within(mut self, window: Option<Duration>) -> Self {
        self.put_within(window.map(WindowSecs::of));
        self
    }

    /// Does what `within` does, in place, which takes a fraction of the instructions of a copy.
    #[inline]
    pub(crate) fn put_within(&mut self, window: Option<WindowSecs>) {
        self.own_window = Some(code(self.present_window().or(window)));
    }

    /// Sets the length of the present window, where windows differ in length.
    pub(crate) fn in_window(self, window: Micros) -> Self {
        Self {
            own_window: Some(WindowSecs::clamped(window.ceil_secs()).0 | PRESENT),
            ..self
        }
    }

    /// Returns the length of the present window in seconds, where windows differ in length and the outcome has no other limit.
    fn present_window(&self) -> Option<WindowSecs> {
        let window = self.flags();
        let seconds = NonZeroU32::new(window & NO_WINDOW).filter(|_| window & PRESENT != 0);
        seconds.map(WindowSecs)
    }

    /// Returns whether the limit is not the policy's own: the key has an override, or the request a limit by plan, key or
    /// operation.
    pub(crate) fn has_another_limit(&self) -> bool {
        self.flags() & NO_WINDOW != 0 && self.present_window().is_none()
    }

    /// Returns the limit and the number of seconds to which it applies, if they differ from what the policy says.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub fn own_limit(&self) -> Option<(u32, Option<u32>)> {
        let window = self.flags() & NO_WINDOW;
        if window == 0 {
            return None;
        }
        let seconds = Some(window).filter(|_| window != NO_WINDOW);
        Some((self.limit, seconds))
    }

    pub(crate) fn overflowed(self) -> Self {
        Self {
            overflowed: true,
            ..self
        }
    }

    /// Denies the request, with nothing remaining, because its key is [blocked](crate::Limiter::block) for the time
    /// `left`. The wait is the longer of the block and the wait without it.
    ///
    /// For a [store](crate::store::Amendment::Block) that blocks keys. `self` is the outcome without a charge.
    pub fn blocked_for(self, left: Micros) -> Self {
        let left = left.min(Micros::LONGEST);
        let at_least = |wait: Micros| Wait::new(wait.max(left).get());
        let next_unit = self.effective_micros().filter(|_| self.remaining == 0);
        Self {
            allowed: false,
            blocked: Blocked::Yes,
            remaining: 0,
            reset_after: self.reset_after.max(left),
            effective_window: self
                .effective_window
                .and_then(|_| at_least(next_unit.unwrap_or(left))),
            wait: at_least(self.retry_micros().unwrap_or(left)),
            ..self
        }
    }

    /// Blocks the key for this time from now on, because of a penalty.
    // For `tower-ratelimit-redis`.
    #[doc(hidden)]
    pub fn penalized_for(self, length: Micros) -> Self {
        Self {
            blocked: Blocked::FromNowOn,
            ..self.blocked_for(length)
        }
    }

    /// Denies a request that comes after requests that wait, with nothing remaining, for at least this long.
    pub(super) fn behind(self, wait: Micros) -> Self {
        let wait = Wait::new(wait.get());
        if !self.allowed && (self.wait.is_none() || self.wait >= wait) {
            return self;
        }
        Self {
            allowed: false,
            remaining: 0,
            effective_window: self.effective_window.and(wait),
            wait,
            ..self
        }
    }

    /// Returns the outcome after this time, if nothing but the times has changed.
    // For `tower-ratelimit-redis`.
    #[doc(hidden)]
    pub fn aged_by(self, by: Micros) -> Self {
        let left = |time: Wait| Wait::new(time.get().saturating_sub(by.get()));
        Self {
            reset_after: self.reset_after.saturating_sub(by),
            effective_window: self.effective_window.and_then(left),
            wait: self.wait.and_then(left),
            ..self
        }
    }

    /// Allows the request, with this many units left.
    // For `tower-ratelimit-redis`.
    #[doc(hidden)]
    pub fn with_remaining(self, remaining: u32) -> Self {
        Self {
            allowed: true,
            remaining: remaining.min(self.limit),
            wait: None,
            ..self
        }
    }

    /// Returns the outcome in units, for a policy whose store counts in parts of them.
    pub(crate) fn in_units(self, units: &Units) -> Self {
        let mut converted = Self {
            limit: units.limit,
            remaining: units.remaining.min(units.limit),
            effective_window: Wait::new(units.effective_window.get())
                .filter(|_| self.effective_window.is_some()),
            own_window: self.present_window().map(|window| window.0 | PRESENT),
            ..self
        };
        if units.is_scaled {
            converted.put_within(units.window);
            if self.is_overridden() {
                converted.mark_overridden();
            }
        }
        let flag = if units.is_reduced { REDUCED } else { 0 };
        Self {
            own_window: NonZeroU32::new(converted.own_window.map_or(0, NonZeroU32::get) | flag),
            ..converted
        }
    }

    /// [`effective_window`](Self::effective_window) in microseconds.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub fn effective_micros(&self) -> Option<Micros> {
        self.effective_window.map(|time| Micros::new(time.get()))
    }

    /// [`retry_after`](Self::retry_after) in microseconds.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub fn retry_micros(&self) -> Option<Micros> {
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

    /// Returns whether the request is within the limit of this policy. If so, it was charged, unless another policy
    /// denied it. If not, it goes on all the same under a [soft](Self::is_soft) policy.
    pub fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// Returns whether the policy is [soft](crate::Policy::soft): it denies only the requests of blocked keys.
    pub fn is_soft(&self) -> bool {
        self.effect == DenialEffect::Soft
    }

    /// Returns whether the policy is in [shadow](crate::policy::Mode::Shadow): it denies no request.
    pub fn is_shadow(&self) -> bool {
        self.effect == DenialEffect::Shadow
    }

    /// Returns whether a request is denied because of this policy.
    pub fn denies(&self) -> bool {
        match self.effect {
            DenialEffect::Full => !self.allowed,
            DenialEffect::Soft => !self.allowed && self.is_blocked(),
            DenialEffect::Shadow => false,
        }
    }

    /// Returns whether the key is [blocked](crate::Limiter::block) under this policy. If so, nothing remains, and
    /// the request is denied even if the policy is soft.
    pub fn is_blocked(&self) -> bool {
        self.blocked != Blocked::No
    }

    /// Returns whether this refusal began a block: the key is [blocked](Self::is_blocked) from now on, by the
    /// [penalty](crate::Policy::penalty) of the policy.
    pub fn is_penalized(&self) -> bool {
        self.blocked == Blocked::FromNowOn
    }

    /// Returns whether the store had no room for this new key, could evict no other key, and counted it together
    /// with all such keys. The numbers are those of all of them.
    pub fn is_overflow(&self) -> bool {
        self.overflowed
    }

    /// Returns whether the policy's [factor](crate::Policy::factor) is below 1, so that only a part of its limit is
    /// in force. It is `false` for a [blocked](Self::is_blocked) key, which is denied for another reason.
    pub fn is_reduced(&self) -> bool {
        self.flags() & REDUCED != 0 && !self.is_blocked()
    }

    fn flags(&self) -> u32 {
        self.own_window.map_or(0, NonZeroU32::get)
    }

    /// Returns whether the key has an [override](crate::Limiter::override_limit), or the decision
    /// [is degraded](crate::Decision::is_degraded) and this is the node's share of the limit.
    pub fn is_overridden(&self) -> bool {
        self.flags() & OVERRIDDEN != 0
    }

    /// Returns the most that can be admitted at one instant: the limit of a window, the capacity of a bucket.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns whether its units come back when requests end, at an unknown moment: they are slots.
    pub fn is_of_slots(&self) -> bool {
        // Whatever comes back with time is used until its reset.
        self.used() > 0 && self.reset_after == Micros::ZERO
    }

    /// Returns how much of the limit is used.
    pub fn used(&self) -> u32 {
        self.limit - self.remaining
    }

    /// Returns how many further requests of cost 1 would be allowed at the same instant.
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// Returns how long until the whole limit is available again, if no other request arrives.
    pub fn reset_after(&self) -> Duration {
        self.reset_after.to_duration()
    }

    /// Returns the shortest wait after which the same request would be allowed, if no other request arrives.
    ///
    /// `None` if the request was allowed, and if no wait can help, because the limit is 0 or the cost is above
    /// the limit. For a [blocked](Self::is_blocked) key it is the time to the end of the block, whatever the
    /// cost, or the wait without the block if that is longer.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_micros().map(Micros::to_duration)
    }

    /// Returns how long an allowed request is held before it goes on: the time to its turn in a
    /// [`LeakyQueue`](crate::LeakyQueue), and zero under any other algorithm.
    pub fn delay(&self) -> Duration {
        self.delay_micros().to_duration()
    }

    /// Returns the time for which [`remaining`](Self::remaining) has to last if the client is not to be refused:
    /// until the end of a window; for a bucket, `remaining` divided by its rate. If nothing remains, it is
    /// the wait for the next unit. `None` for a limit of 0.
    pub fn effective_window(&self) -> Option<Duration> {
        self.effective_micros().map(Micros::to_duration)
    }
}
