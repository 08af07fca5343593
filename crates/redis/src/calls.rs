//! The calls of a backend: which script runs for a verb, with which keys and arguments.

use std::fmt::Display;
use std::iter::once;
use std::sync::Arc;

use redis::Value;
use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};

use super::batcher::Batcher;
use super::denials::DenialCache;
use super::failure::{NOT_READ, failure, failure_of, interrupted, is_of_some, nonsense};
use super::lease::UnitsRequest;
use super::leases::Leases;
use super::link::Link;
use super::opened::{Charges, Guarantee, LimitOfCharge, OpenedPolicy, Rule};
use super::pairs::LeaseRequest;
use super::promise::timed_out;
use super::query::{Asker, Child, LEASE, Query, Tenant};
use super::reply::ScriptReply;
use super::script::{Call, Script};
use super::settlement::Settlement;
use super::state_key::{InBraces, below_root};
use super::under_way::UnderWay;
use tower_ratelimit_core::__internal::KeyEpochs;
use tower_ratelimit_core::__internal::{SlotsInUse, Standby, Watch};
use tower_ratelimit_core::algorithm::{Algorithm, Limit};
use tower_ratelimit_core::clock::Clock;
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::error::{StoreError, StoreErrorKind};
use tower_ratelimit_core::key::Key;
use tower_ratelimit_core::store::{Amendment, Charge, Reply, Slot, TenantShare};

/// Makes the calls to the server for a list of policies.
pub(super) struct Calls {
    pub(super) link: Arc<Link>,
    pub(super) watch: Arc<Watch>,
    pub(super) standby: Arc<Standby>,
    pub(super) policies: Arc<[OpenedPolicy]>,
    pub(super) prefix: Arc<str>,
    pub(super) denials: Option<DenialCache>,
    pub(super) epochs: Arc<KeyEpochs>,
    /// The epochs of changes that requests did not make.
    pub(super) changes: Arc<KeyEpochs>,
    pub(super) leases: Option<Leases>,
    pub(super) charge: Batcher<Query>,
    pub(super) settle: Batcher<Settlement>,
    pub(super) amend: Script,
    /// For limits that are divided among tenants.
    pub(super) amend_shares: Script,
    /// For limits that are guaranteed in part to children.
    pub(super) amend_guarantees: Script,
    pub(super) take: Script,
    pub(super) renew: Script,
    /// The slots that it has taken at servers.
    pub(super) in_use: SlotsInUse,
    /// How long a slot lasts without a renewal.
    pub(super) slot_life: Micros,
    /// What is given back, settled or changed.
    pub(super) amendments: UnderWay,
    pub(super) clock: Option<Arc<dyn Clock>>,
}

/// The operation of the script for a request.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    Charge,
    Peek,
    /// Returns the outcome of each policy for a request that another policy denies.
    Deny,
}

/// An amendment that is under way.
struct Amending(Arc<Calls>);

impl Amending {
    fn begin(calls: &Arc<Calls>) -> Self {
        calls.amendments.begin();
        Self(Arc::clone(calls))
    }
}

impl Drop for Amending {
    fn drop(&mut self) {
        self.0.amendments.end();
    }
}

/// The answer of the script when turns of a queue were given back.
const DONE: Value = Value::Int(1);

impl Calls {
    /// Decides charges that may be of several keys. Where the keys may be on several servers, the servers are
    /// asked one after the other, and what was taken is given back when a later one denies.
    pub(super) async fn decide(
        self: &Arc<Self>,
        charges: &[Charge],
    ) -> Result<ScriptReply, StoreError> {
        let (groups, until) = (self.groups(charges), self.link.deadline_of_request());
        if let [group] = &*groups {
            return self.ask(group, charges, Purpose::Charge, until).await;
        }
        let calls = Arc::clone(self);
        let of = (&self.watch, &charges[0].key);
        let decided = self.link.run(of, 1, async move {
            // Run to its end, even if the request goes away: what was taken has to be given back.
            let decided = tokio::spawn(async move { calls.decide_apart(&groups, until).await });
            timeout_at(until, decided).await
        });
        match decided.await {
            Ok(Ok(decided)) => decided.unwrap_or_else(|_| Err(interrupted())),
            Ok(Err(_)) => Err(failure(timed_out())),
            Err(error) => Err(failure(error)),
        }
    }

