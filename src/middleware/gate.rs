use std::borrow::Cow;
use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response, StatusCode};

use super::deadline::deadline;
use super::ending::Kept;
use super::hooks::Hooks;
use super::lists::{Listed, Lists};
use super::nesting::{Life, look_for_itself};
use super::plan_of::Sources;
use super::settles::Settles;
use super::waiting::{Caller, Ended, NO_TIMER, Waiter, Waits};
use super::{OverLimit, WouldRefuse};
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::diagnostics::diagnose;
use crate::error::StoreError;
use crate::key::{Head, Key, Missing};
use crate::limiter::{Answer, Charges, Limiter, PreparedLimits};
use crate::line::{NoTimer, Turn};
use crate::observe::{Count, Request as Counted, StoreHealth};
use crate::plan::{self, Asker, ChosenPlan, Finding, Look};
use crate::policy::{DeclaredModes, Http, Mode, NoKey, Policy};
use crate::response::{Answers, Fields};
use crate::store::{Charge, Charged, Guarded, Ledger, Wanted, answered, check};

/// Asks a limiter about requests, and turns its answers into responses.
#[derive(Debug)]
pub(super) struct Gate {
    limiter: Limiter<dyn Ledger>,
    /// How each policy reads a request, with the policy's place in the limiter's list.
    readers: Vec<(usize, Http)>,
    answers: Answers,
    store: StoreHealth,
    /// `None` if nobody is on them.
    lists: Option<Lists>,
    /// How the plan of a request is found.
    sources: Sources,
    /// Whether a policy lets requests over its limit go on.
    is_soft: bool,
    /// The requests whose numbers are told.
    wanted: Wanted,
    waits: Option<Arc<Waits>>,
    /// `None` if no policy holds a request to its end.
    settles: Option<Arc<Settles>>,
    exposes_decision: bool,
    hooks: Hooks,
    life: Life,
}

/// What becomes of a request.
pub(super) enum Ruling {
    /// It goes on, its response gets these, and it holds this to its end.
    Pass(Option<Fields>, Kept),
    /// It is answered with this.
    Refuse(Response<Bytes>),
    /// It goes on when it is its turn.
    Hold(Turn, Option<Fields>, Kept),
    /// The store has not answered yet, or not as it will.
    Wait(Box<Question>),
}

/// A question to the store that it has not answered yet.
pub(super) struct Question {
    charges: Charges,
    caller: Option<Caller>,
    answer: Coming,
}

/// What a request is charged. Nearly all have their answer at once, and then nothing of it is kept.
#[derive(Clone, Copy)]
struct Asked<'a> {
    charges: &'a [Charge],
    /// Who waits for it, if that can matter.
    caller: Option<Caller>,
}

enum Coming {
    /// What a resolver has for the request, which is charged nothing yet.
    Plan(plan::Coming),
    Outcomes(Pin<Box<dyn Future<Output = Result<Outcomes, StoreError>> + Send>>),
    /// It was denied, and waits for its turn.
    Turn(Box<Waiter>),
    /// It was not to leave its queue in time.
    Late(Box<Late>),
}

/// A request that would leave its queue too late. It has been decided, whatever the store says now.
struct Late {
    /// The numbers without it.
    numbers: Pin<Box<dyn Future<Output = Result<Outcomes, StoreError>> + Send>>,
    /// Those with it, in case the store cannot tell or has lost sight of the queue.
    before: Outcomes,
    queue: usize,
    /// After which it would leave in time.
    wait: Micros,
}

/// Why a request that was allowed cannot be held until its turn.
enum CannotHold {
    NoTimer,
    Late(Box<Late>),
}

