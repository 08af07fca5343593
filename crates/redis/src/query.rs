//! Requests for the scripts that decide, and the calls that are made of them.

use std::iter::once;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::batcher::Operation;
use super::lease::{Terms, UnitsRequest};
use super::link::Link;
use super::opened::{LimitOfCharge, OpenedPolicy, Rule, place, rules_of};
use super::script::{Call, Script};
use tower_ratelimit_core::__internal::Allotment;
use tower_ratelimit_core::__internal::Lua;
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::key::Key;
use tower_ratelimit_core::store::Charge;

/// A request for the script to decide.
#[derive(Debug)]
pub(super) struct Query {
    kind: Kind,
    until: Instant,
    /// The key of the first charge.
    key: Key,
    charges: SmallVec<[QueryCharge; 2]>,
}

/// The settings that all requests of a call have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Kind {
    verb: &'static str,
    /// The time, if the server does not use its own.
    moment: Option<Micros>,
    /// Whether some charges are one of several, of which one is made.
    chooses: bool,
    /// Whether some limits are divided among tenants, or guaranteed in part to children.
    divides: bool,
}

/// Who asks under a limit of which others have a part.
#[derive(Debug)]
pub(super) enum Asker {
    /// A tenant of a limit that is divided.
    Tenant(Tenant),
    /// A child of a key that guarantees it something.
    Child(Child),
}

#[derive(Debug)]
pub(super) struct Tenant {
    /// The key under which all tenants are.
    pub(super) tenants: String,
    /// The key of its own, which has its blocks.
    pub(super) home: String,
    /// Its name among them.
    pub(super) field: String,
    pub(super) weight: u8,
}

#[derive(Debug)]
pub(super) struct Child {
    /// The key under which all children are.
    pub(super) children: String,
    /// Its name among them; empty if the request has none.
    pub(super) name: String,
}

#[derive(Debug)]
struct QueryCharge {
    key: String,
    rule: Rule,
    cost: u32,
    softness: u8,
    /// Its place among charges of which one is made: the group, and the rank in it.
    place: Option<(u8, u8)>,
    /// Who asks, if others have a part of the limit.
    asker: Option<Box<Asker>>,
    /// The question to the script that grants units.
    ask: Option<Box<UnitsRequest>>,
}

/// The scripts that decide requests of some policies.
pub(super) struct Deciding {
    policies: Arc<[OpenedPolicy]>,
    script: Script,
    /// The script for requests of which one of several charges is made.
    choosing: Script,
    /// The script for requests under limits that are divided, or guaranteed in part.
    dividing: Script,
    lending: Option<Lending>,
}

/// The script that also grants units, and the terms of each policy whose units are leased.
struct Lending {
    script: Script,
    terms: Box<[Option<Terms>]>,
}

/// The verb of the script that grants units.
pub(super) const LEASE: &str = "lease";

impl Query {
    /// Creates a query with the verb `charge`, `peek`, `deny`, [`LEASE`], or `take` where others have a part of a limit, at this moment or that of the
    /// server's clock, which waits for its answer until `until`.
    pub(super) fn new(verb: &'static str, moment: Option<Micros>, until: Instant) -> Self {
        Self {
            kind: Kind {
                verb,
                moment,
                chooses: false,
                divides: false,
            },
            until,
            key: Key::MISSING,
            charges: SmallVec::new(),
        }
    }

    /// Adds a charge, whose state is under this key.
    pub(super) fn charge(
        &mut self,
        key: String,
        charge: &Charge,
        (limit, ask): (LimitOfCharge, Option<Box<UnitsRequest>>),
        asker: Option<Box<Asker>>,
    ) {
        if self.charges.is_empty() {
            self.key = charge.key;
        }
        let place = charge.alternative();
        let place = place.map(|place| (place.group(), place.rank()));
        self.kind.chooses |= place.is_some();
        self.kind.divides |= asker.is_some() && self.kind.verb != LEASE;
        self.charges.push(QueryCharge {
            key,
            rule: Rule {
                policy: charge.policy,
                limit,
            },
            cost: charge.cost,
            softness: charge.softness(),
            place,
            asker,
            ask,
        });
    }

    /// Returns whether another query is of the same charges, perhaps for other keys.
    fn is_like(&self, other: &Self) -> bool {
        let what = |charge: &QueryCharge| {
            let QueryCharge {
                rule,
                cost,
                softness,
                place,
                ..
            } = *charge;
            (rule, cost, softness, place)
        };
        self.charges
            .iter()
            .map(what)
            .eq(other.charges.iter().map(what))
    }
}

impl Operation for Query {
    type Encoder = Deciding;

