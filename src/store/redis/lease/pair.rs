//! The node's part: what it holds of one key under one policy, and what it asks for.
//!
//! It knows no clock and does no I/O: it is told the time, and gives and takes messages. The time is that of any clock of
//! the node that never steps back, runs no slower than by one in a thousand, and goes on while the machine sleeps.

use smallvec::SmallVec;

use super::ask::{Ask, Grant, Tell};
use super::terms::Terms;
use crate::clock::Micros;

/// One key under one policy at one node.
#[derive(Clone, Debug, Default)]
pub(in crate::store::redis) struct Pair {
    held: [Held; CLASSES],
    /// How many units requests have asked for since the last call.
    seen: u32,
    /// When the last call was put.
    put: Option<Micros>,
    /// How many units cover the demand, by the last calls.
    size: u32,
    /// How many units there were after the last grant.
    granted: u32,
    /// Whether units were asked for, and no answer is there yet.
    is_asking: bool,
    /// Until when requests of this cost or more are refused without a question.
    refuses: Refuses,
    /// When the last request came.
    latest: Micros,
}

#[derive(Clone, Copy, Debug, Default)]
struct Refuses {
    cost: u32,
    until: Micros,
    /// For how long. It doubles from denial to denial.
    lasts: Micros,
}

/// Units of one class.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// The class, by its end at the server.
    end: Micros,
    /// Its end at this node.
    until: Micros,
    left: u32,
    /// Spent, and not told yet.
    spent: u32,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum Way {
    /// It has its units. If few are left, it is time to ask for more.
    Spent { is_low: bool },
    /// It is refused, and may try again after this time.
    Refused(Micros),
    /// The server decides.
    Ask,
}

/// What the server has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct Answer {
    pub(in crate::store::redis) grant: Option<Grant>,
    /// How long the request has to wait that was denied; `None` if none was.
    pub(in crate::store::redis) denied: Option<Micros>,
}

/// The server makes two classes at a time, of which one more may not have ended here.
const CLASSES: usize = 3;

impl Pair {
    /// A request of this cost comes.
    pub(in crate::store::redis) fn request(&mut self, now: Micros, cost: u32) -> Way {
        self.seen = self.seen.saturating_add(cost);
        self.latest = now;
        if self.take(now, cost) {
            let is_low = !self.is_asking && self.left(now) < self.granted / 4;
            return Way::Spent { is_low };
        }
        self.refuses(now, cost).map_or(Way::Ask, Way::Refused)
    }

    /// Takes units of the classes that end first, if there are enough together.
    fn take(&mut self, now: Micros, cost: u32) -> bool {
        if cost == 0 || self.left(now) < cost {
            return false;
        }
        let mut missing = cost;
        while missing > 0 {
            let live = self.held.iter_mut().filter(|held| held.is_live(now));
            let Some(first) = live.min_by_key(|held| held.until) else {
                return false;
            };
            let taken = missing.min(first.left);
            first.left -= taken;
            first.spent += taken;
            missing -= taken;
        }
        true
    }

    /// Puts units back that a request has taken which does not go on. What was told of meanwhile stays spent.
    pub(in crate::store::redis) fn put_back(&mut self, now: Micros, cost: u32) {
        let mut missing = cost;
        for held in self.held.iter_mut().filter(|held| held.until > now) {
            let back = missing.min(held.spent);
            held.spent -= back;
            held.left += back;
            missing -= back;
        }
    }

    /// How long requests of this cost are refused yet without a question.
    pub(in crate::store::redis) fn refuses(&self, now: Micros, cost: u32) -> Option<Micros> {
        let Refuses {
            cost: least, until, ..
        } = self.refuses;
        (now < until && cost >= least).then(|| until.saturating_sub(now))
    }

    /// How many units may be spent now.
    pub(in crate::store::redis) fn left(&self, now: Micros) -> u32 {
        let live = self.held.iter().filter(|held| held.is_live(now));
        live.map(|held| held.left).sum()
    }

    /// What to ask the server. If a request waits for the answer, what is left is too little for it, and is given back:
    /// the server may have the rest.
    pub(in crate::store::redis) fn ask(&mut self, now: Micros, cost: u32, terms: Terms) -> Ask {
        let mut ask = Ask {
            cost,
            seen: self.seen,
            ..Ask::default()
        };
        if !self.is_asking {
            let elapsed = self.put.map(|put| now.saturating_sub(put).get());
            self.size = match elapsed {
                Some(elapsed) => {
                    let covers = u128::from(terms.covers.get());
                    let wanted = u128::from(self.seen) * covers / u128::from(elapsed.max(1));
                    let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
                    wanted.clamp(self.size / 2, self.size.saturating_mul(2).max(1))
                }
                None => 0,
            };
            self.put = Some(now);
            let kept = if cost > 0 { 0 } else { self.left(now) };
            // Two requests that come one after the other are no demand yet.
            if self.size > 1 {
                ask.units = self.size.saturating_sub(kept);
            }
            self.is_asking = ask.units > 0;
        }
        self.seen = 0;
        ask.tells = self.tells(now, |left| if cost > 0 { left } else { 0 });
        ask
    }

    /// What to tell the server of units that were spent, so that these can be refunded; `None` if there is nothing to tell.
    pub(in crate::store::redis) fn tell(&mut self, now: Micros) -> Option<Ask> {
        let ask = Ask {
            tells: self.tells(now, |_| 0),
            ..Ask::default()
        };
        (!ask.is_empty()).then_some(ask)
    }

