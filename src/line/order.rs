//! The order of the requests that a queue holds for one key.
//!
//! It is a plain data structure, without locks and timers, so that its tests can drive it step by step.

use std::collections::VecDeque;
use std::mem;
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::stretch::{Place, Stretch};
use crate::clock::Micros;

/// The requests of one key in the order of their turns.
///
/// When a turn becomes free, the requests behind it move up along the turns of this line alone: the turns in
/// between may belong to other processes.
#[derive(Debug)]
pub(super) struct Order {
    members: VecDeque<Member>,
    joined: u64,
    /// The moment at which the first member became the first.
    front_since: Instant,
    /// How long a request that is due, but whose future is not polled, holds up the requests behind it. These
    /// look after that time whether they have moved up.
    patience: Duration,
    /// Turns behind all members, earliest first, which the store could not take back because other processes
    /// have turns behind them. The next requests take them.
    spare: Vec<Stretch>,
}

#[derive(Debug)]
struct Member {
    number: u64,
    /// As many turns as the request costs, without a turn of another line in between.
    turns: Turns,
    /// Whether the request is going on. It stays at the front until it has left.
    goes_on: bool,
    waker: Option<Waker>,
}

type Turns = SmallVec<[Stretch; 1]>;

/// The next step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    GoesOn,
    /// The request looks again at this moment, or when it is woken.
    LooksAgain(Instant),
}

/// Consecutive turns that no request of a line takes.
#[derive(Debug)]
pub(crate) struct Free(Turns);

/// The patience of a line that waits by tokio's timers.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

impl Order {
    pub(super) fn new(now: Instant, patience: Duration) -> Self {
        Self {
            patience,
            members: VecDeque::new(),
            joined: 0,
            front_since: now,
            spare: Vec::new(),
        }
    }

    pub(super) fn numbered_from(self, joined: u64) -> Self {
        Self { joined, ..self }
    }