    /// With fewer, a request on a busy node waits longer: for a good part of a round trip. With more, a runtime of several
    /// threads shares less.
    const FEW_CALLS: usize = 8;
    const MOST_CALLS: usize = usize::MAX;
    /// Beyond that, sharing saves the server nothing.
    const MOST_TOGETHER: usize = 32;
    const IS_REQUEST: bool = true;

    fn key(&self) -> &Key {
        &self.key
    }

    fn until(&self, _: &Link) -> Instant {
        self.until
    }

    fn fits_behind(&self, first: &Self) -> bool {
        self.kind == first.kind
    }

    fn charges(&self) -> usize {
        self.charges.len()
    }

    fn encode<'a>(
        encoder: &'a Deciding,
        queries: impl Iterator<Item = &'a Self> + Clone,
    ) -> (&'a Script, Call) {
        let kind = queries.clone().next().map(|query| query.kind);
        match &encoder.lending {
            Some(lending) if kind.is_some_and(|kind| kind.verb == LEASE) => {
                (&lending.script, encoder.leases(lending, queries))
            }
            _ if kind.is_some_and(|kind| kind.chooses) => {
                (&encoder.choosing, encoder.decisions(queries))
            }
            _ if kind.is_some_and(|kind| kind.divides) => {
                (&encoder.dividing, encoder.divisions(queries))
            }
            _ => (&encoder.script, encoder.decisions(queries)),
        }
    }
}

/// Returns this driver behind the rules that it needs, of which most stores need none.
pub(super) fn dividing(policies: &[OpenedPolicy], driver: &str) -> String {
    let rules = [
        (
            policies.iter().any(OpenedPolicy::divides_rates),
            Allotment::SHARES,
        ),
        (
            policies.iter().any(OpenedPolicy::divides_slots),
            Allotment::SLOTS,
        ),
        (
            policies.iter().any(|policy| policy.guarantee.is_some()),
            Allotment::GUARANTEES,
        ),
    ];
    let needed = rules.into_iter().filter(|(is_needed, _)| *is_needed);
    let needed = needed.map(|(_, rule)| rule);
    needed.chain(once(driver)).collect()
}

/// Returns this driver behind the rule of shares of slots, if any are divided.
pub(super) fn dividing_slots(policies: &[OpenedPolicy], driver: &str) -> String {
    let divides = policies.iter().any(OpenedPolicy::divides_slots);
    let rule = if divides { Allotment::SLOTS } else { "" };
    [rule, driver].concat()
}

impl Call {
    /// Adds the tenant of a charge, behind the charge and its key.
    fn tenant(&mut self, tenant: &Tenant) {
        self.argument(tenant.weight);
        self.argument(&tenant.field);
        self.key(&tenant.tenants);
        self.key(&tenant.home);
    }
}

impl Deciding {
    pub(super) fn new(policies: &Arc<[OpenedPolicy]>, terms: Option<Box<[Option<Terms>]>>) -> Self {
        let lending = terms.map(|terms| {
            let leased = policies.iter().zip(&terms);
            let leased = leased.filter(|(_, terms)| terms.is_some());
            let divides = leased.clone().any(|(policy, _)| policy.divides_rates());
            let leased: Vec<Lua> = leased.filter_map(|(policy, _)| policy.lua).collect();
            let shares = if divides { Allotment::SHARES } else { "" };
            let driver = [shares, include_str!("lease/lease.lua")].concat();
            Lending {
                script: Script::of(&leased, &driver),
                terms,
            }
        });
        let rules: Vec<Lua> = policies.iter().filter_map(|policy| policy.lua).collect();
        Self {
            policies: Arc::clone(policies),
            script: Script::of(&rules, include_str!("charge.lua")),
            choosing: Script::of(&rules, include_str!("first_of.lua")),
            dividing: Script::of(&rules, &dividing(policies, include_str!("divided.lua"))),
            lending,
        }
    }

