//! The node's part: what it holds of one key under one policy, and what it asks for.
//!
//! It knows no clock and does no I/O: the time is an argument, and it gives and takes messages. The time is
//! that of any clock of the node that never steps back, runs no slower than by one in a thousand, and goes on
//! while the machine sleeps.

use std::mem;

use smallvec::SmallVec;

use super::ask::{Grant, UnitsReport, UnitsRequest};
use super::terms::Terms;
use tower_ratelimit_core::clock::Micros;

/// One key under one policy at one node.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own: any two can hold together"
)]
#[derive(Clone, Debug, Default)]
pub(crate) struct Pair {
    classes: [ClassUnits; CLASSES],
    /// How many units requests have asked for since that was last reported to the server, and how many
    /// requests these were.
    seen: u32,
    came: u32,
    /// The cost of a request, by the last questions.
    cost: u32,
    /// How many units requests have asked for since the last answer, and when that was. So the time in which
    /// requests wait for units does not lower the demand. If the answer brings fewer units than the node has asked for, both
    /// count from the question: requests that still wait would look like a demand that has just come.
    wanted: u32,
    since: Option<Micros>,
    /// How many units cover the demand, by the last questions.
    size: u32,
    /// How many units there were after the last answer, if it has brought any.
    granted: u32,
    /// Whether the last answer has brought fewer units than were asked for.
    is_scarce: bool,
    /// Whether the question that leads has no answer yet.
    is_asking: bool,
    /// Whether requests wait for that answer.
    waits: bool,
    /// How many units requests wait for, beside the request that has asked.
    waiting: u32,
    /// Whether requests have waited for units of which there were none to lease: requests then ask by themselves, until
    /// an answer brings units or a denial.
    waits_in_vain: bool,
    /// Until when requests of this cost or more are refused without a question.
    refuses: Refuses,
    /// When the last request came.
    latest: Micros,
}

#[derive(Clone, Copy, Debug, Default)]
struct Refuses {
    cost: u32,
    until: Micros,
    /// How long. It doubles with each denial in a row.
    lasts: Micros,
}

/// Units of one class.
#[derive(Clone, Copy, Debug, Default)]
struct ClassUnits {
    /// The class, by its end at the server.
    end: Micros,
    /// The end of the class at this node.
    until: Micros,
    left: u32,
    /// Spent, and not reported yet.
    spent: u32,
}

/// How a request goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The request has its units. If few are left, it is time to ask for more.
    Spent { is_low: bool },
    /// The request is refused, and may try again after this time.
    Refused(Micros),
    /// A question about the key is on its way. The request waits for the answer, and comes again.
    Wait,
    /// The server decides.
    Ask,
}

/// The answer of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseReply {
    pub(crate) grant: Option<Grant>,
    /// How long the denied request has to wait, or `None` if no request was denied.
    pub(crate) denied: Option<Micros>,
    /// How many units requests of a tenant may have beside these, if the limit is divided. What nobody claims is not leased.
    pub(crate) room: u32,
}

/// The server makes two classes at a time, and one more may not have ended here.
const CLASSES: usize = 3;

impl Pair {
    /// Decides how a request of this cost goes on.
    pub(crate) fn request(&mut self, now: Micros, cost: u32) -> Way {
        self.seen = self.seen.saturating_add(cost);
        self.came = self.came.saturating_add(1);
        self.wanted = self.wanted.saturating_add(cost);
        self.latest = now;
        self.again(now, cost)
    }

    /// Decides again, for a request that has waited.
    ///
    /// While one question about a key is on its way, no further one is sent: requests wait for the answer, and the next
    /// question asks for units for all of them. So nodes that begin at once do not overload the server, however slow it is.
    /// Requests with several charges, and requests that have waited in vain, ask by themselves.
    pub(crate) fn again(&mut self, now: Micros, cost: u32) -> Way {
        if self.take(now, cost) {
            let is_low = !self.is_asking && self.left(now) < self.granted / 4;
            return Way::Spent { is_low };
        }
        match self.refuses(now, cost) {
            Some(wait) => Way::Refused(wait),
            None if self.is_asking && self.waits => Way::Wait,
            None => Way::Ask,
        }
    }

    /// Counts a request of this cost that waits for the answer.
    pub(crate) fn wait(&mut self, cost: u32) {
        self.waiting = self.waiting.saturating_add(cost);
    }

