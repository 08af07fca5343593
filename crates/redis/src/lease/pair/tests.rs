//! A pair by itself, with answers that the tests make up.

use super::*;
use tower_ratelimit_core::algorithm::Algorithm;

const SECOND: u64 = 1_000_000;

fn terms() -> Terms {
    let algorithm: Algorithm = "fixed-window 1000/minute".parse().unwrap();
    Terms::of(&algorithm, Micros::new(SECOND)).unwrap()
}

fn granted(units: u32, end: u64) -> LeaseReply {
    let grant = Grant {
        units,
        end: Micros::new(end),
        lasts: Micros::new(SECOND),
    };
    LeaseReply {
        grant: Some(grant),
        denied: None,
        room: 0,
    }
}

/// Returns a pair with ten units, which it has asked for at one second and received at two.
fn pair() -> Pair {
    let mut pair = Pair::default();
    let (put, now) = (Micros::new(SECOND), Micros::new(SECOND + SECOND / 2));
    let ask = pair.ask(put, 1, terms());
    pair.answered(put, now, (&ask, granted(10, 77)), terms());
    pair
}

#[test]
fn a_life_begins_when_the_question_is_put_and_allows_for_a_slow_clock() {
    let mut pair = pair();
    let end = 2 * SECOND - SECOND / 1_000;
    let before = Micros::new(end - 1);
    assert_eq!(pair.request(before, 1), Way::Spent { is_low: false });
    assert_eq!(pair.left(before), 9);
    assert_eq!(pair.request(Micros::new(end), 1), Way::Ask);
}

#[test]
fn units_of_a_class_end_with_the_first_of_its_grants_to_end() {
    for lives in [[SECOND, SECOND / 10], [SECOND / 10, SECOND]] {
        let (mut pair, now) = (Pair::default(), Micros::new(SECOND));
        for life in lives {
            let ask = pair.ask(now, 0, terms());
            let mut answer = granted(10, 77);
            answer.grant.as_mut().unwrap().lasts = Micros::new(life);
            pair.answered(now, now, (&ask, answer), terms());
        }
        let end = SECOND + SECOND / 10 - SECOND / 10_000;
        assert_eq!(pair.left(Micros::new(end - 1)), 20);
        assert_eq!(pair.left(Micros::new(end)), 0);
    }
}

#[test]
fn a_report_is_never_repeated() {
    let (mut pair, now) = (pair(), Micros::new(SECOND + SECOND / 2));
    assert_eq!(pair.request(now, 3), Way::Spent { is_low: false });
    let returned = pair.give_back(now).unwrap();
    let tell = UnitsReport {
        end: Micros::new(77),
        spent: 3,
        unspent: 7,
    };
    assert_eq!(returned.tells.as_slice(), [tell]);
    assert_eq!(pair.give_back(now), None);
    assert_eq!(pair.request(now, 1), Way::Ask);
}

#[test]
fn a_key_that_is_asked_for_twice_is_not_leased_and_one_asked_for_often_is() {
    let mut pair = Pair::default();
    let mut units = Vec::new();
    for gap in 0..5 {
        let now = Micros::new(SECOND + gap * 1_000);
        assert_eq!(pair.request(now, 1), Way::Ask);
        let ask = pair.ask(now, 1, terms());
        pair.answered(now, now, (&ask, NOTHING), terms());
        units.push(ask.units);
    }
    assert_eq!(units, [0, 0, 0, 4, 8]);
}

/// Returns a pair whose units are spent, with a question on its way, and when that was sent.
fn waiting() -> (Pair, UnitsRequest, Micros) {
    let (mut pair, mut now) = (Pair::default(), Micros::new(SECOND));
    let mut granted = 0;
    while granted == 0 {
        now = now.saturating_add(Micros::new(1_000));
        assert_eq!(pair.request(now, 1), Way::Ask);
        let ask = pair.ask(now, 1, terms());
        granted = ask.units;
        pair.answered(now, now, (&ask, self::granted(granted, 77)), terms());
    }
    while let Way::Spent { .. } = pair.request(now, 1) {}
    let ask = pair.ask(now, 1, terms());
    assert!(ask.units > 0);
    (pair, ask, now)
}

