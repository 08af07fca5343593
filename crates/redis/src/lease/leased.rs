//! The server's part: which units of a key nodes hold, and what that means for requests. The same rule in Lua
//! is `lease.lua`, which also grants. Its twin in Rust is `tests/unit/leases/granting.rs`.

#[cfg(test)]
#[path = "../../tests/unit/leases/granting.rs"]
mod granting;

use smallvec::SmallVec;

use tower_ratelimit_core::__internal::{Fixed, Step, WithRule, read};
use tower_ratelimit_core::algorithm::{Algorithm, State};
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::decision::Outcome;

/// The units that nodes hold of a key, beside its state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leased {
    /// The longest life of any of them.
    life: u64,
    /// How often ends were moved because the clock had stepped back.
    moves: u64,
    demand: Demand,
    /// By their ends, the earliest first.
    classes: SmallVec<[Class; 2]>,
}

/// Units that end together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    end: u64,
    units: u64,
}

/// How many units requests have demanded of all nodes, in the present span of time and in the previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Demand {
    span: u64,
    before: u64,
    present: u64,
}

/// A request for a key of which nodes hold units.
#[derive(Clone, Debug)]
pub(crate) struct LeasedRequest {
    pub(crate) state: State,
    pub(crate) now: Micros,
    pub(crate) cost: u32,
    /// Whether the server allowed it. If not, it may be allowed by now.
    pub(crate) fits: bool,
}

impl Leased {
    /// Reads the numbers of the mark, or returns `None` if these are not numbers of a mark.
    pub(crate) fn read(words: &[u64]) -> Option<Self> {
        let (&[life, moves, span, before, present], classes) = words.split_first_chunk()?;
        let (classes, []) = classes.as_chunks() else {
            return None;
        };
        let demand = Demand {
            span,
            before,
            present,
        };
        let class = |&[end, units]: &[u64; 2]| Class { end, units };
        Some(Self {
            life,
            moves,
            demand,
            classes: classes.iter().map(class).collect(),
        })
    }

    /// Returns the outcome of a request, in which units that nodes hold count as spent.
    pub(crate) fn outcome(&self, algorithm: &Algorithm, request: LeasedRequest) -> Outcome {
        algorithm.with_rule(TellOutcome(self, request))
    }

    /// Returns the longest wait that the server can tell a request at that moment. Since these units were counted, nodes
    /// may have given units back and got them again, with all that have come back, for this long at most.
    pub(crate) fn longest_wait(
        &self,
        algorithm: &Algorithm,
        request: LeasedRequest,
        life: Micros,
    ) -> Option<Micros> {
        algorithm.with_rule(LongestWait(self, request, life))
    }

    /// Returns how many units nodes hold.
    pub(crate) fn units(&self) -> u64 {
        self.classes.iter().map(|class| class.units).sum()
    }

    /// Charges the classes that have ended. Called before anything else is done with a state, after the state
    /// itself is moved back.
    pub(crate) fn end<S: Step>(&mut self, rule: &S, form: &mut S::Form, now: Micros) {
        let furthest = now.get().saturating_add(self.life);
        if self.classes.iter().any(|class| class.end > furthest) {
            self.moves += 1;
        }
        for class in &mut self.classes {
            class.end = class.end.min(furthest);
        }
        let ended = |class: &&Class| class.end <= now.get();
        let ended = self.classes.iter().take_while(ended).count();
        for class in self.classes.drain(..ended) {
            charge(rule, form, class.end.saturating_sub(1), class.units);
        }
    }

    /// Returns whether a request of this cost is allowed.
    pub(crate) fn allows<S: Step>(&self, rule: &S, form: &S::Form, now: Micros, cost: u32) -> bool {
        match cost {
            0 => rule.allows(form, now, 0),
            cost => with(self.units(), cost).is_some_and(|all| rule.allows(form, now, all)),
        }
    }

