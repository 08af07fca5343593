use std::collections::VecDeque;
use std::mem;
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::stretch::{Place, Stretch};
use crate::clock::Micros;

/// The requests of one key, in the order in which they go on, each with the turns that it takes.
///
/// The requests behind a turn that becomes free move up along the turns of this line alone: those in
/// between may belong to other processes.
#[derive(Debug)]
pub(super) struct Order {
    members: VecDeque<Member>,
    joined: u64,
    /// Since when the first member is the first.
    front_since: Instant,
    /// A request that is due and does not go on, since its future is not polled, holds up those behind it
    /// for so long. They look as often whether they have moved up.
    patience: Duration,
    /// Turns behind all members, earliest first, which the store could not take back since other processes
    /// have turns behind them: the next requests take them.
    spare: Vec<Stretch>,
}

#[derive(Debug)]
struct Member {
    number: u64,
    /// As many turns as it costs, with no turn of another line in between.
    turns: Turns,
    /// Whether it goes on now. It stays at the front until it has gone.
    goes_on: bool,
    waker: Option<Waker>,
}

type Turns = SmallVec<[Stretch; 1]>;

/// What a request does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    GoesOn,
    /// It looks again at this moment, or when it is woken.
    LooksAgain(Instant),
}

/// Turns that no request of a line takes, one behind the other.
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

    /// The number of the next request.
    pub(super) fn joined(&self) -> u64 {
        self.joined
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Puts a request behind those whose turns begin earlier, and returns its number, and what it does not
    /// take of this place.
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

    /// The turns of a request at the end of the line, for which the store has told this place.
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

    /// Keeps turns that the store could not take back. Members that have come behind them move up; returns
    /// the turns that these leave, and who is to be woken.
    pub(super) fn keep(&mut self, free: Free) -> (Option<Free>, Option<Waker>) {
        let Some(first) = free.0.first() else {
            return (None, None);
        };
        let behind = self.members.iter().position(|it| it.goes_after(first));
        let Some(index) = behind else {
            self.spare.extend(free.0);
            self.spare.sort_by_key(Stretch::begins);
            return (None, None);
        };
        let free = self.close_up(index, free.0);
        let front = self.members.front_mut().filter(|_| index == 0);
        (free, front.and_then(|front| front.waker.take()))
    }

    /// When a request in this place would go on.
    pub(super) fn due(&self, place: Place) -> Instant {
        let (_, place) = self.place(place);
        Stretch::all_of(place).due()
    }

    /// Where a request with these turns stands. A thread may have been slower than another one between the
    /// store's answer and here, so the moments decide; but those of two clocks cannot be compared, and then
    /// it stands behind all others and goes on after them.
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

    /// What this request does next. It is woken when it has become the first.
    pub(super) fn look(&mut self, number: u64, now: Instant, waker: &Waker) -> Next {
        let Some(index) = self.index(number) else {
            // Others have gone past it, since it was due and was not polled.
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
        // It is not woken when others move up before it.
        let looks_at = if index == 0 { due } else { now + self.patience };
        Next::LooksAgain(acts_at.min(looks_at))
    }

    /// Takes out a request, which has gone on or has gone away. One that had not had its turn leaves its
    /// turns to those behind it; what is left at the end is returned, and who is to be woken.
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

    /// Lets the members from this one on take these turns, each as early as it can; returns the last of
    /// those that are left.
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

    /// How many they are.
    pub(crate) fn count(&self) -> u32 {
        self.0.iter().map(Stretch::count).sum()
    }

    /// When the first begins, by the clock of the store.
    pub(crate) fn begins(&self) -> Micros {
        self.0.first().map_or(Micros::ZERO, Stretch::begins)
    }

    /// Whether the store was away when it told them.
    pub(super) fn is_degraded(&self) -> bool {
        self.0.iter().any(|turns| turns.of().is_degraded())
    }
}

/// Takes the first turns of so many that follow one another. Those before them that are too few pass
/// unused.
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A queue as a store has it, exactly: moments are parts of a microsecond, and so is an interval.
    struct Store {
        parts: u64,
        interval: u64,
        arrival: u64,
    }

    impl Store {
        fn rounded_up(&self, moment: u64) -> Micros {
            Micros::new(moment.div_ceil(self.parts))
        }

        fn charge(&mut self, turns: u32) -> (Micros, Micros) {
            let begins = self.rounded_up(self.arrival);
            self.arrival += u64::from(turns) * self.interval;
            (begins, self.rounded_up(self.arrival))
        }

        /// As the rule of a queue does: see `algorithm::gcra`.
        fn give_back(&mut self, free: &Free) -> bool {
            let before = self.arrival - u64::from(free.count()) * self.interval;
            let late = free
                .begins()
                .get()
                .checked_sub(self.rounded_up(before).get());
            let is_last = late.is_some_and(|late| late <= 1);
            if is_last {
                self.arrival = before;
            }
            is_last
        }

        fn lasts(&self, turns: u32) -> u64 {
            u64::from(turns) * self.interval / self.parts
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        /// A request of this cost comes, to this process or to another one.
        Comes(u32, bool),
        /// The member at this place of the line goes away; all who wait are 1,000.
        Leaves(usize),
        GoesOn,
    }

    fn events(others: bool) -> impl Strategy<Value = Vec<Event>> {
        let cost = prop_oneof![2 => Just(1_u32), 1 => 1_u32..5];
        let here = if others {
            any::<bool>().boxed()
        } else {
            Just(true).boxed()
        };
        let event = prop_oneof![
            3 => (cost, here).prop_map(|(cost, here)| Event::Comes(cost, here)),
            2 => (0_usize..1_000).prop_map(Event::Leaves),
            1 => Just(Event::GoesOn),
        ];
        prop::collection::vec(event, 1..80)
    }

    /// Of each member its number, its cost and when it goes on by the clock of the store.
    fn members(order: &Order) -> Vec<(u64, u32, Micros)> {
        let members = order.members.iter().map(|member| {
            let turns = member.turns.iter().map(Stretch::count).sum();
            (member.number, turns, member.turns[0].begins())
        });
        members.collect()
    }

    fn run(events: &[Event], (parts, interval): (u64, u64)) {
        let start = Instant::now();
        let mut store = Store {
            parts,
            interval,
            arrival: 1_000_000 * parts,
        };
        let mut order = Order::new(start, PATIENCE);
        let mut others = Vec::new();
        let mut has_others = false;
        for event in events {
            let before = members(&order);
            match *event {
                Event::Comes(cost, here) => {
                    let told = store.charge(cost);
                    if here {
                        let place = Place::new(cost, told, start + told.0.to_duration());
                        let mut free = order.join(place, start).1;
                        while let Some(unused) = free.take() {
                            if !store.give_back(&unused) {
                                free = order.keep(unused).0;
                            }
                        }
                    } else {
                        others.push(told);
                        has_others = true;
                    }
                }
                Event::Leaves(of_a_thousand) if !before.is_empty() => {
                    let place = of_a_thousand * before.len() / 1_000;
                    let (number, cost, _) = before[place];
                    let (mut free, _) = order.leave(number, start);
                    if !has_others {
                        assert_eq!(free.as_ref().map(Free::count), Some(cost));
                    }
                    while let Some(unused) = free.take() {
                        if !store.give_back(&unused) {
                            assert!(has_others);
                            free = order.keep(unused).0;
                        }
                    }
                }
                Event::Leaves(_) => {}
                Event::GoesOn => {
                    if let Some((number, ..)) = before.first() {
                        order.members[0].goes_on = true;
                        assert!(order.leave(*number, start).0.is_none());
                    }
                }
            }
            let after = members(&order);
            for (number, cost, begins) in &after {
                let known = before.iter().find(|(known, ..)| known == number);
                if let Some((_, known_cost, known_begins)) = known {
                    assert_eq!(cost, known_cost);
                    assert!(begins <= known_begins, "{number} goes on later than before");
                }
                let ends = begins.get() + store.lasts(*cost);
                for (other, others_end) in &others {
                    let is_apart = others_end.get() <= begins.get() + 1 || ends <= other.get() + 1;
                    assert!(is_apart, "{number} takes turns of another process");
                }
            }
            for pair in after.windows(2) {
                assert!(pair[0].0 < pair[1].0, "out of order: {after:?}");
                let spacing = pair[1].2.get() - pair[0].2.get();
                assert!(
                    spacing + 1 >= store.lasts(pair[0].1),
                    "too close: {after:?}"
                );
                if !has_others {
                    assert!(spacing <= store.lasts(pair[0].1) + 2, "a gap: {after:?}");
                }
            }
        }
    }

    const TURN: Duration = Duration::from_millis(100);

    /// One turn that begins so many turns after the first, by a clock that tells this moment now.
    fn turn(start: Instant, clock: u64, number: u64, is_degraded: bool) -> Place {
        let [begins, ends] = [number, number + 1].map(|turn| Micros::new(clock + 100_000 * turn));
        let due = start + TURN * u32::try_from(number).unwrap();
        Place::new(1, (begins, ends), due).degraded(is_degraded)
    }

    /// After how many milliseconds each member goes on.
    fn dues(order: &Order, start: Instant) -> Vec<(u64, u128)> {
        let members = order.members.iter().map(|member| {
            let due = member.turns[0].due() - start;
            (member.number, due.as_millis())
        });
        members.collect()
    }

    /// How many turns are free when a member has left, and when the first begins.
    fn left(order: &mut Order, number: u64, now: Instant) -> Option<(u32, Micros)> {
        let (free, _) = order.leave(number, now);
        free.map(|free| (free.count(), free.begins()))
    }

    /// While its store is away, a queue begins anew in this process and by its clock. Its first request was
    /// put before those that waited, or made them wait for a second, by how the clocks differ.
    #[test]
    fn requests_that_are_decided_without_the_store_go_on_behind_those_that_wait() {
        const HOUR: u64 = 3_600_000_000;
        for here in [10 * HOUR, 9 * HOUR, 11 * HOUR] {
            let (store, start) = (10 * HOUR, Instant::now());
            let mut order = Order::new(start, PATIENCE);
            for (clock, numbers) in [(store, 1..4), (here, 0..2), (store, 0..2)] {
                for number in numbers {
                    let is_degraded = (3..5).contains(&order.joined);
                    order.join(turn(start, clock, number, is_degraded), start);
                }
            }
            let expected: Vec<_> = (0..7_u64)
                .map(|number| (number, u128::from(number + 1) * 100))
                .collect();
            assert_eq!(dues(&order, start), expected, "{here}");
            // They move up past each other too, and each store is given back its own turns.
            let free = left(&mut order, 0, start);
            assert_eq!(free, Some((1, Micros::new(store + 100_000))));
            assert_eq!(left(&mut order, 6, start), Some((1, Micros::new(store))));
            let expected: Vec<_> = (1..6_u64)
                .map(|number| (number, u128::from(number) * 100))
                .collect();
            assert_eq!(dues(&order, start), expected, "{here}");
        }
    }

    /// A request that was decided earlier stands before another, even if its thread is slower.
    #[test]
    fn of_one_clock_the_moments_decide_and_of_a_clock_that_was_set_back_the_arrival() {
        let (clock, start) = (1 << 50, Instant::now());
        let mut order = Order::new(start, PATIENCE);
        for number in [1, 3, 2] {
            order.join(turn(start, clock, number, false), start);
        }
        assert_eq!(dues(&order, start), [(0, 100), (2, 200), (1, 300)]);
        // Set back by an hour, it tells what is owed as of then.
        order.join(turn(start, clock - 3_600_000_000, 4, false), start);
        order.join(turn(start, clock - 3_600_000_000, 5, false), start);
        let expected = [(0, 100), (2, 200), (1, 300), (3, 400), (4, 500)];
        assert_eq!(dues(&order, start), expected);
    }

    #[test]
    fn a_request_that_costs_more_does_not_reach_over_the_turns_of_another_process() {
        let (clock, start) = (1 << 50, Instant::now());
        let moments = |first, last| (Micros::new(clock + first), Micros::new(clock + last));
        let place = |turns, first: u64, last| {
            Place::new(
                turns,
                moments(first, last),
                start + Duration::from_micros(first),
            )
        };
        let mut order = Order::new(start, PATIENCE);
        // The turns 2 and 3 belong to another process.
        for (turns, first, last) in [(2, 0, 20), (3, 40, 70), (1, 70, 80)] {
            order.join(place(turns, first, last), start);
        }
        assert!(order.leave(0, start).0.is_none());
        let begins: Vec<_> = members(&order)
            .iter()
            .map(|it| it.2.get() - clock)
            .collect();
        assert_eq!(begins, [40, 70]);
        // A place of three turns, of which the next takes one.
        assert_eq!(
            left(&mut order, 1, start),
            Some((3, Micros::new(clock + 50)))
        );
    }

    /// Three a second, ten a second, a million a day, and what divides by nothing.
    fn intervals() -> impl Strategy<Value = (u64, u64)> {
        prop_oneof![
            Just((3, 1_000_000)),
            Just((1, 100_000)),
            Just((5, 432_000)),
            (1_u64..1_000, 2_000_u64..1_000_000),
        ]
    }

    proptest! {
        #[test]
        fn members_close_up_and_all_that_they_leave_is_given_back(
            events in events(false),
            interval in intervals(),
        ) {
            run(&events, interval);
        }

        #[test]
        fn the_turns_of_other_processes_stay_where_they_are(
            events in events(true),
            interval in intervals(),
        ) {
            run(&events, interval);
        }
    }
}
