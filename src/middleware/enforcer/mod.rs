//! The enforcer of a layer: it reads a request, has a limiter rule on it, and turns the verdict into a response.

#[cfg(feature = "usage")]
mod ahead;
mod answering;
mod holding;
mod reading;
pub(crate) mod trying;

use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Request;

#[cfg(feature = "usage")]
pub(super) use self::ahead::{Ahead, LookingAhead};
pub(super) use self::holding::{Admitted, ObserveVerdict, observed};
use tower_ratelimit_core::__internal::{
    ChargedRequest, Charges, Finding, LayerVerdict, NoDemand, Numbers, PendingDecision, PlanLookup,
    Policies, Purpose, Request as RequestCount, Sources, Steps, Verdict,
};

use self::reading::Skips;
pub(super) use self::reading::{NoKeyRefusal, Reading};
pub(crate) use self::trying::Trial;

use super::deadline::deadline;
use super::hooks::Hooks;
use super::lists::{Listed, Lists};
use super::settlements::Settlements;
use crate::advice::{Life, look_for_itself};
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::error::StoreErrorKind;
use crate::key::{Head, SharedParts};
use crate::limiter::Limiter;
use crate::policy::{Http, Mode, Rule};
use crate::response::Answers;
use crate::store::{Charge, Wanted};

/// Decides requests by a limiter, and puts what the client is told into its verdicts.
#[derive(Debug)]
pub(super) struct Enforcer {
    limiter: Limiter,
    /// What the limiter's policies make of a request.
    policies: Arc<Policies>,
    /// How each policy reads a request, with the policy's index in the limiter.
    readers: Vec<(usize, Http)>,
    answers: Answers,
    /// `None` if all lists are empty.
    lists: Option<Lists>,
    /// How the plan of a request is found.
    sources: Sources<Head<'static>>,
    /// Whether any policy lets requests over its limit go on.
    is_soft: bool,
    /// Whether some policies are levels of a tree.
    has_levels: bool,
    /// Which requests need numbers.
    wanted: Wanted,
    /// `None` if no policy holds a request to its end.
    settlements: Option<Arc<Settlements>>,
    exposes_decision: bool,
    hooks: Hooks,
    life: Life,
}

/// Why a request is not charged.
enum Uncharged {
    /// No policy applies.
    Exempt,
    /// A policy refuses it, because it has no key.
    MissingKey(NoKeyRefusal),
    /// It is refused, because its plan is not known.
    Unresolved(StoreErrorKind),
}

/// The verdict of an enforcer.
pub(super) type EnforcerVerdict = LayerVerdict<Enforcer>;

impl Enforcer {
    /// Creates an enforcer over a limiter of these policies.
    pub(super) fn new(
        policies: &[Rule],
        readers: Vec<Http>,
        limiter: Limiter,
        answers: Answers,
    ) -> Self {
        let settlements = Settlements::new(policies, &readers);
        let has_levels = readers.iter().any(Http::is_level);
        let readers = readers.into_iter().enumerate();
        let is_soft = policies.iter().any(Rule::is_soft);
        let has_queue = policies.iter().any(Rule::shapes);
        // Taking a charge back needs its numbers.
        let tells_all = answers.writes_numbers()
            || is_soft
            || has_queue
            || settlements.is_some()
            || limiter.groups().next().is_some();
        Self {
            policies: Arc::clone(limiter.policies()),
            limiter,
            readers: readers.filter(|(_, reader)| reader.can_affect()).collect(),
            wanted: if tells_all {
                Wanted::Everything
            } else {
                Wanted::Refusals
            },
            answers,
            lists: None,
            sources: Sources::default(),
            is_soft,
            has_levels,
            settlements,
            exposes_decision: false,
            hooks: Hooks::default(),
            life: Life::new(),
        }
    }

    pub(super) fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    pub(super) fn policies(&self) -> &Policies {
        &self.policies
    }

    pub(super) fn set_sources(&mut self, sources: Sources<Head<'static>>) {
        self.sources = sources;
    }

    pub(super) fn set_lists(&mut self, lists: Lists) {
        self.lists = (!lists.are_empty()).then_some(lists);
    }

    pub(super) fn expose_decision(&mut self) {
        self.exposes_decision = true;
        self.wanted = Wanted::Everything;
    }

