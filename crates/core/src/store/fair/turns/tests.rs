//! Turns that come in time, and rows that end.

use super::*;

/// Draws numbers from 0 to 1, by xorshift.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        f64::from((self.0 >> 40) as u32) / f64::from(1 << 24)
    }
}

const UNIT: f64 = 1_000.0;
const FILL: f64 = 40.0 * UNIT;

/// A limit whose room others take as soon as it is not kept.
struct Limit {
    turns: Turns,
    there: f64,
    now: Micros,
}

impl Limit {
    fn with(there: f64) -> Self {
        let mut turns = Turns::default();
        turns.count_in(UNIT);
        Self {
            turns,
            there,
            now: Micros::new(1),
        }
    }

    fn pass(&mut self, until: Micros) {
        let time = in_micros(until.saturating_sub(self.now));
        self.turns.pass(time);
        self.there = (self.there + time).min(FILL);
        self.now = until;
    }

    fn give(&mut self, cost: f64, due: f64) -> Micros {
        let after = self.turns.give(Need {
            cost,
            due,
            there: self.there,
            claimed: 0.0,
            fill: FILL,
        });
        self.now.saturating_add(after)
    }
}

/// Requests of one unit to the whole limit come when they have their turn, which they may have at once or after the limit has been granted
/// five times.
#[test]
fn the_limit_has_the_cost_of_a_turn_when_it_comes() {
    let mut draw = Draw(7);
    let mut limit = Limit::with(FILL);
    let mut turns: Vec<(Micros, f64)> = Vec::new();
    let mut taken = 0;
    for _ in 0..20_000 {
        turns.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        let gap = earlier(draw.next() * 3.0 * UNIT);
        let next = limit.now.saturating_add(gap);
        while let Some((at, cost)) = turns.pop_if(|(at, _)| *at <= next) {
            limit.pass(at);
            assert!(limit.there >= cost - 1.0, "{} of {cost}", limit.there);
            limit.turns.end(cost, Micros::ZERO, FILL);
            limit.there -= cost;
            taken += 1;
        }
        limit.pass(next);
        if turns.len() < 100 {
            let most = if draw.next() < 0.7 { 10.0 } else { 40.0 };
            let cost = (1.0 + (draw.next() * most).floor()) * UNIT;
            let due = draw.next() * draw.next() * 5.0 * FILL;
            let at = limit.give(cost, due);
            turns.push((at, cost));
        }
        let free = ((limit.there - limit.turns.kept()) / UNIT).floor();
        limit.there -= free.max(0.0) * UNIT;
    }
    assert!(taken > 2_500, "{taken}");
    for (at, cost) in turns {
        limit.turns.end(cost, at.saturating_sub(limit.now), FILL);
    }
    assert!(limit.turns.kept() < 1e-9);
    assert!(limit.turns.are_none() && limit.turns.booked.is_empty());
}

/// The first one has its turn first. Others take what is not kept.
#[test]
fn no_turn_counts_on_more_than_the_burst_holds() {
    for turns in [[(36.0, 50.0), (12.0, 20.0)], [(40.0, 0.0), (1.0003, 0.0)]] {
        // The whole burst is there in the middle of a microsecond.
        let mut limit = Limit::with(0.3);
        let turns = turns.map(|(cost, due)| (cost * UNIT, due * UNIT));
        let turns = turns.map(|(cost, due)| (cost, limit.give(cost, due)));
        for (cost, at) in turns {
            while limit.now < at {
                let next = limit.now.saturating_add(Micros::new(500));
                limit.pass(next.min(at));
                limit.there = limit.there.min(limit.turns.kept());
            }
            assert!(limit.there >= cost, "{} of {cost}", limit.there);
            limit.turns.end(cost, Micros::ZERO, FILL);
            limit.there -= cost;
        }
    }
}

/// A request that is alone has its turn when its tenant may have it, and not later than the limit has room.
#[test]
fn a_turn_alone_is_not_later_than_it_has_to_be() {
    for (there, due, cost, after) in [
        (0.0, 0.0, 1.0, 1.0),
        (0.5, 0.0, 1.0, 0.5),
        (0.5, 0.0, 3.0, 2.5),
        (0.0, 7.0, 1.0, 7.0),
        (0.0, 70.0, 30.0, 70.0),
    ] {
        let mut limit = Limit::with(there * UNIT);
        let at = limit.give(cost * UNIT, due * UNIT);
        let told = in_micros(at.saturating_sub(limit.now));
        let late = told - after * UNIT;
        assert!((0.0..=1.0).contains(&late), "{told} for {cost} due {due}");
    }
}

#[test]
fn a_row_that_is_too_short_has_longer_slots() {
    let mut limit = Limit::with(0.0);
    let far = limit.give(UNIT, 1e9);
    assert!(limit.turns.booked.len() <= SLOTS);
    let slot = limit.turns.width;
    let told = in_micros(far.saturating_sub(limit.now));
    assert!((1e9 - slot..=1e9 + 2.0).contains(&told), "{told}");
    // Once it is there, slots are short again.
    limit.turns.pass(1e9);
    let _ = limit.give(UNIT, UNIT);
    assert!(limit.turns.width <= UNIT, "{}", limit.turns.width);
    // All that is booked is kept, however long nobody has asked.
    limit.turns.pass(1e12);
    assert!((limit.turns.kept() - 2.0 * UNIT).abs() < 1e-6);
    assert!(limit.turns.booked.is_empty());
}

/// A reload may change the limit while requests have turns.
#[test]
fn what_is_booked_is_as_many_units_after_a_limit_has_changed() {
    let mut limit = Limit::with(0.0);
    let turns = [1.0, 3.0, 30.0].map(|cost| (cost, limit.give(cost * UNIT, 0.0)));
    limit.pass(Micros::new(2_500));
    for unit in [UNIT / 10.0, 7.0 * UNIT] {
        limit.turns.count_in(unit);
    }
    let last = turns.len() - 1;
    for (cost, at) in &turns[..last] {
        let after = at.saturating_sub(limit.now);
        limit.turns.end(cost * 7.0 * UNIT, after, 7.0 * FILL);
    }
    limit.turns.pass(1e9);
    let left = turns[last].0 * 7.0 * UNIT;
    assert!(
        (limit.turns.kept() - left).abs() < 1e-3,
        "{}",
        limit.turns.kept()
    );
}
