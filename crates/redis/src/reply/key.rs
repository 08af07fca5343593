//! What the reply tells of one key.

use super::KeyReply;
use super::depends_on_a_calendar;
use crate::lease::{Grant, Leased, LeasedRequest};
use crate::opened::OpenedPolicy;
use tower_ratelimit_core::__internal::Allotment;
use tower_ratelimit_core::__internal::KeyOutlook;
use tower_ratelimit_core::__internal::Replenishment;
use tower_ratelimit_core::algorithm::Algorithm;
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::decision::Outcome;

impl KeyReply {
    pub(crate) fn denies(&self) -> bool {
        let is_blocked = self.blocked > Micros::ZERO;
        !self.is_passed
            && !self.charge.is_shadow
            && (is_blocked || !(self.fits || self.charge.is_soft))
    }

    pub(super) fn is_one_of_several(&self) -> bool {
        self.charge.alternative.is_some()
    }

    pub(crate) fn grant(&self) -> Option<Grant> {
        self.grant
    }

    /// Returns whether it fits, and its key is not blocked.
    pub(crate) fn passes(&self) -> bool {
        self.fits && self.blocked == Micros::ZERO
    }

    /// Returns when it was decided, by the clock of the server.
    pub(crate) fn at(&self) -> Micros {
        self.at
    }

    /// Returns for how long this policy cannot make the request wait for longer than it was told, whatever other
    /// nodes charge meanwhile. `None` means that it was told that no wait helps.
    pub(crate) fn outlasts(&self, announced: Option<Micros>, counted: &OpenedPolicy) -> Micros {
        let is_asked = self.charge.cost > 0 || self.denies();
        let Some(announced) = announced.filter(|_| is_asked && !self.charge.is_soft) else {
            return Micros::LONGEST;
        };
        let limits_differ = counted.limits_differ && self.own.is_none();
        let is_settled = counted.is_settled();
        let ends_together = match counted.algorithm.replenishment() {
            Some(Replenishment::Aligned) => true,
            // A window that a refund has emptied begins anew, and later.
            Some(Replenishment::Anchored) => !is_settled,
            // A limit may have a calendar of its own.
            Some(Replenishment::Calendar) => !limits_differ,
            _ => false,
        };
        let longest = self.longest_wait(counted).filter(|_| !limits_differ);
        let dominated = longest.map_or(Micros::ZERO, |longest| {
            announced.saturating_sub(Micros::new(longest.get() << u8::from(is_settled)))
        });
        let unchanged = if self.blocked > Micros::ZERO {
            self.blocked
        } else if ends_together {
            // No charge moves the end of an open window.
            let end = Micros::from(self.outcome(counted, Micros::ZERO).reset_after());
            if self.denies() || end <= announced {
                end
            } else {
                Micros::ZERO
            }
        } else if !self.denies() || limits_differ || is_settled {
            Micros::ZERO
        } else {
            // While no unit is left and nodes hold none, no request is charged.
            let one = self.outcome_of(1, counted, Micros::ZERO);
            let is_leased = self
                .leased
                .as_ref()
                .is_some_and(|leased| leased.units() > 0);
            let none_is_left = one.remaining() == 0 && !is_leased;
            let wait = one.retry_micros().filter(|_| none_is_left);
            wait.unwrap_or(Micros::ZERO)
        };
        dominated.max(unchanged)
    }

    /// Returns the longest wait that the server can tell a request of this cost at a later moment, whatever it has granted
    /// to other nodes meanwhile, for this long. Returns `None` if that is not known.
    pub(crate) fn longest_wait_of(
        &self,
        cost: u32,
        counted: &OpenedPolicy,
        later: Micros,
        life: Micros,
    ) -> Option<Micros> {
        let outcome = self.outcome_of(cost, counted, later);
        let until_the_end = match counted.algorithm.replenishment()? {
            Replenishment::Aligned => true,
            Replenishment::Anchored => !counted.is_settled(),
            _ => false,
        };
        if self.blocked > later || until_the_end && !outcome.is_allowed() {
            return outcome.retry_micros();
        }
        let limits_differ = counted.limits_differ && self.own.is_none();
        if counted.is_settled() || limits_differ || counted.penalty.is_some() {
            return None;
        }
        let own = self.own_algorithm(counted);
        let request = LeasedRequest {
            state: self.state.clone(),
            now: self.at.saturating_add(later),
            cost,
            fits: false,
        };
        let none = Leased::default();
        let leased = self.leased.as_deref().unwrap_or(&none);
        leased.longest_wait(own.as_ref().unwrap_or(&counted.algorithm), request, life)
    }

    /// Returns the algorithm with the limit of the key or of the charge, if that is not the policy's.
    fn own_algorithm(&self, counted: &OpenedPolicy) -> Option<Algorithm> {
        match self.own {
            Some(own) => counted.algorithm.with_numbers(own.numbers),
            None => counted.under(&self.charge),
        }
    }