impl<'a> Asked<'a> {
    /// Without the store, a policy may have let everything go on unasked. It is asked again if the request waits,
    /// so this is for when it has its answer.
    fn without_those_not_in(self, outcomes: &Outcomes) -> Cow<'a, [Charge]> {
        if !outcomes.is_degraded() {
            return Cow::Borrowed(self.charges);
        }
        let is_in = |charge: &&Charge| outcomes.iter().any(|(policy, _)| policy == charge.policy);
        self.charges.iter().filter(is_in).copied().collect()
    }

    #[inline(never)]
    fn waiting_for(self, answer: Coming) -> Ruling {
        Ruling::Wait(Box::new(Question {
            charges: Charges::from_slice(self.charges),
            caller: self.caller,
            answer,
        }))
    }
}

impl Late {
    /// What the request is told: its queue denies it.
    fn told(&self, numbers: Option<Outcomes>) -> Outcomes {
        let numbers = numbers.filter(|numbers| numbers.iter().any(|(it, _)| it == self.queue));
        let mut told = numbers.unwrap_or_else(|| self.before.clone());
        told.deny(self.queue, self.wait);
        told
    }
}

impl Question {
    /// Whether the request waits for others, and not for the store.
    pub(super) fn waits_its_turn(&self) -> bool {
        matches!(self.answer, Coming::Turn(_))
    }
}

impl Gate {
    /// These policies, whose names are known to be good, over a ledger that was opened for them.
    pub(super) fn new(
        policies: &[Policy],
        readers: Vec<Http>,
        ledger: Guarded<impl Ledger>,
        answers: Answers,
        limits: PreparedLimits,
        modes: DeclaredModes,
    ) -> Self {
        let readers = readers.into_iter().enumerate();
        let is_soft = policies.iter().any(Policy::is_soft);
        let has_queue = policies.iter().any(Policy::shapes);
        let limiter = Limiter::of(policies, ledger, limits, modes);
        let timers = limiter.timers().clone();
        let tells_all = answers.tell_numbers() || is_soft || has_queue;
        Self {
            limiter: limiter.erased(),
            readers: readers.filter(|(_, reader)| reader.has_a_say()).collect(),
            wanted: if tells_all {
                Wanted::Everything
            } else {
                Wanted::Refusals
            },
            answers,
            store: StoreHealth::default(),
            lists: None,
            sources: Sources::default(),
            is_soft,
            waits: Waits::new(policies, &timers).map(Arc::new),
            settles: None,
            exposes_decision: false,
            hooks: Hooks::default(),
            life: Life::new(),
        }
    }

    pub(super) fn limiter(&self) -> &Limiter<dyn Ledger> {
        &self.limiter
    }

    pub(super) fn read_plans(&mut self, sources: Sources) {
        self.sources = sources;
    }

    pub(super) fn look_up_in(&mut self, lists: Lists) {
        self.lists = (!lists.are_empty()).then_some(lists);
    }

    /// Lets no more than this many wait for their turn, under all policies together.
    pub(super) fn bound_those_who_wait(&mut self, places: u32) {
        if let Some(waits) = self.waits.as_mut().and_then(Arc::get_mut) {
            waits.bound(places);
        }
    }

    /// Holds requests to their end. What is taken back needs the numbers of its charge.
    pub(super) fn settle(&mut self, settles: Option<Arc<Settles>>) {
        if settles.is_some() {
            self.wanted = Wanted::Everything;
        }
        self.settles = settles;
    }

    pub(super) fn expose_decision(&mut self) {
        self.exposes_decision = true;
        self.wanted = Wanted::Everything;
    }

    /// Tells these of decisions, if they are any.
    pub(super) fn tell(&mut self, hooks: Hooks) {
        if hooks.are_any() {
            self.wanted = Wanted::Everything;
        }
        self.hooks = hooks;
    }

