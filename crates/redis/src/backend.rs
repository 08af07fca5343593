//! The backend of the store in Redis: cache, leases, script or standby.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Handle;

use super::calls::{Calls, Forgetting, Purpose};
use super::denials::remember;
use super::leases::Leases;
use super::lending;
use super::opened::{Charges, OpenedPolicy};
use super::reply::ScriptReply;
use tower_ratelimit_core::__internal::Sealed;
use tower_ratelimit_core::__internal::cannot_have;
use tower_ratelimit_core::__internal::{Instead, Standby};
use tower_ratelimit_core::__internal::{Sent, keep};
use tower_ratelimit_core::clock::Clock;
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::decision::Outcomes;
use tower_ratelimit_core::error::{StoreError, StoreErrorKind};
use tower_ratelimit_core::observe::StoreStats;
use tower_ratelimit_core::store::{
    Amendment, Backend, Charge, Charged, Outlook, Reply, TenantShare, Wanted,
};

/// A [`RedisStore`](super::RedisStore) opened for a list of policies.
pub struct RedisBackend(Arc<Calls>);

impl RedisBackend {
    pub(super) fn new(calls: Arc<Calls>) -> Self {
        Self(calls)
    }

    #[cfg(test)]
    pub(super) fn calls(&self) -> &Arc<Calls> {
        &self.0
    }

    /// Decides these charges, if all are of policies that were opened and have a limit. Other charges get no
    /// outcome.
    fn ask(&self, charges: &[Charge], purpose: Purpose, outcomes: &mut Outcomes) -> Charged {
        let calls = &self.0;
        if !charges.iter().all(|charge| calls.counts(charge)) || charges.is_empty() {
            return Charged::Now(Ok(false));
        }
        if calls.cannot_choose(charges) {
            return Charged::Now(Err(apart()));
        }
        if let Some(leases) = &calls.leases
            && matches!(purpose, Purpose::Charge)
            && let Some(answer) = calls.lend(leases, charges, outcomes)
        {
            return answer;
        }
        let is_away = calls.watch.is_away(charges);
        if calls.replay_denial(charges, purpose, is_away, outcomes) {
            return Charged::Now(Ok(false));
        }
        if is_away {
            return calls.ask_without_server(charges, purpose, outcomes);
        }
        let denials = calls.denials_of(charges);
        let denials = denials.filter(|_| matches!(purpose, Purpose::Charge));
        let sent = denials.map(|denials| denials.send(charges, Instant::now()));
        calls.ask_server(charges, purpose, sent)
    }

    /// Takes as many units as there are. The server is asked whenever it is there, so that a refund by
    /// another node is seen at once. A remembered denial holds while the server is away.
    fn take(&self, charges: &[Charge]) -> Reply<Result<(u32, Outcomes), StoreError>> {
        let calls = &self.0;
        // Slots are taken one by one, and held.
        let rates = charges.iter().filter(|charge| !calls.holds(charge));
        let charges: &[Charge] = &rates.copied().collect::<Charges>();
        if !charges.iter().all(|charge| calls.counts(charge)) || charges.is_empty() {
            return Reply::Now(Ok((0, Outcomes::new(Micros::ZERO))));
        }
        if calls.cannot_choose(charges) {
            return Reply::Now(Err(apart()));
        }
        let is_away = calls.watch.is_away(charges);
        // A denied request is one of one unit.
        let mut ones = Charges::from_slice(charges);
        ones.iter_mut()
            .for_each(|charge| charge.cost = charge.cost.min(1));
        let mut denied = Outcomes::new(Micros::ZERO);
        if calls.replay_denial(&ones, Purpose::Peek, is_away, &mut denied) {
            return Reply::Now(Ok((0, denied)));
        }
        if is_away {
            let watch = &calls.watch;
            return watch.decide_without(&calls.standby, charges, Standby::acquire_up_to);
        }
        let denials = calls.denials_of(charges);
        let sent = denials.map(|denials| denials.send(&ones, Instant::now()));
        let (calls, charges) = (Arc::clone(calls), Charges::from_slice(charges));
        self.0.apart_in_time((charges[0].key, 2), async move {
            if let Some(leases) = &calls.leases {
                lending::send_reports(&calls, leases.give_back(&charges)).await;
            }
            let taken = calls.take(&charges).await.map(|(units, answer)| {
                let outcomes = calls.outcomes(&ones, Purpose::Charge, &answer, sent);
                (units, outcomes)
            });
            let standby = &calls.standby;
            standby.unless_answered(&charges, taken, Standby::acquire_up_to)
        })
    }

