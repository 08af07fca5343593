//! The windows of a calendar, with a cache of the present one.
//!
//! Finding a window takes microseconds, and a decision some nanoseconds, so the last window is kept in one
//! atomic word.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::calendar::{Interned, Span, Windows};
use crate::clock::Micros;

/// The windows of a calendar, with the present window cached.
///
/// It is copied as a reference. Finding a window takes microseconds; checking the window that was found last
/// takes one read of memory.
#[derive(Clone, Copy)]
pub(crate) struct Calendar(&'static CachedWindows);

struct CachedWindows {
    windows: Windows,
    /// The window that was found last. See [`packed`].
    present: AtomicU64,
    /// The window before or after it that was found last.
    beside: AtomicU64,
}

static CALENDARS: Interned<CachedWindows> = Interned::new();

impl Calendar {
    pub(crate) fn new(windows: Windows) -> Self {
        Self(CALENDARS.get(
            |known| known.windows == windows,
            || CachedWindows {
                windows,
                present: AtomicU64::new(NONE),
                beside: AtomicU64::new(NONE),
            },
        ))
    }

    pub(crate) fn windows(self) -> &'static Windows {
        &self.0.windows
    }

    /// Returns the window that contains this moment.
    #[inline]
    pub(crate) fn at(self, now: Micros) -> Span {
        self.look_up(&self.0.present, now)
    }

    /// Returns the window before that one, or after it if that is nearer: a clock that differs by less than
    /// half a window is in one of the two.
    pub(crate) fn beside(self, now: Micros) -> Span {
        let present = self.at(now);
        let to_its_end = present.until.saturating_sub(now);
        let beside = if now.saturating_sub(present.from) < to_its_end {
            present.from.saturating_sub(Micros::new(1))
        } else {
            present.until
        };
        self.look_up(&self.0.beside, beside)
    }

    #[inline]
    fn look_up(self, cache: &AtomicU64, at: Micros) -> Span {
        let span = unpacked(cache.load(Ordering::Relaxed));
        if span.contains(at) {
            return span;
        }
        self.find(cache, at)
    }

    #[cold]
    fn find(self, cache: &AtomicU64, at: Micros) -> Span {
        let found = self.0.windows.at(at);
        if let Some(word) = packed(found) {
            cache.store(word, Ordering::Relaxed);
        }
        found
    }
}

/// An empty window.
const NONE: u64 = 0;
const SECOND: u64 = 1_000_000;
/// The bits of a length in seconds: 17 years.
const LENGTH: u32 = 29;

/// Returns the start and the length in seconds, in one word, so that no thread sees halves of two windows.
/// Returns `None` if they do not fit, after the year 3058.
fn packed(Span { from, until }: Span) -> Option<u64> {
    let [start, end] = [from, until].map(|moment| moment.get() / SECOND);
    let length = end.checked_sub(start)?;
    let word = start.checked_shl(LENGTH)? | length;
    let span = Span { from, until };
    (length >> LENGTH == 0 && unpacked(word) == span).then_some(word)
}

#[inline]
fn unpacked(word: u64) -> Span {
    let start = word >> LENGTH;
    let length = word & ((1 << LENGTH) - 1);
    Span {
        from: Micros::new(start * SECOND),
        until: Micros::new((start + length) * SECOND),
    }
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl Eq for Calendar {}

impl Hash for Calendar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        ptr::hash(self.0, state);
    }
}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.windows.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::{TimeOfDay, Unit, Weekday, Zone};

    fn calendar(unit: Unit, zone: &str) -> Calendar {
        Calendar::new(Windows {
            unit,
            zone: Zone::named(zone).unwrap(),
            start: TimeOfDay::MIDNIGHT,
        })
    }

    #[test]
    fn a_kept_window_is_the_window_of_the_calendar() {
        for unit in [
            Unit::Day,
            Unit::Week(Weekday::Sunday),
            Unit::Month,
            Unit::Year,
        ] {
            let calendar = calendar(unit, "America/Sao_Paulo");
            let mut now = Micros::from_secs(1_400_000_000);
            for _ in 0..3_000 {
                let found = calendar.windows().at(now);
                assert_eq!([calendar.at(now), calendar.at(now)], [found; 2]);
                assert!(packed(found).is_some());
                now = now.saturating_add(Micros::from_secs(29_789));
            }
        }
    }

    #[test]
    fn the_window_beside_follows_or_comes_before() {
        let calendar = calendar(Unit::Month, "America/Sao_Paulo");
        for day in 15_000..16_000 {
            let now = Micros::from_secs(day * 86_400);
            let (present, beside) = (calendar.at(now), calendar.beside(now));
            assert_eq!(beside, calendar.windows().at(beside.from));
            assert!(beside.until == present.from || beside.from == present.until);
        }
    }

    #[test]
    fn the_window_beside_is_the_nearer_one() {
        let calendar = calendar(Unit::Day, "UTC");
        let hours = |hours: u64| Micros::from_secs(10 * 86_400 + hours * 3_600);
        assert_eq!(calendar.beside(hours(1)).until, hours(0));
        assert_eq!(calendar.beside(hours(11)).until, hours(0));
        assert_eq!(calendar.beside(hours(13)).from, hours(24));
    }

    #[test]
    fn every_moment_has_a_window() {
        let calendar = calendar(Unit::Year, "Pacific/Apia");
        for now in [0, 1, 1 << 53, (1 << 63) + 1, u64::MAX - 1].map(Micros::new) {
            assert!(calendar.at(now).contains(now), "{now:?}");
        }
    }

    #[test]
    fn calendars_are_equal_if_their_windows_are() {
        let london = calendar(Unit::Day, "Europe/London");
        assert_eq!(london, calendar(Unit::Day, "europe/london"));
        assert_ne!(london, calendar(Unit::Month, "Europe/London"));
        assert_ne!(london, calendar(Unit::Day, "Europe/Paris"));
    }
}