    /// Returns the number of the next request.
    pub(super) fn joined(&self) -> u64 {
        self.joined
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Inserts a request behind all requests whose turns begin earlier. Returns its number, and the turns of
    /// the place that it does not take.
    pub(super) fn join(&mut self, place: Place, now: Instant) -> (u64, Option<Free>) {
        let (index, place) = self.place(place);
        let (turns, free) = if index == self.members.len() {
            self.take_spare(place, now)
        } else {
            (SmallVec::from_slice(&[Stretch::all_of(place)]), None)
        };
        let number = self.joined;
        self.joined += 1;
        let member = Member {
            number,
            turns,
            goes_on: false,
            waker: None,
        };
        self.members.insert(index, member);
        (number, free)
    }

    /// Returns the turns for a request at the end of the line: spare ones first, then those of `place`.
    fn take_spare(&mut self, place: Place, now: Instant) -> (Turns, Option<Free>) {
        let own = Stretch::all_of(place);
        let spare = mem::take(&mut self.spare);
        let is_usable = |spare: &Stretch| {
            let is_earlier = spare.begins() < own.begins();
            is_earlier && spare.of().is_of_the_clock_of(&place) && spare.ends_at() > now
        };
        let mut free: VecDeque<_> = spare.into_iter().filter(is_usable).collect();
        free.push_back(own);
        let turns = first_of(&mut free, own.count());
        let has_left = free
            .back()
            .is_some_and(|last| last.begins() >= own.begins());
        let unused = if has_left { free.pop_back() } else { None };
        self.spare = free.into();
        let unused = unused.map(|unused| Free(SmallVec::from_slice(&[unused])));
        (turns, unused)
    }

    /// Keeps turns that the store could not take back. Members behind them move up. Returns the turns that
    /// these leave, and the waker of the first member if it has moved.
    pub(super) fn keep(&mut self, free: Free) -> (Option<Free>, Option<Waker>) {
        let Some(first) = free.0.first() else {
            return (None, None);
        };
        let behind = self.members.iter().position(|it| it.goes_after(first));
        let Some(index) = behind else {
            for turns in free.0 {
                let is_before = |spare: &Stretch| spare.begins() <= turns.begins();
                let place = self.spare.partition_point(is_before);
                self.spare.insert(place, turns);
            }
            return (None, None);
        };
        let free = self.close_up(index, free.0);
        let front = self.members.front_mut().filter(|_| index == 0);
        (free, front.and_then(|front| front.waker.take()))
    }

    /// Returns when a request in this place would go on.
    pub(super) fn due(&self, place: Place) -> Instant {
        let (_, place) = self.place(place);
        Stretch::all_of(place).due()
    }

    /// Returns where a request with these turns stands. The beginnings of the turns decide, because threads
    /// may arrive here in another order than that of the store's answers. The moments of two clocks cannot be
    /// compared: then the request stands behind all others and goes on after them.
    fn place(&self, place: Place) -> (usize, Place) {
        let mut index = self.members.len();
        let Some(last) = self.members.back().and_then(Member::last) else {
            return (index, place);
        };
        if !place.is_of_the_clock_of(last.of()) {
            return (index, place.pushed_to(last.ends_at()));
        }
        let own = Stretch::all_of(place);
        while index > 0 && self.members[index - 1].goes_after(&own) {
            index -= 1;
        }
        if index == self.members.len() && last.of().is_pushed() {
            return (index, place.pushed_to(last.ends_at()));
        }
        (index, place)
    }

    /// Returns what this request does next. Its task is woken when it becomes the first.
    pub(super) fn look(&mut self, number: u64, now: Instant, waker: &Waker) -> Next {
        let Some(index) = self.index(number) else {
            // The request was due and not polled, and others have passed it.
            return Next::GoesOn;
        };
        let due = self.members[index].due().unwrap_or(now);
        let goes_past = due.max(self.front_since) + self.patience;
        let acts_at = if index == 0 { due } else { goes_past };
        if acts_at <= now {
            self.members.drain(..index);
            self.members[0].goes_on = true;
            return Next::GoesOn;
        }
        let member = &mut self.members[index];
        match &mut member.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        // The task is not woken when requests before it leave.
        let looks_at = if index == 0 { due } else { now + self.patience };
        Next::LooksAgain(acts_at.min(looks_at))
    }

    /// Removes a request that has gone on or has gone away. If it had no turn yet, the requests behind it
    /// move up into its turns. Returns the turns that remain at the end, and the waker of the new first
    /// member.
    pub(super) fn leave(&mut self, number: u64, now: Instant) -> (Option<Free>, Option<Waker>) {
        let Some(index) = self.index(number) else {
            return (None, None);
        };
        let Some(gone) = self.members.remove(index) else {
            return (None, None);
        };
        let free = if gone.goes_on {
            None
        } else {
            self.close_up(index, gone.turns)
        };
        if index > 0 {
            return (free, None);
        }
        self.front_since = now;
        let front = self.members.front_mut();
        (free, front.and_then(|front| front.waker.take()))
    }

    /// Lets the members from `from` on move up into `turns`, each as early as it can. Returns the turns that
    /// remain.
    fn close_up(&mut self, from: usize, turns: Turns) -> Option<Free> {
        let mut free: VecDeque<Stretch> = turns.into_iter().collect();
        for member in self.members.range_mut(from..) {
            let turns = mem::take(&mut member.turns);
            let needed = turns.iter().map(Stretch::count).sum();
            free.extend(turns);
            member.turns = first_of(&mut free, needed);
        }
        let mut last = Turns::from_slice(&[free.pop_back()?]);
        while let Some(before) = free.pop_back()
            && before.is_followed_by(&last[0])
        {
            last.insert(0, before);
        }
        Some(Free(last))
    }

    fn index(&self, number: u64) -> Option<usize> {
        let mut members = self.members.iter();
        members.position(|member| member.number == number)
    }
}

impl Member {
    fn due(&self) -> Option<Instant> {
        self.turns.first().map(Stretch::due)
    }

    fn last(&self) -> Option<&Stretch> {
        self.turns.last()
    }

    fn goes_after(&self, turns: &Stretch) -> bool {
        let is_later = |first: &Stretch| {
            first.of().is_of_the_clock_of(turns.of()) && first.begins() > turns.begins()
        };
        !self.goes_on && self.turns.first().is_some_and(is_later)
    }
}

impl Free {
    pub(crate) fn all_of(place: Place) -> Self {
        Self(SmallVec::from_slice(&[Stretch::all_of(place)]))
    }

    /// Returns the number of turns.
    pub(crate) fn count(&self) -> u32 {
        self.0.iter().map(Stretch::count).sum()
    }

    /// Returns when the first turn begins, by the clock of the store.
    pub(crate) fn begins(&self) -> Micros {
        self.0.first().map_or(Micros::ZERO, Stretch::begins)
    }

    /// Returns whether the store was away when it charged the turns.
    pub(super) fn is_degraded(&self) -> bool {
        self.0.iter().any(|turns| turns.of().is_degraded())
    }
}

/// Removes the first `needed` consecutive turns. Shorter stretches before them pass unused.
fn first_of(free: &mut VecDeque<Stretch>, needed: u32) -> Turns {
    let mut taken = Turns::new();
    let mut missing = needed;
    while missing > 0
        && let Some(next) = free.pop_front()
    {
        if taken.last().is_some_and(|last| !last.is_followed_by(&next)) {
            taken.clear();
            missing = needed;
        }
        if next.count() > missing {
            free.push_front(next.without_the_first(missing));
        }
        let part = next.first(next.count().min(missing));
        missing -= part.count();
        taken.push(part);
    }
    taken
}

#[cfg(test)]
mod tests;
