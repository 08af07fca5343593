//! Intervals on the time line of a zone, with a cache of the present one.
//!
//! A search through civil time takes microseconds, so stretches are computed in blocks of 32 days and kept.

mod walk;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use jiff::civil::Date;
use jiff::{Timestamp, ToSpan};

use super::{Interval, Zone};
use crate::calendar::{Interned, Span, Stretch};
use crate::clock::Micros;

/// Disjoint intervals in a zone, with the present one cached.
///
/// It is copied as a reference. Checking the present interval takes one read of memory. Finding the interval
/// of another moment takes a search in a block of 32 days, which is computed once.
#[derive(Clone, Copy)]
pub(crate) struct Timetable(&'static CachedIntervals);

struct CachedIntervals {
    zone: Zone,
    intervals: Box<[Interval]>,
    /// The stretch that was found last. See [`packed`].
    present: AtomicU64,
    /// By their numbers since the epoch.
    blocks: RwLock<BTreeMap<u64, Arc<[Stretch]>>>,
}

static TIMETABLES: Interned<CachedIntervals> = Interned::new();

/// The length of a block: 32 days.
const BLOCK: u64 = 32 * 86_400 * SECOND;
const SECOND: u64 = 1_000_000;
/// The number of blocks that are kept: those of eleven years.
const MOST_BLOCKS: usize = 128;
/// No interval begins from the year 9000 on: civil arithmetic ends with the year 9999.
const LAST_BLOCK: u64 = 221_845_392_000 * SECOND / BLOCK;

impl Timetable {
    /// The largest number of intervals in a timetable.
    pub(crate) const MOST: usize = 255;

    /// Creates a timetable of these intervals, at most [`MOST`](Self::MOST).
    pub(crate) fn new(zone: Zone, intervals: &[Interval]) -> Self {
        Self(TIMETABLES.get(
            |known| known.zone == zone && *known.intervals == *intervals,
            || CachedIntervals {
                zone,
                intervals: intervals.into(),
                present: AtomicU64::new(NONE),
                blocks: RwLock::default(),
            },
        ))
    }

    pub(crate) fn zone(self) -> Zone {
        self.0.zone
    }

    /// Returns the interval with this index, counted from 1.
    pub(crate) fn interval(self, place: u8) -> Option<&'static Interval> {
        self.0.intervals.get(usize::from(place).checked_sub(1)?)
    }

    /// Returns the stretch at this moment, which is the present or close to it.
    #[inline]
    pub(crate) fn at(self, now: Micros) -> Stretch {
        let stretch = unpacked(self.0.present.load(Ordering::Relaxed));
        if stretch.span.contains(now) {
            return stretch;
        }
        self.find_present(now)
    }

    #[cold]
    fn find_present(self, now: Micros) -> Stretch {
        let found = self.stretch(now);
        if let Some(word) = packed(found) {
            self.0.present.store(word, Ordering::Relaxed);
        }
        found
    }

    /// Returns the stretch at any moment.
    pub(crate) fn stretch(self, at: Micros) -> Stretch {
        let number = at.get() / BLOCK;
        let Some(block) = self.known_block(number) else {
            return Stretch {
                span: Span {
                    from: Micros::new((LAST_BLOCK + 1) * BLOCK),
                    until: Micros::new(u64::MAX),
                },
                place: 0,
            };
        };
        let place = block.partition_point(|stretch| stretch.span.until <= at);
        block.get(place).copied().unwrap_or(Stretch {
            span: block_span(number),
            place: 0,
        })
    }

    /// Returns when the interval at this moment ends, or when the next one begins if there is none. Returns
    /// `None` if that is more than five years away.
    pub(crate) fn ends(self, now: Micros) -> Option<Micros> {
        let Stretch { mut span, place } = self.at(now);
        for _ in 0..64 {
            let next = self.stretch(span.until);
            if next.place != place {
                return Some(span.until);
            }
            span = next.span;
        }
        None
    }

    /// Returns whether the interval with this index begins at this moment or later.
    pub(crate) fn recurs_from(self, place: u8, at: Micros) -> bool {
        let Some(interval) = self.interval(place) else {
            return true;
        };
        // An interval that began two days before is over in any zone.
        let before = |date: Date| date.checked_sub(2.days()).ok();
        let before = self.date(at).and_then(before);
        before.is_none_or(|date| !interval.is_over_after(date))
    }

    fn date(self, at: Micros) -> Option<Date> {
        let at = Timestamp::from_microsecond(i64::try_from(at.get()).ok()?).ok()?;
        Some(self.0.zone.civil(at).date())
    }

    /// Returns the block with this number, or `None` if no interval begins in it or later.
    fn known_block(self, number: u64) -> Option<Arc<[Stretch]>> {
        (number <= LAST_BLOCK).then(|| self.block(number))
    }

    fn block(self, number: u64) -> Arc<[Stretch]> {
        let blocks = &self.0.blocks;
        let known = blocks.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(block) = known.get(&number) {
            return Arc::clone(block);
        }
        drop(known);
        let block: Arc<[Stretch]> = self.make(number).into();
        let mut known = blocks.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_BLOCKS {
            known.clear();
        }
        known.insert(number, Arc::clone(&block));
        block
    }

    /// Returns the stretches of a block, without gaps.
    fn make(self, number: u64) -> Vec<Stretch> {
        let whole = block_span(number);
        let mut found = self.intervals_near(whole).unwrap_or_default();
        found.sort_unstable_by_key(|stretch| stretch.span.from);
        let mut all = Vec::with_capacity(2 * found.len() + 1);
        let mut until = whole.from;
        let mut put = |from: Micros, to: Micros, place| {
            let span = Span { from, until: to };
            if from < to {
                all.push(Stretch { span, place });
            }
        };
        for Stretch { span, place } in found {
            // An interval that the clocks skip has no length, and intervals do not overlap.
            let from = span.from.max(until).min(whole.until);
            let to = span.until.max(from).min(whole.until);
            put(until, from, 0);
            put(from, to, place);
            until = to;
        }
        put(until, whole.until, 0);
        all
    }

    /// Returns the intervals that begin up to two days before this span, in it, or up to two days after it.
    fn intervals_near(self, span: Span) -> Option<Vec<Stretch>> {
        let CachedIntervals {
            zone, intervals, ..
        } = self.0;
        let moment = |shown| {
            let moment = zone.first_moment(shown)?.as_microsecond();
            Some(Micros::new(u64::try_from(moment).unwrap_or(0)))
        };
        let mut date = self.date(span.from)?.checked_sub(2.days()).ok()?;
        let last = self.date(span.until)?.checked_add(2.days()).ok()?;
        let mut found = Vec::new();
        while date <= last {
            for (place, interval) in (1..).zip(intervals) {
                if interval.begins_on(date)
                    && let Some([from, until]) = interval.on(date)
                {
                    let (from, until) = (moment(from)?, moment(until)?);
                    let span = Span { from, until };
                    found.push(Stretch { span, place });
                }
            }
            date = date.tomorrow().ok()?;
        }
        Some(found)
    }
}

