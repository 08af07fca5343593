//! The order of a queue, against a model of its store.

use proptest::prelude::*;

use super::*;

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

/// Returns the number, the cost and the moment of each member, by the clock of the store.
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

/// Returns one turn that begins `number` turns after the first, by a clock that now shows `clock`.
fn turn(start: Instant, clock: u64, number: u64, is_degraded: bool) -> Place {
    let [begins, ends] = [number, number + 1].map(|turn| Micros::new(clock + 100_000 * turn));
    let due = start + TURN * u32::try_from(number).unwrap();
    Place::new(1, (begins, ends), due).degraded(is_degraded)
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
    let (free, _) = order.leave(number, now);
    free.map(|free| (free.count(), free.begins()))
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
                order.join(turn(start, clock, number, is_degraded), start);
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
fn of_one_clock_the_moments_decide_and_of_a_clock_that_was_set_back_the_arrival() {
    let (clock, start) = (1 << 50, Instant::now());
    let mut order = Order::new(start, PATIENCE);
    for number in [1, 3, 2] {
        order.join(turn(start, clock, number, false), start);
    }
    assert_eq!(dues(&order, start), [(0, 100), (2, 200), (1, 300)]);
    // Set back by an hour, the clock tells the debt as of then.
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
    // A place of three turns, of which the next request takes one.
    assert_eq!(
        left(&mut order, 1, start),
        Some((3, Micros::new(clock + 50)))
    );
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
