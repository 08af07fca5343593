use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Micros;

/// The turns that a store has charged one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    turns: u32,
    /// When the first turn begins and the last one ends, by the clock of the store, rounded up.
    begins: Micros,
    ends: Micros,
    /// When the first turn begins, by the timers of this process.
    due: Instant,
    /// How much later than that the request goes on, since it stands behind requests of another clock.
    pushed: Duration,
    /// Whether the store was away: the clock is that of this process then.
    is_degraded: bool,
}

/// An answer may be late by so much, and a clock still be the same.
const SLACK: Duration = Duration::from_secs(1);

impl Place {
    /// So many turns, which begin and end then by the clock of the store. The first is due at this moment.
    pub(crate) fn new(turns: u32, (begins, ends): (Micros, Micros), due: Instant) -> Self {
        Self {
            turns,
            begins,
            ends,
            due,
            pushed: Duration::ZERO,
            is_degraded: false,
        }
    }

    /// Says whether the turns were told while the store was away.
    pub(crate) fn degraded(self, is_degraded: bool) -> Self {
        Self {
            is_degraded,
            ..self
        }
    }

    /// Whether the moments of both are those of one clock: one that runs as the timers do, and has not been
    /// set in between.
    pub(super) fn is_of_the_clock_of(&self, other: &Self) -> bool {
        let told = i128::from(self.begins.get()) - i128::from(other.begins.get());
        let later = self.due.saturating_duration_since(other.due).as_micros();
        let earlier = other.due.saturating_duration_since(self.due).as_micros();
        // What no platform can hold is not the same clock.
        let apart = i128::try_from(later).unwrap_or(i128::MAX)
            - i128::try_from(earlier).unwrap_or(i128::MAX);
        let differs = told.saturating_sub(apart).unsigned_abs();
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

    /// When the turn of this number begins, rounded up. Of what is told the first and the last are
    /// exact; one between them may be told a microsecond late, and never early.
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

/// Turns of one place, one behind the other: all of them, or some.
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

    /// Whether no turn of another process lies between this and the next. The end of a part may be told a
    /// microsecond late.
    pub(super) fn is_followed_by(&self, next: &Self) -> bool {
        let late = self.ends().get().checked_sub(next.begins().get());
        self.of.is_of_the_clock_of(&next.of) && late.is_some_and(|late| late <= 1)
    }

    /// The first of its turns, without the others.
    pub(super) fn first(self, count: u32) -> Self {
        Self { count, ..self }
    }

    /// Its turns but for the first ones.
    pub(super) fn without_the_first(self, count: u32) -> Self {
        Self {
            first: self.first + count,
            count: self.count - count,
            ..self
        }
    }
}
