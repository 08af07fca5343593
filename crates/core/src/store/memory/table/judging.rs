use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock};

use super::Table;
use crate::algorithm::{Algorithm, Limit, Step};
use crate::store::memory::cell::{Keeps, OfTable};

/// The limits that the requests of a table have met, and the rules that judge which keys can go.
///
/// A key can go only if that grants nothing under any of these limits. The state does not say under which
/// limit the next request comes, so the judges combine the worst numbers of all limits. The limits only
/// widen, so a time in the expiry index stays a lower bound.
#[derive(Debug)]
pub(super) struct SeenLimits<S> {
    /// The least limit of a quota that is not 0.
    quota: AtomicU32,
    /// The least and the greatest burst.
    least: AtomicU32,
    most: AtomicU32,
    /// The judges of the table's own limit.
    own: Judges<S>,
    /// The judges of all limits, once a request has met another one.
    widest: RwLock<Option<Judges<S>>>,
}

#[derive(Clone, Debug)]
pub(in crate::store::memory) struct Judges<S> {
    /// Says when a key is as good as new: the least rate with the largest size, which takes the longest.
    pub(super) slowest: S,
    /// Says when a key refuses: the least rate with the smallest size.
    pub(super) strictest: S,
}

impl<S: Step> Judges<S> {
    pub(in crate::store::memory) fn of(rule: &S) -> Self {
        Self {
            slowest: rule.clone(),
            strictest: rule.strictest(),
        }
    }
}

impl<S: Step> SeenLimits<S> {
    pub(super) fn new(rule: &S) -> Self {
        Self {
            quota: AtomicU32::new(u32::MAX),
            least: AtomicU32::new(u32::MAX),
            most: AtomicU32::new(0),
            own: Judges::of(rule),
            widest: RwLock::new(None),
        }
    }

    fn has(&self, limit: Limit) -> bool {
        self.quota.load(Ordering::Acquire) <= limit.quota()
            && self.least.load(Ordering::Acquire) <= limit.size()
            && self.most.load(Ordering::Acquire) >= limit.size()
    }
}

impl<R: OfTable, C: Keeps<R>> Table<R, C> {
    /// Records a limit that requests of this table may bring from now on.
    pub(in crate::store::memory) fn note_limit(&self, algorithm: &Algorithm) {
        if !R::VARIES {
            return;
        }
        if let Algorithm::ByHours(hours) = algorithm {
            return hours.each().for_each(|limit| self.note_one(&limit));
        }
        self.note_one(algorithm);
    }

    fn note_one(&self, algorithm: &Algorithm) {
        // A limit of 0 refuses every request, whatever is forgotten.
        let limit = algorithm.limits();
        if let Some(limit) = limit.filter(|limit| limit.quota() > 0 && limit.size() > 0)
            && !self.met.has(limit)
        {
            self.widen(limit);
        }
    }

    #[cold]
    fn widen(&self, limit: Limit) {
        let met = &self.met;
        let widest = met.widest.write();
        let mut widest = widest.unwrap_or_else(PoisonError::into_inner);
        let least = |number: &AtomicU32, new: u32| number.load(Ordering::Relaxed).min(new);
        let quota = least(&met.quota, limit.quota());
        let size = least(&met.least, limit.size());
        let most = met.most.load(Ordering::Relaxed).max(limit.size());
        *widest = Some(Judges {
            slowest: self.rule.limited(Limit::new(quota, most)),
            strictest: self.rule.limited(Limit::new(quota, size)),
        });
        // The judges are in place before another request finds that its limit has been met.
        met.quota.store(quota, Ordering::Release);
        met.least.store(size, Ordering::Release);
        met.most.store(most, Ordering::Release);
    }

    /// Returns the rule that says which keys are as good as new.
    #[inline]
    pub(super) fn slowest(&self) -> Cow<'_, R> {
        match self.judges() {
            Cow::Borrowed(judges) => Cow::Borrowed(&judges.slowest),
            Cow::Owned(judges) => Cow::Owned(judges.slowest),
        }
    }

    /// Returns the rules that judge which keys can go.
    #[inline]
    pub(super) fn judges(&self) -> Cow<'_, Judges<R>> {
        if R::VARIES {
            let widest = self.met.widest.read();
            let widest = widest.unwrap_or_else(PoisonError::into_inner);
            if let Some(judges) = &*widest {
                return Cow::Owned(judges.clone());
            }
        }
        Cow::Borrowed(&self.met.own)
    }
}
