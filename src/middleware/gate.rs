use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};

use super::OverLimit;
use super::lists::{Listed, Lists};
use super::nesting::{Life, look_for_itself};
use super::turn::{Lines, NO_TIMER, NoTimer, Turn};
use crate::decision::Outcomes;
use crate::diagnostics::diagnose;
use crate::error::StoreError;
use crate::key::{Head, Key, Missing};
use crate::limiter::{Charges, Limiter};
use crate::observe::StoreHealth;
use crate::policy::{Http, NoKey, Policy};
use crate::response::{Answers, Fields};
use crate::store::{Charge, Ledger, Reply, Verdict, answered};

/// Asks a limiter about requests, and turns its answers into responses.
#[derive(Debug)]
pub(super) struct Gate {
    limiter: Limiter<dyn Ledger>,
    /// How each policy reads a request, with the policy's place in the limiter's list.
    readers: Vec<(usize, Http)>,
    answers: Answers,
    store: StoreHealth,
    lists: Lists,
    /// Whether a policy lets requests over its limit go on.
    is_soft: bool,
    /// The policy whose requests wait for their turn, and those that do.
    queue: Option<(usize, Arc<Lines>)>,
    exposes_decision: bool,
    life: Life,
}

/// What becomes of a request.
pub(super) enum Ruling {
    /// It goes on, and its response gets these.
    Pass(Option<Fields>),
    /// It is answered with this.
    Refuse(Response<Bytes>),
    /// It goes on when it is its turn.
    Hold(Turn, Option<Fields>),
    /// The store has not answered yet.
    Wait(Box<Question>),
}

/// A question to the store that it has not answered yet.
pub(super) struct Question {
    charges: Charges,
    answer: Coming,
}

enum Coming {
    Outcomes(Pin<Box<dyn Future<Output = Result<Outcomes, StoreError>> + Send>>),
    Verdict(Pin<Box<dyn Future<Output = Result<Verdict, StoreError>> + Send>>),
}

impl Gate {
    /// These policies, whose names are known to be good, over a ledger that was opened for them.
    pub(super) fn new(
        policies: &[Policy],
        readers: Vec<Http>,
        ledger: impl Ledger,
        answers: Answers,
    ) -> Self {
        let readers = readers.into_iter().enumerate();
        Self {
            limiter: Limiter::of(policies, ledger).erased(),
            readers: readers.filter(|(_, reader)| reader.has_a_say()).collect(),
            answers,
            store: StoreHealth::default(),
            lists: Lists::default(),
            is_soft: policies.iter().any(Policy::is_soft),
            queue: policies
                .iter()
                .position(Policy::shapes)
                .map(|policy| (policy, Arc::default())),
            exposes_decision: false,
            life: Life::new(),
        }
    }

    pub(super) fn limiter(&self) -> &Limiter<dyn Ledger> {
        &self.limiter
    }

    pub(super) fn look_up_in(&mut self, lists: Lists) {
        self.lists = lists;
    }

    pub(super) fn expose_decision(&mut self) {
        self.exposes_decision = true;
    }

    /// Puts the decision where the inner service finds it, if that was asked for. A request that
    /// is refused is done with: its extensions are emptied.
    pub(super) fn ask<B>(&self, request: &mut Request<B>) -> Ruling {
        self.life.request();
        look_for_itself(self.id());
        let head = Head::of(request);
        match self.lists.look_up(&head) {
            Listed::Nowhere => {}
            Listed::Allowed => return Ruling::Pass(None),
            Listed::Denied => {
                return Ruling::Refuse(self.answers.forbidden(request));
            }
        }
        let mut charges = Charges::new();
        match self.read(&head, &mut charges) {
            Ok(()) if charges.is_empty() => Ruling::Pass(None),
            Ok(()) => self.put(&mut charges, request),
            Err((status, missing)) => Ruling::Refuse(self.answers.no_key(status, missing, request)),
        }
    }

    /// The same for all clones of a layer, and for no other layer.
    pub(super) fn id(&self) -> usize {
        self.life.number()
    }

    /// What each policy charges this request, or how it is refused for want of a key.
    fn read(&self, head: &Head<'_>, charges: &mut Charges) -> Result<(), (StatusCode, Missing)> {
        for (policy, reader) in &self.readers {
            if reader.applies(head) {
                let key = match reader.key(head) {
                    Ok(key) => key,
                    Err(missing) => {
                        if let Missing::ByServer(diagnostic) = &missing {
                            diagnose(diagnostic);
                        }
                        match reader.no_key(&missing) {
                            NoKey::Shared => Key::NOBODY,
                            NoKey::Skip => continue,
                            NoKey::Refuse(status) => return Err((status, missing)),
                        }
                    }
                };
                if !reader.is_limited() {
                    continue;
                }
                charges.push(Charge {
                    policy: *policy,
                    key,
                    cost: reader.cost(head),
                    is_soft: reader.is_soft(),
                });
            }
        }
        Ok(())
    }