    /// Puts the decision where the inner service finds it, if that was asked for. A request that
    /// is refused is done with: its extensions are emptied.
    pub(super) fn ask<B>(&self, request: &mut Request<B>) -> Ruling {
        self.life.request();
        look_for_itself(self.id());
        let head = Head::of(request);
        match self.lists.as_ref().map(|lists| lists.look_up(&head)) {
            None | Some(Listed::Nowhere) => {}
            Some(Listed::Allowed) => return self.exempt(),
            Some(Listed::Denied) => {
                self.limiter.counters().request(Counted::Forbidden);
                return Ruling::Refuse(self.answers.forbidden(request));
            }
        }
        if !self.modes().are_plain() && self.has_no_mode_over(Mode::Off) {
            return self.exempt();
        }
        let look = self.sources.resolver.as_ref();
        match look.and_then(|resolver| resolver.look(&head)) {
            None => self.ask_as(None, request),
            Some(Look::Known(finding)) => self.ask_as(Some(&finding), request),
            Some(Look::Coming(coming)) => {
                let nothing_yet = Asked {
                    charges: &[],
                    caller: None,
                };
                nothing_yet.waiting_for(Coming::Plan(coming))
            }
        }
    }

    /// Asks about a request for which a resolver has this.
    fn ask_as<B>(&self, finding: Option<&Finding>, request: &mut Request<B>) -> Ruling {
        let is_plain = self.modes().are_plain();
        if let Some(kind) = finding.and_then(Finding::refusal)
            && (is_plain || !self.has_no_mode_over(Mode::Shadow))
        {
            self.limiter.count_failed(&[]);
            return Ruling::Refuse(self.answers.store_failed(kind, request));
        }
        let head = Head::of(request);
        let plan = self.plan(&head, finding);
        if !is_plain {
            return self.ask_in_modes((plan, finding), request);
        }
        if let [(policy, reader)] = &*self.readers {
            // A list has room for several charges, all of which would be copied.
            let mut charge = Charge::new(*policy, Key::MISSING, 1);
            return match self.read(reader, &mut charge, (plan, finding), &head) {
                Ok(true) => self.put(slice::from_ref(&charge), request),
                Ok(false) => self.exempt(),
                Err(no_charge) => self.refuse_for(no_charge, request),
            };
        }
        let mut charges = Charges::new();
        for (policy, reader) in &self.readers {
            let mut charge = Charge::new(*policy, Key::MISSING, 1);
            match self.read(reader, &mut charge, (plan, finding), &head) {
                Ok(true) => charges.push(charge),
                Ok(false) => {}
                Err(no_charge) => return self.refuse_for(no_charge, request),
            }
        }
        if charges.is_empty() {
            return self.exempt();
        }
        self.put(&charges, request)
    }

    #[inline]
    fn modes(&self) -> &DeclaredModes {
        self.limiter.declared_modes()
    }

    /// Whether no policy does more than this.
    #[cold]
    fn has_no_mode_over(&self, mode: Mode) -> bool {
        let mut policies = self.readers.iter().map(|(policy, _)| *policy);
        policies.all(|policy| self.modes().of(policy) >= mode)
    }

    /// Asks about a request while some policies are in shadow or off.
    #[cold]
    #[inline(never)]
    fn ask_in_modes<B>(
        &self,
        (plan, finding): (Option<ChosenPlan>, Option<&Finding>),
        request: &mut Request<B>,
    ) -> Ruling {
        let head = Head::of(request);
        let mut charges = Charges::new();
        for (policy, reader) in &self.readers {
            let mode = self.modes().of(*policy);
            if mode == Mode::Off {
                continue;
            }
            let mut charge = Charge::new(*policy, Key::MISSING, 1);
            match self.read(reader, &mut charge, (plan, finding), &head) {
                Ok(true) if mode == Mode::Shadow => charges.push(charge.shadow()),
                Ok(true) => charges.push(charge),
                Err(no_charge) if mode == Mode::Enforce => {
                    return self.refuse_for(no_charge, request);
                }
                Ok(false) | Err(_) => {}
            }
        }
        if charges.is_empty() {
            return self.exempt();
        }
        let is_tried = charges.iter().any(Charge::is_shadow);
        let wanted = if is_tried {
            Wanted::Everything
        } else {
            self.wanted
        };
        self.put_wanting(wanted, &charges, request)
    }

    #[cfg(feature = "config")]
    pub(super) fn listed(&self, head: &Head<'_>) -> Listed {
        let listed = self.lists.as_ref().map(|lists| lists.look_up(head));
        listed.unwrap_or(Listed::Nowhere)
    }

