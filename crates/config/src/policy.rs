//! A policy: the settings of its table.

use std::ops::Range;
use std::sync::Arc;

use http::StatusCode;

use super::adapt::{CLASS, CLASSES, class};
use super::body_fields::OfPolicy;
use super::conditions;
use super::costs::{COST, COST_TOLD, ESTIMATES, cost, estimated};
use super::endings::{ENDING, SETTLE, SETTLE_WORDS, ending, settle};
use super::fair;
use super::functions::LimitBy;
use super::hours::{HOURS, with_hours};
use super::limits::{Own, QUOTA, algorithm};
use super::limits_by_key::{KEY_LIMITS, check_paths, key_limits, operations};
use super::money::{shown, unit};
use super::shape::{AMOUNT, CONDITIONS, Shape};
use super::terms::{PENALTY, TOP_KEYS, penalty, top_keys};
use super::tree::Value;
use super::vocabulary::{FUNCTION, Vocabulary, setting};
use super::walk::{At, TableAt};
use tower_ratelimit::__internal::AnyKey;
use tower_ratelimit::algorithm::Algorithm;
use tower_ratelimit::decision::LimitRule;
use tower_ratelimit::key::{self, Head};
use tower_ratelimit::policy::{Http, Mode, OnAbandoned, OnMissingKey, OnStoreFailure, Policy};
use tower_ratelimit::usage::Money;