    /// Takes units of the classes that end first, if there are enough together.
    fn take(&mut self, now: Micros, cost: u32) -> bool {
        if cost == 0 || self.left(now) < cost {
            return false;
        }
        let mut missing = cost;
        while missing > 0 {
            let live = self.classes.iter_mut().filter(|class| class.is_live(now));
            let Some(first) = live.min_by_key(|class| class.until) else {
                return false;
            };
            let taken = missing.min(first.left);
            first.left -= taken;
            first.spent += taken;
            missing -= taken;
        }
        true
    }

    /// Puts back the units of a request that does not go on. Units that were reported meanwhile stay spent.
    pub(crate) fn put_back(&mut self, now: Micros, cost: u32) {
        let mut missing = cost;
        for class in self.classes.iter_mut().filter(|class| class.until > now) {
            let back = missing.min(class.spent);
            class.spent -= back;
            class.left += back;
            missing -= back;
        }
    }

    /// Returns how much longer requests of this cost are refused without a question.
    pub(crate) fn refuses(&self, now: Micros, cost: u32) -> Option<Micros> {
        let Refuses {
            cost: least, until, ..
        } = self.refuses;
        (now < until && cost >= least).then(|| until.saturating_sub(now))
    }

    /// Returns how many units can be spent now.
    pub(crate) fn left(&self, now: Micros) -> u32 {
        let live = self.classes.iter().filter(|class| class.is_live(now));
        live.map(|class| class.left).sum()
    }

    /// Returns the question for the server. If a request waits for the answer, the remaining units are too
    /// few for it, and are given back: the server may have the rest.
    pub(crate) fn ask(&mut self, now: Micros, cost: u32, terms: Terms) -> UnitsRequest {
        let mut ask = UnitsRequest {
            cost,
            seen: self.seen,
            ..UnitsRequest::default()
        };
        if let Some(mean) = self.seen.checked_div(self.came) {
            self.cost = mean;
        }
        if !self.is_asking {
            self.size = self.sized_anew(now, terms);
            let kept = if cost > 0 { 0 } else { self.left(now) };
            // A lease for one or two requests saves no call, since unused units are given back by one.
            if self.requests() > 2 {
                ask.units = self.size.saturating_sub(kept);
            }
            // The request that asks has waited, too.
            ask.awaited = mem::take(&mut self.waiting).saturating_sub(cost);
            ask.units = ask.units.max(ask.awaited);
            self.waits = terms.is_long() && !self.waits_in_vain;
            ask.leads = self.waits || ask.units > 0;
            self.is_asking = ask.leads;
        }
        (self.seen, self.came) = (0, 0);
        if !terms.is_long() {
            self.wanted = 0;
        }
        ask.tells = self.tells(now, |left| if cost > 0 { left } else { 0 });
        ask
    }

    /// Returns how many requests come in the time for whose demand a node asks.
    fn requests(&self) -> u32 {
        self.size / self.cost.max(1)
    }

    /// Returns how many units cover the demand: at most twice as many as the last time, as one request costs or as requests
    /// wait for, and at least half as many as the last time.
    fn sized_anew(&mut self, now: Micros, terms: Terms) -> u32 {
        let wanted = mem::take(&mut self.wanted);
        let Some(since) = self.since.replace(now) else {
            return 0;
        };
        let elapsed = now.saturating_sub(since).get().max(1);
        let wanted = u128::from(wanted) * u128::from(terms.covers.get()) / u128::from(elapsed);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let most = self.size.max(self.waiting).saturating_mul(2);
        wanted.clamp(self.size / 2, most.max(self.cost).max(1))
    }

    /// Returns a report on spent units, so that these can be refunded, or `None` if there is nothing to
    /// report.
    pub(crate) fn tell(&mut self, now: Micros) -> Option<UnitsRequest> {
        let ask = UnitsRequest {
            tells: self.tells(now, |_| 0),
            ..UnitsRequest::default()
        };
        (!ask.is_empty()).then_some(ask)
    }

    /// Returns a report on units that no request has asked for lately, or `None` if there is nothing to
    /// report.
    ///
    /// As long as the server has enough for all, units stay for their whole life. Otherwise a process that
    /// shares the processor with others would give them back in each pause.
    pub(crate) fn idle(&mut self, now: Micros, terms: Terms) -> Option<UnitsRequest> {
        let idle = now.saturating_sub(self.latest);
        let is_missed = self.is_scarce || !terms.is_long();
        if idle < terms.idle(is_missed.then(|| self.requests())) {
            return None;
        }
        self.give_back(now)
    }

    /// Gives all units back, as when the node stops.
    pub(crate) fn give_back(&mut self, now: Micros) -> Option<UnitsRequest> {
        let ask = UnitsRequest {
            seen: self.seen,
            tells: self.tells(now, |left| left),
            ..UnitsRequest::default()
        };
        (self.seen, self.came) = (0, 0);
        (!ask.is_empty()).then_some(ask)
    }