    /// What a resolver has for a request; `None` if there is none.
    #[cfg(feature = "admin")]
    pub(super) fn look_up(&self, head: &Head<'_>) -> Option<Look> {
        self.sources.resolver.as_ref()?.look(head)
    }

    /// Says that the gate is one of those that a layer has one after the other: if it sees a single request, the
    /// layer was still not built for that request.
    #[cfg(feature = "config")]
    pub(super) fn is_one_of_many(&self) {
        self.life.request();
        self.life.request();
    }

    #[cfg(any(feature = "admin", feature = "config"))]
    pub(super) fn readers(&self) -> &[(usize, Http)] {
        &self.readers
    }

    /// The plan of a request, which it has under all policies.
    #[inline]
    pub(super) fn plan(&self, head: &Head<'_>, finding: Option<&Finding>) -> Option<ChosenPlan> {
        let mut plan = self.limiter.plan_found(finding);
        if plan.is_some() {
            return plan;
        }
        let (plan_of, limits) = (self.sources.plan_of.as_ref()?, self.limiter.limits()?);
        plan_of.read(head, |name| plan = limits.limits().plan(name));
        plan
    }

    /// Puts into the charge what a policy charges this request; returns whether it does.
    #[inline]
    fn read(
        &self,
        reader: &Http,
        charge: &mut Charge,
        (plan, finding): (Option<ChosenPlan>, Option<&Finding>),
        head: &Head<'_>,
    ) -> Result<bool, NoCharge> {
        let Some(is_default) = read(reader, charge, head)? else {
            self.skipped(charge.policy);
            return Ok(false);
        };
        if let Some(limits) = self.limiter.limits() {
            let operations = limits.limits().operations(charge.policy);
            let operation = operations.and_then(|operations| reader.operation(head, operations));
            let asker = Asker {
                plan,
                operation,
                ..Asker::default()
            };
            if !limits.apply(charge, asker, finding, || reader.plain_key(head)) {
                self.skipped(charge.policy);
                return Ok(false);
            }
        }
        if is_default {
            self.limiter.cut(charge);
        }
        let is_low = reader.is_low_priority(head);
        self.limiter.demand(charge, is_low);
        if is_default && is_low {
            self.limiter.cut(charge);
        }
        self.limiter.hold(charge);
        self.limiter.price(charge, || reader.class(head));
        Ok(true)
    }

    fn skipped(&self, policy: usize) {
        let counters = self.limiter.counters();
        counters.policy(policy, Count::Skipped, 1);
    }

    /// The same for all clones of a layer, and for no other layer.
    pub(super) fn id(&self) -> usize {
        self.life.number()
    }

    /// Who has sent this request, where somebody may have to wait.
    fn caller<B>(&self, request: &Request<B>) -> Option<Caller> {
        if self.waits.is_none() && !self.limiter.has_queue() {
            return None;
        }
        let timers = self.limiter.timers();
        Some(Caller {
            arrived: timers.now(),
            deadline: deadline(request.headers(), request.extensions(), timers),
        })
    }

    /// Puts the question to the store. An answer that is there is read where it stands: with room
    /// for several policies it is large, and moving it would cost as much as deciding.
    #[inline]
    fn put<B>(&self, charges: &[Charge], request: &mut Request<B>) -> Ruling {
        self.put_wanting(self.wanted, charges, request)
    }