    async fn decide_apart(
        &self,
        groups: &[Charges],
        until: Instant,
    ) -> Result<ScriptReply, StoreError> {
        let mut together = ScriptReply::none();
        let all: Charges = groups.iter().flatten().copied().collect();
        for (index, group) in groups.iter().enumerate() {
            match self.ask(group, &all, Purpose::Charge, until).await {
                Ok(answer) if answer.is_allowed() => together.add(answer),
                answer => {
                    // The request is denied whether this succeeds or not. It has time of its own.
                    for (charge, amendment) in together.undoing(&self.policies) {
                        let _ = self.change_each(&[charge], &all, amendment).await;
                    }
                    let mut denied = answer?;
                    let others = groups[..index].iter().chain(&groups[index + 1..]);
                    for group in others {
                        if let Ok(other) = self.ask(group, &all, Purpose::Deny, until).await {
                            denied.add(other);
                        }
                    }
                    return Ok(denied);
                }
            }
        }
        Ok(together)
    }

    /// Settles what was charged, in a call that others share if one server has all keys.
    pub(super) async fn settle(
        &self,
        charges: &[Charge],
        amendment: Amendment,
    ) -> Result<bool, StoreError> {
        if self.link.is_divided() || charges.iter().any(|charge| self.has_parts(charge)) {
            return self.change_each(charges, charges, amendment).await;
        }
        self.epochs.advance(charges);
        // A request may be denied in between, and whatever the result, the server may have executed it.
        let _forgetting = Forgetting(self, charges);
        let mut names = Names::default();
        let settlements = charges.iter().filter_map(|charge| {
            let policy = self.policies.get(charge.policy)?;
            let (amount, until) = match amendment {
                Amendment::TakeBack(taken) => (-i64::from(charge.cost), taken.until()),
                _ => (i64::from(charge.cost), Micros::ZERO),
            };
            Some(Settlement {
                key: charge.key,
                state_key: names.name(&self.prefix, &charge.key, &policy.suffix),
                rule: Rule {
                    policy: charge.policy,
                    limit: policy.limit_of(charge),
                },
                amount,
                until,
                moment: self.moment(),
            })
        });
        let mut settled = Ok(true);
        for answer in self.settle.send(settlements.collect()) {
            let answer = answer.await.map_err(|_| interrupted());
            let answer = answer.and_then(|answer| answer.map_err(failure));
            settled = answer.map(|_| true).and(settled);
        }
        settled
    }

    /// Groups charges that one script can see: those of one key or of one tree, or all if there is one server.
    fn groups(&self, charges: &[Charge]) -> SmallVec<[Charges; 1]> {
        let mut groups: SmallVec<[Charges; 1]> = SmallVec::new();
        for charge in charges {
            let is_together = |group: &&mut Charges| {
                !self.link.is_divided() || group[0].key.root() == charge.key.root()
            };
            match groups.iter_mut().find(is_together) {
                Some(group) => group.push(*charge),
                None => groups.push(Charges::from_slice(&[*charge])),
            }
        }
        groups
    }

    /// Asks the server of these charges. `all` are those of the request.
    async fn ask(
        &self,
        charges: &Charges,
        all: &[Charge],
        purpose: Purpose,
        until: Instant,
    ) -> Result<ScriptReply, StoreError> {
        let verb = match purpose {
            Purpose::Charge => "charge",
            Purpose::Peek => "peek",
            Purpose::Deny => "deny",
        };
        let query = self.query(verb, (charges, all), until);
        let value = self.charge.run(query).await;
        let answer = value.map_err(failure);
        let answer = self.watched(answer.and_then(|value| ScriptReply::read(value, charges)));
        if matches!(purpose, Purpose::Charge) && answer.as_ref().is_ok_and(ScriptReply::charges) {
            self.has_written(charges);
        }
        answer
    }

