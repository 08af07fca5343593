//! The way of a question to the server, and of its answer to the node.

use std::mem;

use super::{DEADLINE, Message, World};
use crate::lease::UnitsRequest;
use crate::lease::simulation::queue::What;
use tower_ratelimit_core::__internal::Step;
use tower_ratelimit_core::clock::Micros;

/// How often a node looks for unused units, as in the store.
const LOOKS_EVERY: u64 = 10_000;

/// A server that is this far behind reads no more questions, because nodes have given them up.
const MOST_BEHIND: u64 = 2 * DEADLINE;

impl<S: Step> World<S> {
    pub(super) fn send(&mut self, place: usize, cost: u32, until: u64) {
        let node = self.pairs.at(place).node;
        let put = self.node_time(node);
        let ask = self.pairs.at(place).pair.ask(put, cost, self.terms);
        self.post(place, ask, put, until);
    }

    fn post(&mut self, place: usize, ask: UnitsRequest, put: Micros, until: u64) {
        let at_node = self.pairs.at(place);
        let (node, key) = (at_node.node, at_node.key);
        self.note(node, key, || format!("asks {ask:?}"));
        self.report.calls += 1;
        let message = Message {
            pair: place,
            life: self.nodes[node].life,
            ask,
            put,
            sent: self.now,
            until,
            answer: None,
        };
        let place = if let Some(place) = self.free.pop() {
            self.messages[place] = message;
            place
        } else {
            self.messages.push(message);
            self.messages.len() - 1
        };
        let faults = self.scene.faults;
        let is_cut = self.now < self.nodes[node].cut;
        if is_cut || self.random.happens(faults.lost) {
            self.after(DEADLINE, What::Failed { message: place });
            return;
        }
        let late = if self.random.happens(faults.late) {
            self.random.below(2 * DEADLINE)
        } else {
            0
        };
        let trip = self.scene.distance.trip(&mut self.random);
        self.after(trip + late, What::AtServer { message: place });
    }

    /// A question reaches the server, and waits for those before it.
    pub(super) fn reach(&mut self, message: usize) {
        if self.server.is_away(self.now) || self.server.behind(self.now) > MOST_BEHIND {
            let left = (self.messages[message].sent + DEADLINE).saturating_sub(self.now);
            self.after(left, What::Failed { message });
            return;
        }
        let begins = self.server.begin(self.now);
        self.queue.at(begins, What::Served { message });
    }

    pub(super) fn serve(&mut self, place: usize) {
        let message = &self.messages[place];
        let ask = message.ask.clone();
        let at_node = self.pairs.at(message.pair);
        let (node, key) = (at_node.node, at_node.key);
        let at = self.server.time(self.now);
        let answer = self.server.answer(key, at, &ask);
        self.note(node, key, || format!("is answered {answer:?}"));
        if ask.cost > 0 && answer.denied.is_none() {
            self.spend(node, key, at, ask.cost);
        }
        let is_false = answer.denied.is_some() && self.has_room(key, at, ask.cost);
        let message = &mut self.messages[place];
        message.answer = Some(answer);
        let answered = self.now + self.scene.distance.trip(&mut self.random);
        let until = message.sent + DEADLINE;
        let is_lost = self.random.happens(self.scene.faults.lost);
        if is_lost || answered > until {
            let failed = until.max(self.now);
            self.queue.at(failed, What::Failed { message: place });
            return;
        }
        if ask.cost > 0 && answered > message.until {
            self.report.degraded += 1;
        } else if ask.cost > 0 {
            self.report.waited(answered - message.sent);
            match answer.denied {
                Some(_) => self.report.refused(is_false),
                None => self.report.admitted(node, ask.cost),
            }
        }
        self.queue.at(answered, What::Answered { message: place });
    }

    pub(super) fn answer(&mut self, message: usize) {
        let Message {
            pair: place,
            life,
            put,
            ref ask,
            answer,
            ..
        } = self.messages[message];
        let node = self.pairs.at(place).node;
        let away = self.nodes[node].away;
        if self.now < away {
            self.queue.at(away, What::Answered { message });
            return;
        }
        let (ask, now) = (ask.clone(), self.node_time(node));
        self.free.push(message);
        let Some(answer) = answer else { return };
        if self.nodes[node].life != life {
            return;
        }
        let at_node = self.pairs.at(place);
        at_node.pair.answered(put, now, (&ask, answer), self.terms);
        if answer.grant.is_some_and(|grant| grant.units > 0) && !at_node.is_looked_at {
            at_node.is_looked_at = true;
            self.queue.looks(self.now + LOOKS_EVERY, place);
        }
        self.wake(place, &ask, true);
    }

    pub(super) fn fail(&mut self, message: usize) {
        self.free.push(message);
        let Message {
            pair: place,
            life,
            ref ask,
            ..
        } = self.messages[message];
        let ask = ask.clone();
        self.report.failed += 1;
        self.report.degraded += u64::from(ask.cost > 0);
        let at_node = self.pairs.at(place);
        if self.nodes[at_node.node].life == life {
            at_node.pair.failed(&ask);
            self.wake(place, &ask, false);
        }
    }

    /// The answer has come, or is lost: the requests that wait for it come again. If it is lost and half of
    /// their time is over, they have failed too.
    fn wake(&mut self, place: usize, ask: &UnitsRequest, is_answered: bool) {
        if !ask.leads {
            return;
        }
        let at_node = self.pairs.at(place);
        let (node, waiting) = (at_node.node, mem::take(&mut at_node.waiting));
        for request in waiting {
            let now = self.node_time(node);
            let mut request = request;
            if is_answered {
                // It may have to ask now, with a deadline of its own.
                request.until = (self.now + DEADLINE).min(request.since + 2 * DEADLINE);
            }
            let needed = if is_answered { 0 } else { DEADLINE / 2 };
            if self.now + needed > request.until {
                self.report.failed += 1;
                self.report.degraded += 1;
            } else {
                let way = self.pairs.at(place).pair.again(now, request.cost);
                self.follow(place, request, way);
            }
        }
    }

    /// A node looks for unused units, as long as it holds any.
    pub(super) fn look(&mut self, place: usize) {
        let node = self.pairs.at(place).node;
        let now = self.node_time(node);
        let away = self.nodes[node].away;
        if self.now < away {
            self.queue.at(away, What::Look { pair: place });
            return;
        }
        let at_node = self.pairs.at(place);
        at_node.is_looked_at = false;
        if let Some(ask) = at_node.pair.idle(now, self.terms) {
            self.post(place, ask, now, self.now);
        } else if at_node.pair.left(now) > 0 {
            at_node.is_looked_at = true;
            self.queue.looks(self.now + LOOKS_EVERY, place);
        }
    }
}