    fn put_wanting<B>(
        &self,
        wanted: Wanted,
        charges: &[Charge],
        request: &mut Request<B>,
    ) -> Ruling {
        let caller = self.caller(request);
        let asked = Asked { charges, caller };
        if let Some(waits) = &self.waits
            && let Some(caller) = caller
            && let Some(waiter) = waits.behind_others(&self.limiter, charges, caller)
        {
            return asked.waiting_for(Coming::Turn(waiter));
        }
        let mut outcomes = Outcomes::new(Micros::ZERO);
        match self.limiter.charge(charges, wanted, &mut outcomes) {
            Charged::Now(Ok(true)) if !wanted.includes(true) => self.let_pass(charges),
            Charged::Now(Ok(_)) => match check(charges, &mut outcomes) {
                Ok(()) if wanted.includes(true) => self.heed(asked, &outcomes, request),
                // A denial is one, whatever its numbers.
                Ok(()) => self.deny(asked, &outcomes, request),
                Err(error) => self.fail(asked, &error, request),
            },
            Charged::Now(Err(error)) => self.fail(asked, &error, request),
            Charged::Later(answer) if self.settles.is_some() => {
                let answer = Box::pin(Answer::new(&self.limiter, charges, answer));
                asked.waiting_for(Coming::Outcomes(answer))
            }
            Charged::Later(answer) => asked.waiting_for(Coming::Outcomes(answer)),
        }
    }

    /// Goes on with a question to which the store had no answer, as [`ask`](Self::ask) does.
    pub(super) fn resume<B>(
        &self,
        question: &mut Question,
        request: &mut Request<B>,
        cx: &mut Context<'_>,
    ) -> Poll<Ruling> {
        let Question {
            charges,
            caller,
            answer,
        } = question;
        let asked = Asked {
            charges,
            caller: *caller,
        };
        Poll::Ready(match answer {
            Coming::Plan(coming) => {
                let finding = ready!(Pin::new(coming).poll(cx));
                self.ask_as(Some(&finding), request)
            }
            Coming::Outcomes(answer) => {
                let answer = ready!(answer.as_mut().poll(cx));
                self.rule(asked, answer, request)
            }
            Coming::Turn(waiter) => match ready!(waiter.poll(cx)) {
                Ok(Ended::Charged(outcomes)) => self.heed(asked, &outcomes, request),
                Ok(Ended::Denied(outcomes)) => self.refuse(asked, &outcomes, request),
                Err(error) => self.fail(asked, &error, request),
            },
            Coming::Late(late) => {
                let numbers = ready!(late.numbers.as_mut().poll(cx));
                let numbers = answered(asked.charges, numbers);
                if let Err(error) = &numbers
                    && !error.is_told()
                {
                    self.store.failed(error);
                } else {
                    self.store.answered();
                }
                self.refusal(asked, &late.told(numbers.ok()), request)
            }
        })
    }

    /// Rules on the store's answer to these charges.
    fn rule<B>(
        &self,
        asked: Asked<'_>,
        answer: Result<Outcomes, StoreError>,
        request: &mut Request<B>,
    ) -> Ruling {
        match answered(asked.charges, answer) {
            Ok(outcomes) => self.heed(asked, &outcomes, request),
            Err(error) => self.fail(asked, &error, request),
        }
    }

    fn heed<B>(&self, asked: Asked<'_>, outcomes: &Outcomes, request: &mut Request<B>) -> Ruling {
        if !outcomes.is_allowed() {
            return self.deny(asked, outcomes, request);
        }
        self.store.answered();
        let told = self.limiter.told(asked.charges, outcomes);
        self.note_shadow(&told, request);
        if self.is_soft
            && outcomes
                .iter()
                .any(|(_, outcome)| outcome.is_soft() && !outcome.is_allowed())
        {
            request.extensions_mut().insert(OverLimit::new(
                self.limiter.decision(told.clone().into_owned()),
            ));
        }
        if self.exposes_decision {
            request
                .extensions_mut()
                .insert(self.limiter.decision(told.clone().into_owned()));
        }
        let all = asked.charges;
        let charges = &*asked.without_those_not_in(outcomes);
        let asked = Asked { charges, ..asked };
        let fields = self.fields(charges, &told);
        let fields = self.with_decision(fields, &told);
        let turn = self.turn(asked, outcomes);
        let settles = self.settles.as_ref().filter(|_| turn.is_ok());
        let kept = settles.map_or_else(Kept::default, |settles| {
            Kept::of(settles, &self.limiter, asked.charges, outcomes, request)
        });
        if turn.is_ok() {
            self.limiter.count_decided(all, &told);
            // If it panics, the request ends here, with what is kept.
            self.tell_hook(all, &told, request);
        } else {
            self.limiter.free_slots(asked.charges, outcomes);
        }
        match turn {
            Ok(None) => Ruling::Pass(fields, kept),
            Ok(Some(turn)) => Ruling::Hold(turn, fields, kept),
            Err(CannotHold::Late(late)) => asked.waiting_for(Coming::Late(late)),
            Err(CannotHold::NoTimer) => {
                self.limiter.count_failed(all);
                diagnose(&NO_TIMER);
                Ruling::Refuse(self.answers.cannot_hold(NO_TIMER, request))
            }
        }
    }

