//! Those who wait, each in the line of one key under one policy, in the order of their arrival.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use ahash::RandomState;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::clock::Timers;
use crate::key::Key;

/// All who wait before one layer.
#[derive(Default)]
pub(super) struct Crowd {
    lines: Mutex<Lines>,
    /// How many they are, for those who would rather not lock.
    waiting: AtomicUsize,
    timers: Timers,
}

#[derive(Default)]
struct Lines {
    /// None is empty.
    of: HashMap<LineOf, Line, RandomState>,
    joined: u64,
    waiting: usize,
}

/// A policy, by its place in the layer's list, and a key under it.
pub(super) type LineOf = (usize, Key);

type Line = BTreeMap<Number, Member>;

/// When a request arrived, and its number among all that have begun to wait. It keeps both when it
/// moves to another line, so that of any two the same one goes first everywhere: nobody can wait for
/// somebody who waits for it.
type Number = (Instant, u64);

struct Member {
    cost: u32,
    waker: Option<Waker>,
    /// Of the one at the front: by when it has asked, if anybody polls it. After that it is overdue,
    /// and holds up nobody any more.
    acts_by: Option<Instant>,
}

/// One who is at the front and does nothing holds up those behind it for so long; they look after it
/// as often.
const PATIENCE: Duration = Duration::from_secs(1);

/// A request's place in a line, until this is dropped.
pub(super) struct Place {
    crowd: Arc<Crowd>,
    line: LineOf,
    number: Number,
}

/// Where a request stands.
pub(super) enum Stand {
    Front,
    /// Behind another, which has asked by this moment or is overdue.
    Behind(Instant),
}

impl Crowd {
    pub(super) fn new(timers: Timers) -> Self {
        Self {
            timers,
            ..Self::default()
        }
    }

    pub(super) fn timers(&self) -> &Timers {
        &self.timers
    }

    /// How long a request at the front that does nothing holds up those behind it.
    pub(super) fn patience(&self) -> Duration {
        self.timers.patience(PATIENCE)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Whether anybody stands in this line.
    pub(super) fn has_line(&self, line: &LineOf) -> bool {
        self.lock().of.contains_key(line)
    }

    /// A place in this line for a request that arrived then; `None` if that many stand there
    /// already, or so many in all lines.
    pub(super) fn stand(
        self: &Arc<Self>,
        line: LineOf,
        cost: u32,
        arrived: Instant,
        (places, in_all): (u32, u32),
    ) -> Option<Place> {
        let mut lines = self.lock();
        if !lines.has_room(&line, places) || !is_less(lines.waiting, in_all) {
            return None;
        }
        let number = (arrived, lines.joined);
        lines.joined += 1;
        lines.join(line, number, cost);
        self.waiting.store(lines.waiting, Ordering::Release);
        Some(Place {
            crowd: Arc::clone(self),
            line,
            number,
        })
    }

    /// What each costs who stands in a line before this place, or all of them, in their order.
    pub(super) fn costs(&self, line: &LineOf, before: Option<&Place>) -> SmallVec<[u32; 16]> {
        let lines = self.lock();
        let Some(line) = lines.of.get(line) else {
            return SmallVec::new();
        };
        let end = before.map_or(Bound::Unbounded, |place| Bound::Excluded(place.number));
        let before = line.range((Bound::Unbounded, end));
        before.map(|(_, member)| member.cost).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_less(taken: usize, places: u32) -> bool {
    u32::try_from(taken).is_ok_and(|taken| taken < places)
}

impl Lines {
    fn has_room(&self, line: &LineOf, places: u32) -> bool {
        is_less(self.of.get(line).map_or(0, BTreeMap::len), places)
    }

    fn join(&mut self, line: LineOf, number: Number, cost: u32) {
        let member = Member {
            cost,
            waker: None,
            acts_by: None,
        };
        self.of.entry(line).or_default().insert(number, member);
        self.waiting += 1;
    }

    /// Returns the one who is to be woken, since it is at the front now.
    fn leave(&mut self, line: LineOf, number: Number, crowd: &Crowd) -> Option<Waker> {
        let members = self.of.get_mut(&line)?;
        if members.remove(&number).is_some() {
            self.waiting -= 1;
        }
        if members.is_empty() {
            self.of.remove(&line);
            return None;
        }
        let now = crowd.timers.now();
        let front = members.iter_mut().find(|(_, it)| !it.is_overdue(now));
        let (_, front) = front.filter(|(front, _)| **front > number)?;
        front.is_to_act(now + crowd.patience())
    }
}

impl Member {
    fn is_overdue(&self, now: Instant) -> bool {
        self.acts_by.is_some_and(|moment| moment <= now)
    }

    /// It is at the front, and may not know it yet.
    fn is_to_act(&mut self, acts_by: Instant) -> Option<Waker> {
        self.acts_by.get_or_insert(acts_by);
        self.waker.take()
    }
}

impl Place {
    /// Where it stands; at the front it will have acted a while after `due`. Whoever stands behind
    /// another is woken when it comes to the front.
    pub(super) fn look(&self, cx: &Context<'_>, now: Instant, due: Instant) -> Stand {
        let patience = self.crowd.patience();
        let mut lines = self.crowd.lock();
        let Some(members) = lines.of.get_mut(&self.line) else {
            return Stand::Front;
        };
        let mut before = members.range_mut(..self.number);
        let Some((_, front)) = before.find(|(_, it)| !it.is_overdue(now)) else {
            if let Some(member) = members.get_mut(&self.number) {
                member.acts_by = Some(due.max(now) + patience);
            }
            return Stand::Front;
        };
        // It is there since those before it are overdue.
        let is_new = front.acts_by.is_none();
        let woken = is_new.then(|| front.is_to_act(now + patience)).flatten();
        let acts_by = front.acts_by.unwrap_or(now + patience);
        if let Some(member) = members.get_mut(&self.number) {
            member.waker = Some(cx.waker().clone());
        }
        drop(lines);
        woken.into_iter().for_each(Waker::wake);
        Stand::Behind(acts_by)
    }

    /// One of these lines in which somebody stands who goes first.
    pub(super) fn is_behind_in(
        &self,
        others: impl IntoIterator<Item = LineOf>,
        now: Instant,
    ) -> Option<LineOf> {
        let lines = self.crowd.lock();
        others.into_iter().find(|other| {
            let members = lines.of.get(other).filter(|_| *other != self.line);
            let mut before = members.into_iter().flat_map(|it| it.range(..self.number));
            before.any(|(_, member)| !member.is_overdue(now))
        })
    }

    /// Goes to another line, and stands there as if it had been there all the time. It stays where it
    /// is if that many stand there already, and returns `false`.
    pub(super) fn move_to(&mut self, line: LineOf, cost: u32, places: u32) -> bool {
        if line == self.line {
            return true;
        }
        let mut lines = self.crowd.lock();
        if !lines.has_room(&line, places) {
            return false;
        }
        let next = lines.leave(self.line, self.number, &self.crowd);
        lines.join(line, self.number, cost);
        drop(lines);
        self.line = line;
        next.into_iter().for_each(Waker::wake);
        true
    }
}

/// The next one moves up.
impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.crowd.lock();
        let next = lines.leave(self.line, self.number, &self.crowd);
        self.crowd.waiting.store(lines.waiting, Ordering::Release);
        drop(lines);
        next.into_iter().for_each(Waker::wake);
    }
}

impl fmt::Debug for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crowd")
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: (u32, u32) = (3, 5);

