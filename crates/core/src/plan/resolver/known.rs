//! The cached answers of a resolver, and how long each of them is used.
//!
//! An answer is kept beyond its use, because an old plan is better than none when the source fails.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use ahash::RandomState;
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache as Quick, DefaultLifecycle};
use tokio::time::Instant;

use super::own_limits::OwnLimits;
use super::resolved::Resolved;

/// The cached answer for a key.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The answer of the last lookup that did not fail.
    answer: Option<LookupResult>,
    /// The count of `invalidate_all` when the lookup began.
    epoch: u64,
    /// Whether the key was invalidated after the lookup began.
    is_outdated: bool,
    fresh_until: Instant,
    stale_until: Instant,
    /// Until when no lookup of the key begins, because the last one has failed, and its epoch.
    failed: Option<(Instant, u64)>,
}

#[derive(Clone, Debug)]
pub(crate) enum LookupResult {
    Found(Arc<Found>),
    NotFound,
}

/// A plan or limits that a lookup found.
#[derive(Debug)]
pub(crate) enum Found {
    /// The name of a plan.
    Plan(Arc<str>),
    Limits(OwnLimits),
}

impl LookupResult {
    pub(super) fn of(resolved: Resolved) -> Self {
        match resolved {
            Resolved::Plan(name) => Self::Found(Arc::new(Found::Plan(name))),
            Resolved::Limits(plan) => Self::Found(Arc::new(Found::Limits(OwnLimits::new(plan)))),
            Resolved::NotFound => Self::NotFound,
        }
    }

    pub(super) fn found(&self) -> Option<&Arc<Found>> {
        match self {
            Self::Found(found) => Some(found),
            Self::NotFound => None,
        }
    }
}

/// The moments up to which an answer is fresh, and served while it is stale.
#[derive(Clone, Copy, Debug)]
pub(super) struct Until {
    pub(super) fresh: Instant,
    pub(super) stale: Instant,
}

impl Known {
    pub(super) fn new(answer: LookupResult, epoch: u64, until: Until) -> Self {
        Self {
            answer: Some(answer),
            epoch,
            is_outdated: false,
            fresh_until: until.fresh,
            stale_until: until.stale,
            failed: None,
        }
    }

    /// Creates an entry that knows only that the lookup failed.
    pub(super) fn nothing(now: Instant) -> Self {
        Self {
            answer: None,
            epoch: 0,
            is_outdated: true,
            fresh_until: now,
            stale_until: now,
            failed: None,
        }
    }

    /// Returns an entry whose answer is used only after a failure.
    pub(super) fn outdated(&self) -> Self {
        Self {
            is_outdated: true,
            failed: None,
            ..self.clone()
        }
    }

    /// Records that a lookup failed.
    pub(super) fn failed(&self, until: Instant, epoch: u64) -> Self {
        Self {
            failed: Some((until, epoch)),
            ..self.clone()
        }
    }

    pub(super) fn answer(&self) -> Option<&LookupResult> {
        self.answer.as_ref()
    }

    pub(super) fn is_fresh(&self, now: Instant, epoch: u64) -> bool {
        self.is_valid(epoch) && now < self.fresh_until
    }

    /// Returns whether it is used without waiting for a lookup.
    pub(super) fn is_served(&self, now: Instant, epoch: u64) -> bool {
        self.is_valid(epoch) && now < self.stale_until
    }

    fn is_valid(&self, epoch: u64) -> bool {
        !self.is_outdated && self.epoch == epoch && self.answer.is_some()
    }

    /// Returns whether a lookup has failed so recently that none begins yet.
    pub(super) fn has_just_failed(&self, now: Instant, epoch: u64) -> bool {
        self.failed
            .is_some_and(|(until, of)| of == epoch && now < until)
    }
}

/// The cached answers, up to a bound.
pub(super) struct Cache<K> {
    cache: Quick<K, Arc<Known>, UnitWeighter, RandomState>,
}

impl<K: Clone + Eq + Hash> Cache<K> {
    pub(super) fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        let weight = u64::try_from(capacity).unwrap_or(u64::MAX);
        let cache = Quick::with(
            capacity,
            weight,
            UnitWeighter,
            RandomState::new(),
            DefaultLifecycle::default(),
        );
        Self { cache }
    }

    #[inline]
    pub(super) fn get(&self, key: &K) -> Option<Arc<Known>> {
        self.cache.get(key)
    }

    pub(super) fn insert(&self, key: K, known: Known) {
        self.cache.insert(key, Arc::new(known));
    }

    pub(super) fn remove(&self, key: &K) {
        self.cache.remove(key);
    }

    /// Replaces what is known of a key, if anything is.
    pub(super) fn change(&self, key: &K, change: impl FnOnce(&Known) -> Known) -> bool {
        let Some(known) = self.cache.peek(key) else {
            return false;
        };
        self.insert(key.clone(), change(&known));
        true
    }

    pub(super) fn len(&self) -> usize {
        self.cache.len()
    }
}

/// Returns a moment this long after another one, or a very late one if it overflows.
pub(super) fn after(now: Instant, time: Duration) -> Instant {
    const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 86_400);
    now.checked_add(time.min(FOR_EVER)).unwrap_or(now)
}