#[test]
fn requests_wait_while_units_are_on_their_way() {
    let (mut pair, ask, now) = waiting();
    for _ in 0..3 {
        assert_eq!(pair.request(now, 1), Way::Wait);
        pair.wait(1);
    }
    pair.answered(now, now, (&ask, granted(2, 77)), terms());
    for _ in 0..2 {
        assert!(matches!(pair.again(now, 1), Way::Spent { .. }));
    }
    assert_eq!(pair.again(now, 1), Way::Ask);
}

#[test]
fn requests_that_have_waited_in_vain_are_asked_for_together() {
    let (mut pair, ask, now) = waiting();
    for _ in 0..100 {
        assert_eq!(pair.request(now, 1), Way::Wait);
        pair.wait(1);
    }
    pair.answered(now, now, (&ask, granted(2, 77)), terms());
    let ask = pair.ask(now, 1, terms());
    assert_eq!(ask.awaited, 97);
    assert!(ask.units >= ask.awaited);
}

/// Where the limit is used up, a request in the background gets no units either, and is not denied.
#[test]
fn a_question_without_a_request_that_brings_nothing_lets_requests_wait_for_the_next_one() {
    let (mut pair, ask, now) = waiting();
    for _ in 0..3 {
        assert_eq!(pair.request(now, 1), Way::Wait);
        pair.wait(1);
    }
    pair.answered(now, now, (&ask, NOTHING), terms());
    let ask = pair.ask(now, 0, terms());
    assert_eq!(ask.awaited, 3);
    pair.answered(now, now, (&ask, NOTHING), terms());
    assert_eq!(pair.again(now, 1), Way::Ask);
    pair.ask(now, 1, terms());
    assert_eq!(pair.again(now, 1), Way::Wait);
}

/// Otherwise the last units of a window would go to one node, which asks for thousands of times its demand, and keeps them.
#[test]
fn a_node_that_gets_fewer_units_than_it_asks_for_does_not_ask_for_more_and_more() {
    let (mut pair, mut ask, mut now) = waiting();
    // A request in a millisecond, and an answer in ten.
    for round in 0..20 {
        for _ in 0..10 {
            now = now.saturating_add(Micros::new(1_000));
            assert_eq!(pair.request(now, 1), Way::Wait);
            pair.wait(1);
        }
        pair.answered(now, now, (&ask, granted(ask.awaited.min(5), 77)), terms());
        while let Way::Spent { .. } = pair.again(now, 1) {}
        ask = pair.ask(now, 1, terms());
        let most = 2 * (ask.awaited + 100);
        assert!(ask.units <= most, "{ask:?} in round {round}");
    }
}

#[test]
fn a_question_that_is_lost_keeps_no_request_waiting() {
    let (mut pair, ask, now) = waiting();
    assert_eq!(pair.request(now, 1), Way::Wait);
    pair.failed(&ask);
    assert_eq!(pair.again(now, 1), Way::Ask);
}

const NOTHING: LeaseReply = LeaseReply {
    grant: None,
    denied: None,
    room: 0,
};

/// A thousand nodes that begin at once would bury the server in questions about a key otherwise, while answers take longer
/// and longer.
#[test]
fn a_node_has_one_question_about_a_key_on_its_way_from_the_first_request_on() {
    let (mut pair, now) = (Pair::default(), Micros::new(SECOND));
    assert_eq!(pair.request(now, 1), Way::Ask);
    let ask = pair.ask(now, 1, terms());
    for _ in 0..50 {
        assert_eq!(pair.request(now, 1), Way::Wait);
        pair.wait(1);
    }
    pair.answered(now, now, (&ask, NOTHING), terms());
    assert_eq!(pair.again(now, 1), Way::Ask);
    let ask = pair.ask(now, 1, terms());
    // The request that asks has waited, too.
    assert_eq!(ask.awaited, 49);
    assert!(ask.units >= 49);
    assert_eq!(pair.again(now, 1), Way::Wait);
}