fn block_span(number: u64) -> Span {
    Span {
        from: Micros::new(number * BLOCK),
        until: Micros::new((number + 1) * BLOCK),
    }
}

/// An empty stretch.
const NONE: u64 = 0;
/// The number of bits of an index, and of a length in seconds up to a block.
const PLACE: u32 = 8;
const LENGTH: u32 = 22;

/// Returns the start and the length in seconds, and the index, in one word, or `None` if they do not fit,
/// after the year 2514.
fn packed(stretch: Stretch) -> Option<u64> {
    let Span { from, until } = stretch.span;
    let [start, end] = [from, until].map(|moment| moment.get() / SECOND);
    let length = end.checked_sub(start)?;
    let word = start << (LENGTH + PLACE) | length << PLACE | u64::from(stretch.place);
    (unpacked(word) == stretch).then_some(word)
}

#[inline]
fn unpacked(word: u64) -> Stretch {
    let start = word >> (LENGTH + PLACE);
    let length = word >> PLACE & ((1 << LENGTH) - 1);
    Stretch {
        span: Span {
            from: Micros::new(start * SECOND),
            until: Micros::new((start + length) * SECOND),
        },
        place: word.to_le_bytes()[0],
    }
}

impl PartialEq for Timetable {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl Eq for Timetable {}

impl Hash for Timetable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        ptr::hash(self.0, state);
    }
}

impl fmt::Debug for Timetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = self.0.intervals.iter().map(Interval::text);
        f.debug_struct("Timetable")
            .field("zone", &self.0.zone.name())
            .field("intervals", &texts.collect::<Vec<_>>())
            .finish()
    }
}

#[cfg(test)]
mod tests;