    /// Reports what was spent, and gives back the part of each class that `unspent` returns.
    fn tells(&mut self, now: Micros, unspent: impl Fn(u32) -> u32) -> SmallVec<[UnitsReport; 2]> {
        let mut tells = SmallVec::new();
        for class in self.classes.iter_mut().filter(|class| class.until > now) {
            let unspent = unspent(class.left);
            if class.spent > 0 || unspent > 0 {
                class.left -= unspent;
                tells.push(UnitsReport {
                    end: class.end,
                    spent: class.spent,
                    unspent,
                });
                class.spent = 0;
            }
        }
        tells
    }

    /// Processes the answer to a question that was sent at `put`.
    pub(crate) fn answered(
        &mut self,
        put: Micros,
        now: Micros,
        (ask, answer): (&UnitsRequest, LeaseReply),
        terms: Terms,
    ) {
        self.ended(ask);
        let units = answer.grant.map_or(0, |grant| grant.units);
        if let Some(grant) = answer.grant {
            self.hold(put, now, grant);
        }
        if ask.units > 0 {
            self.granted = if units > 0 { self.left(now) } else { 0 };
            self.is_scarce = units < ask.units;
            if terms.is_long() && !self.is_scarce {
                (self.wanted, self.since) = (self.waiting, Some(now));
            }
            self.waiting = self.waiting.saturating_sub(units);
            self.waits_in_vain &= units == 0;
        }
        // If the server is slow, units accumulate meanwhile: nodes that asked again at once would keep it busy.
        let trip = now.saturating_sub(put).get();
        let pace = terms.pace(now).max(Micros::new(2 * trip).min(terms.covers));
        if let Some(wait) = answer.denied {
            self.waits_in_vain = false;
            if self.size > 0 {
                let lasts = Micros::new(2 * self.refuses.lasts.get());
                self.refuse(now, ask.cost, wait.min(lasts).min(terms.covers).max(pace));
            }
            return;
        }
        // A node that gets what it has asked for can ask again at once, however few units that are. Near the end of a window
        // it gets fewer, whatever remains.
        let due = |grant: Grant| terms.until_the_end(ask.units.into(), grant.lasts.get());
        let is_short = u64::from(units) < answer.grant.map_or(ask.units.into(), due);
        let spent_in_a_pace = u64::from(self.size) * pace.get() / terms.covers.get();
        let is_less = |units: u32| u64::from(units) < spent_in_a_pace;
        if terms.drains && is_short && is_less(units) && is_less(answer.room) {
            self.refuse(now, 1, pace);
        } else {
            self.refuses.lasts = Micros::ZERO;
            // Without a cost, it is not denied where the limit is used up.
            self.waits_in_vain |= ask.cost > 0 && ask.awaited > 0 && units == 0;
        }
    }

    fn refuse(&mut self, now: Micros, cost: u32, lasts: Micros) {
        let until = now.saturating_add(lasts);
        self.refuses = Refuses { cost, until, lasts };
        self.waiting = 0;
    }

    /// Handles the loss of a question or its answer: the server may not know its report, which is not
    /// repeated.
    pub(crate) fn failed(&mut self, ask: &UnitsRequest) {
        self.ended(ask);
        if ask.leads {
            self.waiting = 0;
        }
    }

    fn ended(&mut self, ask: &UnitsRequest) {
        if ask.leads {
            self.is_asking = false;
        }
    }

    fn hold(&mut self, put: Micros, now: Micros, grant: Grant) {
        if grant.units == 0 {
            return;
        }
        // The clock of the node may run slower by one in a thousand.
        let lasts = grant.lasts.get() - grant.lasts.get().div_ceil(1_000);
        let until = Micros::new(put.get().saturating_add(lasts));
        let is_of_the_class = |class: &ClassUnits| class.end == grant.end && class.until > now;
        let place = if let Some(place) = self.classes.iter().position(is_of_the_class) {
            place
        } else if let Some(place) = self.classes.iter().position(|class| class.until <= now) {
            self.classes[place] = ClassUnits::default();
            place
        } else {
            // The units lapse.
            return;
        };
        let class = &mut self.classes[place];
        // If the server's clock has stepped forward since the last grant, the class ends sooner.
        class.until = match class.left {
            0 => until,
            _ => class.until.min(until),
        };
        class.end = grant.end;
        class.left = class.left.saturating_add(grant.units);
    }
}

impl ClassUnits {
    fn is_live(&self, now: Micros) -> bool {
        self.left > 0 && self.until > now
    }
}

#[cfg(test)]
mod tests;