    /// What to tell the server of units that no request has asked for lately; `None` if there is nothing to tell.
    pub(in crate::store::redis) fn idle(&mut self, now: Micros, terms: Terms) -> Option<Ask> {
        if now.saturating_sub(self.latest) < terms.idle(self.size) {
            return None;
        }
        self.give_back(now)
    }

    /// Gives all units back, as when the node stops.
    pub(in crate::store::redis) fn give_back(&mut self, now: Micros) -> Option<Ask> {
        let ask = Ask {
            seen: self.seen,
            tells: self.tells(now, |left| left),
            ..Ask::default()
        };
        self.seen = 0;
        (!ask.is_empty()).then_some(ask)
    }

    /// Tells what was spent, and gives as much of each class back as this says.
    fn tells(&mut self, now: Micros, unspent: impl Fn(u32) -> u32) -> SmallVec<[Tell; 2]> {
        let mut tells = SmallVec::new();
        for held in self.held.iter_mut().filter(|held| held.until > now) {
            let unspent = unspent(held.left);
            if held.spent > 0 || unspent > 0 {
                held.left -= unspent;
                tells.push(Tell {
                    end: held.end,
                    spent: held.spent,
                    unspent,
                });
                held.spent = 0;
            }
        }
        tells
    }

    /// The server has answered a question that was put then.
    pub(in crate::store::redis) fn answered(
        &mut self,
        put: Micros,
        now: Micros,
        (ask, answer): (&Ask, Answer),
        terms: Terms,
    ) {
        self.ended(ask);
        if let Some(grant) = answer.grant {
            self.hold(put, now, grant);
            self.granted = self.left(now);
        }
        let pace = terms.pace(now);
        if let Some(wait) = answer.denied {
            if self.size > 0 {
                let lasts = Micros::new(2 * self.refuses.lasts.get());
                self.refuse(now, ask.cost, wait.min(lasts).min(terms.covers).max(pace));
            }
            return;
        }
        let units = answer.grant.map_or(0, |grant| grant.units);
        let is_scarce = || {
            let spent_in_a_pace = u64::from(self.size) * pace.get() / terms.covers.get();
            terms.drains && u64::from(units) < spent_in_a_pace
        };
        if ask.units > 0 && is_scarce() {
            self.refuse(now, 1, pace);
        } else {
            self.refuses.lasts = Micros::ZERO;
        }
    }

    fn refuse(&mut self, now: Micros, cost: u32, lasts: Micros) {
        let until = now.saturating_add(lasts);
        self.refuses = Refuses { cost, until, lasts };
    }

    /// A question is lost, or its answer: what it told may be unheard, and is never told again.
    pub(in crate::store::redis) fn failed(&mut self, ask: &Ask) {
        self.ended(ask);
    }

    fn ended(&mut self, ask: &Ask) {
        if ask.units > 0 {
            self.is_asking = false;
        }
    }

    fn hold(&mut self, put: Micros, now: Micros, grant: Grant) {
        // The clock of the node may run slower by one in a thousand.
        let lasts = grant.lasts.get() - grant.lasts.get().div_ceil(1_000);
        let until = Micros::new(put.get().saturating_add(lasts));
        let is_of_the_class = |held: &Held| held.end == grant.end && held.until > now;
        let place = if let Some(place) = self.held.iter().position(is_of_the_class) {
            place
        } else if let Some(place) = self.held.iter().position(|held| held.until <= now) {
            self.held[place] = Held::default();
            place
        } else {
            // They lapse.
            return;
        };
        let held = &mut self.held[place];
        // If the server's clock has stepped forward since the last grant, the class ends sooner.
        held.until = match held.left {
            0 => until,
            _ => held.until.min(until),
        };
        held.end = grant.end;
        held.left = held.left.saturating_add(grant.units);
    }
}

impl Held {
    fn is_live(&self, now: Micros) -> bool {
        self.left > 0 && self.until > now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Algorithm;

    const SECOND: u64 = 1_000_000;

    fn terms() -> Terms {
        let algorithm: Algorithm = "fixed-window 1000/minute".parse().unwrap();
        Terms::of(&algorithm, Micros::new(SECOND)).unwrap()
    }

    fn granted(units: u32, end: u64) -> Answer {
        let grant = Grant {
            units,
            end: Micros::new(end),
            lasts: Micros::new(SECOND),
        };
        Answer {
            grant: Some(grant),
            denied: None,
        }
    }

    /// A pair that holds ten units, which it has asked for at one second and got at two.
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
    fn what_is_told_is_never_told_again() {
        let (mut pair, now) = (pair(), Micros::new(SECOND + SECOND / 2));
        assert_eq!(pair.request(now, 3), Way::Spent { is_low: false });
        let told = pair.give_back(now).unwrap();
        let tell = Tell {
            end: Micros::new(77),
            spent: 3,
            unspent: 7,
        };
        assert_eq!(told.tells.as_slice(), [tell]);
        assert_eq!(pair.give_back(now), None);
        assert_eq!(pair.request(now, 1), Way::Ask);
    }

    #[test]
    fn a_key_that_is_asked_for_twice_is_not_leased_and_one_asked_for_often_is() {
        let mut pair = Pair::default();
        let mut asked = Vec::new();
        for gap in 0..5 {
            let now = Micros::new(SECOND + gap * 1_000);
            assert_eq!(pair.request(now, 1), Way::Ask);
            let ask = pair.ask(now, 1, terms());
            let nothing = Answer {
                grant: None,
                denied: None,
            };
            pair.answered(now, now, (&ask, nothing), terms());
            asked.push(ask.units);
        }
        assert_eq!(asked, [0, 0, 2, 4, 8]);
    }

    #[test]
    fn what_is_put_back_was_never_spent() {
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
}