    /// Counts what policies in shadow would have refused, and marks the request.
    #[inline]
    fn note_shadow<B>(&self, told: &Outcomes, request: &mut Request<B>) {
        if !self.modes().are_plain() && told.would_refuse().next().is_some() {
            self.limiter.note_shadow(told);
            let decision = self.limiter.decision(told.clone());
            request.extensions_mut().insert(WouldRefuse::new(decision));
        }
    }

    /// The headers of a response to an allowed request, which tell of the policies in force.
    #[inline]
    fn fields(&self, charges: &[Charge], told: &Outcomes) -> Option<Fields> {
        if !charges.iter().any(Charge::is_shadow) {
            return self.answers.allowed(charges, told);
        }
        let (charges, told) = in_force(charges, told);
        if charges.is_empty() {
            return None;
        }
        self.answers.allowed(&charges, &told)
    }

    /// The turn of a request that was allowed, if it has to wait for one.
    fn turn(&self, asked: Asked<'_>, outcomes: &Outcomes) -> Result<Option<Turn>, CannotHold> {
        let Some(queued) = self.limiter.queued(asked.charges, outcomes) else {
            return Ok(None);
        };
        if let Some(caller) = asked.caller
            && let Some(wait) =
                caller.misses(self.limiter.wait_of(&queued), self.limiter.timers().now())
        {
            let numbers = self.limiter.take_back(asked.charges, outcomes, &queued);
            return Err(CannotHold::Late(Box::new(Late {
                numbers: Box::pin(numbers.wait()),
                before: outcomes.clone(),
                queue: queued.policy(),
                wait,
            })));
        }
        let turn = self.limiter.stand(&queued);
        turn.map_err(|NoTimer| CannotHold::NoTimer)
    }

    /// Refuses a request that was denied, unless it waits for its turn.
    fn deny<B>(&self, asked: Asked<'_>, outcomes: &Outcomes, request: &mut Request<B>) -> Ruling {
        self.limiter.look_at_costs(asked.charges, outcomes);
        if let Some(waits) = &self.waits
            && let Some(caller) = asked.caller
            && let Some(waiter) = waits.denied(&self.limiter, asked.charges, caller, outcomes)
        {
            self.store.answered();
            return asked.waiting_for(Coming::Turn(waiter));
        }
        self.refuse(asked, outcomes, request)
    }

    /// Tells the hook, if there is one, of what was decided.
    #[inline]
    fn tell_hook<B>(&self, charges: &[Charge], told: &Outcomes, request: &Request<B>) {
        if let Some(hook) = &self.hooks.on_decision {
            let binding = told.binding().map(|(policy, _)| policy);
            let mut bound = charges.iter();
            let bound = bound.find(|charge| Some(charge.policy) == binding);
            let key = bound.or(charges.first()).map_or(Key::MISSING, Charge::key);
            hook(
                &Head::of(request),
                key,
                &self.limiter.decision(told.clone()),
            );
        }
    }

    /// The fields of a response, which gets the decision too if that was asked for.
    #[inline]
    fn with_decision(&self, fields: Option<Fields>, told: &Outcomes) -> Option<Fields> {
        if !self.hooks.in_response {
            return fields;
        }
        let decision = self.limiter.decision(told.clone());
        Some(Fields::with_decision(fields, decision))
    }

