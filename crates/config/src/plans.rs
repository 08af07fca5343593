//! Plans, and how the plan of a request is found.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderName;

use super::functions::PlanOf;
use super::keys::{ReadKey, networks as networks_of};
use super::levels::Declared;
use super::limits::{Own, limit};
use super::shape::{Shape, TEXTS};
use super::vocabulary::{Vocabulary, setting};
use super::walk::{At, Name, TableAt};
use tower_ratelimit::decision::LimitRule;
use tower_ratelimit::key::{self, Extract, Head, IntoKey, Key};
use tower_ratelimit::plan::{Plan, Plans};

pub(super) static PLAN_OF: Vocabulary<()> = Vocabulary(&[
    setting("header")
        .says("The plan is the value of this header.")
        .together(Shape::Text),
    setting("from")
        .says("The networks of the gateways that set the header. It is not read from other peers.")
        .together(TEXTS),
    setting("function")
        .says("The plan is what code has registered.")
        .together(Shape::Text),
    setting("key")
        .says("The plan is that of this key in `plans`.")
        .together(Shape::Named("key")),
    setting("plans")
        .says("The plans of keys.")
        .together(Shape::Secret(&Shape::Map(&Shape::Text))),
]);

/// The plans, and the source of a request's plan.
#[derive(Clone)]
pub(super) struct ReadPlans {
    /// Their names, in the order of the file.
    pub(super) names: Vec<String>,
    pub(super) plans: Plans,
    /// `None` if only a resolver names them.
    pub(super) plan_of: Option<Arc<PlanOf>>,
    /// Whether the file says why a client cannot choose its plan, though a header may have it.
    pub(super) are_verified: bool,
}

/// Reads the plans of a file, if it has any.
pub(super) fn plans(root: &TableAt<'_>, policies: &[Declared<'_>]) -> Option<ReadPlans> {
    let Some(at) = root.get("plans") else {
        for field in ["plan_of", "default_plan"] {
            if let Some(at) = root.get(field).filter(|_| root.lacks("plans")) {
                at.refuse::<()>(format!(
                    "there are no plans; add [plans.NAME] or leave `{field}` out"
                ));
            }
        }
        return None;
    };
    let entries = at.entries()?;
    if entries.is_empty() {
        return at.refuse("there is no plan; add [plans.NAME] or leave `plans` out");
    }
    let own = policies.iter().map(|Declared { name, policy, .. }| {
        let own = Own {
            limit: policy.as_ref().map(|policy| policy.unkeyed.algorithm()),
            unit: policy.as_ref().and_then(|policy| policy.counts.unit),
        };
        (name.as_str(), own)
    });
    let own: Known<'_, _> = own.collect();
    let mut plans = Vec::new();
    for (name, at) in &entries {
        if name.text.is_empty() {
            at.refuse_name::<()>(*name, "a plan needs a name");
        }
        plans.push(plan(name.text, at, &own));
        note_shares(name.text, at, policies);
    }
    warn_of_unmentioned(policies, &entries);
    let names: Known<'_, ()> = entries.iter().map(|(name, _)| (name.text, ())).collect();
    let default = root
        .need(
            "default_plan",
            "name the plan of requests without one, which should not be the largest",
        )
        .and_then(|at| known_plan(at, &names));
    let plan_of = match root.get("plan_of") {
        None if root.get("resolver").is_some() => Some(None),
        None if !root.lacks("plan_of") => None,
        None => root.at.refuse(
            "`plan_of` is missing; say how the plan of a request is found, such as plan_of = { function = \"customer\" }",
        ),
        Some(at) => plan_of(at, &names).map(Some),
    };
    let plans: Vec<Plan> = plans.into_iter().collect::<Option<_>>()?;
    Some(ReadPlans {
        names: names.in_order.into_iter().map(str::to_owned).collect(),
        plans: Plans::new(plans).default_plan(default?),
        plan_of: plan_of?,
        are_verified: root
            .get("plan_of")
            .is_some_and(|at| at.field("function").is_none()),
    })
}

/// What has a name in the file.
struct Known<'w, T> {
    in_order: Vec<&'w str>,
    by_name: HashMap<&'w str, T>,
}

impl<'w, T> FromIterator<(&'w str, T)> for Known<'w, T> {
    fn from_iter<I: IntoIterator<Item = (&'w str, T)>>(named: I) -> Self {
        let mut known = Self {
            in_order: Vec::new(),
            by_name: HashMap::new(),
        };
        for (name, its) in named {
            known.in_order.push(name);
            known.by_name.insert(name, its);
        }
        known
    }
}