    /// Sets the hooks for decisions, if there are any.
    pub(super) fn set_hooks(&mut self, hooks: Hooks) {
        if hooks.are_any() {
            self.wanted = Wanted::Everything;
        }
        self.hooks = hooks;
    }

    /// Rules on a request: by the lists, then by the modes of policies and the plan of the request, then by
    /// the limiter.
    ///
    /// Puts the decision into the request's extensions, if that is enabled, and empties the extensions of a
    /// refused request.
    pub(super) fn ask<B>(self: &Arc<Self>, request: &mut Request<B>) -> EnforcerVerdict {
        self.life.request();
        look_for_itself(self.life.number);
        let head = Head::of(request);
        if let Some(lists) = &self.lists {
            match lists.look_up(&head) {
                Listed::Nowhere => {}
                Listed::Allowed => return self.exempt(),
                Listed::Denied => {
                    self.policies.counters().request(RequestCount::Forbidden);
                    return Verdict::Refuse(self.answers.forbidden(request));
                }
            }
        }
        let Some(resolver) = &self.sources.resolver else {
            return match &*self.readers {
                [(policy, reader)] if self.policies.declared_modes().are_plain() => {
                    self.ask_one(*policy, reader, request)
                }
                _ => self.ask_as(None, request),
            };
        };
        // Nothing is looked up for policies that are all off.
        if self.is_off() {
            return self.exempt();
        }
        match resolver.look(&head) {
            None => self.ask_as(None, request),
            Some(PlanLookup::Known(finding)) => self.ask_as(Some(&finding), request),
            Some(PlanLookup::Pending(coming)) => self.wait(PendingDecision::of_plan(coming)),
        }
    }

    /// Rules on a request by the only policy, which is in force, without a resolver. A list has room for several charges, all of
    /// which would be copied.
    #[inline]
    fn ask_one<B>(
        self: &Arc<Self>,
        policy: usize,
        reader: &Http,
        request: &mut Request<B>,
    ) -> EnforcerVerdict {
        let head = Head::of(request);
        let reading = Reading {
            reader,
            head: &head,
            plan: self.plan(&head, None),
            finding: None,
        };
        let mut steps = Skips(&self.policies);
        let purpose = Purpose::Reserve;
        match &self
            .policies
            .charge_of(policy, &reading, purpose, &mut steps)
        {
            Ok(charge) => self.put(slice::from_ref(charge), request),
            Err(NoDemand::Refused(refusal)) => self.refuse_for(*refusal, request),
            Err(why) => {
                steps.charges_nothing(policy, *why);
                self.exempt()
            }
        }
    }

    /// Rules on a request with this finding of a resolver.
    fn ask_as<B>(
        self: &Arc<Self>,
        finding: Option<&Finding>,
        request: &mut Request<B>,
    ) -> EnforcerVerdict {
        let mut charges = Charges::new();
        match self.charge(&Head::of(request), finding, &mut charges) {
            Ok(()) => self.put(&charges, request),
            Err(Uncharged::Exempt) => self.exempt(),
            Err(Uncharged::MissingKey(refusal)) => self.refuse_for(refusal, request),
            Err(Uncharged::Unresolved(kind)) => {
                self.policies.counters().failed([]);
                Verdict::Refuse(self.answers.store_failed(kind, request))
            }
        }
    }

    /// Puts the charges of a request with this finding of a resolver into this list.
    fn charge(
        &self,
        head: &Head<'_>,
        finding: Option<&Finding>,
        charges: &mut Charges,
    ) -> Result<(), Uncharged> {
        if self.is_off() {
            return Err(Uncharged::Exempt);
        }
        if let Some(kind) = self.unresolved(finding) {
            return Err(Uncharged::Unresolved(kind));
        }
        match self.charge_each(head, finding, charges) {
            Ok(()) if charges.is_empty() => Err(Uncharged::Exempt),
            Ok(()) => Ok(()),
            Err(refusal) => Err(Uncharged::MissingKey(refusal)),
        }
    }

    /// Returns why a request is refused for lack of a plan.
    pub(super) fn unresolved(&self, finding: Option<&Finding>) -> Option<StoreErrorKind> {
        let kind = finding.and_then(Finding::refusal)?;
        (self.policies.declared_modes().are_plain() || !self.has_no_mode_over(Mode::Shadow))
            .then_some(kind)
    }

