//! The order of a queue, against a model of its store.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::clock::Timers;
use crate::key::IntoKey;
use crate::line::lines::{LineOf, Lines};

/// A model of a queue as a store keeps it. Moments and intervals are fractions of a microsecond, so it is
/// exact.
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

    /// The rule of a queue: see `algorithm::gcra`.
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
    /// A request of this cost arrives at this process, or at another one.
    Comes(u32, bool),
    /// The member at this place of the line goes away; 1,000 stands for the whole line.
    Leaves(usize),
    GoesOn,
    /// The store, which has decided before, answers whether it has taken turns back.
    Answers,
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
        2 => Just(Event::Answers),
    ];
    prop::collection::vec(event, 1..80)
}

/// Returns the number, the cost and the moment of each member, by the clock of the store.
fn members(order: &Order) -> Vec<(u64, u32, Micros)> {
    let members = order.members.iter().map(|member| {
        let turns = member.turns.iter().map(Stretch::count).sum();
        (member.number, turns, member.turns[0].begins())
    });
    members.collect()
}

/// Returns a place that is charged at the same moment as all others.
fn place(start: Instant, turns: u32, (begins, ends): (Micros, Micros)) -> Place {
    Place::new(
        turns,
        [Micros::ZERO, begins, ends],
        start + begins.to_duration(),
    )
}

/// Asserts that spare turns are behind those of all members, and none is of another process.
fn spare_turns_are_behind(
    order: &Order,
    members: &[(u64, u32, Micros)],
    others: &[(Micros, Micros)],
) {
    for spare in &order.spare {
        assert!(
            members.iter().all(|it| it.2 <= spare.begins()),
            "a spare turn before a request"
        );
        for (other, others_end) in others {
            let is_apart = others_end.get() <= spare.begins().get() + 1
                || spare.ends().get() <= other.get() + 1;
            assert!(is_apart, "a spare turn is one of another process");
        }
    }
}

/// Asserts that those who stay go on no later than before, unless tenants share the line, and that none takes turns of another process.
fn all_move_up(
    [before, after]: [&[(u64, u32, Micros)]; 2],
    others: &[(Micros, Micros)],
    store: &Store,
    are_shared: bool,
) {
    for (number, cost, begins) in after {
        let known = before.iter().find(|(known, ..)| known == number);
        if let Some((_, known_cost, known_begins)) = known {
            assert_eq!(cost, known_cost);
            let is_sooner = begins <= known_begins;
            assert!(
                is_sooner || are_shared,
                "{number} goes on later than before"
            );
        }
        let ends = begins.get() + store.lasts(*cost);
        for (other, others_end) in others {
            let is_apart = others_end.get() <= begins.get() + 1 || ends <= other.get() + 1;
            assert!(is_apart, "{number} takes turns of another process");
        }
    }
}

/// Returns whose the request of this number is, if there are so many tenants.
fn tenant_of(number: u64, tenants: Option<u64>) -> Option<Tenant> {
    let name = tenants.map(|tenants| number % tenants * (number % 7 % 2));
    name.map(|name| Tenant {
        name: name.into_key(),
        weight: 1,
    })
}