    /// Frees the slots that these charges hold, where they were taken. While the server is away, they end by
    /// themselves.
    fn release(&self, charges: &[Charge]) -> Reply<Result<bool, StoreError>> {
        let calls = Arc::clone(&self.0);
        calls.standby.release(charges);
        let elsewhere = calls.in_use.forget(charges);
        if elsewhere.is_empty() || calls.watch.is_away(&elsewhere) {
            return Reply::Now(Ok(true));
        }
        self.0.apart(async move { calls.release(&elsewhere).await })
    }

    fn change(&self, charges: &[Charge], amendment: Amendment) -> Reply<Result<bool, StoreError>> {
        let calls = Arc::clone(&self.0);
        let is_of_keys = matches!(amendment, Amendment::Block(_) | Amendment::Unblock);
        let charges = charges.iter().filter(|charge| {
            // Only requests change slots, but a reset removes tenants that cannot be read.
            let is_of_slots = is_of_keys || amendment == Amendment::Reset && calls.divides(charge);
            calls.counts(charge) && (is_of_slots || !calls.holds(charge))
        });
        let charges: Charges = charges.copied().collect();
        if charges.is_empty() {
            return Reply::Now(Ok(false));
        }
        if calls.watch.is_away(&charges) {
            calls.epochs.advance(&charges);
            if amendment.ends_leases() {
                calls.changes.advance(&charges);
            }
            return Reply::Now(
                calls
                    .standby
                    .change(&charges, amendment, Err(Standby::away())),
            );
        }
        if amendment.settles() {
            let policies = charges.iter().map(|charge| charge.policy);
            let policies = policies.filter_map(|policy| calls.policies.get(policy));
            policies.for_each(OpenedPolicy::note_settled);
        }
        let (of, request) = (Arc::clone(&calls), charges.clone());
        let changed = self.0.apart(async move {
            if let Some(leases) = &calls.leases {
                let reports = if amendment.ends_leases() {
                    leases.end(&charges)
                } else {
                    leases.reports(&charges)
                };
                lending::send_reports(&calls, reports).await;
            }
            let changed = match amendment {
                Amendment::TakeBack(_) | Amendment::Add(_) => {
                    calls.settle(&charges, amendment).await
                }
                _ => calls.change_each(&charges, &charges, amendment).await,
            };
            calls.standby.change(&charges, amendment, changed)
        });
        Reply::later(async move {
            // A caller that gives up forgets what is remembered, before the change has ended.
            let _forgetting = Forgetting(&of, &request);
            changed.wait().await
        })
    }
}

/// Returns the error for charges between which no server can choose.
fn apart() -> StoreError {
    let cause = "the policies of `first_of`, and those charged with them, have keys that may be on several servers of the \
                 cluster: let all have the same key, or keys of one root, such as levels of a tree";
    StoreError::new(StoreErrorKind::Unsupported).caused_by(cause)
}

impl Purpose {
    /// Returns the decision of the standby for such a request.
    fn without_server(self) -> Instead<Outcomes> {
        match self {
            Self::Charge => Standby::charge,
            Self::Peek | Self::Deny => Standby::peek,
        }
    }
}

impl Calls {
    /// Decides by the units that this node holds, or asks for more of them. Returns `None` if these charges are not leased.
    ///
    /// Inlined, it would cost a store without leases 30 instructions with each decision.
    #[inline(never)]
    fn lend(
        self: &Arc<Self>,
        leases: &Leases,
        charges: &[Charge],
        outcomes: &mut Outcomes,
    ) -> Option<Charged> {
        if !leases.lends(charges) || !self.are_together(charges) {
            return None;
        }
        if let Some(local) = leases.decide(charges, &self.policies, outcomes) {
            lending::renew_if_low(self, charges, &local);
            return Some(Charged::Now(Ok(local.is_allowed)));
        }
        let is_away = self.watch.is_away(charges);
        // The pair of a key remembers for how long it does not ask.
        let is_of_a_pair = charges.len() == 1;
        if (is_away || !is_of_a_pair)
            && self.replay_denial(charges, Purpose::Charge, is_away, outcomes)
        {
            return Some(Charged::Now(Ok(false)));
        }
        if is_away {
            return Some(self.ask_without_server(charges, Purpose::Charge, outcomes));
        }
        let denials = self.denials_of(charges).filter(|_| !is_of_a_pair);
        let sent = denials.map(|denials| denials.send(charges, Instant::now()));
        let sent = sent.map(|sent| sent.at_most(leases.remembers_for(charges)));
        Some(self.ask_server_for_units(charges, sent))
    }

