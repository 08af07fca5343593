use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::answer::Answer;
use super::calls::{Amendment, Calls, Charges, Purpose};
use super::denials::Question;
use super::failure::away;
use crate::algorithm::{Algorithm, Lua};
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::standby::Verb;
use crate::store::{Charge, Ledger, Reply};

/// A [`RedisStore`](super::RedisStore) opened for a list of policies.
pub struct RedisLedger(Arc<Calls>);

impl RedisLedger {
    pub(super) fn new(calls: Calls) -> Self {
        Self(Arc::new(calls))
    }

    /// Asks about these charges, if all are of policies that were opened and have a limit; of others
    /// nothing is told.
    fn ask(&self, charges: &[Charge], purpose: Purpose) -> Reply<Result<Outcomes, StoreError>> {
        let calls = &self.0;
        if !charges.iter().all(|charge| calls.counts(charge)) || charges.is_empty() {
            return Reply::Now(Ok(Outcomes::new(Micros::ZERO)));
        }
        let is_away = calls.watch.is_away(charges);
        let denials = calls.denials.as_ref();
        let remembered = denials.filter(|_| match purpose {
            // What others may do while the server is away is not remembered for them.
            _ if is_away => calls.standby.is_local(charges),
            // A question goes to the server, if it is there.
            purpose => matches!(purpose, Purpose::Charge),
        });
        // Filled in by reference: outcomes are large, and to move them costs as much as to find them.
        let mut denied = Outcomes::new(Micros::ZERO);
        let asked = (charges, &*calls.policies);
        if let Some(denials) = remembered
            && denials.tell(asked, Instant::now(), is_away, &mut denied)
        {
            if is_away {
                denied.degrade();
            }
            return Reply::Now(Ok(denied));
        }
        if is_away && let Some(part) = calls.watch.overdue(charges) {
            let (calls, charges) = (Arc::clone(calls), Charges::from_slice(charges));
            return Reply::later(async move {
                calls.watch.ask_in_passing(part).await;
                calls.decide_here(&charges, purpose, away)
            });
        }
        if is_away {
            return Reply::Now(calls.decide_here(charges, purpose, away));
        }
        let denials = denials.filter(|_| matches!(purpose, Purpose::Charge));
        let question = denials.map(|denials| denials.put(charges, Instant::now()));
        let (calls, charges) = (Arc::clone(calls), Charges::from_slice(charges));
        Reply::later(async move {
            let answer = match purpose {
                Purpose::Charge => Calls::decide(&calls, &charges).await,
                _ => Box::pin(calls.peek(&charges)).await,
            };
            match answer {
                Ok(answer) => Ok(calls.outcomes(&charges, purpose, &answer, question)),
                Err(error) => calls.decide_here(&charges, purpose, || error),
            }
        })
    }

    fn change(&self, charges: &[Charge], amendment: Amendment) -> Reply<Result<(), StoreError>> {
        let calls = Arc::clone(&self.0);
        let charges = charges.iter().filter(|charge| calls.counts(charge));
        let charges: Charges = charges.copied().collect();
        if charges.is_empty() {
            return Reply::Now(Ok(()));
        }
        if calls.watch.is_away(&charges) {
            calls.changes.add(&charges);
            let changed = Err(away().told());
            return Reply::Now(calls.standby.change(&charges, amendment.verb(), changed));
        }
        Reply::later(async move {
            let changed = calls.change_each(&charges, amendment).await;
            let changed = changed.map_err(StoreError::told);
            calls.standby.change(&charges, amendment.verb(), changed)
        })
    }
}

impl Calls {
    /// Decides without the server, which has failed so. The error is made if somebody is told.
    fn decide_here(
        &self,
        charges: &[Charge],
        purpose: Purpose,
        error: impl FnOnce() -> StoreError,
    ) -> Result<Outcomes, StoreError> {
        let error = || error().told();
        match purpose {
            Purpose::Charge => self.standby.charge(charges, error),
            _ => self.standby.peek(charges, error),
        }
    }

    /// What the server's answer says, and what is to be remembered of it.
    fn outcomes(
        &self,
        charges: &[Charge],
        purpose: Purpose,
        answer: &Answer,
        question: Option<Question>,
    ) -> Outcomes {
        for (charge, blocked) in answer.blocks() {
            self.standby.learn(charge, blocked);
        }
        if let Some(denials) = &self.denials
            && answer.is_allowed()
        {
            match purpose {
                // What is remembered of other costs tells numbers that are not true any more.
                Purpose::Charge => self.changes.add(charges),
                _ => denials.forget(charges),
            }
        }
        let outcomes = answer.outcomes(&self.policies);
        if let (Some(denials), Some(question)) = (&self.denials, question) {
            let now = Instant::now();
            let asked = (charges, &*self.policies);
            denials.remember(asked, question, (answer, &outcomes), now);
        }
        outcomes
    }
}

impl Amendment {
    fn verb(self) -> Verb {
        match self {
            Self::Refund => Verb::Refund,
            Self::Settle => Verb::Settle,
            Self::Reset => Verb::Reset,
            Self::Block(length) => Verb::Block(length),
            Self::Unblock => Verb::Unblock,
            Self::GiveBack(departure) => Verb::GiveBack(departure),
            Self::Override(..) | Self::EndOverride => Verb::Override,
        }
    }
}

impl Ledger for RedisLedger {
    fn charge(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        self.ask(charges, Purpose::Charge)
    }

    fn peek(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        self.ask(charges, Purpose::Peek)
    }

    fn refund(&self, charges: &[Charge]) -> Reply<Result<(), StoreError>> {
        self.change(charges, Amendment::Refund)
    }

    fn settle(&self, charges: &[Charge]) -> Reply<Result<(), StoreError>> {
        self.change(charges, Amendment::Settle)
    }

    fn reset(&self, charges: &[Charge]) -> Reply<Result<(), StoreError>> {
        self.change(charges, Amendment::Reset)
    }

    fn block(&self, charges: &[Charge], length: Micros) -> Reply<Result<(), StoreError>> {
        self.change(charges, Amendment::Block(length))
    }

    fn unblock(&self, charges: &[Charge]) -> Reply<Result<(), StoreError>> {
        self.change(charges, Amendment::Unblock)
    }

    fn override_limit(
        &self,
        charge: &Charge,
        limit: &Algorithm,
        length: Micros,
    ) -> Reply<Result<(), StoreError>> {
        match limit.lua() {
            Some(Lua { numbers, .. }) => {
                self.change(&[*charge], Amendment::Override(numbers, length))
            }
            None => Reply::Now(Err(StoreError::new(StoreErrorKind::Unsupported))),
        }
    }

    fn end_override(&self, charges: &[Charge]) -> Reply<Result<(), StoreError>> {
        self.change(charges, Amendment::EndOverride)
    }

    fn give_back(&self, charge: &Charge, departure: Micros) -> Reply<Result<(), StoreError>> {
        self.change(&[*charge], Amendment::GiveBack(departure))
    }
}

impl fmt::Debug for RedisLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLedger")
            .field("link", &self.0.link)
            .finish_non_exhaustive()
    }
}