    /// Puts the charge of each policy into this list.
    fn charge_each(
        &self,
        head: &Head<'_>,
        finding: Option<&Finding>,
        charges: &mut Charges,
    ) -> Result<(), NoKeyRefusal> {
        let mut steps = Skips(&self.policies);
        let purpose = Purpose::Reserve;
        if !self.has_levels {
            let readings = self.readings(head, finding);
            return self
                .policies
                .charges_for(readings, purpose, &mut steps, charges);
        }
        let parts = SharedParts::default();
        let head = head.sharing(&parts);
        let readings = self.readings(&head, finding);
        self.policies
            .charges_for(readings, purpose, &mut steps, charges)
    }

    /// Returns a request as each policy reads it, with the policy's index in the limiter.
    pub(super) fn readings<'a>(
        &'a self,
        head: &'a Head<'a>,
        finding: Option<&'a Finding>,
    ) -> impl Iterator<Item = (usize, Reading<'a>)> {
        let plan = self.plan(head, finding);
        self.readers.iter().map(move |(policy, reader)| {
            let reading = Reading {
                reader,
                head,
                plan,
                finding,
            };
            (*policy, reading)
        })
    }

    /// Returns whether all policies are off.
    #[inline]
    fn is_off(&self) -> bool {
        !self.policies.declared_modes().are_plain() && self.has_no_mode_over(Mode::Off)
    }

    /// Returns whether no policy has a stronger mode than this.
    #[cold]
    fn has_no_mode_over(&self, mode: Mode) -> bool {
        let mut policies = self.readers.iter().map(|(policy, _)| *policy);
        policies.all(|policy| self.policies.declared_modes().of(policy) >= mode)
    }

    pub(super) fn listed(&self, head: &Head<'_>) -> Listed {
        let lists = self.lists.as_ref();
        lists.map_or(Listed::Nowhere, |lists| lists.look_up(head))
    }

    /// Returns what is known of the customer of a request, or `None` if there is no resolver.
    pub(super) fn found_now(&self, head: &Head<'_>) -> Option<Finding> {
        self.sources.look(head).map(PlanLookup::now)
    }

    /// Returns the same for a request that would be refused if its plan could not be looked up.
    pub(super) fn found_or_refused(&self, head: &Head<'_>) -> Option<Finding> {
        self.sources.look(head).map(|lookup| match lookup {
            PlanLookup::Known(finding) => finding,
            pending @ PlanLookup::Pending(_) => pending.now(),
        })
    }

    /// Marks the enforcer as one of several that a layer has in turn: if it sees a single request, the layer was
    /// still not built for that request.
    pub(super) fn suppress_rebuild_warning(&self) {
        self.life.request();
        self.life.request();
    }

    /// Decides on charges, and answers.
    #[inline]
    fn put<B>(self: &Arc<Self>, charges: &[Charge], request: &mut Request<B>) -> EnforcerVerdict {
        let wanted = match self.wanted {
            Wanted::Refusals if charges.iter().any(Charge::may_be_untold) => Wanted::Everything,
            wanted => wanted,
        };
        let to_decide = ChargedRequest {
            charges,
            wanted,
            caller: self
                .policies
                .caller(|timers| deadline(request.headers(), request.extensions(), timers)),
            is_settled: self.settlements.is_some(),
        };
        let mut outcomes = Outcomes::new(Micros::ZERO);
        match self.limiter.rule(to_decide, &mut outcomes) {
            Verdict::Pass(Numbers::Unknown) => self.pass(),
            verdict => self.answer(verdict, charges, &outcomes, request),
        }
    }

    /// Continues a request that had no verdict, as [`ask`](Self::ask) does.
    fn resume<B>(
        self: &Arc<Self>,
        question: &mut PendingDecision,
        request: &mut Request<B>,
        cx: &mut Context<'_>,
    ) -> Poll<EnforcerVerdict> {
        let mut outcomes = Outcomes::new(Micros::ZERO);
        let verdict = ready!(question.poll(&self.limiter, &mut outcomes, cx));
        Poll::Ready(match verdict {
            Ok(verdict) => self.answer(verdict, question.charges(), &outcomes, request),
            Err(finding) => self.ask_as(Some(&finding), request),
        })
    }
}
