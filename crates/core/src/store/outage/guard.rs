//! Asks a store that may be away, and decides in its place while it is.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::remote_backend::in_time;
use super::standby::{Instead, Standby, is_of_the_call};
use super::watch::{Waiting, Watch};
use crate::clock::{Clock, Micros};
use crate::decision::Outcomes;
use crate::error::StoreError;
use crate::observe::{KeyStats, StoreStats};
use crate::store::charged::mark;
use crate::store::sealed::Sealed;
use crate::store::{
    Amendment, Backend, Charge, Charged, Charges, DAMAGED, Outlook, Reply, TenantShare, Wanted,
};

/// Asks a backend whose store may be away, and decides in its place while it is away.
#[derive(Clone)]
pub(super) struct Guard {
    watch: Arc<Watch>,
    standby: Arc<Standby>,
    deadline: Duration,
    backend: Arc<dyn Backend>,
}

/// Learns from an answer of the store, and returns whether the store has written for it.
type Learn<T> = fn(&Guard, &[Charge], &T) -> bool;

impl Sealed for Guard {}

impl Backend for Guard {
    fn charge(&self, charges: &[Charge], _: Wanted, outcomes: &mut Outcomes) -> Charged {
        let answer = self.ask(
            charges,
            || self.backend.decide(charges),
            Self::charged,
            Standby::charge,
        );
        Charged::of(charges, answer, outcomes)
    }

    fn acquire_up_to(&self, charges: &[Charge]) -> Reply<Result<(u32, Outcomes), StoreError>> {
        self.ask(
            charges,
            || self.backend.acquire_up_to(charges),
            |guard, charges, (_, outcomes)| guard.charged(charges, outcomes),
            Standby::acquire_up_to,
        )
    }

    fn peek(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        self.ask(
            charges,
            || self.backend.peek(charges),
            Self::peeked,
            Standby::peek,
        )
    }

    fn outlook(&self, charges: &[Charge]) -> Reply<Result<Outlook, StoreError>> {
        self.ask(
            charges,
            || self.backend.outlook(charges),
            |guard, charges, outlook| guard.peeked(charges, &outlook.outcomes),
            Standby::outlook,
        )
    }

    fn refusals(&self, charge: &Charge) -> Reply<Result<u32, StoreError>> {
        // Refusals without the store do not count.
        if self.watch.is_away(std::slice::from_ref(charge)) {
            return Reply::Now(Ok(0));
        }
        self.backend.refusals(charge)
    }

    fn leased(&self, charge: &Charge) -> Reply<Result<u32, StoreError>> {
        // Only the store knows what is leased.
        if self.watch.is_away(std::slice::from_ref(charge)) {
            return Reply::Now(Ok(0));
        }
        self.backend.leased(charge)
    }

    fn tenant_share(&self, charge: &Charge) -> Reply<Result<Option<TenantShare>, StoreError>> {
        if self.watch.is_away(std::slice::from_ref(charge)) {
            return Reply::Now(Ok(None));
        }
        self.backend.tenant_share(charge)
    }

    fn amend(&self, charges: &[Charge], amendment: Amendment) -> Reply<Result<bool, StoreError>> {
        let Some(first) = charges.first() else {
            return self.backend.amend(charges, amendment);
        };
        if amendment.is_of_a_degraded_charge() {
            return Reply::Now(self.standby.settle(charges, amendment));
        }
        if amendment == Amendment::Release {
            return self.release(charges);
        }
        if self.watch.is_away(charges) {
            return Reply::Now(
                self.standby
                    .change(charges, amendment, Err(Standby::away())),
            );
        }
        self.amend_there(charges, first, amendment)
    }

    fn stats(&self) -> StoreStats {
        let of_backend = self.backend.stats();
        let mut stats = self.watch.stats(of_backend.kind);
        stats.failed_renewals = of_backend.failed_renewals;
        stats
    }

    fn keys(&self, policy: usize) -> Option<KeyStats> {
        self.backend.keys(policy)
    }

    fn holds_for(&self, policy: usize) -> Duration {
        self.backend.holds_for(policy)
    }

    fn runtime(&self) -> Option<Handle> {
        self.backend.runtime()
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.backend.clock()
    }
}

impl Guard {
    pub(super) fn new(
        watch: Arc<Watch>,
        standby: Arc<Standby>,
        deadline: Duration,
        backend: Arc<dyn Backend>,
    ) -> Self {
        Self {
            watch,
            standby,
            deadline,
            backend,
        }
    }

    /// Frees the slots that these charges hold, where they were taken. While the store is away, they end by themselves.
    fn release(&self, charges: &[Charge]) -> Reply<Result<bool, StoreError>> {
        self.standby.release(charges);
        let there = self.backend.forget(charges);
        match there.first() {
            Some(first) if !self.watch.is_away(&there) => {
                self.amend_there(&there, first, Amendment::Release)
            }
            _ => Reply::Now(Ok(true)),
        }
    }

