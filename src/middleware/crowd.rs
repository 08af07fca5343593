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

use crate::key::Key;

/// All who wait before one layer.
#[derive(Default)]
pub(super) struct Crowd {
    lines: Mutex<Lines>,
    /// How many they are, for those who would rather not lock.
    waiting: AtomicUsize,
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

/// One who is at the front and does nothing holds up those behind it for so long.
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
    /// Behind another; who is right behind the front looks again at this moment.
    Behind(Option<Instant>),
}

impl Crowd {
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
        let has_room = |taken: usize, places: u32| u32::try_from(taken).is_ok_and(|n| n < places);
        let there = lines.of.get(&line).map_or(0, BTreeMap::len);
        if !has_room(there, places) || !has_room(lines.waiting, in_all) {
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

    /// What those cost who stand in a line before this place, or all of them.
    pub(super) fn units(&self, line: &LineOf, before: Option<&Place>) -> u64 {
        let lines = self.lock();
        let Some(line) = lines.of.get(line) else {
            return 0;
        };
        let end = before.map_or(Bound::Unbounded, |place| Bound::Excluded(place.number));
        let before = line.range((Bound::Unbounded, end));
        before.map(|(_, member)| u64::from(member.cost)).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    fn join(&mut self, line: LineOf, number: Number, cost: u32) {
        let member = Member {
            cost,
            waker: None,
            acts_by: None,
        };
        self.of.entry(line).or_default().insert(number, member);
        self.waiting += 1;
    }

    /// Returns those who are to be woken: the one who is at the front now, and the one behind it, who
    /// takes care that it acts.
    fn leave(&mut self, line: LineOf, number: Number) -> SmallVec<[Waker; 2]> {
        let mut woken = SmallVec::new();
        let Some(members) = self.of.get_mut(&line) else {
            return woken;
        };
        if members.remove(&number).is_some() {
            self.waiting -= 1;
        }
        if members.is_empty() {
            self.of.remove(&line);
            return woken;
        }
        let now = Instant::now();
        let fresh = members.iter_mut().filter(|(_, it)| !it.is_overdue(now));
        for (index, (first, member)) in fresh.take(2).enumerate() {
            if index == 0 && member.acts_by.is_none() {
                member.acts_by = Some(now + PATIENCE);
            }
            // Those who stood before the one that has left see no difference, but for the front.
            if *first > number {
                woken.extend(member.waker.take());
            }
        }
        woken
    }
}

impl Member {
    fn is_overdue(&self, now: Instant) -> bool {
        self.acts_by.is_some_and(|moment| moment <= now)
    }
}

impl Place {
    /// Where it stands; at the front it will have acted a while after `due`. Whoever stands
    /// elsewhere is woken when that changes.
    pub(super) fn look(&self, cx: &Context<'_>, now: Instant, due: Instant) -> Stand {
        let mut lines = self.crowd.lock();
        let mut woken: SmallVec<[Waker; 1]> = SmallVec::new();
        let Some(members) = lines.of.get_mut(&self.line) else {
            return Stand::Front;
        };
        let before = members.range_mut(..self.number);
        let mut fresh = before.filter(|(_, it)| !it.is_overdue(now));
        let stand = match (fresh.next(), fresh.next()) {
            (None, _) => Stand::Front,
            (Some(_), Some(_)) => Stand::Behind(None),
            (Some((_, front)), None) => {
                // It is there because those before it are overdue, and has not seen it yet.
                let acts_by = *front.acts_by.get_or_insert_with(|| {
                    woken.extend(front.waker.take());
                    now + PATIENCE
                });
                Stand::Behind(Some(acts_by))
            }
        };
        if let Some(member) = members.get_mut(&self.number) {
            member.waker = Some(cx.waker().clone());
            if let Stand::Front = stand {
                let is_new = member.acts_by.replace(due.max(now) + PATIENCE).is_none();
                let after = (Bound::Excluded(self.number), Bound::Unbounded);
                if is_new && let Some((_, next)) = members.range_mut(after).next() {
                    woken.extend(next.waker.take());
                }
            }
        }
        drop(lines);
        woken.into_iter().for_each(Waker::wake);
        stand
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

    /// Goes to another line, and stands there as if it had been there all the time.
    pub(super) fn move_to(&mut self, line: LineOf, cost: u32) {
        if line == self.line {
            return;
        }
        let mut lines = self.crowd.lock();
        let woken = lines.leave(self.line, self.number);
        lines.join(line, self.number, cost);
        drop(lines);
        self.line = line;
        woken.into_iter().for_each(Waker::wake);
    }
}

/// The next one moves up.
impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.crowd.lock();
        let woken = lines.leave(self.line, self.number);
        self.crowd.waiting.store(lines.waiting, Ordering::Release);
        drop(lines);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl fmt::Debug for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crowd")
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}
