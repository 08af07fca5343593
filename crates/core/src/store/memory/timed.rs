//! Values that hold for single keys for a time: blocks and overrides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::algorithm::Algorithm;
use crate::clock::{Clock, Micros};

/// Keys for which a value holds until a moment, by their fingerprints.
///
/// They stand apart from the tables, so that nothing evicts them. If there are none, a decision finds that
/// out by one load.
#[derive(Debug)]
pub(super) struct Timed<T> {
    /// The first end, or [`NEVER`] if there is no key.
    first_end: AtomicU64,
    /// The number of keys whose fingerprint ends in this index. A request that finds zero looks no further,
    /// and takes no lock.
    marks: OnceLock<Box<[AtomicU32]>>,
    spans: RwLock<Spans<T>>,
}

#[derive(Debug)]
struct Spans<T> {
    by_fingerprint: BTreeMap<u64, Span<T>>,
    ends: BTreeSet<(Micros, u64)>,
}

/// A value, and the time for which it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span<T> {
    pub(super) what: T,
    pub(super) from: Micros,
    pub(super) until: Micros,
}

/// The limit of one key, which replaces the limits of its requests for a time.
pub(super) type Override = Span<Algorithm>;

/// The number of keys is at its bound.
#[derive(Debug)]
pub(in crate::store) struct Full;

const NEVER: u64 = u64::MAX;

pub(super) const MARKS: usize = 1024;

/// The number of ended spans that one request removes at most, so that no request is slow.
const AT_ONCE: usize = 16;

impl<T> Default for Timed<T> {
    fn default() -> Self {
        Self {
            first_end: AtomicU64::new(NEVER),
            marks: OnceLock::new(),
            spans: RwLock::new(Spans {
                by_fingerprint: BTreeMap::new(),
                ends: BTreeSet::new(),
            }),
        }
    }
}

impl<T: Copy> Timed<T> {
    /// Returns whether there is any key, which may have a span that has ended and is not removed.
    #[inline]
    pub(super) fn are_any(&self) -> bool {
        self.first_end.load(Ordering::Relaxed) != NEVER
    }

    /// Returns whether a value may hold for this key. It is `true` for a few keys that have none.
    #[inline(never)]
    pub(super) fn may_hold(&self, fingerprint: u64, now: Micros) -> bool {
        if self.first_end.load(Ordering::Relaxed) <= now.get()
            && let Ok(mut spans) = self.spans.try_write()
        {
            self.forget_ended(&mut spans, now);
        }
        self.is_marked(fingerprint)
    }

    /// Returns the value of this key and how much longer it holds. If the clock has stepped back to before
    /// the span, the span begins now, which is stored unless the request `only_asks`.
    pub(super) fn find(
        &self,
        fingerprint: u64,
        now: Micros,
        clock: &dyn Clock,
        only_asks: bool,
    ) -> Option<(T, Micros)> {
        if !self.may_hold(fingerprint, now) {
            return None;
        }
        let span = self.get(fingerprint)?;
        let now = if now < span.from {
            // The span was stored after the clock was read, or the clock has stepped back.
            clock.now()
        } else {
            now
        };
        let left = span.length_from(now);
        if now < span.from && !only_asks {
            let mut spans = self.write();
            if let Some(span) = spans.by_fingerprint.get(&fingerprint).copied() {
                self.insert(&mut spans, fingerprint, span.moved_back(now));
            }
        }
        (left > Micros::ZERO).then_some((span.what, left))
    }

    /// Returns the span of this key, even if it has ended.
    pub(super) fn get(&self, fingerprint: u64) -> Option<Span<T>> {
        if !self.is_marked(fingerprint) {
            return None;
        }
        self.read().by_fingerprint.get(&fingerprint).copied()
    }

    /// Lets this value hold for a key from now on, unless `stays` says that its present span stays.
    pub(super) fn put(
        &self,
        fingerprint: u64,
        new: Span<T>,
        most: usize,
        stays: impl FnOnce(Span<T>) -> bool,
    ) -> Result<(), Full> {
        let mut spans = self.write();
        let now = new.from;
        self.forget_ended(&mut spans, now);
        let old = spans.by_fingerprint.get(&fingerprint).copied();
        if old.is_none() && spans.by_fingerprint.len() >= most {
            return Err(Full);
        }
        if !old.is_some_and(|old| stays(old.moved_back(now))) {
            self.insert(&mut spans, fingerprint, new);
        }
        Ok(())
    }

    /// Returns when the last span ends.
    pub(super) fn last_end(&self) -> Option<Micros> {
        self.read().ends.last().map(|(until, _)| *until)
    }