/// Plays the events. If there are tenants, the requests are theirs in turn, and those of each tenant go on in their order.
fn run(events: &[Event], (parts, interval): (u64, u64), tenants: Option<u64>) {
    let start = Instant::now();
    let mut store = Store {
        parts,
        interval,
        arrival: 1_000_000 * parts,
    };
    let mut order = Order::new(start, PATIENCE).shared_by(tenants.map(|_| 1_024));
    let mut last_of = HashMap::new();
    // By tenant, the turns of requests that have gone away, and those that went back as the tenant's.
    let (mut given_up, mut credited) = (HashMap::new(), HashMap::new());
    let mut others = Vec::new();
    let mut has_others = false;
    let mut sent = None;
    for event in events.iter().chain([&Event::Answers; 200]) {
        let before = members(&order);
        let mut free = None;
        match *event {
            Event::Comes(cost, here) => {
                let charged = store.charge(cost);
                if here {
                    let tenant = tenant_of(order.joined, tenants);
                    order.join(place(start, cost, charged), tenant, start);
                    free = order.next_return(start);
                } else {
                    others.push(charged);
                    has_others = true;
                }
            }
            Event::Leaves(of_a_thousand) if !before.is_empty() => {
                let place = of_a_thousand * before.len() / 1_000;
                let (number, cost, _) = before[place];
                let tenant = tenant_of(number, tenants).map(|it| it.name);
                *given_up.entry(tenant).or_insert(0) += cost;
                assert!(order.leave(number, start).0);
                free = order.next_return(start);
            }
            Event::Leaves(_) => {}
            Event::Answers => {
                if let Some((free_before, are_given_back)) = sent.take() {
                    free = order.answered(free_before, Some(are_given_back), start).0;
                }
            }
            Event::GoesOn => {
                if let Some((number, ..)) = before.first() {
                    let due = order.members[0].due().unwrap();
                    let next = order.look(*number, due, Waker::noop());
                    assert_eq!(next, Next::GoesOn);
                    assert!(!order.leave(*number, start).0);
                    let last =
                        last_of.insert(tenant_of(*number, tenants).map(|it| it.name), *number);
                    // Turns of another process may be in the way of a request that costs more.
                    let is_in_order = last < Some(*number);
                    assert!(
                        is_in_order || has_others && tenants.is_some(),
                        "{last:?} {number}"
                    );
                }
            }
        }
        if let Some(free) = free {
            let are_given_back = store.give_back(&free);
            assert!(are_given_back || has_others);
            if are_given_back {
                let tenant = free.tenant().map(|it| it.name);
                *credited.entry(tenant).or_insert(0) += free.count();
            }
            assert!(
                sent.is_none(),
                "the store is asked about one thing at a time"
            );
            sent = Some((free, are_given_back));
        }
        let after = members(&order);
        spare_turns_are_behind(&order, &after, &others);
        all_move_up([&before, &after], &others, &store, tenants.is_some());
        for pair in after.windows(2) {
            let is_in_order = pair[0].0 < pair[1].0;
            assert!(is_in_order || tenants.is_some(), "out of order: {after:?}");
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
    assert!(
        has_others || order.spare.is_empty(),
        "not given back: {order:?}"
    );
    let has_no_more = |(tenant, turns): (&_, &u32)| *turns <= given_up[tenant];
    assert!(
        if has_others {
            credited.iter().all(has_no_more)
        } else {
            credited == given_up
        },
        "{credited:?} of {given_up:?}"
    );
}

const TURN: Duration = Duration::from_millis(100);

/// Returns one turn that begins `number` turns after the first, by a clock that now shows `clock`.
fn turn(start: Instant, clock: u64, number: u64, is_degraded: bool) -> Place {
    let moments = [0, number, number + 1].map(|turn| Micros::new(clock + 100_000 * turn));
    let due = start + TURN * u32::try_from(number).unwrap();
    Place::new(1, moments, due).degraded(is_degraded)
}

/// Returns for each member the milliseconds until it goes on.
fn dues(order: &Order, start: Instant) -> Vec<(u64, u128)> {
    let members = order.members.iter().map(|member| {
        let due = member.turns[0].due() - start;
        (member.number, due.as_millis())
    });
    members.collect()
}

/// Returns how many turns are free after a member has left, and when the first begins.
fn left(order: &mut Order, number: u64, now: Instant) -> Option<(u32, Micros)> {
    order.leave(number, now);
    let free = order.next_return(now)?;
    let freed = (free.count(), free.begins());
    order.answered(free, Some(true), now);
    Some(freed)
}

/// While its store is away, a queue begins anew in this process and by its clock. Once, its first request was
/// put before the requests that waited, or made them wait for a second, depending on how the clocks differed.
#[test]
fn requests_that_are_decided_without_the_store_go_on_behind_those_that_wait() {
    const HOUR: u64 = 3_600_000_000;
    for here in [10 * HOUR, 9 * HOUR, 11 * HOUR] {
        let (store, start) = (10 * HOUR, Instant::now());
        let mut order = Order::new(start, PATIENCE);
        for (clock, numbers) in [(store, 1..4), (here, 0..2), (store, 0..2)] {
            for number in numbers {
                let is_degraded = (3..5).contains(&order.joined);
                order.join(turn(start, clock, number, is_degraded), None, start);
            }
        }
        let expected: Vec<_> = (0..7_u64)
            .map(|number| (number, u128::from(number + 1) * 100))
            .collect();
        assert_eq!(dues(&order, start), expected, "{here}");
        // The two groups move up past each other too, and each store gets its own turns back.
        let free = left(&mut order, 0, start);
        assert_eq!(free, Some((1, Micros::new(store + 100_000))));
        assert_eq!(left(&mut order, 6, start), Some((1, Micros::new(store))));
        let expected: Vec<_> = (1..6_u64)
            .map(|number| (number, u128::from(number) * 100))
            .collect();
        assert_eq!(dues(&order, start), expected, "{here}");
    }
}

/// A request that was decided earlier stands before another one, even if its thread is slower.
#[test]
fn moments_decide_under_one_clock_and_arrival_after_a_step_back() {
    let (clock, start) = (1 << 50, Instant::now());
    let mut order = Order::new(start, PATIENCE);
    for number in [1, 3, 2] {
        order.join(turn(start, clock, number, false), None, start);
    }
    assert_eq!(dues(&order, start), [(0, 100), (2, 200), (1, 300)]);
    // Set back by an hour, the clock tells the debt as of then.
    order.join(turn(start, clock - 3_600_000_000, 4, false), None, start);
    order.join(turn(start, clock - 3_600_000_000, 5, false), None, start);
    let expected = [(0, 100), (2, 200), (1, 300), (3, 400), (4, 500)];
    assert_eq!(dues(&order, start), expected);
}

#[test]
fn a_request_that_costs_more_does_not_reach_over_the_turns_of_another_process() {
    let (clock, start) = (1 << 50, Instant::now());
    let moments = |first, last| [0, first, last].map(|moment| Micros::new(clock + moment));
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
        order.join(place(turns, first, last), None, start);
    }
    assert_eq!(left(&mut order, 0, start), None);
    let begins: Vec<_> = members(&order)
        .iter()
        .map(|it| it.2.get() - clock)
        .collect();
    assert_eq!(begins, [40, 70]);
    // A place of three turns, of which the next request takes one.
    assert_eq!(
        left(&mut order, 1, start),
        Some((3, Micros::new(clock + 50)))
    );
}

/// Over a store that several processes share. The next turn of another process is an interval behind the turn, and
/// not behind the request.
#[test]
fn a_turn_that_has_begun_goes_to_no_other_request() {
    let (clock, start) = (1 << 50, Instant::now());
    for (late, expected) in [(false, 100), (true, 300)] {
        let mut order = Order::new(start, PATIENCE);
        order.join(turn(start, clock, 1, false), None, start);
        order.leave(0, start);
        let free = order.next_return(start).unwrap();
        order.answered(free, Some(false), start);
        let now = start + TURN + Duration::from_micros(u64::from(late));
        assert_eq!(order.is_over(now), late);
        let place = turn(start, clock, 3, false);
        assert_eq!((order.due(place, None, now) - start).as_millis(), expected);
        order.join(place, None, now);
        assert_eq!(dues(&order, start), [(1, expected)]);
    }
    // Of five turns, two have begun.
    let five = |begins: u64| {
        let moments = [0, begins, begins + 5].map(|turn| Micros::new(clock + 100_000 * turn));
        Place::new(5, moments, start + TURN * u32::try_from(begins).unwrap())
    };
    let left = Stretch::all_of(five(1))
        .not_begun(start + TURN * 5 / 2)
        .unwrap();
    assert_eq!((left.count(), left.begins().get() - clock), (3, 300_000));
    assert!(
        Stretch::all_of(five(1))
            .not_begun(start + 6 * TURN)
            .is_none()
    );
}

/// After a reset of its key, the store charges a turn anew that this line still has.
#[test]
fn a_turn_that_was_charged_twice_is_one_turn() {
    let (clock, start) = (1 << 50, Instant::now());
    let mut order = Order::new(start, PATIENCE);
    order.free(Free::all_of(turn(start, clock, 3, false), None), start);
    order.join(turn(start, clock, 3, false), None, start);
    assert_eq!(dues(&order, start), [(0, 300)]);
    assert!(order.next_return(start).is_none());
}

/// Requests that would leave too late give their turns back at once, the first of them first: the store takes back
/// none but the last. What becomes free while the store is asked is asked about with the rest.
#[test]
fn turns_that_are_free_one_after_the_other_are_given_back_together() {
    let (clock, start) = (1 << 50, Instant::now());
    let mut order = Order::new(start, PATIENCE);
    let free_turn = |number| Free::all_of(turn(start, clock, number, false), None);
    order.free(free_turn(8), start);
    let first = order.next_return(start).unwrap();
    for number in 9..20 {
        order.free(free_turn(number), start);
        assert!(order.next_return(start).is_none(), "one question at a time");
    }
    let (all, _) = order.answered(first, Some(false), start);
    let all = all.unwrap();
    assert_eq!((all.count(), all.begins().get() - clock), (12, 800_000));
    // One more has become free, in front of them.
    order.free(free_turn(7), start);
    let (last, _) = order.answered(all, Some(true), start);
    let last = last.unwrap();
    assert_eq!((last.count(), last.begins().get() - clock), (1, 700_000));
    assert!(order.answered(last, Some(true), start).0.is_none());
    assert!(order.is_over(start));
}

/// Threads handle the answers of a store in another order than it gave them. The turns behind those of a request were
/// lost when it joined, or went on at once, after them: they stayed charged, and nothing was served instead.
#[test]
fn turns_that_the_store_charged_after_those_of_a_request_are_not_forgotten_with_it() {
    let (clock, start) = (1 << 50, Instant::now());
    let charged_at = |at: u64, number: u64| {
        let moments = [at, 100_000 * number, 100_000 * (number + 1)];
        let due = start + TURN * u32::try_from(number).unwrap();
        Place::new(1, moments.map(|moment| Micros::new(clock + moment)), due)
    };
    for (at, are_counted) in [(0, true), (1, true), (2, false)] {
        let mut order = Order::new(start, PATIENCE);
        order.free(Free::all_of(charged_at(1, 3), None), start);
        order.join(charged_at(at, 2), None, start);
        assert_eq!(dues(&order, start), [(0, 200)]);
        assert_eq!(!order.spare.is_empty(), are_counted, "{at}");

        let lines = Lines::new("queue", Timers::default());
        let line = LineOf::Overflow;
        let returning = lines
            .free(line, Free::all_of(charged_at(1, 4), None))
            .unwrap();
        assert!(
            lines
                .free(line, Free::all_of(charged_at(1, 3), None))
                .is_none()
        );
        let first = lines.enter(line, (charged_at(at, 0), None), Duration::ZERO);
        assert!(first.is_ok_and(|entered| entered.is_none()));
        let next = lines.answered(line, returning, Some(true));
        assert_eq!(next.is_some(), are_counted, "{at}");
    }
}

/// Three a second, ten a second, a million a day, and a prime interval.
fn intervals() -> impl Strategy<Value = (u64, u64)> {
    prop_oneof![
        Just((3, 1_000_000)),
        Just((1, 100_000)),
        Just((5, 432_000)),
        (1_u64..1_000, 2_000_u64..1_000_000),
    ]
}

proptest! {
    /// Each request stays, or gives its turns back at once. All cost the same: a request that costs more passes over free
    /// turns that are too few for it.
    #[test]
    fn nothing_is_lost_in_whatever_order_the_answers_of_the_store_are_handled(
        requests in prop::collection::vec((any::<bool>(), any::<u32>()), 1..40),
        cost in 1_u32..5,
        answers in prop::collection::vec(any::<bool>(), 40),
        (parts, interval) in intervals(),
    ) {
        let start = Instant::now();
        let arrival = 1_000_000 * parts;
        let mut store = Store { parts, interval, arrival };
        let charge = |(stays, when)| (when, stays, place(start, cost, store.charge(cost)));
        let mut places: Vec<_> = requests.iter().copied().map(charge).collect();
        places.sort_by_key(|(when, ..)| *when);
        let mut order = Order::new(start, PATIENCE);
        let mut sent = None;
        let mut answers = answers.into_iter();
        let mut places = places.into_iter();
        loop {
            let next = places.next();
            let is_over = next.is_none();
            match next {
                Some((_, true, place)) => drop(order.join(place, None, start)),
                Some((_, false, place)) => drop(order.free(Free::all_of(place, None), start)),
                None => {}
            }
            let mut free = order.next_return(start);
            if (is_over || answers.next() == Some(true)) && let Some((free_before, is_done)) = sent.take() {
                free = order.answered(free_before, Some(is_done), start).0;
            }
            if let Some(free) = free {
                let is_done = store.give_back(&free);
                sent = Some((free, is_done));
            } else if is_over && sent.is_none() {
                break;
            }
        }
        let stay = requests.iter().filter(|(stays, _)| *stays).count();
        let turns = u64::from(cost) * u64::try_from(stay).unwrap();
        prop_assert!(order.spare.is_empty(), "not given back: {order:?}");
        prop_assert_eq!(store.arrival, arrival + turns * interval);
        for pair in members(&order).windows(2) {
            let spacing = pair[1].2.get() - pair[0].2.get();
            prop_assert!(spacing.abs_diff(store.lasts(pair[0].1)) <= 2, "{:?}", pair);
        }
    }

    #[test]
    fn members_close_up_and_all_that_they_leave_is_given_back(
        events in events(false),
        interval in intervals(),
    ) {
        run(&events, interval, None);
    }

    #[test]
    fn the_turns_of_other_processes_stay_where_they_are(
        events in events(true),
        interval in intervals(),
    ) {
        run(&events, interval, None);
    }

    #[test]
    fn tenants_take_the_turns_of_one_line(
        events in any::<bool>().prop_flat_map(events),
        interval in intervals(),
        tenants in 1_u64..6,
    ) {
        run(&events, interval, Some(tenants));
    }
}

/// A request of another tenant has the first turn behind the one that goes on next, whatever turns it was charged, and the others
/// have those behind it. It waited behind all of them.
#[test]
fn a_hog_waits_behind_itself() {
    let (clock, start) = (1 << 50, Instant::now());
    let tenant = |name: &'static str| {
        let name = name.into_key();
        Some(Tenant { name, weight: 1 })
    };
    let place = |turns: u32, first: u64| {
        let moments = [0, first, first + u64::from(turns)];
        let due = start + TURN * u32::try_from(first).unwrap();
        Place::new(
            turns,
            moments.map(|turn| Micros::new(clock + 100_000 * turn)),
            due,
        )
    };
    let mut order = Order::new(start, PATIENCE).shared_by(Some(1_024));
    for number in 1..6 {
        order.join(place(1, number), tenant("hog"), start);
    }
    let ann = place(3, 6);
    assert_eq!(order.due(ann, tenant("ann"), start), start + 2 * TURN);
    assert_eq!(order.due(ann, tenant("hog"), start), start + 6 * TURN);
    assert_eq!(order.join(ann, tenant("ann"), start), 5);
    let bob = place(1, 9);
    assert_eq!(order.due(bob, tenant("bob"), start), start + 5 * TURN);
    // Two turns more than it takes: a visit gives less once her first request has gone on, which costs most.
    assert_eq!(order.due(bob, tenant("ann"), start), start + 8 * TURN);
    let go_on = |order: &mut Order, number: u64, turn: u32| {
        let now = start + turn * TURN;
        let before = now - Duration::from_micros(1);
        let look = |order: &mut Order, at| order.look(number, at, Waker::noop());
        assert_eq!(look(order, before), Next::LooksAgain(now));
        assert_eq!(look(order, now), Next::GoesOn);
        order.leave(number, now);
    };
    go_on(&mut order, 0, 1);
    go_on(&mut order, 5, 2);
    let now = start + 2 * TURN;
    assert_eq!(
        dues(&order, start),
        [(1, 500), (2, 600), (3, 700), (4, 800)]
    );
    // A request that goes away leaves its turn to the others.
    assert_eq!(
        left(&mut order, 2, now),
        Some((1, Micros::new(clock + 800_000)))
    );
    assert_eq!(dues(&order, start), [(1, 500), (3, 600), (4, 700)]);
}