    /// Adds a charge of a request to a query that decides, with the question for units to a script that grants these. `all` are those of
    /// the request.
    fn add(
        &self,
        query: &mut Query,
        names: &mut Names,
        (policy, charge): (&OpenedPolicy, &Charge),
        all: &[Charge],
        ask: Option<Box<UnitsRequest>>,
    ) {
        let limit = if matches!(policy.algorithm, Algorithm::Concurrency(_)) {
            LimitOfCharge::Slots(self.numbers_of_slots(policy, charge))
        } else {
            policy.limit_of(charge)
        };
        if policy.scale.is_some() {
            let key = names.name(&self.prefix, &charge.key.root(), &policy.suffix);
            let tenant = Asker::Tenant(self.tenant(&key, policy, charge));
            query.charge(key, charge, (limit, ask), Some(Box::new(tenant)));
        } else {
            let key = names.name(&self.prefix, &charge.key, &policy.suffix);
            let child = policy.guarantee.map(|guarantee| {
                let child = Asker::Child(child(&key, charge, guarantee, all));
                Box::new(child)
            });
            query.charge(key, charge, (limit, ask), child);
        }
    }

    /// Returns the tenant of a charge, whose shared key has its state under this name.
    pub(super) fn tenant(&self, shared: &str, policy: &OpenedPolicy, charge: &Charge) -> Tenant {
        Tenant {
            tenants: format!("{shared}:tenants"),
            home: InBraces::of_tenant(&charge.key).state_key(&self.prefix, &policy.suffix),
            field: format!("={}", below_root(&charge.key)),
            weight: charge.weight.max(1),
        }
    }

    /// Returns the time to send to the server, if a test sets the clock.
    pub(super) fn moment(&self) -> Option<Micros> {
        self.clock.as_ref().map(Clock::now)
    }

    /// Decides charges of keys of one server, asks for units and reports spent ones. A charge of cost 0 is
    /// not made.
    pub(super) async fn lease(
        &self,
        questions: &[LeaseRequest],
        until: Instant,
    ) -> Result<ScriptReply, StoreError> {
        let mut query = Query::new(LEASE, self.moment(), until);
        let (mut names, mut charges) = (Names::default(), Charges::new());
        for LeaseRequest { charge, ask, .. } in questions {
            if let Some(policy) = self.policies.get(charge.policy) {
                let ask = Some(Box::new(ask.clone()));
                self.add(&mut query, &mut names, (policy, charge), &[], ask);
                charges.push(*charge);
            }
        }
        let value = self.charge.run(query).await;
        let answer = value.map_err(failure);
        let answer =
            self.watched(answer.and_then(|value| ScriptReply::of_granting(value, &charges)));
        if let Ok(answer) = &answer
            && (answer.charges() || answer.grants_any())
        {
            self.has_written(&charges);
        }
        answer
    }

    /// Returns whether one of several charges is to be made and they may be on several servers, so that no script can choose.
    pub(super) fn cannot_choose(&self, charges: &[Charge]) -> bool {
        let mut each = charges.iter();
        each.any(|charge| charge.alternative.is_some()) && !self.are_together(charges)
    }

    /// Returns the remembered denials, if the denial of such charges is remembered. Of several charges of which one is made, another
    /// may have room sooner than was told. A tenant or a child that is denied has to be heard of, since room is kept for it.
    pub(super) fn denials_of(&self, charges: &[Charge]) -> Option<&DenialCache> {
        let is_asked_for = |charge: &Charge| charge.alternative.is_some() || self.has_parts(charge);
        let denials = self.denials.as_ref();
        denials.filter(|_| !charges.iter().any(is_asked_for))
    }