    /// Returns all keys that are not removed.
    pub(super) fn each(&self) -> Vec<(u64, Span<T>)> {
        let spans = self.read();
        let spans = spans.by_fingerprint.iter();
        spans.map(|(key, span)| (*key, *span)).collect()
    }

    /// Restores the spans of a snapshot that have not ended.
    pub(super) fn restore(&self, restored: impl IntoIterator<Item = (u64, Span<T>)>, now: Micros) {
        let mut spans = self.write();
        for (fingerprint, span) in restored {
            let until = span.until.min(span.from.saturating_add(Micros::LONGEST));
            if until > now {
                self.insert(&mut spans, fingerprint, Span { until, ..span });
            }
        }
    }

    /// Ends the span of this key, and returns it, even if it has ended before.
    pub(super) fn end(&self, fingerprint: u64) -> Option<Span<T>> {
        if !self.is_marked(fingerprint) {
            return None;
        }
        self.remove(&mut self.write(), fingerprint)
    }

    fn insert(&self, spans: &mut Spans<T>, fingerprint: u64, span: Span<T>) {
        if let Some(old) = spans.by_fingerprint.insert(fingerprint, span) {
            spans.ends.remove(&(old.until, fingerprint));
        } else {
            let none = || (0..MARKS).map(|_| AtomicU32::new(0)).collect();
            let marks = self.marks.get_or_init(none);
            marks[place(fingerprint)].fetch_add(1, Ordering::Relaxed);
        }
        spans.ends.insert((span.until, fingerprint));
        self.publish_first_end(spans);
    }

    fn remove(&self, spans: &mut Spans<T>, fingerprint: u64) -> Option<Span<T>> {
        let span = spans.by_fingerprint.remove(&fingerprint)?;
        spans.ends.remove(&(span.until, fingerprint));
        if let Some(mark) = self.mark(fingerprint) {
            mark.fetch_sub(1, Ordering::Relaxed);
        }
        self.publish_first_end(spans);
        Some(span)
    }

    fn forget_ended(&self, spans: &mut Spans<T>, now: Micros) {
        for _ in 0..AT_ONCE {
            match spans.ends.first() {
                Some((until, fingerprint)) if *until <= now => {
                    let fingerprint = *fingerprint;
                    self.remove(spans, fingerprint);
                }
                _ => break,
            }
        }
    }

    fn publish_first_end(&self, spans: &Spans<T>) {
        let first = spans.ends.first().map_or(NEVER, |(until, _)| until.get());
        self.first_end.store(first, Ordering::Relaxed);
    }

    fn is_marked(&self, fingerprint: u64) -> bool {
        self.mark(fingerprint)
            .is_some_and(|mark| mark.load(Ordering::Relaxed) > 0)
    }

    fn mark(&self, fingerprint: u64) -> Option<&AtomicU32> {
        self.marks.get()?.get(place(fingerprint))
    }

    fn read(&self) -> RwLockReadGuard<'_, Spans<T>> {
        self.spans.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Spans<T>> {
        self.spans.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Copy> Span<T> {
    /// Creates a span that begins now. Its length is cut to the longest time that the crate tells.
    pub(super) fn new(what: T, now: Micros, length: Micros) -> Self {
        Self {
            what,
            from: now,
            until: now.saturating_add(length.min(Micros::LONGEST)),
        }
    }

    /// Returns what is left of the span at this moment, which is its length at most.
    pub(super) fn length_from(self, now: Micros) -> Micros {
        self.until.saturating_sub(now.max(self.from))
    }

    /// Moves the span back, with its length, if it begins after this moment.
    fn moved_back(self, now: Micros) -> Self {
        let from = self.from.min(now);
        let length = self.until.saturating_sub(self.from);
        Self {
            from,
            until: from.saturating_add(length),
            ..self
        }
    }
}

#[cfg(all(test, not(tower_ratelimit_loom)))]
impl<T: Copy> Timed<T> {
    /// Returns the numbers of keys, ends and marks.
    pub(super) fn sizes(&self) -> (usize, usize, u32) {
        let spans = self.read();
        let marks = self.marks.get().into_iter().flatten();
        let marked = marks.map(|mark| mark.load(Ordering::Relaxed)).sum();
        (spans.by_fingerprint.len(), spans.ends.len(), marked)
    }
}

fn place(fingerprint: u64) -> usize {
    const LAST: u64 = MARKS as u64 - 1;
    usize::try_from(fingerprint & LAST).unwrap_or(0)
}
