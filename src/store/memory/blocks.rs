use super::timed::{Span, Timed};
use crate::clock::{Clock, Micros};

/// The keys that are blocked under one policy, by their fingerprints.
#[derive(Debug, Default)]
pub(super) struct Blocks(Timed<()>);

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
        self.0.are_any()
    }

    /// Whether this key may be blocked; a few that are not seem to be.
    pub(super) fn may_hold(&self, fingerprint: u64, now: Micros) -> bool {
        self.0.may_hold(fingerprint, now)
    }

    /// How long this key is blocked yet: see [`Timed::find`].
    pub(super) fn left(
        &self,
        fingerprint: u64,
        now: Micros,
        clock: &dyn Clock,
        only_asks: bool,
    ) -> Option<Micros> {
        let found = self.0.find(fingerprint, now, clock, only_asks);
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
        let _ = self.0.put(fingerprint, new, usize::MAX, is_longer);
    }

    /// All blocks that are not forgotten.
    pub(super) fn each(&self) -> Blocked {
        let spans = self.0.each().into_iter();
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
        self.0.restore(spans, now);
    }

    #[cfg(all(test, not(tower_ratelimit_loom)))]
    pub(super) fn spans(&self) -> &Timed<()> {
        &self.0
    }

    pub(super) fn unblock(&self, fingerprint: u64) {
        self.0.end(fingerprint);
    }
}