    /// Returns whether others have a part of the limit of this charge: tenants, or children to which it is guaranteed.
    fn has_parts(&self, charge: &Charge) -> bool {
        let policy = self.policies.get(charge.policy);
        policy.is_some_and(|policy| policy.scale.is_some() || policy.guarantee.is_some())
    }

    /// Returns whether the limit of this charge is divided among tenants.
    pub(super) fn divides(&self, charge: &Charge) -> bool {
        let policy = self.policies.get(charge.policy);
        policy.is_some_and(|policy| policy.scale.is_some())
    }

    /// Returns whether one server has the keys of all these charges.
    pub(super) fn are_together(&self, charges: &[Charge]) -> bool {
        let Some(first) = charges.first() else {
            return false;
        };
        !self.link.is_divided()
            || charges
                .iter()
                .all(|charge| charge.key.root() == first.key.root())
    }

    pub(super) async fn peek(&self, charges: &[Charge]) -> Result<ScriptReply, StoreError> {
        let (groups, until) = (self.groups(charges), self.link.deadline_of_request());
        let mut answers: SmallVec<[ScriptReply; 1]> = SmallVec::new();
        for group in &groups {
            answers.push(self.ask(group, charges, Purpose::Peek, until).await?);
        }
        let is_denied = !answers.iter().all(ScriptReply::is_allowed);
        let mut together = ScriptReply::none();
        for (group, answer) in groups.iter().zip(answers) {
            // The answer already says what would happen if the other policies allowed it.
            let is_asked_anew = is_denied && answer.is_allowed();
            together.add(if is_asked_anew {
                self.ask(group, charges, Purpose::Deny, until).await?
            } else {
                answer
            });
        }
        Ok(together)
    }

    /// Changes charges of keys of one server. `all` are those of the request.
    async fn change(
        &self,
        charges: &[Charge],
        all: &[Charge],
        amendment: Amendment,
        until: Instant,
    ) -> Result<bool, StoreError> {
        let is_of_blocks = matches!(amendment, Amendment::Block(_) | Amendment::Unblock);
        let is_of_use = amendment.settles() || matches!(amendment, Amendment::Reset);
        let (mut divided, mut guaranteeing, mut plain) =
            (Charges::new(), Charges::new(), Charges::new());
        for charge in charges {
            if !is_of_blocks && self.divides(charge) {
                divided.push(*charge);
            } else if is_of_use && self.has_parts(charge) {
                guaranteeing.push(*charge);
            } else {
                plain.push(*charge);
            }
        }
        // The failure of one call is no reason to skip another.
        let mut changed = Ok(amendment.answer_about_none());
        let mut add = |answer: Result<bool, StoreError>| {
            let before = std::mem::replace(&mut changed, Ok(false));
            changed = before.and_then(|some| answer.map(|it| amendment.and(some, it)));
        };
        if !divided.is_empty() {
            add(self.change_shares(&divided, amendment, until).await);
        }
        if !guaranteeing.is_empty() {
            add(self
                .change_guarantees(&guaranteeing, all, amendment, until)
                .await);
        }
        if !plain.is_empty() {
            add(self.change_plain(&plain, amendment, until).await);
        }
        changed
    }

    async fn change_plain(
        &self,
        charges: &[Charge],
        amendment: Amendment,
        until: Instant,
    ) -> Result<bool, StoreError> {
        let mut call = self.call(amendment.name());
        let mut names = Names::default();
        for charge in charges {
            let (amount, moment): (u64, u64) = match amendment {
                Amendment::Block(length) | Amendment::Override(_, length) => {
                    (length.min(Micros::LONGEST).get(), 0)
                }
                Amendment::GiveBack(departure) => (charge.cost.into(), departure.begins().get()),
                Amendment::Release => (charge.cost.into(), charge.slot.map_or(0, Slot::number)),
                Amendment::TakeBack(taken) => (charge.cost.into(), taken.until().get()),
                _ => (charge.cost.into(), 0),
            };
            self.put(&mut call, &mut names, charge, amount, moment);
        }
        if let Amendment::Override(limit, _) = amendment
            && let Some(charge) = charges.first()
            && let Some(numbers) = self.numbers(charge, limit)
        {
            call.numbers(numbers);
        }
        let answer = self.run(&self.amend, &call, charges, until).await;
        if answer.is_ok() && matches!(amendment, Amendment::Release) {
            self.has_written(charges);
        }
        self.watched(answer.map(|answer| answer == DONE))
    }

