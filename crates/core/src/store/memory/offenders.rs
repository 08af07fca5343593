//! The keys that a policy has refused, for its penalty.
//!
//! Refusals are counted under a lock beside the tables, so that a policy without a penalty pays nothing for
//! them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ahash::RandomState;

use crate::clock::Micros;
use crate::diagnostics::{Diagnostic, warn_once_of};
use crate::policy::{NamedPenalty, Offences, Penalty};

/// The keys whose refusals may count for the penalty of one policy, by their fingerprints.
#[derive(Debug, Default)]
pub(super) struct Offenders(Mutex<Records>);

#[derive(Debug, Default)]
struct Records {
    by_fingerprint: HashMap<u64, (Offences, Micros), RandomState>,
    ends: BTreeSet<(Micros, u64)>,
}

/// The number of keys of one policy at most.
const MOST: usize = 65_536;

/// The number of keys that one refusal removes at most, so that no request is slow.
const AT_ONCE: usize = 16;

pub(super) const TOO_MANY: Diagnostic = Diagnostic::new(
    "TRL026",
    "",
    "more keys were refused than a penalty keeps in this process, so that refusals of some are forgotten, or some are not blocked",
    "count a key that a client cannot choose freely, such as an address, or limit addresses by another policy",
);

impl Offenders {
    /// Counts a refusal of this key. Returns the length of the block that begins with it, if one does.
    ///
    /// The lock is held from the question whether the key is blocked until it is blocked. Otherwise refusals
    /// in between would count for another block.
    pub(super) fn note(
        &self,
        fingerprint: u64,
        now: Micros,
        NamedPenalty { policy, penalty }: &NamedPenalty,
        is_blocked: impl FnOnce() -> bool,
        block: impl FnOnce(Micros) -> bool,
    ) -> Option<Micros> {
        let mut records = self.records();
        let is_blocked = is_blocked();
        records.forget_ended(now);
        let known = records.take(fingerprint);
        let mut offences = known.unwrap_or_default();
        let length = offences.note(now, penalty, is_blocked);
        let length = length.filter(|length| block(*length));
        let until = offences.last_until(penalty);
        if until > now {
            let is_full = records.by_fingerprint.len() >= MOST;
            if is_full {
                records.forget_first();
            }
            records.put(fingerprint, offences, until);
            drop(records);
            if is_full {
                warn_once_of(&TOO_MANY, format!("policy {policy:?}"));
            }
        }
        length
    }

    /// Returns how many refusals of this key count now.
    pub(super) fn counting(&self, fingerprint: u64, now: Micros, penalty: &Penalty) -> u32 {
        let records = self.records();
        let known = records.by_fingerprint.get(&fingerprint);
        known.map_or(0, |(offences, _)| offences.counting(now, penalty))
    }

    /// Removes the refusals of this key.
    pub(super) fn clear(&self, fingerprint: u64) {
        self.records().take(fingerprint);
    }

    /// Returns when the last refusal counts no more.
    pub(super) fn last_end(&self) -> Option<Micros> {
        self.records().ends.last().map(|(until, _)| *until)
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    fn take(&mut self, fingerprint: u64) -> Option<Offences> {
        let (offences, until) = self.by_fingerprint.remove(&fingerprint)?;
        self.ends.remove(&(until, fingerprint));
        Some(offences)
    }

    fn put(&mut self, fingerprint: u64, offences: Offences, until: Micros) {
        self.by_fingerprint.insert(fingerprint, (offences, until));
        self.ends.insert((until, fingerprint));
    }

    fn forget_ended(&mut self, now: Micros) {
        for _ in 0..AT_ONCE {
            match self.ends.first() {
                Some(&(until, fingerprint)) if until <= now => {
                    self.take(fingerprint);
                }
                _ => break,
            }
        }
    }

    fn forget_first(&mut self) {
        if let Some(&(_, fingerprint)) = self.ends.first() {
            self.take(fingerprint);
        }
    }
}

#[cfg(all(test, not(tower_ratelimit_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithm::FixedWindow;
    use crate::policy::Policy;

    fn penalty() -> NamedPenalty {
        let penalty = Penalty::after(2, Duration::from_secs(60));
        let policy = Policy::new("login", FixedWindow::per_minute(5)).penalty(penalty);
        policy.named_penalty().unwrap()
    }

    #[test]
    fn a_flood_of_keys_is_bounded_and_the_latest_are_kept() {
        let (offenders, penalty) = (Offenders::default(), penalty());
        let most = u64::try_from(MOST).unwrap();
        for key in 0..2 * most {
            let now = Micros::new(1_000_000_000 + key);
            assert_eq!(offenders.note(key, now, &penalty, || false, |_| true), None);
        }
        let (kept, ends) = {
            let records = offenders.records();
            (records.by_fingerprint.len(), records.ends.len())
        };
        assert_eq!((kept, ends), (MOST, MOST));
        let now = Micros::new(1_000_000_000 + 2 * most);
        assert!(
            offenders
                .note(2 * most - 1, now, &penalty, || false, |_| true)
                .is_some()
        );
        assert_eq!(offenders.note(0, now, &penalty, || false, |_| true), None);
    }

    #[test]
    fn requests_of_others_drop_expired_offences() {
        let (offenders, penalty) = (Offenders::default(), penalty());
        for key in 0..20 {
            offenders.note(key, Micros::from_secs(1_000), &penalty, || false, |_| true);
        }
        for _ in 0..2 {
            offenders.note(99, Micros::from_secs(1_061), &penalty, || false, |_| true);
        }
        offenders.clear(99);
        assert!(offenders.records().by_fingerprint.is_empty());
    }
}
