//! The turns that a store has charged, as places and stretches on the time line of a queue.
//!
//! A request may get its turns from several places, when requests before it have gone away.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Micros;

/// The turns that a store has charged one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    turns: u32,
    /// When the store charged them, by its clock.
    charged: Micros,
    /// The beginning of the first turn and the end of the last, by the same clock, rounded up.
    begins: Micros,
    ends: Micros,
    /// When the first turn begins, by the timers of this process.
    due: Instant,
    /// How much later than `due` the request goes on, because it stands behind requests of another clock.
    pushed: Duration,
    /// Whether the store was away, so that the moments are by the clock of this process.
    is_degraded: bool,
}

/// The difference up to which two pairs of moments count as readings of one clock: an answer may be late.
const SLACK: Duration = Duration::from_secs(1);

impl Place {
    /// Creates a place of consecutive turns that the store charged at the first of these moments of its clock. They
    /// begin and end at the others.
    pub(crate) fn new(turns: u32, [charged, begins, ends]: [Micros; 3], due: Instant) -> Self {
        Self {
            turns,
            charged,
            begins,
            ends,
            due,
            pushed: Duration::ZERO,
            is_degraded: false,
        }
    }

    /// Sets whether the turns were charged while the store was away.
    pub(crate) fn degraded(self, is_degraded: bool) -> Self {
        Self {
            is_degraded,
            ..self
        }
    }

    /// Returns whether the moments of both places come from one clock, which runs as the timers do and was
    /// not set in between.
    pub(super) fn is_of_the_clock_of(&self, other: &Self) -> bool {
        let between_begins = i128::from(self.begins.get()) - i128::from(other.begins.get());
        let later = self.due.saturating_duration_since(other.due).as_micros();
        let earlier = other.due.saturating_duration_since(self.due).as_micros();
        // A difference that overflows is not that of one clock.
        let apart = i128::try_from(later).unwrap_or(i128::MAX)
            - i128::try_from(earlier).unwrap_or(i128::MAX);
        let differs = between_begins.saturating_sub(apart).unsigned_abs();
        self.is_degraded == other.is_degraded && differs <= SLACK.as_micros()
    }

    pub(super) fn is_degraded(&self) -> bool {
        self.is_degraded
    }

    pub(super) fn is_pushed(&self) -> bool {
        self.pushed > Duration::ZERO
    }

    /// Pushes the turns back, so that the first begins no earlier than this moment.
    pub(super) fn pushed_to(self, earliest: Instant) -> Self {
        let pushed = earliest.saturating_duration_since(self.due);
        Self { pushed, ..self }
    }

    /// Returns when the turn of this number begins, rounded up. The first and the last moment are exact; one
    /// between them may be a microsecond late, and is never early.
    fn moment(&self, turn: u32) -> Micros {
        if turn == self.turns {
            return self.ends;
        }
        let all = u128::from(self.ends.saturating_sub(self.begins).get());
        let of_it = (all * u128::from(turn)).div_ceil(self.turns.max(1).into());
        self.begins.saturating_add(Micros::wait(of_it))
    }

    fn due_at(&self, turn: u32) -> Instant {
        let later = self.moment(turn).saturating_sub(self.begins);
        let due = self.due.checked_add(self.pushed + later.to_duration());
        due.unwrap_or(self.due)
    }
}

/// Consecutive turns of one place: all of them, or some.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    of: Place,
    first: u32,
    count: u32,
}

impl Stretch {
    pub(super) fn all_of(place: Place) -> Self {
        Self {
            of: place,
            first: 0,
            count: place.turns,
        }
    }

    pub(super) fn of(&self) -> &Place {
        &self.of
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn begins(&self) -> Micros {
        self.of.moment(self.first)
    }

    pub(super) fn due(&self) -> Instant {
        self.of.due_at(self.first)
    }

    pub(super) fn ends(&self) -> Micros {
        self.of.moment(self.first + self.count)
    }

    pub(super) fn ends_at(&self) -> Instant {
        self.of.due_at(self.first + self.count)
    }

    /// Returns the turns that have not begun. A request that takes a turn late is too close to the next turn,
    /// which may belong to another process.
    pub(super) fn not_begun(self, now: Instant) -> Option<Self> {
        let (mut begun, mut not_begun) = (0, self.count);
        while begun < not_begun {
            let middle = begun + (not_begun - begun) / 2;
            if self.of.due_at(self.first + middle) < now {
                begun = middle + 1;
            } else {
                not_begun = middle;
            }
        }
        (begun < self.count).then(|| self.without_the_first(begun))
    }

    /// Returns whether the store may have charged these turns after the others, which begin before them. Threads may
    /// handle its answers in another order.
    pub(super) fn may_be_charged_after(&self, others: &Self) -> bool {
        let late = others.ends().get().saturating_sub(self.begins().get());
        self.of.is_of_the_clock_of(&others.of) && self.of.charged >= others.of.charged && late <= 1
    }

    /// Returns whether no turn of another process lies between this stretch and the next. The end of a part
    /// may be a microsecond late.
    pub(super) fn is_followed_by(&self, next: &Self) -> bool {
        let late = self.ends().get().checked_sub(next.begins().get());
        self.of.is_of_the_clock_of(&next.of) && late.is_some_and(|late| late <= 1)
    }

    /// Returns the first `count` turns.
    pub(super) fn first(self, count: u32) -> Self {
        Self { count, ..self }
    }

    /// Returns all turns but the first `count`.
    pub(super) fn without_the_first(self, count: u32) -> Self {
        Self {
            first: self.first + count,
            count: self.count - count,
            ..self
        }
    }
}