    fn line(policy: usize) -> LineOf {
        (policy, Key::GLOBAL)
    }

    #[test]
    fn nothing_is_left_of_a_line_when_all_have_gone_whichever_goes_first() {
        for leaving in [[0, 0, 0], [2, 1, 0], [1, 1, 0]] {
            let crowd = Arc::<Crowd>::default();
            let now = Instant::now();
            let stand = |policy| crowd.stand(line(policy), 1, now, BOUNDS);
            let mut places: Vec<_> = (0..3).filter_map(|_| stand(0)).collect();
            assert!(stand(0).is_none(), "full");
            let others: Vec<_> = (0..2).filter_map(|_| stand(1)).collect();
            assert!(stand(1).is_none(), "full in all");
            drop(others);
            for place in leaving {
                assert!(!crowd.is_empty());
                drop(places.remove(place));
            }
            assert!(crowd.is_empty());
            let lines = crowd.lock();
            assert_eq!((lines.of.len(), lines.waiting), (0, 0));
        }
    }

    #[test]
    fn who_moves_stands_where_it_would_have_stood_all_the_time() {
        let crowd = Arc::<Crowd>::default();
        let now = Instant::now();
        let mut first = crowd.stand(line(0), 5, now, BOUNDS).unwrap();
        let second = crowd.stand(line(1), 7, now, BOUNDS).unwrap();
        let later = now + Duration::from_millis(1);
        let third = crowd.stand(line(1), 9, later, BOUNDS).unwrap();
        assert_eq!(third.is_behind_in([line(0)], now), Some(line(0)));
        assert_eq!(second.is_behind_in([line(1)], now), None);
        assert!(!first.move_to(line(1), 6, 2), "full");
        assert!(first.move_to(line(1), 6, 3));
        assert_eq!(crowd.costs(&line(1), Some(&second))[..], [6]);
        assert_eq!(crowd.costs(&line(1), None)[..], [6, 7, 9]);
        assert!(!crowd.has_line(&line(0)));
        drop((first, third));
        assert_eq!(crowd.costs(&line(1), None)[..], [7]);
    }
}