    /// Changes what tenants have used of limits that are divided.
    async fn change_shares(
        &self,
        charges: &[Charge],
        amendment: Amendment,
        until: Instant,
    ) -> Result<bool, StoreError> {
        let mut call = self.call(amendment.name());
        let mut names = Names::default();
        for charge in charges {
            let moment = match amendment {
                Amendment::TakeBack(taken) => taken.until().get(),
                Amendment::GiveBack(departure) => departure.begins().get(),
                Amendment::Release => charge.slot.map_or(0, Slot::number),
                _ => 0,
            };
            self.put_tenant(&mut call, &mut names, charge, moment);
        }
        let answer = self.run(&self.amend_shares, &call, charges, until).await;
        if answer.is_ok() && matches!(amendment, Amendment::Release) {
            self.has_written(charges);
        }
        self.watched(answer.map(|answer| answer == DONE))
    }

    /// Adds a charge of a tenant to a call, if its limit is divided.
    fn put_tenant(&self, call: &mut Call, names: &mut Names, charge: &Charge, more: u64) {
        let Some(policy) = self.policies.get(charge.policy) else {
            return;
        };
        let (Some(lua), Some(scale)) = (policy.lua, policy.scale) else {
            return;
        };
        let key = names.name(&self.prefix, &charge.key.root(), &policy.suffix);
        let tenant = self.tenant(&key, policy, charge);
        call.key(key);
        call.key(tenant.tenants);
        call.argument(lua.name);
        call.numbers([charge.cost.into(), more]);
        call.numbers(lua.numbers.into_iter().chain(scale));
        call.argument(tenant.weight);
        call.argument(tenant.field);
    }

    /// Returns the part that the tenant of a charge has of a limit that is divided.
    pub(super) async fn tenant_share(&self, charge: &Charge) -> Result<TenantShare, StoreError> {
        let mut call = self.call("share");
        self.put_tenant(&mut call, &mut Names::default(), charge, 0);
        let until = self.link.deadline();
        let answer = self.run(&self.amend_shares, &call, &[*charge], until).await;
        let read = |answer| match answer {
            Value::Array(numbers) => match numbers[..] {
                [Value::Int(others), Value::Int(weights)] => {
                    let others = u32::try_from(others).ok()?;
                    let weights = u64::try_from(weights).ok()?;
                    Some(TenantShare::beside(charge.weight.into(), others, weights))
                }
                _ => None,
            },
            _ => None,
        };
        read(self.watched(answer)?).ok_or_else(|| nonsense(NOT_READ))
    }

    /// Changes what was used of limits that are guaranteed in part to children.
    async fn change_guarantees(
        &self,
        charges: &[Charge],
        all: &[Charge],
        amendment: Amendment,
        until: Instant,
    ) -> Result<bool, StoreError> {
        let mut call = self.call(amendment.name());
        let mut names = Names::default();
        for charge in charges {
            let Some(policy) = self.policies.get(charge.policy) else {
                continue;
            };
            let (Some(lua), Some(guarantee)) = (policy.rule(charge), policy.guarantee) else {
                continue;
            };
            let key = names.name(&self.prefix, &charge.key, &policy.suffix);
            let child = child(&key, charge, guarantee, all);
            let lasts = match amendment {
                Amendment::TakeBack(taken) => taken.until().get(),
                _ => 0,
            };
            call.key(key);
            call.key(child.children);
            call.argument(lua.name);
            call.numbers([charge.cost.into(), lasts]);
            call.numbers(lua.numbers);
            call.argument(guarantee.units);
            call.argument(child.name);
        }
        let answer = self
            .run(&self.amend_guarantees, &call, charges, until)
            .await;
        self.watched(answer.map(|answer| answer == DONE))
    }