    fn refuse_for<B>(&self, no_charge: NoCharge, request: &mut Request<B>) -> Ruling {
        self.limiter.counters().request(Counted::WithoutKey);
        let NoCharge { status, missing } = no_charge;
        Ruling::Refuse(self.answers.no_key(status, missing, request))
    }

    /// No policy is asked about the request.
    fn exempt(&self) -> Ruling {
        self.limiter.counters().request(Counted::Exempt);
        Ruling::Pass(None, Kept::default())
    }

    fn let_pass(&self, charges: &[Charge]) -> Ruling {
        self.limiter.count_allowed(charges);
        self.store.answered();
        Ruling::Pass(None, Kept::default())
    }

    fn refuse<B>(&self, asked: Asked<'_>, outcomes: &Outcomes, request: &mut Request<B>) -> Ruling {
        self.store.answered();
        self.refusal(asked, outcomes, request)
    }

    fn refusal<B>(
        &self,
        asked: Asked<'_>,
        outcomes: &Outcomes,
        request: &mut Request<B>,
    ) -> Ruling {
        let told = self.limiter.told(asked.charges, outcomes);
        self.limiter.count_decided(asked.charges, &told);
        self.tell_hook(asked.charges, &told, request);
        let decision = self.limiter.decision(told.clone().into_owned());
        let charges = asked.without_those_not_in(outcomes);
        let exposed = self.hooks.in_response.then(|| decision.clone());
        let mut response = if charges.iter().any(Charge::is_shadow) {
            self.limiter.note_shadow(&told);
            let (charges, told) = in_force(&charges, &told);
            self.answers.denied(&charges, &told, decision, request)
        } else {
            self.answers.denied(&charges, &told, decision, request)
        };
        if let Some(decision) = exposed {
            response.extensions_mut().insert(decision);
        }
        Ruling::Refuse(response)
    }

    fn fail<B>(&self, asked: Asked<'_>, error: &StoreError, request: &mut Request<B>) -> Ruling {
        self.limiter.count_failed(asked.charges);
        if !error.is_told() {
            self.store.failed(error);
        }
        // What refuses no request does not do it without its store either.
        if asked.charges.iter().all(Charge::is_shadow) {
            return Ruling::Pass(None, Kept::default());
        }
        Ruling::Refuse(self.answers.store_failed(error.kind(), request))
    }
}

/// The charges and the outcomes of the policies that are not in shadow.
#[cold]
fn in_force(charges: &[Charge], told: &Outcomes) -> (Charges, Outcomes) {
    let charges = charges.iter().filter(|charge| !charge.is_shadow());
    (charges.copied().collect(), told.in_force())
}

/// How a request is refused that has no key.
#[derive(Clone, Copy)]
struct NoCharge {
    status: StatusCode,
    missing: Missing,
}

/// What a policy charges this request is put into the charge; returns whether that is a default estimate, or `None` if
/// it charges nothing.
#[inline]
fn read(reader: &Http, charge: &mut Charge, head: &Head<'_>) -> Result<Option<bool>, NoCharge> {
    if !reader.applies(head) {
        return Ok(None);
    }
    match reader.key(head) {
        Ok(key) => charge.key = key,
        Err(missing) if is_counted(reader, missing)? => charge.key = Key::MISSING,
        Err(_) => return Ok(None),
    }
    if !reader.is_limited() {
        return Ok(None);
    }
    let (cost, is_default) = reader.cost(head);
    charge.cost = cost;
    charge.is_soft = reader.is_soft();
    Ok(Some(is_default))
}

/// Whether a request without a key is counted, together with all others that have none.
#[cold]
fn is_counted(reader: &Http, missing: Missing) -> Result<bool, NoCharge> {
    if let Missing::ByServer(diagnostic) = &missing {
        diagnose(diagnostic);
    }
    match reader.no_key(&missing) {
        NoKey::Shared => Ok(true),
        NoKey::Skip => Ok(false),
        NoKey::Refuse(status) => Err(NoCharge { status, missing }),
    }
}