    fn amend_there(
        &self,
        charges: &[Charge],
        first: &Charge,
        amendment: Amendment,
    ) -> Reply<Result<bool, StoreError>> {
        let call = self.watch.waiting(&first.key);
        match self.backend.amend(charges, amendment) {
            Reply::Now(answer) => Reply::Now(self.amended(charges, call, amendment, answer)),
            Reply::Later(answer) => {
                // A store that answers later may begin when it is first polled.
                call.cancel();
                let (guard, charges) = (self.clone(), Charges::from_slice(charges));
                Reply::later(async move {
                    let call = guard.watch.waiting(&charges[0].key);
                    let answer = in_time(guard.deadline, answer).await;
                    guard.amended(&charges, call, amendment, answer)
                })
            }
        }
    }

    /// Asks the store, or decides here if the store is known to be away.
    fn ask<T: Send + 'static>(
        &self,
        charges: &[Charge],
        ask: impl FnOnce() -> Reply<Result<T, StoreError>>,
        learn: Learn<T>,
        instead: Instead<T>,
    ) -> Reply<Result<T, StoreError>> {
        let Some(first) = charges.first() else {
            return ask();
        };
        if self.watch.is_away(charges) {
            return self.watch.decide_without(&self.standby, charges, instead);
        }
        let call = self.watch.waiting(&first.key);
        match ask() {
            Reply::Now(answer) => {
                Reply::Now(self.answered((charges, call), answer, learn, instead))
            }
            Reply::Later(answer) => {
                // A store that answers later may begin when it is first polled.
                call.cancel();
                self.wait(charges, answer, learn, instead)
            }
        }
    }

    fn wait<T: Send + 'static>(
        &self,
        charges: &[Charge],
        answer: Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>,
        learn: Learn<T>,
        instead: Instead<T>,
    ) -> Reply<Result<T, StoreError>> {
        let (guard, charges) = (self.clone(), Charges::from_slice(charges));
        Reply::later(async move {
            let call = guard.watch.waiting(&charges[0].key);
            let answer = in_time(guard.deadline, answer).await;
            guard.answered((&charges, call), answer, learn, instead)
        })
    }

    fn answered<T>(
        &self,
        (charges, call): (&[Charge], Waiting),
        answer: Result<T, StoreError>,
        learn: Learn<T>,
        instead: Instead<T>,
    ) -> Result<T, StoreError> {
        self.ended(call, &answer, |it| learn(self, charges, it));
        self.standby.unless_answered(charges, answer, instead)
    }

    fn amended(
        &self,
        charges: &[Charge],
        call: Waiting,
        amendment: Amendment,
        answer: Result<bool, StoreError>,
    ) -> Result<bool, StoreError> {
        self.ended(call, &answer, |is_changed| *is_changed);
        self.standby.change(charges, amendment, answer)
    }

    /// Ends a call. `has_written` tells whether the store has written for an answer.
    fn ended<T>(
        &self,
        call: Waiting,
        answer: &Result<T, StoreError>,
        has_written: impl FnOnce(&T) -> bool,
    ) {
        match answer {
            Ok(it) => call.end_with(None, has_written(it)),
            Err(error) if is_of_the_call(error) => call.cancel(),
            Err(error) if error.reason() == Some(DAMAGED) => {
                call.end_with(None, false);
                self.watch.log_partial(error);
            }
            Err(error) => call.end_with(Some(error), false),
        }
    }

    /// Learns from a decision, for which the store has written if it has made any charge.
    fn charged(&self, charges: &[Charge], outcomes: &Outcomes) -> bool {
        self.learn(charges, outcomes);
        // A store that answers later has not marked them.
        let mut outcomes = outcomes.clone();
        mark(charges, &mut outcomes);
        let costs = |policy| {
            let mut charges = charges.iter();
            charges.any(|charge| charge.policy == policy && charge.cost > 0)
        };
        let mut each = outcomes.iter();
        outcomes.is_allowed() && each.any(|(policy, outcome)| outcome.is_allowed() && costs(policy))
    }

    /// Learns from an answer for which the store has not written.
    fn peeked(&self, charges: &[Charge], outcomes: &Outcomes) -> bool {
        self.learn(charges, outcomes);
        false
    }

    /// Learns which keys are blocked, for the time when the store is away. An answer has one wait for the
    /// block and the policy together, so a block may be taken to last as long as that.
    fn learn(&self, charges: &[Charge], outcomes: &Outcomes) {
        for (policy, outcome) in outcomes.iter() {
            let of_policy = |charge: &&Charge| charge.policy == policy;
            if let Some(charge) = charges.iter().find(of_policy) {
                let wait = outcome.retry_micros().filter(|_| outcome.is_blocked());
                self.standby.learn(charge, wait.unwrap_or(Micros::ZERO));
            }
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.backend, f)
    }
}
