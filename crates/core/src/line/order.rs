//! The order of the requests that a queue holds for one key.
//!
//! It is a plain data structure, without locks and timers, so that its tests can drive it step by step.

use std::collections::VecDeque;
use std::mem;
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::given_up::GivenUp;
use super::round::{Round, Tenant};
use super::stretch::{Place, Stretch};
use crate::clock::Micros;

/// The requests of one key in the order of their turns.
///
/// When a turn becomes free, the requests behind it move up along the turns of this line alone: the turns in
/// between may belong to other processes.
///
/// If tenants share the key, their requests go on in another order, and each takes the first turns of the line then: a request
/// exchanges its turns with those before it.
#[derive(Debug)]
pub(super) struct Order {
    members: VecDeque<Member>,
    joined: u64,
    /// The moment at which the first member became the first.
    front_since: Instant,
    /// How long a request that is due, but whose future is not polled, holds up the requests behind it. These
    /// look after that time whether they have moved up.
    patience: Duration,
    /// Turns behind all members, earliest first, which no request takes. The next requests take them, unless
    /// they are given back to the store before: the store takes back its last turns alone, and other processes
    /// may have turns behind these.
    spare: Vec<Stretch>,
    /// Whether the store is being asked to take turns back. What becomes free meanwhile waits for the answer,
    /// since the store may be able to take it back then.
    is_returning: bool,
    /// Whose request goes on next, if tenants share the key.
    round: Option<Box<Round>>,
    /// Whose turns the spare ones are, if tenants share the key.
    given_up: GivenUp,
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
pub(crate) struct Free {
    turns: Turns,
    /// Who was charged for as many turns, if tenants share the key.
    tenant: Option<Tenant>,
}

/// The number of stretches of turns that a line keeps for the next requests. Later ones pass unused.
const MOST_SPARE: usize = 1_024;

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
            is_returning: false,
            round: None,
            given_up: GivenUp::default(),
        }
    }

    /// Lets tenants take turns, of which this many are told apart.
    pub(super) fn shared_by(self, tenants: Option<usize>) -> Self {
        let round = tenants.map(|most| Box::new(Round::of(most)));
        Self { round, ..self }
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

    /// Returns whether nothing is lost with this line.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let has_begun = |spare: &Stretch| spare.not_begun(now).is_none();
        self.is_empty() && !self.is_returning && self.spare.iter().all(has_begun)
    }

    /// Inserts a request behind all requests whose turns begin earlier. Returns its number. What it does not
    /// take of its place is free.
    pub(super) fn join(&mut self, place: Place, tenant: Option<Tenant>, now: Instant) -> u64 {
        let (index, place) = self.place(place);
        let own = Stretch::all_of(place);
        let turns = if index == self.members.len() {
            let mut free = self.usable_before(&own, now);
            free.push_back(own);
            let turns = first_of(&mut free, own.count());
            self.forget_spare_before(&own);
            free.extend(mem::take(&mut self.spare));
            self.spare = free.into();
            turns
        } else {
            SmallVec::from_slice(&[own])
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
        if let (Some(round), Some(tenant)) = (&mut self.round, tenant) {
            round.join(tenant, number, own.count());
            self.bring_next_forward();
        }
        number
    }

    /// Brings the request that goes on next to the front, if tenants share the key.
    fn bring_next_forward(&mut self) {
        let is_to_go = self.members.front().is_some_and(|front| !front.goes_on);
        let next = self.round.as_mut().filter(|_| is_to_go);
        if let Some(number) = next.and_then(|round| round.next())
            && let Some(index) = self.index(number)
            && index > 0
        {
            if self.members[index].cost() == self.members[0].cost() {
                self.members.swap(0, index);
                let later = mem::take(&mut self.members[0].turns);
                self.members[0].turns = mem::replace(&mut self.members[index].turns, later);
            } else if let Some(turns) = self.exchanged(index)
                && let Some(member) = self.members.remove(index)
            {
                self.members.push_front(member);
                for (member, turns) in self.members.iter_mut().zip(turns) {
                    member.turns = turns;
                }
            }
        }
    }

    /// Returns the turns of the members up to this one if it goes on before the others, or `None` if turns of other processes lie between
    /// those that a request would need.
    fn exchanged(&self, index: usize) -> Option<Vec<Turns>> {
        let members = self.members.range(..=index);
        let mut free: VecDeque<Stretch> = members.flat_map(|it| &it.turns).copied().collect();
        let own = self.members.range(index..=index);
        let later = own.chain(self.members.range(..index));
        let turns = later.map(|member| {
            let turns = first_of(&mut free, member.cost());
            (cost(&turns) == member.cost()).then_some(turns)
        });
        turns.collect()
    }

    /// Returns the spare turns that a request at the end of the line can take.
    fn usable_before(&self, own: &Stretch, now: Instant) -> VecDeque<Stretch> {
        let is_usable = |spare: &Stretch| {
            spare.begins() < own.begins() && spare.of().is_of_the_clock_of(own.of())
        };
        let usable = self.spare.iter().copied().filter(is_usable);
        usable.filter_map(|spare| spare.not_begun(now)).collect()
    }

    /// Adds turns that no request takes. Members behind them move up. Returns the waker of the first member if
    /// it has moved.
    pub(super) fn free(&mut self, free: Free, now: Instant) -> Option<Waker> {
        let turns = not_begun(free.turns, now);
        let first = turns.first()?;
        self.given_up.add(free.tenant, cost(&turns));
        match self.members.iter().position(|it| it.goes_after(first)) {
            None => self.spare_all(turns),
            Some(index) => {
                self.close_up(index, turns);
                let front = self.members.front_mut().filter(|_| index == 0);
                return front.and_then(|front| front.waker.take());
            }
        }
        None
    }

    fn spare_all(&mut self, free: impl IntoIterator<Item = Stretch>) {
        for turns in free {
            if self.spare.len() < MOST_SPARE {
                let is_before = |spare: &Stretch| spare.begins() <= turns.begins();
                let place = self.spare.partition_point(is_before);
                self.spare.insert(place, turns);
            }
        }
    }

    /// Forgets the spare turns that the store no longer counts: when it charged these turns, it would not have charged
    /// what begins earlier than a turn that it counts. It counts turns behind them that it has charged since.
    pub(super) fn forget_spare_before(&mut self, charged: &Stretch) {
        self.spare
            .retain(|spare| spare.may_be_charged_after(charged));
    }

    /// Returns the last spare turns, as far as they are consecutive and of one tenant, to give them back to the store. The
    /// line does not have them until [`answered`](Self::answered). Returns `None` while others are given back.
    pub(super) fn next_return(&mut self, now: Instant) -> Option<Free> {
        if self.is_returning {
            return None;
        }
        let (tenant, mut most) = match self.next_to_credit(now) {
            Some((tenant, most)) => (Some(tenant), most),
            None => (None, u32::MAX),
        };
        let mut turns = Turns::new();
        while most > 0
            && let Some(before) = self.spare.last().copied()
            && turns.last().is_none_or(|next| before.is_followed_by(next))
        {
            self.spare.pop();
            let Some(last) = before.not_begun(now) else {
                break;
            };
            let rest = last.count().saturating_sub(most);
            if rest > 0 {
                self.spare.push(last.first(rest));
            }
            turns.push(last.without_the_first(rest));
            most -= last.count() - rest;
        }
        if turns.is_empty() {
            return None;
        }
        turns.reverse();
        self.given_up.take(cost(&turns));
        self.is_returning = true;
        Some(Free { turns, tenant })
    }

    /// Returns the tenant whose turns are given back next, and how many at most, if tenants share the key.
    fn next_to_credit(&mut self, now: Instant) -> Option<(Tenant, u32)> {
        self.given_up.last()?;
        let spare = self.spare.iter().filter_map(|it| it.not_begun(now));
        self.given_up
            .keep(spare.map(|it| u64::from(it.count())).sum());
        self.given_up.last()
    }

    /// Records whether the store has taken these turns back; `None` if that is unknown, and then they pass
    /// unused. Returns turns to give back next, and the waker of the first member if it has moved.
    pub(super) fn answered(
        &mut self,
        free: Free,
        are_given_back: Option<bool>,
        now: Instant,
    ) -> (Option<Free>, Option<Waker>) {
        self.is_returning = false;
        let (Some(first), Some(last)) = (free.turns.first().copied(), free.turns.last().copied())
        else {
            return (None, None);
        };
        let is_last = |spare: &Stretch| spare.ends() > last.ends();
        // A beginning or an end may be told a microsecond late.
        let is_next = |spare: &Stretch| {
            let ends = spare.ends().saturating_add(Micros::new(1));
            !spare.of().is_of_the_clock_of(first.of()) || ends >= first.begins()
        };
        let (waker, asks_again) = match are_given_back {
            Some(true) => (None, self.spare.last().is_some_and(is_next)),
            Some(false) => {
                let waker = self.free(free, now);
                (waker, self.spare.last().is_some_and(is_last))
            }
            None => (None, false),
        };
        let next = if asks_again {
            self.next_return(now)
        } else {
            None
        };
        (next, waker)
    }

    /// Returns when a request in this place would go on.
    pub(super) fn due(&self, place: Place, tenant: Option<Tenant>, now: Instant) -> Instant {
        let (index, place) = self.place(place);
        let own = Stretch::all_of(place);
        if let (Some(round), Some(tenant)) = (&self.round, tenant) {
            let before = round.units_before(tenant, own.count());
            return self.due_after(before, &own, now);
        }
        if index < self.members.len() || self.spare.is_empty() {
            return own.due();
        }
        let mut free = self.usable_before(&own, now);
        free.push_back(own);
        let turns = first_of(&mut free, own.count());
        turns.first().map_or(own.due(), Stretch::due)
    }

    /// Returns when the first turn begins behind so many others, for a request with these turns.
    fn due_after(&self, mut units: u64, own: &Stretch, now: Instant) -> Instant {
        let waiting = self.members.iter().filter(|it| !it.goes_on);
        let turns = waiting.flat_map(|it| &it.turns).copied();
        for turns in turns.chain(self.usable_before(own, now)) {
            match u32::try_from(units) {
                Ok(units) if units < turns.count() => return turns.without_the_first(units).due(),
                _ => units -= u64::from(turns.count()),
            }
        }
        own.due()
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
            let passed: SmallVec<[u64; 4]> =
                self.members.drain(..index).map(|it| it.number).collect();
            self.members[0].goes_on = true;
            if let Some(round) = &mut self.round {
                let gone_on = passed.into_iter().chain([number]);
                for number in gone_on {
                    round.leave(number, true);
                }
            }
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
    /// move up into its turns, and what remains at the end is free. Returns whether anything is, and the waker
    /// of the new first member.
    pub(super) fn leave(&mut self, number: u64, now: Instant) -> (bool, Option<Waker>) {
        let Some(index) = self.index(number) else {
            return (false, None);
        };
        let Some(gone) = self.members.remove(index) else {
            return (false, None);
        };
        if !gone.goes_on {
            let turns = not_begun(gone.turns, now);
            let round = self.round.as_mut();
            let tenant = round.and_then(|round| round.leave(number, false));
            self.given_up.add(tenant, cost(&turns));
            self.close_up(index, turns);
        }
        if index > 0 {
            return (!gone.goes_on, None);
        }
        self.front_since = now;
        self.bring_next_forward();
        let front = self.members.front_mut();
        (!gone.goes_on, front.and_then(|front| front.waker.take()))
    }

    /// Lets the members from `from` on move up into `turns`, each as early as it can. What remains is spare.
    fn close_up(&mut self, from: usize, turns: Turns) {
        let mut free = VecDeque::from_iter(turns);
        for member in self.members.range_mut(from..) {
            let turns = mem::take(&mut member.turns);
            let needed = cost(&turns);
            free.extend(turns);
            member.turns = first_of(&mut free, needed);
        }
        self.spare_all(free);
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

    fn cost(&self) -> u32 {
        cost(&self.turns)
    }

    fn goes_after(&self, turns: &Stretch) -> bool {
        let is_later = |first: &Stretch| {
            first.of().is_of_the_clock_of(turns.of()) && first.begins() > turns.begins()
        };
        !self.goes_on && self.turns.first().is_some_and(is_later)
    }
}

impl Free {
    /// Returns those of a request of this tenant, if tenants share the key.
    pub(crate) fn all_of(place: Place, tenant: Option<Tenant>) -> Self {
        let turns = SmallVec::from_slice(&[Stretch::all_of(place)]);
        Self { turns, tenant }
    }

    /// Returns the number of turns.
    pub(crate) fn count(&self) -> u32 {
        cost(&self.turns)
    }

    /// Returns who was charged for as many turns, if tenants share the key.
    pub(crate) fn tenant(&self) -> Option<Tenant> {
        self.tenant
    }

    /// Returns when the first turn begins, by the clock of the store.
    pub(crate) fn begins(&self) -> Micros {
        self.turns.first().map_or(Micros::ZERO, Stretch::begins)
    }

    /// Returns whether the store was away when it charged the turns.
    pub(crate) fn is_degraded(&self) -> bool {
        self.turns.iter().any(|turns| turns.of().is_degraded())
    }
}

fn cost(turns: &Turns) -> u32 {
    turns.iter().map(Stretch::count).sum()
}

fn not_begun(turns: Turns, now: Instant) -> Turns {
    let not_begun = turns.into_iter().filter_map(|turns| turns.not_begun(now));
    not_begun.collect()
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