/// A request of another tenant has moved up into the turns that one gave up, and turns of both are left over.
#[test]
fn turns_go_back_as_those_of_the_tenants_that_gave_them_up() {
    let (clock, start) = (1 << 50, Instant::now());
    let tenant = |name: &'static str| {
        let name = name.into_key();
        Some(Tenant { name, weight: 1 })
    };
    let mut order = Order::new(start, PATIENCE).shared_by(Some(2));
    let names = ["hog", "hog", "ann", "hog", "bob"];
    for (number, name) in names.into_iter().enumerate() {
        let place = turn(start, clock, u64::try_from(number).unwrap(), false);
        order.join(place, tenant(name), start);
    }
    // The store is asked about one turn, while the others are given up.
    order.leave(1, start);
    let mut free = order.next_return(start);
    for number in [4, 3] {
        order.leave(number, start);
        assert!(order.next_return(start).is_none());
    }
    let mut given_back = Vec::new();
    while let Some(turns) = free {
        let of = turns.tenant().map(|it| it.name);
        given_back.push((of, turns.count(), turns.begins().get() - clock));
        free = order.answered(turns, Some(true), start).0;
    }
    let key = |name: &'static str| Some(name.into_key());
    let expected = [
        (key("hog"), 1, 400_000),
        (key("hog"), 1, 300_000),
        (key("bob"), 1, 200_000),
    ];
    assert_eq!(given_back, expected);
    assert_eq!(dues(&order, start), [(0, 0), (2, 100)]);
}

/// Turns of another process are behind the first one.
#[test]
fn what_has_passed_unused_is_no_tenants_any_more() {
    let (clock, start) = (1 << 50, Instant::now());
    let tenant = |name: u64| {
        let name = name.into_key();
        Some(Tenant { name, weight: 1 })
    };
    let mut order = Order::new(start, PATIENCE).shared_by(Some(1_024));
    let free_turn = |number, name| Free::all_of(turn(start, clock, number, false), tenant(name));
    order.free(free_turn(1, 1), start);
    let first = order.next_return(start).unwrap();
    order.answered(first, Some(false), start);
    let now = start + TURN * 2;
    order.free(free_turn(5, 2), now);
    let second = order.next_return(now).unwrap();
    assert_eq!(second.tenant().map(|it| it.name), Some(2.into_key()));
    order.answered(second, Some(true), now);
    assert!(order.next_return(now).is_none());
    assert!(order.given_up.last().is_none(), "{:?}", order.given_up);
}