/// Warns of each policy of which no plan speaks.
fn warn_of_unmentioned(policies: &[Declared<'_>], plans: &[(Name<'_>, At<'_>)]) {
    let mentioned = plans.iter().flat_map(|(_, plan)| plan.fields());
    let mut mentioned: HashSet<&str> = mentioned.map(|(policy, _)| policy).collect();
    for Declared {
        name,
        table,
        share_of,
        ..
    } in policies
    {
        let follows = share_of.as_deref();
        if follows.is_some_and(|whole| mentioned.contains(whole)) {
            mentioned.insert(name);
        }
        // A plan gives a tenant of a limit that is divided a weight, and may set no limit.
        let is_for_no_plan = ["ignore_plans", "fair"]
            .iter()
            .any(|field| table.get(field).is_some());
        if !mentioned.contains(name.as_str()) && !is_for_no_plan {
            table.at.warn(
                "no plan speaks of it, so it has its own limit under all plans; give it a limit in a plan, or say \
                 ignore_plans = true",
            );
        }
    }
}

fn known_plan<'w>(at: &At<'w>, names: &Known<'_, ()>) -> Option<&'w str> {
    let text = at.text()?;
    if names.by_name.contains_key(text) {
        return Some(text);
    }
    at.unknown("plan", text, &names.in_order)
}

fn plan(name: &str, at: &At<'_>, policies: &Known<'_, Own<'_>>) -> Option<Plan> {
    let mut plan = Plan::new(name);
    for (policy, at) in at.entries()? {
        let Some(own) = policies.by_name.get(policy.text) else {
            at.unknown_name("policy", policy, &policies.in_order);
            continue;
        };
        if let Some(limit) = limit(&at, policy.text, *own) {
            at.gives(policy.text, LimitRule::Plan(name.into()));
            plan = plan.limit(policy.text, limit);
        }
    }
    Some(plan)
}

/// Notes that a plan gives each level with a share its limit where it gives that of the level above.
fn note_shares(plan: &str, at: &At<'_>, policies: &[Declared<'_>]) {
    let mut given: HashMap<&str, At<'_>> = at.fields().into_iter().collect();
    for Declared { name, share_of, .. } in policies {
        let whole = share_of
            .as_ref()
            .and_then(|whole| given.get(whole.as_str()));
        if let Some(whole) = whole.cloned()
            && !given.contains_key(name.as_str())
        {
            whole.gives(name, LimitRule::Plan(plan.into()));
            given.insert(name, whole);
        }
    }
}

fn plan_of(at: &At<'_>, names: &Known<'_, ()>) -> Option<Arc<PlanOf>> {
    let table = at.table(&PLAN_OF)?;
    table.either("header", "function");
    table.either("header", "key");
    table.either("function", "key");
    let finds = ["header", "function", "key"];
    if finds.iter().any(|field| table.get(field).is_some()) {
        for (field, of) in [("from", "header"), ("plans", "key")] {
            if let (Some(at), None) = (table.get(field), table.get(of)) {
                at.refuse::<()>(format!(
                    "`{field}` goes with `{of}`, which is not there; leave it out"
                ));
            }
        }
    }
    if let Some(at) = table.get("function") {
        return at.registered();
    }
    if let Some(at) = table.get("key") {
        let key = at.common().key(at);
        let plans = table
            .need("plans", "give each key its plan")
            .and_then(|at| by_key(at, key.as_ref().is_some_and(|key| key.is_address), names));
        return Some(plan_by_key(key?, plans?));
    }
    let Some(at) = table.get("header") else {
        if table.has_unknown() {
            return None;
        }
        return table
            .at
            .refuse("`plan_of` needs `header` with `from`, `function`, or `key` with `plans`");
    };
    let text = at.text()?;
    at.reads_header(text);
    let header = text.parse::<HeaderName>().ok();
    let header = header.or_else(|| at.expected("the name of a header"));
    let networks = table.need(
        "from",
        "name the networks of the gateways that set the header: a client that chooses its plan has the largest one",
    );
    let is_gateway = networks.and_then(|at| at.made(key::peer_ip().try_within(networks_of(at)?)));
    let (header, is_gateway) = (header?, is_gateway?);
    Some(Arc::new(move |head: &Head<'_>| {
        let plan = head.headers().get(&header)?;
        if !is_gateway(head) {
            return None;
        }
        plan.to_str().ok().map(str::to_owned)
    }))
}

fn by_key(at: &At<'_>, is_address: bool, names: &Known<'_, ()>) -> Option<HashMap<Key, String>> {
    let mut plans = HashMap::new();
    let mut seen: HashMap<Key, String> = HashMap::new();
    for (name, at) in at.entries()? {
        let key = if is_address {
            let Ok(address) = name.text.parse::<IpAddr>() else {
                let message = format!(
                    "{} is not an address; write one such as 192.0.2.1",
                    name.shown()
                );
                at.refuse_name::<()>(name, message);
                continue;
            };
            address.into_key()
        } else {
            name.text.into_key()
        };
        if let Some(before) = seen.insert(key, at.place()) {
            at.refuse_name::<()>(
                name,
                format!("it is the same key as that of {before}; leave one of them"),
            );
        }
        if let Some(plan) = known_plan(&at, names) {
            plans.insert(key, plan.to_owned());
        }
    }
    Some(plans)
}

fn plan_by_key(key: ReadKey, plans: HashMap<Key, String>) -> Arc<PlanOf> {
    Arc::new(move |head: &Head<'_>| plans.get(&key.key.plain(head).ok()?).cloned())
}