#[test]
fn requests_that_a_slow_server_has_not_answered_in_time_make_way_for_one_question() {
    let (mut pair, now) = (Pair::default(), Micros::new(SECOND));
    assert_eq!(pair.request(now, 1), Way::Ask);
    for _ in 0..3 {
        let ask = pair.ask(now, 1, terms());
        assert_eq!(pair.request(now, 1), Way::Wait);
        pair.wait(1);
        pair.failed(&ask);
        assert_eq!(pair.again(now, 1), Way::Ask);
    }
}

#[test]
fn where_units_end_soon_no_request_waits() {
    let terms = Terms::of(
        &"sliding-slots 1000/second".parse().unwrap(),
        Micros::new(SECOND),
    );
    let (mut pair, now) = (Pair::default(), Micros::new(SECOND));
    assert_eq!(pair.request(now, 1), Way::Ask);
    assert!(!pair.ask(now, 1, terms.unwrap()).leads);
    assert_eq!(pair.request(now, 1), Way::Ask);
}

#[test]
fn where_requests_wait_for_units_in_vain_each_asks_until_units_or_a_denial_come() {
    let denied = LeaseReply {
        denied: Some(Micros::new(1)),
        ..NOTHING
    };
    for answer in [granted(1, 77), denied] {
        let (mut pair, ask, now) = waiting();
        assert_eq!(pair.request(now, 1), Way::Wait);
        pair.wait(1);
        pair.wait(1);
        pair.answered(now, now, (&ask, NOTHING), terms());
        let ask = pair.ask(now, 1, terms());
        assert_eq!(ask.awaited, 1);
        pair.answered(now, now, (&ask, NOTHING), terms());
        let ask = pair.ask(now, 1, terms());
        assert_eq!(pair.request(now, 1), Way::Ask);
        pair.answered(now, now, (&ask, answer), terms());
        // A denial is remembered, and units are spent.
        let later = now.saturating_add(Micros::new(SECOND / 2));
        while pair.again(later, 1) != Way::Ask {}
        pair.ask(later, 1, terms());
        assert_eq!(pair.request(later, 1), Way::Wait);
    }
}

/// Nodes that ask again as soon as they can keep a slow server busy, and get units by chance.
#[test]
fn a_node_leaves_a_slow_server_alone_for_twice_the_time_of_its_answer() {
    let denied = LeaseReply {
        denied: Some(Micros::new(1)),
        ..NOTHING
    };
    let (least, most) = (3_750, 6_250);
    for (took, lasts) in [
        (0, least..=most),
        (20_000, 40_000..=40_000),
        (80_000, 100_000..=100_000),
    ] {
        let (mut pair, ask, now) = waiting();
        let then = now.saturating_add(Micros::new(took));
        pair.answered(now, then, (&ask, denied), terms());
        let left = pair.refuses(then, 1).map_or(0, Micros::get);
        assert!(lasts.contains(&left), "{took}: {left}");
    }
}

/// A process that shares the processor with others is idle in between.
#[test]
fn units_stay_in_a_pause_as_long_as_there_are_enough() {
    let (pause, long) = (terms().idle(Some(1_000)), terms().idle(None));
    assert!(pause < long);
    for (missing, stays) in [(0, true), (1, false)] {
        let (mut pair, ask, now) = waiting();
        pair.size = 1_000;
        let grant = granted(ask.units - missing, 77);
        pair.answered(now, now, (&ask, grant), terms());
        let idle = pair.idle(now.saturating_add(pause), terms());
        assert_eq!(idle.is_none(), stays);
        let idle = pair.idle(now.saturating_add(long), terms());
        assert_eq!(idle.is_some(), stays);
    }
}

#[test]
fn units_put_back_were_never_spent() {
    let (mut pair, now) = (pair(), Micros::new(SECOND + SECOND / 2));
    assert_eq!(pair.request(now, 3), Way::Spent { is_low: false });
    pair.put_back(now, 3);
    assert_eq!(pair.left(now), 10);
    assert_eq!(pair.tell(now), None);
    assert_eq!(pair.request(now, 2), Way::Spent { is_low: false });
    assert_eq!(pair.tell(now).unwrap().tells[0].spent, 2);
    pair.put_back(now, 2);
    assert_eq!(pair.left(now), 8);
}