    /// Puts the question to the store. An answer that is there is read where it stands: with room
    /// for eight policies it is large, and moving it would cost as much as deciding.
    fn put<B>(&self, charges: &mut Charges, request: &mut Request<B>) -> Ruling {
        let answer = if self.wants_numbers() {
            match self.limiter.charge(charges) {
                Reply::Now(Ok(ref outcomes))
                    if !self.is_soft && outcomes.are_of(policies(charges)) =>
                {
                    return self.heed(charges, outcomes, request);
                }
                Reply::Now(answer) => return self.rule(charges, answer, request),
                Reply::Later(answer) => Coming::Outcomes(answer),
            }
        } else {
            match self.limiter.admit(charges) {
                Reply::Now(Ok(Verdict::Allowed)) => return self.let_pass(),
                Reply::Now(Ok(Verdict::Denied(ref outcomes)))
                    if outcomes.are_of(policies(charges)) =>
                {
                    return self.refuse(charges, outcomes, request);
                }
                Reply::Now(verdict) => return self.rule_by(charges, verdict, request),
                Reply::Later(verdict) => Coming::Verdict(verdict),
            }
        };
        let charges = mem::take(charges);
        Ruling::Wait(Box::new(Question { charges, answer }))
    }

    /// Whether anybody is told the numbers of a request that goes on.
    fn wants_numbers(&self) -> bool {
        self.answers.tell_numbers() || self.exposes_decision || self.is_soft || self.queue.is_some()
    }

    /// Goes on with a question to which the store had no answer, as [`ask`](Self::ask) does.
    pub(super) fn resume<B>(
        &self,
        mut question: Box<Question>,
        request: &mut Request<B>,
        cx: &mut Context<'_>,
    ) -> Ruling {
        let Question { charges, answer } = &mut *question;
        match answer {
            Coming::Outcomes(answer) => match answer.as_mut().poll(cx) {
                Poll::Ready(answer) => self.rule(charges, answer, request),
                Poll::Pending => Ruling::Wait(question),
            },
            Coming::Verdict(verdict) => match verdict.as_mut().poll(cx) {
                Poll::Ready(verdict) => self.rule_by(charges, verdict, request),
                Poll::Pending => Ruling::Wait(question),
            },
        }
    }

    /// Rules on the store's answer to these charges.
    fn rule<B>(
        &self,
        charges: &[Charge],
        answer: Result<Outcomes, StoreError>,
        request: &mut Request<B>,
    ) -> Ruling {
        match answered(charges, answer) {
            Ok(outcomes) => self.heed(charges, &outcomes, request),
            Err(error) => self.fail(&error, request),
        }
    }

    /// Rules on the store's verdict about these charges.
    fn rule_by<B>(
        &self,
        charges: &[Charge],
        verdict: Result<Verdict, StoreError>,
        request: &mut Request<B>,
    ) -> Ruling {
        let denied = match verdict {
            Ok(Verdict::Allowed) => return self.let_pass(),
            Ok(Verdict::Denied(outcomes)) => answered(charges, Ok(outcomes)),
            Err(error) => Err(error),
        };
        match denied {
            Ok(outcomes) => self.refuse(charges, &outcomes, request),
            Err(error) => self.fail(&error, request),
        }
    }

    fn heed<B>(&self, charges: &[Charge], outcomes: &Outcomes, request: &mut Request<B>) -> Ruling {
        if !outcomes.is_allowed() {
            return self.refuse(charges, outcomes, request);
        }
        self.store.answered();
        if self.is_soft && outcomes.iter().any(|(_, outcome)| !outcome.is_allowed()) {
            request
                .extensions_mut()
                .insert(OverLimit::new(self.limiter.decision(outcomes.clone())));
        }
        if self.exposes_decision {
            request
                .extensions_mut()
                .insert(self.limiter.decision(outcomes.clone()));
        }
        let fields = self.answers.allowed(charges, outcomes);
        match self.turn(charges, outcomes) {
            Ok(None) => Ruling::Pass(fields),
            Ok(Some(turn)) => Ruling::Hold(turn, fields),
            Err(NoTimer) => {
                diagnose(&NO_TIMER);
                Ruling::Refuse(self.answers.cannot_hold(NO_TIMER, request))
            }
        }
    }

    /// The turn of a request that was allowed, if it has to wait for one.
    fn turn(&self, charges: &[Charge], outcomes: &Outcomes) -> Result<Option<Turn>, NoTimer> {
        let Some((queue, lines)) = &self.queue else {
            return Ok(None);
        };
        let mut charges = charges.iter().filter(|charge| charge.cost > 0);
        let Some(charge) = charges.find(|charge| charge.policy == *queue) else {
            return Ok(None);
        };
        let delay = outcomes.delay();
        let departure = outcomes.at().saturating_add(delay);
        let (limiter, charge) = (self.limiter.clone(), *charge);
        lines.join(charge.key, departure, delay.to_duration(), move || {
            limiter.give_back(&charge, departure);
        })
    }

    fn let_pass(&self) -> Ruling {
        self.store.answered();
        Ruling::Pass(None)
    }

    fn refuse<B>(
        &self,
        charges: &[Charge],
        outcomes: &Outcomes,
        request: &mut Request<B>,
    ) -> Ruling {
        self.store.answered();
        let decision = || self.limiter.decision(outcomes.clone());
        Ruling::Refuse(self.answers.denied(charges, outcomes, decision, request))
    }

    fn fail<B>(&self, error: &StoreError, request: &mut Request<B>) -> Ruling {
        self.store.failed(error);
        Ruling::Refuse(self.answers.store_failed(error.kind(), request))
    }
}

fn policies(charges: &[Charge]) -> impl Iterator<Item = usize> {
    charges.iter().map(|charge| charge.policy)
}