    /// Returns how many refusals of the key count now.
    pub(super) async fn refusals(&self, charge: &Charge) -> Result<u32, StoreError> {
        let policy = self.policies.get(charge.policy);
        let Some(named) = policy.and_then(|policy| policy.penalty.as_ref()) else {
            return Ok(0);
        };
        let [_, within, ..] = named.penalty.numbers();
        self.count("refusals", charge, within).await
    }

    /// Returns how many units of the key nodes hold; of a limit that is divided, those of all tenants.
    pub(super) async fn leased(&self, charge: &Charge) -> Result<u32, StoreError> {
        if !self.divides(charge) {
            return self.count("leased", charge, 0).await;
        }
        let mut call = self.call("leased");
        self.put_tenant(&mut call, &mut Names::default(), charge, 0);
        self.counted(&self.amend_shares, &call, charge).await
    }

    /// Returns what the script counts by this verb, which changes nothing.
    async fn count(
        &self,
        verb: &'static str,
        charge: &Charge,
        amount: u64,
    ) -> Result<u32, StoreError> {
        let mut call = self.call(verb);
        self.put(&mut call, &mut Names::default(), charge, amount, 0_u64);
        self.counted(&self.amend, &call, charge).await
    }

    /// Returns what this script counts for a charge.
    async fn counted(
        &self,
        script: &Script,
        call: &Call,
        charge: &Charge,
    ) -> Result<u32, StoreError> {
        let until = self.link.deadline();
        let answer = self.run(script, call, &[*charge], until).await;
        match self.watched(answer)? {
            Value::Int(counting) => Ok(u32::try_from(counting).unwrap_or(0)),
            _ => Ok(0),
        }
    }

    /// Returns the numbers of a policy's algorithm under this limit, or `None` if it cannot have that limit.
    pub(super) fn numbers(&self, charge: &Charge, limit: Limit) -> Option<[u64; 4]> {
        let policy = self.policies.get(charge.policy)?;
        let lua = policy.algorithm.without_hours().under(limit)?.lua()?;
        Some(lua.numbers_at(|| self.now()))
    }

    /// Runs an operation for a request of this key that takes this many calls one after the other, in the store's own runtime.
    /// It is dropped with the reply.
    pub(super) fn apart_in_time<T: Send + 'static>(
        self: &Arc<Self>,
        (key, calls): (Key, u32),
        operation: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Reply<Result<T, StoreError>> {
        let of = Arc::clone(self);
        Reply::later(async move {
            let done = of.link.run((&of.watch, &key), calls, operation).await;
            done.unwrap_or_else(|error| Err(failure(error)))
        })
    }

    /// Runs an operation in the store's own runtime, however long it takes. It is dropped with the reply.
    ///
    /// It is under way from now on, and not only when its task begins.
    pub(super) fn apart<T: Send + 'static>(
        self: &Arc<Self>,
        operation: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Reply<Result<T, StoreError>> {
        let amending = Amending::begin(self);
        Reply::later(async move {
            let background = &amending.0.link.background;
            let done = background.run(operation).await;
            done.unwrap_or_else(|error| Err(failure(error.into())))
        })
    }

    /// Runs a script with keys of one server, in the store's own runtime.
    pub(super) async fn run(
        &self,
        script: &Script,
        call: &Call,
        charges: &[Charge],
        until: Instant,
    ) -> Result<Value, StoreError> {
        let waiting = charges
            .first()
            .map(|charge| self.watch.waiting(&charge.key));
        let answer = script.run(&self.link, call, until).await;
        if let Some(waiting) = waiting {
            waiting.end(failure_of([&answer]).as_ref());
        }
        answer.map_err(failure)
    }

