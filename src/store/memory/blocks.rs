use super::offenders::{Offenders, TOO_MANY};
use super::timed::{Span, Timed};
use crate::clock::{Clock, Micros};
use crate::diagnostics::warn_once_of;
use crate::policy::NamedPenalty;

/// The keys that are blocked under one policy, by their fingerprints, and those that have been refused.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    blocked: Timed<()>,
    offenders: Offenders,
}

/// How many keys a penalty blocks: beyond that it blocks no further key.
const MOST_PENALTIES: usize = 262_144;

/// The blocks under one policy, as a snapshot has them: of each, the fingerprint of the key, when
/// it began and when it ends.
pub(super) type Blocked = Vec<(u64, Micros, Micros)>;

impl Blocks {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Whether any key is blocked, or was and is not forgotten.
    #[inline]
    pub(super) fn are_any(&self) -> bool {
        self.blocked.are_any()
    }

    /// Whether this key may be blocked; a few that are not seem to be.
    pub(super) fn may_hold(&self, fingerprint: u64, now: Micros) -> bool {
        self.blocked.may_hold(fingerprint, now)
    }

    /// How long this key is blocked yet: see [`Timed::find`].
    pub(super) fn left(
        &self,
        fingerprint: u64,
        now: Micros,
        clock: &dyn Clock,
        only_asks: bool,
    ) -> Option<Micros> {
        let found = self.blocked.find(fingerprint, now, clock, only_asks);
        found.map(|((), left)| left)
    }

    /// Blocks a key from now on, unless it is blocked for longer.
    pub(super) fn block(&self, fingerprint: u64, length: Micros, now: Micros) {
        let new = Span::new((), now, length);
        if new.until == now {
            return;
        }
        let is_longer = |old: Span<()>| new.until <= old.until.max(now);
        // There is no bound.
        let _ = self.blocked.put(fingerprint, new, usize::MAX, is_longer);
    }

    /// Notes a refusal of this key, and blocks the key if it is one too many. Returns how long the block lasts, if it
    /// is new.
    pub(super) fn note_refusal(
        &self,
        fingerprint: u64,
        penalty: &NamedPenalty,
        clock: &dyn Clock,
    ) -> Option<Micros> {
        let now = clock.now();
        let is_blocked = || self.left(fingerprint, now, clock, false).is_some();
        let block = |length| {
            let new = Span::new((), now, length);
            let is_longer = |old: Span<()>| new.until <= old.until.max(now);
            let put = self
                .blocked
                .put(fingerprint, new, MOST_PENALTIES, is_longer);
            if put.is_err() {
                warn_once_of(&TOO_MANY, format!("policy {:?}", penalty.policy));
            }
            put.is_ok()
        };
        self.offenders
            .note(fingerprint, now, penalty, is_blocked, block)
    }

    /// How many refusals of this key count at the moment.
    pub(super) fn refusals(
        &self,
        fingerprint: u64,
        penalty: &NamedPenalty,
        clock: &dyn Clock,
    ) -> u32 {
        self.offenders
            .counting(fingerprint, clock.now(), &penalty.penalty)
    }

    /// When the last block ends, and the last refusal that counts is forgotten.
    pub(super) fn last_end(&self) -> Option<Micros> {
        self.blocked.last_end().max(self.offenders.last_end())
    }

    /// All blocks that are not forgotten.
    pub(super) fn each(&self) -> Blocked {
        let spans = self.blocked.each().into_iter();
        spans
            .map(|(fingerprint, span)| (fingerprint, span.from, span.until))
            .collect()
    }

    /// Puts blocks back that were kept over a restart and have not ended.
    pub(super) fn restore(&self, blocks: Blocked, now: Micros) {
        let spans = blocks.into_iter().map(|(fingerprint, from, until)| {
            let what = ();
            (fingerprint, Span { what, from, until })
        });
        self.blocked.restore(spans, now);
    }

    #[cfg(all(test, not(tower_ratelimit_loom)))]
    pub(super) fn spans(&self) -> &Timed<()> {
        &self.blocked
    }

    /// Ends the block of a key, and forgets its refusals.
    pub(super) fn unblock(&self, fingerprint: u64) {
        self.offenders.pardon(fingerprint);
        self.blocked.end(fingerprint);
    }
}