    /// Tells a remembered denial, if there is one that may be used. Returns whether it did.
    fn replay_denial(
        &self,
        charges: &[Charge],
        purpose: Purpose,
        is_away: bool,
        outcomes: &mut Outcomes,
    ) -> bool {
        let may_tell = match purpose {
            // The cache does not say how other policies decide while the server is away.
            _ if is_away => self.standby.is_local(charges),
            // A peek goes to the server, if it is there.
            purpose => matches!(purpose, Purpose::Charge),
        };
        let request = (charges, &*self.policies);
        let denials = self.denials_of(charges).filter(|_| may_tell);
        let is_replayed = denials
            .is_some_and(|denials| denials.replay(request, Instant::now(), is_away, outcomes));
        if is_replayed {
            self.watch.calls().remembered();
        }
        if is_replayed && is_away {
            outcomes.degrade();
        }
        is_replayed
    }

    /// Decides here, since a server is known to be away.
    fn ask_without_server(
        &self,
        charges: &[Charge],
        purpose: Purpose,
        outcomes: &mut Outcomes,
    ) -> Charged {
        let decide = purpose.without_server();
        let answer = self.watch.decide_without(&self.standby, charges, decide);
        Charged::of(charges, answer, outcomes)
    }

    /// Asks the server, and remembers a denial that was sent for.
    fn ask_server(
        self: &Arc<Self>,
        charges: &[Charge],
        purpose: Purpose,
        sent: Option<Sent>,
    ) -> Charged {
        let (calls, charges) = (Arc::clone(self), Charges::from_slice(charges));
        Charged::later(async move {
            let answer = match purpose {
                Purpose::Charge => Self::decide(&calls, &charges).await,
                _ => Box::pin(calls.peek(&charges)).await,
            };
            let outcomes = answer.map(|answer| calls.outcomes(&charges, purpose, &answer, sent));
            let standby = &calls.standby;
            standby.unless_answered(&charges, outcomes, purpose.without_server())
        })
    }

    /// Asks the server for a decision and for units, and remembers a denial that was sent for.
    fn ask_server_for_units(self: &Arc<Self>, charges: &[Charge], sent: Option<Sent>) -> Charged {
        let (calls, charges) = (Arc::clone(self), Charges::from_slice(charges));
        Charged::later(async move {
            let (asks, request) = (Arc::clone(&calls), charges.clone());
            // The request may wait for another's question before its own.
            let decided = calls.apart_in_time((charges[0].key, 2), async move {
                lending::decide(&asks, &request).await
            });
            let outcomes = decided.wait().await.map(|(answer, outcomes)| {
                if let Some(answer) = &answer {
                    calls.learn(&charges, Purpose::Charge, (answer, &outcomes), sent);
                }
                outcomes
            });
            let standby = &calls.standby;
            standby.unless_answered(&charges, outcomes, Standby::charge)
        })
    }

    /// Returns the outcomes of the server's answer, and remembers a denial.
    fn outcomes(
        &self,
        charges: &[Charge],
        purpose: Purpose,
        answer: &ScriptReply,
        sent: Option<Sent>,
    ) -> Outcomes {
        let outcomes = answer.outcomes(&self.policies);
        self.learn(charges, purpose, (answer, &outcomes), sent);
        outcomes
    }

    /// Remembers a denial in the server's answer.
    fn learn(
        &self,
        charges: &[Charge],
        purpose: Purpose,
        (answer, outcomes): (&ScriptReply, &Outcomes),
        sent: Option<Sent>,
    ) {
        for (charge, blocked) in answer.blocks() {
            self.standby.learn(charge, blocked);
        }
        if let Some(denials) = &self.denials
            && answer.is_allowed()
        {
            match purpose {
                // Remembered denials of other costs have numbers that are no longer true.
                Purpose::Charge => self.epochs.advance(charges),
                _ => denials.forget(charges),
            }
        }
        if let (Some(denials), Some(sent)) = (&self.denials, sent) {
            let request = (charges, &*self.policies);
            remember(denials, request, (sent, Instant::now()), (answer, outcomes));
        }
    }
}

impl Sealed for RedisBackend {}