    /// Records that the server of these charges writes.
    pub(super) fn has_written(&self, charges: &[Charge]) {
        if let Some(charge) = charges.first() {
            self.watch.has_written(&charge.key);
        }
    }

    pub(super) fn watched<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &answer
            && is_of_some(error)
        {
            self.watch.log_partial(error);
        }
        answer
    }

    /// Takes as many units as there are, in one call: the keys have to be of one server.
    pub(super) async fn take(&self, charges: &[Charge]) -> Result<(u32, ScriptReply), StoreError> {
        let until = self.link.deadline();
        if self.groups(charges).len() > 1 {
            let cause = "the policies count different keys, which may be on several servers";
            return Err(StoreError::new(StoreErrorKind::Unsupported).caused_by(cause));
        }
        if charges.iter().any(|charge| self.has_parts(charge)) {
            return self.take_of_parts(charges, until).await;
        }
        let mut call = self.call("take");
        let mut names = Names::default();
        for charge in charges {
            let is_soft = charge.softness().into();
            self.put(&mut call, &mut names, charge, charge.cost, is_soft);
        }
        if charges.iter().any(|charge| charge.alternative.is_some()) {
            for charge in charges {
                let place = charge.alternative();
                call.place(place.map(|place| (place.group(), place.rank())));
            }
        }
        let answer = self.run(&self.take, &call, charges, until).await;
        let answer = self.watched(answer.and_then(|value| ScriptReply::of_taking(value, charges)));
        if let Ok((1.., _)) = &answer {
            self.has_written(charges);
        }
        answer
    }

    /// Returns a query about these charges of a request, which has all those.
    fn query(
        &self,
        verb: &'static str,
        (charges, all): (&[Charge], &[Charge]),
        until: Instant,
    ) -> Query {
        let mut query = Query::new(verb, self.moment(), until);
        let mut names = Names::default();
        for charge in charges {
            if let Some(policy) = self.policies.get(charge.policy) {
                self.add(&mut query, &mut names, (policy, charge), all, None);
            }
        }
        query
    }

    /// Takes as many units as there are, where others have a part of a limit.
    async fn take_of_parts(
        &self,
        charges: &[Charge],
        until: Instant,
    ) -> Result<(u32, ScriptReply), StoreError> {
        let query = self.query("take", (charges, charges), until);
        let value = self.charge.run(query).await;
        let answer = value.map_err(failure);
        let answer = answer.and_then(|value| ScriptReply::of_taking(value, charges));
        let answer = self.watched(answer);
        if let Ok((1.., _)) = &answer {
            self.has_written(charges);
        }
        answer
    }

    /// Changes these charges, one server after the other. `all` are those of the request.
    pub(super) async fn change_each(
        &self,
        charges: &[Charge],
        all: &[Charge],
        amendment: Amendment,
    ) -> Result<bool, StoreError> {
        self.epochs.advance(charges);
        if amendment.ends_leases() {
            self.changes.advance(charges);
        }
        // A request may be denied in between. And if the call fails, the server may have executed it.
        let _forgetting = Forgetting(self, charges);
        let _ending = amendment.ends_leases().then(|| Ending(self, charges));
        let mut changed = Ok(amendment.answer_about_none());
        let groups = match amendment {
            // The same limit has other numbers under another policy.
            Amendment::Override(..) => charges
                .iter()
                .map(|one| Charges::from_slice(&[*one]))
                .collect(),
            _ => self.groups(charges),
        };
        for group in groups {
            // The failure of one server is no reason to skip the others, so each call has time of its own.
            let until = self.link.deadline();
            let of_group = self.change(&group, all, amendment, until).await;
            changed = changed.and_then(|all| of_group.map(|it| amendment.and(all, it)));
        }
        changed
    }

    /// Returns the numbers of the rule of slots: the limit, how long a slot lasts, and the identity of the
    /// slot.
    fn numbers_of_slots(&self, policy: &OpenedPolicy, charge: &Charge) -> [u64; 4] {
        let limit = charge.limit.map(Limit::size).or(policy.algorithm.limit());
        let slot = charge.slot.map_or(0, Slot::number);
        [limit.unwrap_or(0).into(), self.slot_life.get(), slot, 0]
    }

    /// Frees slots.
    pub(super) async fn release(&self, charges: &[Charge]) -> Result<bool, StoreError> {
        self.change_each(charges, charges, Amendment::Release).await
    }

    pub(super) fn counts(&self, charge: &Charge) -> bool {
        let policy = self.policies.get(charge.policy);
        policy.is_some_and(|policy| policy.lua.is_some())
    }

    /// Returns whether the request of this charge holds slots.
    pub(super) fn holds(&self, charge: &Charge) -> bool {
        let policy = self.policies.get(charge.policy);
        policy.is_some_and(|policy| matches!(policy.algorithm, Algorithm::Concurrency(_)))
    }

    /// Returns the time by this node's clock, or by the clock of a test.
    pub(super) fn now(&self) -> Micros {
        if let Some(clock) = &self.clock {
            return clock.now();
        }
        Micros::by_this_node()
    }

    pub(super) fn call(&self, verb: impl Display) -> Call {
        let mut call = Call::at(self.moment());
        call.argument(verb);
        call
    }

    /// Adds a charge to a call.
    pub(super) fn put(
        &self,
        call: &mut Call,
        names: &mut Names,
        charge: &Charge,
        amount: impl Display,
        more: u64,
    ) {
        let Some(policy) = self.policies.get(charge.policy) else {
            return;
        };
        let Some(lua) = policy.rule(charge) else {
            return;
        };
        if policy.scale.is_some() {
            call.key(InBraces::of_tenant(&charge.key).state_key(&self.prefix, &policy.suffix));
        } else {
            call.key(names.name(&self.prefix, &charge.key, &policy.suffix));
        }
        call.argument(lua.name);
        let numbers = lua.numbers_at(|| self.now());
        call.argument(amount);
        call.numbers(once(more).chain(numbers));
        call.argument(lua.hours_at(|| self.now()));
    }
}