    /// Makes a call of the script that grants units.
    fn leases<'a>(
        &self,
        lending: &Lending,
        queries: impl Iterator<Item = &'a Query> + Clone,
    ) -> Call {
        let moment = queries.clone().find_map(|query| query.kind.moment);
        let mut call = Call::at(moment);
        let charges = queries.clone().flat_map(|query| &query.charges);
        let rules = rules_of(charges.map(|charge| charge.rule));
        call.argument(rules.len());
        for rule in &rules {
            let (name, numbers) = rule.name_and_numbers(&self.policies, moment);
            call.argument(name);
            call.numbers(numbers);
            let terms = lending.terms.get(rule.policy).copied().flatten();
            call.numbers(terms.map_or([0; 5], Terms::numbers));
            let policy = self.policies.get(rule.policy);
            if let Some(scale) = policy.and_then(|policy| policy.scale) {
                call.argument("shares");
                call.numbers(scale);
            }
        }
        let nothing = UnitsRequest::default();
        for query in queries {
            call.argument(query.charges.len());
            for charge in &query.charges {
                let ask = charge.ask.as_deref().unwrap_or(&nothing);
                call.argument(place(&rules, &charge.rule));
                call.argument(charge.cost);
                call.argument(charge.softness);
                call.argument(ask.units);
                call.argument(ask.awaited);
                call.argument(ask.seen);
                call.argument(ask.tells.len());
                for tell in &ask.tells {
                    call.argument(tell.end.get());
                    call.argument(tell.spent);
                    call.argument(tell.unspent);
                }
                call.key(&charge.key);
                if let Some(Asker::Tenant(tenant)) = charge.asker.as_deref() {
                    call.tenant(tenant);
                }
            }
        }
        call
    }

    /// Adds the name of a rule with its penalty, and its numbers.
    fn put_rule(&self, call: &mut Call, rule: &Rule, moment: Option<Micros>) {
        let (name, numbers) = rule.name_and_numbers(&self.policies, moment);
        let policy = self.policies.get(rule.policy);
        match policy.and_then(|policy| policy.penalty.as_ref()) {
            None => call.argument(name),
            Some(named) => {
                let penalty = named.penalty.numbers().map(|number| number.to_string());
                call.argument(format_args!("{name}|{}", penalty.join(" ")));
            }
        }
        call.numbers(numbers);
    }

    /// Makes a call of the script that decides under limits of which others have a part.
    fn divisions<'a>(&self, queries: impl Iterator<Item = &'a Query> + Clone) -> Call {
        let kind = queries.clone().next().map(|query| query.kind);
        let moment = kind.and_then(|kind| kind.moment);
        let mut call = Call::at(moment);
        call.argument(kind.map_or("", |kind| kind.verb));
        let charges = queries.clone().flat_map(|query| &query.charges);
        let rules = rules_of(charges.map(|charge| charge.rule));
        call.argument(rules.len());
        for rule in &rules {
            self.put_rule(&mut call, rule, moment);
            let policy = self.policies.get(rule.policy);
            call.numbers(policy.and_then(|policy| policy.scale).unwrap_or_default());
            let guarantee = policy.and_then(|policy| policy.guarantee);
            call.argument(guarantee.map_or(0, |guarantee| guarantee.units));
        }
        for query in queries {
            call.argument(query.charges.len());
            for charge in &query.charges {
                call.argument(place(&rules, &charge.rule));
                call.argument(charge.cost);
                call.argument(charge.softness);
                call.key(&charge.key);
                match charge.asker.as_deref() {
                    Some(Asker::Tenant(tenant)) => call.tenant(tenant),
                    Some(Asker::Child(child)) => {
                        call.argument(0);
                        call.argument(&child.name);
                        call.key(&child.children);
                    }
                    None => {
                        call.argument(0);
                        call.argument("");
                    }
                }
            }
        }
        call
    }

    /// Makes a call of the script that decides.
    fn decisions<'a>(&self, queries: impl Iterator<Item = &'a Query> + Clone) -> Call {
        let kind = queries.clone().next().map(|query| query.kind);
        let moment = kind.and_then(|kind| kind.moment);
        let chooses = kind.is_some_and(|kind| kind.chooses);
        let mut call = Call::at(moment);
        call.argument(kind.map_or("", |kind| kind.verb));
        let charges = queries.clone().flat_map(|query| &query.charges);
        let rules = rules_of(charges.map(|charge| charge.rule));
        call.argument(rules.len());
        for rule in &rules {
            self.put_rule(&mut call, rule, moment);
            let hours = rule.hours(&self.policies, moment);
            if !hours.is_empty() {
                call.argument("hours");
                call.argument(hours);
            }
        }
        let mut left = queries;
        while let Some(first) = left.next() {
            let is_alike = |query: &&Query| query.is_like(first);
            let behind = left.clone().take_while(is_alike).count();
            call.argument(1 + behind);
            call.argument(first.charges.len());
            for charge in &first.charges {
                call.argument(place(&rules, &charge.rule));
                call.argument(charge.cost);
                call.argument(charge.softness);
                if chooses {
                    call.place(charge.place);
                }
            }
            for query in once(first).chain(left.by_ref().take(behind)) {
                for charge in &query.charges {
                    call.key(&charge.key);
                }
            }
        }
        call
    }
}