impl Backend for RedisBackend {
    fn charge(&self, charges: &[Charge], _: Wanted, outcomes: &mut Outcomes) -> Charged {
        let answer = self.ask(charges, Purpose::Charge, outcomes);
        if charges.iter().all(|charge| charge.slot.is_none()) {
            return answer;
        }
        match answer {
            Charged::Later(answer) => {
                let (calls, charges) = (Arc::clone(&self.0), Charges::from_slice(charges));
                Charged::later(async move {
                    let outcomes = answer.await?;
                    keep(&calls, &charges, &outcomes);
                    Ok(outcomes)
                })
            }
            Charged::Now(answer) => {
                if let Ok(true) = answer {
                    keep(&self.0, charges, outcomes);
                }
                Charged::Now(answer)
            }
            other => other,
        }
    }

    fn acquire_up_to(&self, charges: &[Charge]) -> Reply<Result<(u32, Outcomes), StoreError>> {
        self.take(charges)
    }

    fn peek(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        let mut outcomes = Outcomes::new(Micros::ZERO);
        let peeked = self.ask(charges, Purpose::Peek, &mut outcomes);
        peeked.with(outcomes)
    }

    fn outlook(&self, charges: &[Charge]) -> Reply<Result<Outlook, StoreError>> {
        let is_opened = charges.iter().all(|charge| self.0.counts(charge));
        if !is_opened
            || charges.is_empty()
            || self.0.cannot_choose(charges)
            || self.0.watch.is_away(charges)
        {
            return self.peek(charges).map(|peeked| peeked.map(Outlook::from));
        }
        let (calls, charges) = (Arc::clone(&self.0), Charges::from_slice(charges));
        Reply::later(async move {
            let peeked = Box::pin(calls.peek(&charges)).await.map(|answer| Outlook {
                outcomes: calls.outcomes(&charges, Purpose::Peek, &answer, None),
                keys: answer.outlooks(&calls.policies),
            });
            let standby = &calls.standby;
            standby.unless_answered(&charges, peeked, Standby::outlook)
        })
    }

    fn refusals(&self, charge: &Charge) -> Reply<Result<u32, StoreError>> {
        let (calls, charge) = (Arc::clone(&self.0), *charge);
        if calls.watch.is_away(&[charge]) {
            // Refusals without the server do not count.
            return Reply::Now(Ok(0));
        }
        let count = async move { calls.refusals(&charge).await };
        self.0.apart_in_time((charge.key, 1), count)
    }

    fn leased(&self, charge: &Charge) -> Reply<Result<u32, StoreError>> {
        let (calls, charge) = (Arc::clone(&self.0), *charge);
        let leases = calls.leases.as_ref();
        if !leases.is_some_and(|leases| leases.leases(charge.policy))
            || calls.watch.is_away(&[charge])
        {
            return Reply::Now(Ok(0));
        }
        let count = async move { calls.leased(&charge).await };
        self.0.apart_in_time((charge.key, 1), count)
    }

    fn tenant_share(&self, charge: &Charge) -> Reply<Result<Option<TenantShare>, StoreError>> {
        let (calls, charge) = (Arc::clone(&self.0), *charge);
        if !calls.divides(&charge) || calls.watch.is_away(&[charge]) {
            return Reply::Now(Ok(None));
        }
        let tell = async move { calls.tenant_share(&charge).await.map(Some) };
        self.0.apart_in_time((charge.key, 1), tell)
    }

    fn amend(&self, charges: &[Charge], amendment: Amendment) -> Reply<Result<bool, StoreError>> {
        match amendment {
            Amendment::Release => self.release(charges),
            _ if amendment.is_of_a_degraded_charge() => {
                Reply::Now(self.0.standby.settle(charges, amendment))
            }
            Amendment::Override(limit, _)
                if charges.iter().any(|charge| {
                    self.0.counts(charge) && self.0.numbers(charge, limit).is_none()
                }) =>
            {
                Reply::Now(Err(cannot_have()))
            }
            amendment => self.change(charges, amendment),
        }
    }

    fn stats(&self) -> StoreStats {
        let mut stats = self.0.watch.stats("redis");
        stats.leases = self.0.leases.as_ref().map(Leases::stats);
        stats
    }

    fn runtime(&self) -> Option<Handle> {
        self.0.link.background.runtime().ok()
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.0.clock.clone()
    }
}

impl Drop for RedisBackend {
    /// Gives the units back, since other nodes may use them.
    fn drop(&mut self) {
        lending::give_all_back(&self.0);
    }
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("link", &self.0.link)
            .finish_non_exhaustive()
    }
}