    /// Returns how long a request of this cost has to wait if no other request comes and no unit is given
    /// back or reported. Returns `None` if no wait helps.
    pub(crate) fn retry_after<S: Step>(
        &self,
        rule: &S,
        form: &S::Form,
        now: Micros,
        cost: u32,
    ) -> Option<Micros> {
        if cost > rule.limit() || rule.limit() == 0 {
            return None;
        }
        let (mut leased, mut form, mut at) = (self.clone(), form.clone(), now);
        loop {
            let next = leased.classes.first().map(|class| Micros::new(class.end));
            if let Some(all) = with(leased.units(), cost).filter(|all| *all <= rule.limit()) {
                let wait = match all {
                    0 => Micros::ZERO,
                    all if rule.admits(&form, at, all) => Micros::ZERO,
                    all => rule.retry_after(&form, at, all),
                };
                let until = at.saturating_add(wait);
                if next.is_none_or(|next| until < next) {
                    return Some(until.saturating_sub(now));
                }
            }
            at = next?;
            leased.end(rule, &mut form, at);
        }
    }
}

/// Computes the outcome of a request.
struct TellOutcome<'a>(&'a Leased, LeasedRequest);

impl TellOutcome<'_> {
    fn under<S: Step>(self, rule: &S) -> Outcome {
        let Self(leased, request) = self;
        let LeasedRequest {
            state, now, cost, ..
        } = request;
        let mut form = read(rule, state, now);
        let mut leased = leased.clone();
        leased.end(rule, &mut form, now);
        let fits = request.fits || leased.allows(rule, &form, now, cost);
        let mut all = form.clone();
        if let Ok(units @ 1..) = u32::try_from(leased.units())
            && rule.limit() > 0
        {
            rule.settle(&mut all, now, units);
        }
        let outcome = rule.outcome(&all, now, cost, true);
        if fits {
            outcome
        } else {
            outcome.denied(leased.retry_after(rule, &form, now, cost))
        }
    }
}

impl WithRule for TellOutcome<'_> {
    type Result = Outcome;

    fn fixed(self, rule: impl Fixed) -> Outcome {
        self.under(&rule)
    }

    fn long(self, rule: impl Step<Form = State>) -> Outcome {
        self.under(&rule)
    }
}

/// Computes the longest wait of a request.
struct LongestWait<'a>(&'a Leased, LeasedRequest, Micros);

impl LongestWait<'_> {
    fn under<S: Step>(self, rule: &S) -> Option<Micros> {
        let Self(
            before,
            LeasedRequest {
                state, now, cost, ..
            },
            life,
        ) = self;
        let form = read(rule, state, now);
        let mut all = form.clone();
        if let Ok(units @ 1..) = u32::try_from(before.units()) {
            rule.settle(&mut all, now, units);
        }
        let units = before.units() + u64::from(rule.remaining(&all, now));
        let life = before.life.max(life.get());
        let end = now.get().saturating_add(life);
        let end = end.min(rule.bin_end(&form, now).get());
        let leased = Leased {
            life,
            classes: (units > 0)
                .then_some(Class { end, units })
                .into_iter()
                .collect(),
            ..Leased::default()
        };
        leased.retry_after(rule, &form, now, cost)
    }
}

impl WithRule for LongestWait<'_> {
    type Result = Option<Micros>;

    fn fixed(self, rule: impl Fixed) -> Option<Micros> {
        self.under(&rule)
    }

    fn long(self, rule: impl Step<Form = State>) -> Option<Micros> {
        self.under(&rule)
    }
}

fn charge<S: Step>(rule: &S, form: &mut S::Form, at: u64, units: u64) {
    if let Ok(units @ 1..) = u32::try_from(units) {
        rule.charge(form, Micros::new(at), units);
    }
}

fn with(units: u64, cost: u32) -> Option<u32> {
    u32::try_from(units + u64::from(cost)).ok()
}