#[test]
fn a_request_above_what_is_left_gives_the_rest_back_with_its_question() {
    let (mut pair, now) = (pair(), Micros::new(SECOND + SECOND / 2));
    assert_eq!(pair.request(now, 11), Way::Ask);
    let ask = pair.ask(now, 11, terms());
    assert_eq!(ask.tells[0].unspent, 10);
    assert_eq!(pair.left(now), 0);
}

/// Returns the question for requests of this cost, after many that come this far apart.
fn asked_by(cost: u32, apart: u64) -> (Pair, Micros, UnitsRequest) {
    let (mut pair, mut now) = (Pair::default(), Micros::new(SECOND));
    let mut ask = UnitsRequest::default();
    for _ in 0..50 {
        now = now.saturating_add(Micros::new(apart));
        if pair.request(now, cost) == Way::Ask {
            ask = pair.ask(now, cost, terms());
            pair.answered(now, now, (&ask, NOTHING), terms());
        }
    }
    (pair, now, ask)
}

/// The demand of a tenth of a second is asked for. At one request in 40 ms, most of the units would be given
/// back.
#[test]
fn units_for_one_or_two_requests_are_not_asked_for_whatever_these_cost() {
    for cost in [1, 25, 1_000] {
        let (_, _, rare) = asked_by(cost, 40_000);
        assert_eq!(rare.units, 0, "{cost}");
        let (_, _, frequent) = asked_by(cost, 10_000);
        let requests = frequent.units / cost;
        assert!((9..=11).contains(&requests), "{cost}: {frequent:?}");
    }
}

/// A node with too few units gives them back after sixteen missed requests, and these may cost more than one
/// unit.
#[test]
fn units_are_kept_by_the_rate_of_requests_and_not_by_their_costs() {
    for cost in [1, 25, 1_000] {
        let (mut pair, now, ask) = asked_by(cost, 2_000);
        let units = ask.units / 2;
        pair.is_asking = true;
        pair.answered(now, now, (&ask, granted(units, 77)), terms());
        let idle = |pair: &mut Pair, micros| {
            let then = now.saturating_add(Micros::new(micros));
            pair.idle(then, terms()).is_some()
        };
        assert!(!idle(&mut pair, 30_000), "{cost}");
        assert!(idle(&mut pair, 36_000), "{cost}");
    }
}

/// Returns whether requests are refused after an answer in this time to a node that asks for 40 units of a bucket: how many
/// it gets, and how long they last.
fn refuses_after(trip: u64, units: u32, lasts: u64, text: &str) -> bool {
    let algorithm: Algorithm = text.parse().unwrap();
    let terms = Terms::of(&algorithm, Micros::new(SECOND)).unwrap();
    let (mut pair, put) = (Pair::default(), Micros::new(SECOND));
    (pair.size, pair.cost) = (40, 1);
    let ask = UnitsRequest {
        units: 40,
        leads: true,
        ..UnitsRequest::default()
    };
    let grant = Grant {
        units,
        end: Micros::new(77),
        lasts: Micros::new(lasts),
    };
    let answer = LeaseReply {
        grant: Some(grant),
        denied: None,
        room: 0,
    };
    let now = put.saturating_add(Micros::new(trip));
    pair.answered(put, now, (&ask, answer), terms);
    pair.refuses(now, 1).is_some()
}

#[test]
fn a_node_that_gets_all_that_it_asks_for_refuses_nothing_however_long_the_answer_takes() {
    let bucket = "gcra 20000/second";
    for trip in [0, 50_000, 80_000] {
        assert!(!refuses_after(trip, 40, SECOND, bucket), "{trip}");
        assert!(refuses_after(trip, 0, SECOND, bucket), "{trip}");
    }
    // Near the end of its window a node gets a part, or nothing, though much remains.
    let window = "sliding-window 20000/second";
    for (units, lasts) in [(20, 50_000), (2, 5_000), (0, 2_000)] {
        assert!(!refuses_after(50_000, units, lasts, window), "{units}");
    }
    assert!(refuses_after(50_000, 2, 50_000, window));
    assert!(!refuses_after(
        50_000,
        1,
        SECOND,
        "fixed-window 20000/second"
    ));
}