pub(super) static POLICY: Vocabulary<Draft> = Vocabulary(&[
    setting("levels")
        .says("Limits above each other, from the root down, in place of a key.")
        .together(Shape::ListOf(&Shape::Named("level"), [1, 8])),
    setting("algorithm")
        .says("The name of an algorithm, or its whole text; the default is anchored-window.")
        .together(Shape::Text),
    setting("quota")
        .says("A limit and a period: \"100/minute\".")
        .together(Shape::Any(&[Shape::Text, Shape::Table(&QUOTA)])),
    setting("budget")
        .says("The money of the quota, in place of its limit: \"50.00/day\", or for a calendar \"250.00\".")
        .together(Shape::Any(&[Shape::Text, Shape::Decimal])),
    setting("unit")
        .says("The unit in which a budget is counted; the default is 0.000001.")
        .together(Shape::Decimal),
    setting("concurrency")
        .says("How many requests may be in flight at once, in place of a quota.")
        .together(Shape::Integer),
    setting("limit")
        .says("The limit of the quota, in place of `quota`.")
        .together(Shape::Integer),
    setting("per")
        .says("The period of the quota: \"minute\".")
        .together(Shape::Text),
    setting("burst")
        .says("The burst of a bucket.")
        .together(Shape::Integer),
    setting("capacity")
        .says("The capacity of a leaky bucket.")
        .together(Shape::Integer),
    setting("slots")
        .says("The number of slots of sliding-slots.")
        .together(Shape::Integer),
    setting("places")
        .says("The places of a leaky queue.")
        .together(Shape::Integer),
    setting("up_to")
        .says("The most that a sliding log may hold.")
        .together(Shape::Integer),
    setting("key")
        .says("What is counted apart.")
        .together(Shape::Named("key")),
    setting("fair")
        .says("Among whom the limit of the key is divided: the tenant of a request.")
        .together(Shape::Named("key")),
    setting("weights")
        .says("The weight of a tenant by its plan, from 1 to 100, where the limit is divided; the default is 1.")
        .together(Shape::Map(&Shape::Integer)),
    setting("active_for")
        .says("How long a tenant counts that does not ask, where the limit is divided; the default is 1s.")
        .together(Shape::Text),
    setting("most_tenants")
        .says("How many tenants are told apart, from 2 to 1024, where the limit is divided; the others are one.")
        .together(Shape::Integer),
    setting("unverified")
        .says("Whether all tenants that are in no plan by its name are one, or each is one because a gateway has verified it, where the limit is divided; by default each is one.")
        .together(Shape::Word(&fair::UNVERIFIED)),
    setting("cost")
        .says("How many units a request takes; the default is 1.")
        .of(
            Shape::Any(&[
                AMOUNT,
                Shape::Table(&COST_TOLD),
                Shape::List(&Shape::Table(&COST)),
            ]),
            |it, at| {
                let cost = cost(at, it.counts.unit)?;
                Some(it.with(|policy| policy.cost(move |head: &Head<'_>| cost(head))))
            },
        ),
    setting("when")
        .says("The condition under which the policy applies. Of a list, one has to hold.")
        .of(CONDITIONS, |it, at| {
            let when = conditions::any(at)?;
            let it = it.reading(|reads| reads.when = Some(Arc::clone(&when)));
            Some(it.with(|policy| policy.when(move |head: &Head<'_>| when(head))))
        }),
    setting("mode")
        .says("Whether it is enforced, decides in shadow, or is off.")
        .of(Shape::Word(&MODES), |it, at| {
            let mode = at.one_of(&MODES)?;
            Some(it.with(|policy| policy.mode(mode)))
        }),
    setting("renamed_from")
        .says("The name under which the policy began, if it has been renamed.")
        .text(|it, name| it.with(|policy| policy.renamed_from(name))),
    setting("soft")
        .says("Lets requests over the limit go on, marked.")
        .flag(|it| it.with(Policy::soft)),
    setting("announce")
        .says("Whether responses tell of the policy; the default is true.")
        .of(Shape::Flag, |it, at| {
            let is_announced = at.flag()?;
            Some(it.with(|policy| {
                if is_announced {
                    policy
                } else {
                    policy.unannounced()
                }
            }))
        }),
    setting("on_missing_key")
        .says("What happens to requests without a key: a word, or the status of their refusal.")
        .of(
            Shape::Any(&[Shape::Word(&NO_KEY), Shape::Integer]),
            |it, at| {
                let on_missing_key = if at.is_text() {
                    at.one_of(&NO_KEY)?
                } else {
                    OnMissingKey::Refuse(status(at)?)
                };
                Some(it.with(|policy| policy.on_missing_key(on_missing_key)))
            },
        ),
    setting("on_store_failure")
        .says("What happens while the store cannot decide; the default is local.")
        .of(Shape::Word(&ON_STORE_FAILURE), |it, at| {
            let what = at.one_of(&ON_STORE_FAILURE)?;
            Some(it.with(|policy| policy.on_store_failure(what)))
        }),
    setting("wait_up_to")
        .says("How long a denied request may wait for its turn.")
        .time(|it, longest| it.with(|policy| policy.wait_up_to(longest))),
    setting("wait_places")
        .says("How many requests of a key may wait.")
        .integer(|it, places| it.with(|policy| policy.wait_places(places))),
    setting("lease")
        .says("`false` has the store decide on each request, where it leases units to nodes.")
        .of(Shape::Flag, |it, at| {
            let is_leased = at.flag()?;
            Some(if is_leased { it } else { it.with(Policy::without_lease) })
        }),
    setting("ignore_plans")
        .says("Says that the policy has one limit under all plans.")
        .flag(|it| it.with(Policy::ignore_plans)),
    setting("penalty")
        .says("Blocks a key that the policy has refused too often.")
        .of(Shape::Table(&PENALTY), |it, at| {
            let penalty = penalty(at, it.policy.name(), it.own.as_ref())?;
            Some(it.with(|policy| policy.penalty(penalty)))
        }),
    setting("most")
        .says("The most that a request may cost.")
        .of(AMOUNT, Draft::most),
    setting("top_keys")
        .says("The number of heaviest keys in a snapshot; the default is none.")
        .of(
            Shape::Any(&[Shape::Integer, Shape::Table(&TOP_KEYS)]),
            |it, at| {
                let keys = top_keys(at)?;
                Some(it.with(|policy| policy.top_keys(keys)))
            },
        ),
    setting("reserve")
        .says("How many units requests of low priority leave to the others.")
        .of(AMOUNT, Draft::reserve),
    setting("low_priority")
        .says("Which requests are of low priority. Of a list, one has to hold.")
        .of(CONDITIONS, |it, at| {
            let is_low = conditions::any(at)?;
            Some(it.with(|policy| policy.low_priority(move |head: &Head<'_>| is_low(head))))
        }),
    setting("estimate")
        .says(
            "How many units a request is charged when it comes; its real cost is settled at its \
             end.",
        )
        .of(
            Shape::Any(&[
                AMOUNT,
                Shape::Word(&ESTIMATES),
                Shape::Table(&COST_TOLD),
            ]),
            Draft::estimate,
        ),
    setting("settle")
        .says(
            "The source of the real cost of a request. Of a list, the first source that has it \
             counts.",
        )
        .of(
            Shape::OneOrList(&Shape::Any(&[
                Shape::Word(&SETTLE_WORDS),
                Shape::Table(&SETTLE),
            ])),
            |it, at| {
                let settle = settle(at, it.counts.unit)?;
                Some(it.with(|policy| policy.settle(settle)))
            },
        ),
    setting("include_usage")
        .says("Asks services in the language of OpenAI for the usage of a stream, and takes it out of the answer again.")
        .flag(|it| it.reading(|reads| reads.includes_usage = true)),
    setting("charge_when")
        .says("Charges only requests that end so. Of a list, one has to hold.")
        .of(Shape::OneOrList(&Shape::Table(&ENDING)), |it, at| {
            let ends_so = ending(at)?;
            Some(it.with(|policy| policy.charge_when(move |ending| ends_so(ending))))
        }),
    setting("refund_when")
        .says("Gives back what a request was charged that ends so. Of a list, one has to hold.")
        .of(Shape::OneOrList(&Shape::Table(&ENDING)), |it, at| {
            let ends_so = ending(at)?;
            Some(it.with(|policy| policy.refund_when(move |ending| ends_so(ending))))
        }),
    setting("on_abandoned")
        .says("The cost of a request that ends without an answer; the default is estimate.")
        .of(
            Shape::Any(&[Shape::Word(&UNSETTLED), AMOUNT]),
            |it, at| {
                let unsettled = if at.is_text() && !it.is_amount(at) {
                    at.one_of(&UNSETTLED)?
                } else {
                    OnAbandoned::Units(at.units(it.counts.unit)?)
                };
                Some(it.with(|policy| policy.on_abandoned(unsettled)))
            },
        ),
    setting("limit_by")
        .says("Gives the limit of a request, before the limits by key.")
        .of(Shape::Table(&FUNCTION), |it, at| {
            at.gives(it.policy.name(), LimitRule::Closure);
            let limit: Arc<LimitBy> = at.function()?;
            Some(it.with(|policy| policy.limit_by(move |head: &Head<'_>| limit(head))))
        }),
    setting("key_limits")
        .says("Limits by key.")
        .of(Shape::Table(&KEY_LIMITS), |it, at| {
            let limits = key_limits(at, it.policy.name(), it.own(), it.is_address)?;
            Some(it.with(|policy| policy.key_limits(limits)))
        }),
    setting("operation")
        .says("Which of the operations a request is: \"path\", or what a key reads.")
        .of(Shape::Named("key"), |it, at| match &at.node.value {
            Value::Text(text) if text == "path" => Some(Draft {
                is_by_path: true,
                ..it.with(Policy::operation_by_path)
            }),
            _ => {
                let read = at.common().key(at)?;
                Some(it.with(|policy| policy.operation(read.key)))
            }
        }),
    setting("operations")
        .says("Limits by operation, and `other` for all other operations.")
        .of(Shape::Map(&Shape::Named("limit")), |it, at| {
            let operations = operations(at, it.policy.name(), it.own())?;
            if it.is_by_path {
                check_paths(at);
            }
            Some(it.with(|policy| policy.operations(operations)))
        }),
    setting("hours")
        .says("Limits at certain times; outside them, the limit is the policy's own.")
        .of(Shape::Table(&HOURS), |it, at| {
            let policy = with_hours(&it.policy, it.own(), at)?;
            Some(it.with(|_| policy))
        }),
    setting("zone")
        .says("The time zone of a calendar-day, calendar-week, calendar-month or calendar-year.")
        .together(Shape::Text),
    setting("start")
        .says("When a day of a calendar begins: \"06:00\"; the default is midnight.")
        .together(Shape::Text),
    setting("first_day")
        .says("On which day a calendar-week begins; the default is monday.")
        .together(Shape::Word(&[
            "monday",
            "tuesday",
            "wednesday",
            "thursday",
            "friday",
            "saturday",
            "sunday",
        ])),
    setting("adapt")
        .says("Lets the limit follow the load, as the table `adapt` of the file says.")
        .of(Shape::Flag, |it, at| {
            match (at.flag()?, &at.common().factor) {
                (false, _) => Some(it),
                (true, Some(factor)) => Some(it.with(|policy| policy.factor(factor))),
                (true, None) => at.refuse(
                    "the file has no table [adapt], which says what the limit follows; add one",
                ),
            }
        }),
    setting("class")
        .says(
            "The importance of requests under load; the default is critical. Of a list, the \
             first that holds.",
        )
        .of(
            Shape::OneOrList(&Shape::Any(&[Shape::Word(&CLASSES), Shape::Table(&CLASS)])),
            |it, at| {
                let class = class(at)?;
                Some(it.with(|policy| policy.class(move |head: &Head<'_>| class(head))))
            },
        ),
]);

pub(super) static MODES: [(&str, Mode); 3] = [
    ("enforce", Mode::Enforce),
    ("shadow", Mode::Shadow),
    ("off", Mode::Off),
];

static NO_KEY: [(&str, OnMissingKey); 2] = [
    ("shared", OnMissingKey::Shared),
    ("skip", OnMissingKey::Skip),
];

static ON_STORE_FAILURE: [(&str, OnStoreFailure); 3] = [
    ("local", OnStoreFailure::Local),
    ("allow", OnStoreFailure::Allow),
    ("refuse", OnStoreFailure::Refuse),
];

static UNSETTLED: [(&str, OnAbandoned); 2] = [
    ("estimate", OnAbandoned::Estimate),
    ("nothing", OnAbandoned::Nothing),
];

/// A policy for a layer, and the same for a limiter, whose caller passes the key.
#[derive(Debug)]
pub(super) struct ReadPolicy {
    pub(super) keyed: Policy<Http>,
    pub(super) unkeyed: Policy,
    pub(super) counts: Counts,
}

/// Returns policies for a limiter.
pub(super) fn unkeyed_of(policies: &[ReadPolicy]) -> Vec<Policy> {
    let policies = policies.iter();
    policies.map(|policy| policy.unkeyed.clone()).collect()
}

/// What a policy counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// The unit of money, if it counts that.
    pub(super) unit: Option<Money>,
    /// Where the unit stands, or the budget.
    pub(super) span: Option<Range<usize>>,
}

impl Counts {
    fn read(table: &TableAt<'_>) -> Self {
        let at = table.get("unit").or_else(|| table.get("budget"));
        Self {
            unit: unit(table),
            span: at.and_then(|at| at.node.span.clone()),
        }
    }
}

/// Reads a policy. `None` if its limit is unknown.
pub(super) fn policy(name: &str, table: &TableAt<'_>) -> Option<ReadPolicy> {
    let other = table.get("operations").and_then(|at| at.field("other"));
    let counts = Counts::read(table);
    let own = algorithm(table, other.as_ref(), counts.unit);
    let policy = Policy::new(name, own.unwrap_or(Algorithm::Unlimited));
    counting(name, table, policy, own, counts)
}

/// Reads a policy whose limit is a share of this other one's. `None` if its limit is unknown.
pub(super) fn part(
    name: &str,
    table: &TableAt<'_>,
    of: Option<(&ReadPolicy, f64)>,
) -> Option<ReadPolicy> {
    let counts = of.map(|(whole, _)| whole.counts.clone());
    let made = of.and_then(|(whole, share)| {
        let at = table.get("share").unwrap_or(&table.at);
        at.made(whole.unkeyed.share(name, share))
    });
    let own = made.as_ref().map(|part| part.algorithm().without_hours());
    let policy = made.unwrap_or_else(|| Policy::new(name, Algorithm::Unlimited));
    counting(name, table, policy, own, counts.unwrap_or_default())
}

/// Reads the settings of a policy with this limit of its own.
fn counting(
    name: &str,
    table: &TableAt<'_>,
    policy: Policy,
    own: Option<Algorithm>,
    counts: Counts,
) -> Option<ReadPolicy> {
    let at = &table.at;
    let key = table
        .need("key", "say what is counted apart, such as key = \"client_ip\", or key = \"global\" for all requests together")
        .and_then(|at| at.common().key(at));
    limit_of(table).unwrap_or(at).gives(name, LimitRule::Policy);
    let is_address = key.as_ref().is_some_and(|key| key.is_address);
    // Without a key or a limit, the settings are read for their mistakes.
    let key = key.map_or_else(|| AnyKey::new(key::global()), |read| read.key);
    let policy = policy.key(key);
    let mut draft = Draft {
        policy: fair::divided(policy, table),
        own,
        counts,
        is_address,
        is_by_path: false,
        reads: OfPolicy::default(),
    };
    POLICY.apply(table, &mut draft);
    draft.check(table);
    at.walk.reads_bodies(OfPolicy {
        name: Some(name.to_owned()),
        fields: at.walk.take_fields(),
        ..std::mem::take(&mut draft.reads)
    });
    own?;
    Some(ReadPolicy {
        counts: draft.counts,
        unkeyed: draft.policy.unkeyed(),
        keyed: draft.policy,
    })
}

/// The settings of a policy that read no request.
pub(super) const UNKEYED: &[&str] = &[
    "algorithm",
    "quota",
    "limit",
    "per",
    "burst",
    "capacity",
    "slots",
    "up_to",
    "mode",
    "on_store_failure",
    "lease",
    "hours",
    "zone",
    "start",
    "first_day",
    "adapt",
];

/// Reads these settings into a policy with a limit, for callers that pass the key. `None` if the limit is unknown.
pub(super) fn unkeyed(name: &str, own: Option<Algorithm>, table: &TableAt<'_>) -> Option<Policy> {
    let limit = own.unwrap_or(Algorithm::Unlimited);
    let policy = Policy::new(name, limit).key(AnyKey::new(key::global()));
    let mut draft = Draft {
        policy,
        own,
        counts: Counts::default(),
        is_address: false,
        is_by_path: false,
        reads: OfPolicy::default(),
    };
    POLICY.apply(table, &mut draft);
    if table.is_on("adapt") {
        table.either("adapt", "hours");
    }
    own?;
    Some(draft.policy.unkeyed())
}

/// Where the limit of a policy stands; `None` if it has that of all `other` operations.
pub(super) fn limit_of<'t, 'w>(policy: &'t TableAt<'w>) -> Option<&'t At<'w>> {
    let fields = [
        "quota",
        "limit",
        "budget",
        "algorithm",
        "concurrency",
        "share",
    ];
    fields.iter().find_map(|field| policy.get(field))
}

/// A policy to which the settings of its table are applied.
#[derive(Clone)]
pub(super) struct Draft {
    policy: Policy<Http>,
    /// Its own limit outside hours; `None` if that has a mistake.
    own: Option<Algorithm>,
    counts: Counts,
    /// Whether its key is an address.
    is_address: bool,
    /// Whether the names of its operations are prefixes of paths.
    is_by_path: bool,
    /// What it reads of bodies.
    reads: OfPolicy,
}

impl Draft {
    fn with(mut self, set: impl FnOnce(Policy<Http>) -> Policy<Http>) -> Self {
        self.policy = set(self.policy);
        self
    }

    fn reading(mut self, set: impl FnOnce(&mut OfPolicy)) -> Self {
        set(&mut self.reads);
        self
    }

    fn limit(&self) -> Option<u32> {
        self.own.as_ref().and_then(Algorithm::limit)
    }

    fn own(&self) -> Own<'_> {
        Own {
            limit: self.own.as_ref(),
            unit: self.counts.unit,
        }
    }

    /// Returns whether a text is an amount of money.
    fn is_amount(&self, at: &At<'_>) -> bool {
        self.counts.unit.is_some() && at.is_text_of_a_number()
    }

    fn most(self, at: &At<'_>) -> Option<Self> {
        let unit = self.counts.unit;
        let most = at.units(unit)?;
        let highest = self.limit().unwrap_or(u32::MAX).min(u32::MAX - 1);
        if !(1..=highest).contains(&most) {
            return at.refuse(format!(
                "{} is no ceiling; give {} to {}, the limit of the policy",
                shown(most, unit),
                shown(1, unit),
                shown(highest, unit)
            ));
        }
        Some(self.with(|policy| policy.most(most)))
    }

    fn reserve(self, at: &At<'_>) -> Option<Self> {
        let unit = self.counts.unit;
        let reserve = at.units(unit)?;
        match self.limit() {
            Some(limit) if reserve >= limit => at.refuse(format!(
                "{} leaves nothing to low priority; give less than {}, the limit of the policy",
                shown(reserve, unit),
                shown(limit, unit)
            )),
            _ => Some(self.with(|policy| policy.reserve(reserve))),
        }
    }

    fn estimate(self, at: &At<'_>) -> Option<Self> {
        let unit = self.counts.unit;
        if at.is_table() || (at.is_text() && !self.is_amount(at)) {
            let estimate = estimated(at, unit)?;
            let by_all = at.is_text();
            let draft = self.reading(|reads| reads.estimates |= by_all);
            return Some(
                draft.with(|policy| policy.estimate_with(move |head: &Head<'_>| estimate(head))),
            );
        }
        match (at.units(unit)?, self.limit()) {
            (0, _) => at.refuse("a request that asks for nothing is never refused; give 1 or more"),
            (units, Some(limit)) if unit.is_some() && units > limit => at.refuse(format!(
                "{} is more than the budget; give the money of a request, such as \"0.02\", or let its body say how many \
                 tokens it asks for, estimate = \"openai\"",
                shown(units, unit)
            )),
            (units, _) => Some(self.with(|policy| policy.estimate(units))),
        }
    }

    /// Checks the settings that go together, and those that contradict each other.
    fn check(&self, table: &TableAt<'_>) {
        if table.is_on("soft") {
            table.either("soft", "wait_up_to");
            table.either("penalty", "soft");
        }
        table.either("penalty", "wait_up_to");
        table.either("estimate", "cost");
        if table.is_on("adapt") {
            for other in ["key_limits", "operations", "hours", "reserve"] {
                table.either("adapt", other);
            }
        }
        for (field, other, remedy) in PAIRS {
            table.needs(field, other, remedy);
        }
        let costs = ["settle", "cost", "estimate"];
        if let Some(at) = table.get("budget")
            && costs.iter().all(|field| table.lacks(field))
        {
            at.refuse::<()>("nothing says what a request costs; give `settle`, such as settle = \"openai\", or `cost`");
        }
        let settles = ["settle", "charge_when", "refund_when"];
        if let Some(at) = table.get("estimate")
            && settles.iter().all(|field| table.lacks(field))
        {
            at.refuse::<()>(
                "`settle` is missing; say where the real cost is found, such as settle = \"cost\", or say `cost` in place of `estimate`",
            );
        }
        if self.policy.as_ref().shapes() {
            let fields = settles.iter().chain(&["on_abandoned"]);
            for at in fields.filter_map(|field| table.get(field)) {
                at.refuse::<()>(
                    "the places of a queue are not settled; leave it out, and let another policy count the cost",
                );
            }
        }
        if let Err(error) = self.policy.unkeyed().as_ref().check_concurrency() {
            table.at.refuse::<()>(error.to_string());
        }
    }
}

/// Settings that mean nothing without another one.
const PAIRS: [(&str, &str, &str); 7] = [
    (
        "unit",
        "budget",
        "give the money of the policy, such as budget = \"50.00/day\", or leave `unit` out",
    ),
    (
        "include_usage",
        "settle",
        "say what reads the usage, settle = \"openai\"",
    ),
    (
        "reserve",
        "low_priority",
        "say which requests leave the reserve, or leave `reserve` out",
    ),
    (
        "low_priority",
        "reserve",
        "say how many units low priority leaves, or leave `low_priority` out",
    ),
    (
        "operations",
        "operation",
        "say which operation a request is, such as operation = \"method\"",
    ),
    (
        "operation",
        "operations",
        "give limits by operation, or leave `operation` out",
    ),
    (
        "class",
        "adapt",
        "a class matters to policies that follow the load",
    ),
];

/// Reads the status of a refusal.
pub(super) fn status(at: &At<'_>) -> Option<StatusCode> {
    let number: u16 = at.integer()?;
    match StatusCode::from_u16(number) {
        Ok(status) if status.is_client_error() || status.is_server_error() => Some(status),
        _ => at.refuse(format!(
            "{number} is not the status of an error; give 400 to 599"
        )),
    }
}
