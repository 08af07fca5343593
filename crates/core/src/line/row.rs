//! The requests of one line, in their order.
//!
//! The first request goes on and wakes the next. A request that was woken may not be polled, and must not
//! block the others: when it has not gone on for a while, it is overdue, and the others pass it. It keeps its
//! number, so it is the first again when it is polled.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

/// Requests by their numbers, the smallest first.
///
/// Nearly all join at the end and leave at the front. A search looks at those before a request anyway.
#[derive(Debug)]
pub struct Row<N> {
    members: VecDeque<Member<N>>,
}

#[derive(Debug)]
struct Member<N> {
    number: N,
    waker: Option<Waker>,
    /// The moment by which the request, if it is polled, has gone on or waits again. Set when it comes to the
    /// front; the request is overdue after it.
    acts_by: Option<Instant>,
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// It is the first.
    Front,
    /// Behind a request that has acted by this moment, or is overdue then.
    Behind(Instant),
}

/// Wakers to call after the lock is released.
pub type Woken = SmallVec<[Waker; 2]>;

impl<N: Copy + Ord> Row<N> {
    /// Returns whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns how many wait.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Puts a request at the end.
    pub fn join(&mut self, number: N) {
        let place = self.place(number);
        let member = Member {
            number,
            waker: None,
            acts_by: None,
        };
        self.members.insert(place, member);
    }

    /// Removes a request. Returns whether it was there.
    pub fn remove(&mut self, number: N) -> bool {
        let place = self.place(number);
        self.at(place, number).is_some() && self.members.remove(place).is_some()
    }

    /// Removes a request. Returns whether it was there, and the waker of the request that is at the front
    /// now.
    pub(crate) fn leave(
        &mut self,
        number: N,
        now: Instant,
        patience: Duration,
    ) -> (bool, Option<Waker>) {
        let was_there = self.remove(number);
        let front = self.active(now).next();
        let front = front.filter(|front| front.number > number);
        let waker = front.and_then(|front| front.is_to_act(now + patience));
        (was_there, waker)
    }

    /// Returns where a request stands that can go on at `due`. If it stands behind another one, it is woken
    /// when it comes to the front. The returned waker is that of a request that is at the front because
    /// others are overdue.
    pub fn look(
        &mut self,
        number: N,
        (now, due): (Instant, Instant),
        patience: Duration,
        waker: &Waker,
    ) -> (Position, Option<Waker>) {
        let place = self.place(number);
        let mut before = self.members.iter_mut().take(place);
        let Some(front) = before.find(|member| !member.is_overdue(now)) else {
            if let Some(member) = self.at(place, number) {
                member.acts_by = Some(due.max(now) + patience);
                member.waker = Some(waker.clone());
            }
            return (Position::Front, None);
        };
        let is_new = front.acts_by.is_none();
        let woken = is_new.then(|| front.is_to_act(now + patience)).flatten();
        let acts_by = front.acts_by.unwrap_or(now + patience);
        if let Some(member) = self.at(place, number) {
            member.waker = Some(waker.clone());
        }
        (Position::Behind(acts_by), woken)
    }

    /// Returns whether another request goes before this one.
    pub(crate) fn is_behind(&self, number: N, now: Instant) -> bool {
        let mut before = self.members.iter().take(self.place(number));
        before.any(|member| !member.is_overdue(now))
    }

    /// Returns how many requests stand before the first one for which this does not hold.
    pub(crate) fn leading(&self, holds: impl Fn(N) -> bool) -> usize {
        self.members.partition_point(|member| holds(member.number))
    }

    /// Returns the requests in their order.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = N> {
        self.members.iter().map(|member| member.number)
    }

    fn active(&mut self, now: Instant) -> impl Iterator<Item = &mut Member<N>> {
        let members = self.members.iter_mut();
        members.filter(move |member| !member.is_overdue(now))
    }

    /// Returns how many requests are before this one.
    fn place(&self, number: N) -> usize {
        self.members
            .partition_point(|member| member.number < number)
    }

    fn at(&mut self, place: usize, number: N) -> Option<&mut Member<N>> {
        let member = self.members.get_mut(place);
        member.filter(|member| member.number == number)
    }
}

impl<N: Copy + Ord> Row<N> {
    /// Takes the wakers of the first two requests after a change that concerns the first. If the first does
    /// nothing, the second has to know when the first is overdue.
    pub fn wake(&mut self, now: Instant, patience: Duration) -> Woken {
        let acts_by = now + patience;
        let mut woken = Woken::new();
        let mut active = self.active(now);
        if let Some(front) = active.next() {
            front.acts_by = Some(front.acts_by.map_or(acts_by, |known| known.min(acts_by)));
            woken.extend(front.waker.take());
        }
        woken.extend(active.next().and_then(|second| second.waker.take()));
        woken
    }
}

impl<N> Default for Row<N> {
    fn default() -> Self {
        Self {
            members: VecDeque::new(),
        }
    }
}

impl<N> Member<N> {
    fn is_overdue(&self, now: Instant) -> bool {
        self.acts_by.is_some_and(|moment| moment <= now)
    }

    /// Sets when the member has to act, since it is at the front. Returns its waker if it may not know that
    /// yet.
    fn is_to_act(&mut self, acts_by: Instant) -> Option<Waker> {
        self.acts_by.get_or_insert(acts_by);
        self.waker.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(1);

    #[test]
    fn a_request_that_does_nothing_is_passed_after_a_while_and_is_the_first_again_when_it_acts() {
        let mut row = Row::default();
        (0..3).for_each(|number| row.join(number));
        let start = Instant::now();
        let mut look =
            |number: u32, now, due| row.look(number, (now, due), PATIENCE, Waker::noop());
        let due = start + 3 * PATIENCE;
        assert_eq!(look(0, start, due).0, Position::Front);
        let overdue = due + PATIENCE;
        assert_eq!(look(1, start, due).0, Position::Behind(overdue));
        // The second request may do nothing either; that is not known yet.
        assert_eq!(
            look(2, overdue, due).0,
            Position::Behind(overdue + PATIENCE)
        );
        assert_eq!(look(1, overdue, due).0, Position::Front);
        assert_eq!(look(0, overdue, due).0, Position::Front);
        assert_eq!(
            look(1, overdue, due).0,
            Position::Behind(overdue + PATIENCE)
        );
    }

    #[test]
    fn the_next_one_is_woken_when_the_one_before_it_leaves_and_not_when_another_does() {
        let mut row = Row::default();
        (0..4).for_each(|number| row.join(number));
        let now = Instant::now();
        for number in 0..4 {
            let _ = row.look(number, (now, now), PATIENCE, Waker::noop());
        }
        assert!(row.leave(2, now, PATIENCE).1.is_none());
        assert!(row.leave(0, now, PATIENCE).1.is_some());
        assert!(row.numbers().eq([1, 3]) && row.is_behind(3, now));
        // The request was woken, and does nothing.
        assert!(!row.is_behind(3, now + PATIENCE));
        assert!(!row.leave(2, now, PATIENCE).0);
    }
}