/// Returns the child of a charge, whose key has its state under this name: the key of the policy below, if the request is charged there.
fn child(state_key: &str, charge: &Charge, guarantee: Guarantee, all: &[Charge]) -> Child {
    let child = all.iter().find(|child| child.policy == guarantee.child);
    let name = child.map(|child| {
        let root = child.key.root();
        if root == charge.key.root() {
            format!("={}", below_root(&child.key))
        } else {
            child.key.name().to_string()
        }
    });
    Child {
        children: format!("{state_key}:children"),
        name: name.unwrap_or_default(),
    }
}

/// Forgets the remembered denials of these keys when it is dropped.
pub(super) struct Forgetting<'a>(pub(super) &'a Calls, pub(super) &'a [Charge]);

impl Drop for Forgetting<'_> {
    fn drop(&mut self) {
        self.0.epochs.advance(self.1);
    }
}

/// Ends the leases of these keys that were made meanwhile, when it is dropped.
struct Ending<'a>(&'a Calls, &'a [Charge]);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.changes.advance(self.1);
    }
}

/// The name of the last key: most charges of a request are of one key.
#[derive(Default)]
pub(super) struct Names(Option<(Key, InBraces)>);

impl Names {
    pub(super) fn name(&mut self, prefix: &str, key: &Key, suffix: &str) -> String {
        let name = match &self.0 {
            Some((named, name)) if named == key => name,
            _ => &self.0.insert((*key, InBraces::of(key))).1,
        };
        name.state_key(prefix, suffix)
    }
}