    /// Returns the longest wait of a request under this policy, unless a penalty can make it longer.
    fn longest_wait(&self, counted: &OpenedPolicy) -> Option<Micros> {
        if counted.penalty.is_some() {
            return None;
        }
        let own = self
            .own
            .and_then(|own| counted.algorithm.with_numbers(own.numbers));
        let algorithm = own.as_ref().unwrap_or(&counted.algorithm);
        algorithm.longest_wait().map(Micros::from)
    }

    /// Returns the state from which later outcomes are computed; `None` for a policy without one, and where nodes hold
    /// units, which they may give back.
    pub(super) fn outlook(&self, counted: &OpenedPolicy) -> Option<KeyOutlook> {
        if self.leased.is_some()
            || self.allotment.is_some()
            || matches!(counted.algorithm, Algorithm::Concurrency(_))
        {
            return None;
        }
        let own = self.own;
        Some(KeyOutlook {
            policy: self.charge.policy,
            algorithm: counted.algorithm,
            own: own.and_then(|own| counted.algorithm.with_numbers(own.numbers)),
            state: self.state.clone(),
            at: self.at,
            blocked: self.blocked,
        })
    }

    /// Returns whether others have a part of the limit.
    pub(crate) fn is_of_a_part(&self) -> bool {
        self.allotment.is_some()
    }

    /// Returns the outcome at the moment of the answer, of a request that may go on or not.
    pub(crate) fn told(&self, counted: &OpenedPolicy, is_allowed: bool) -> Outcome {
        let outcome = self.outcome(counted, Micros::ZERO);
        match &self.allotment {
            None => outcome,
            Some(allotment) => self.outcome_under(outcome, allotment, is_allowed),
        }
    }

    /// Returns the denial of a request of this cost at a later moment, which waits for what it needs of the limit and of its part, if
    /// nothing has happened since. Returns `None` if nobody else has a part of the limit.
    pub(crate) fn denial_of_part(
        &self,
        cost: u32,
        counted: &OpenedPolicy,
        later: Micros,
    ) -> Option<Outcome> {
        let allotment = self.allotment.as_ref()?;
        let denied = Self {
            fits: false,
            leased: Some(self.leased.clone().unwrap_or_default()),
            ..self.clone()
        };
        let mut outcome = denied.outcome_of(cost, counted, later);
        allotment.tell(&mut outcome, (cost, 0), self.at.saturating_add(later));
        Some(outcome)
    }

    /// Returns the outcome of the limit as that of a request which has a part of it, and may go on or not.
    #[cold]
    pub(super) fn outcome_under(
        &self,
        mut outcome: Outcome,
        allotment: &Allotment,
        is_allowed: bool,
    ) -> Outcome {
        let cost = self.charge.cost;
        let taken = if is_allowed && self.passes() { cost } else { 0 };
        allotment.tell(&mut outcome, (cost, taken), self.at);
        outcome
    }

    /// Returns the outcome at a later moment, if nothing has happened since.
    pub(crate) fn outcome(&self, counted: &OpenedPolicy, later: Micros) -> Outcome {
        self.outcome_of(self.charge.cost, counted, later)
    }

    /// Returns the outcome of a request of this cost at a later moment.
    pub(crate) fn outcome_of(&self, cost: u32, counted: &OpenedPolicy, later: Micros) -> Outcome {
        let (state, at) = (self.state.clone(), self.at.saturating_add(later));
        let own = self.own_algorithm(counted);
        let algorithm = own.as_ref().unwrap_or(&counted.algorithm);
        // A request that fits now need not fit at a later hour.
        let fits = self.fits && (later == Micros::ZERO || !depends_on_a_calendar(algorithm));
        let mut outcome = match &self.leased {
            None => algorithm.outcome(state, at, cost, fits),
            Some(leased) => {
                let request = LeasedRequest {
                    state,
                    now: at,
                    cost,
                    fits,
                };
                leased.outcome(algorithm, request)
            }
        };
        match own {
            Some(own) if self.own.is_some() => outcome = outcome.overridden(own.period()),
            Some(own) => outcome = outcome.within(own.period()),
            None => {}
        }
        if let Some(allotment) = self.allotment.as_ref().filter(|_| !self.fits)
            && outcome.is_allowed()
        {
            // The limit has room, which is kept for others.
            outcome = allotment.denied(outcome, at);
        }
        match self.blocked.saturating_sub(later) {
            Micros::ZERO => outcome,
            left if self.is_penalized && later == Micros::ZERO => {
                if let Some(allotment) = self.allotment.as_ref().filter(|_| !self.was_blocked) {
                    outcome = self.outcome_under(outcome, allotment, false);
                }
                outcome.penalized_for(left)
            }
            left => outcome.blocked_for(left),
        }
    }
}
