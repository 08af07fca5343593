//! Demands of a policy on single requests: a ceiling on the cost, a reserve that low priority leaves, and a
//! penalty for keys that are refused too often.

use super::conditions;
use super::vocabulary::Takes::{Flag, Time, Together, Whole};
use super::vocabulary::{Shape, Vocabulary, setting};
use super::walk::{At, Table};
use crate::algorithm::Algorithm;
use crate::key::Head;
use crate::policy::{HeaviestKeys, Http, Penalty, Policy};

/// Adds the demands of the table, and rejects those that do not fit the limit.
pub(super) fn with_terms(mut policy: Policy, table: &Table<'_>, own: Option<&Algorithm>) -> Policy {
    if let Some(keys) = table.get("heaviest_keys").and_then(|at| heaviest_keys(at)) {
        policy = policy.heaviest_keys(keys);
    }
    let limit = own.and_then(Algorithm::limit);
    policy = with_ceiling(policy, table, limit);
    policy = with_reserve(policy, table, limit);
    policy = with_penalty(policy, table, own);
    if own.is_some_and(Algorithm::is_held)
        && let Err(error) = policy.check_held()
    {
        table.at.refuse::<()>(error.to_string());
    }
    policy
}

fn with_ceiling(policy: Policy, table: &Table<'_>, limit: Option<u32>) -> Policy {
    let Some(at) = table.get("most") else {
        return policy;
    };
    let Some(most) = at.whole::<u32>() else {
        return policy;
    };
    let highest = limit.unwrap_or(u32::MAX).min(u32::MAX - 1);
    if (1..=highest).contains(&most) {
        return policy.most(most);
    }
    at.refuse::<()>(format!(
        "{most} is no ceiling; give 1 to {highest}, the limit of the policy"
    ));
    policy
}

fn with_reserve(mut policy: Policy, table: &Table<'_>, limit: Option<u32>) -> Policy {
    let Some(at) = table.get("reserve") else {
        return policy;
    };
    let Some(reserve) = at.whole::<u32>() else {
        return policy;
    };
    match limit {
        Some(limit) if reserve >= limit => {
            at.refuse::<()>(format!(
                "{reserve} leaves nothing to low priority; give less than {limit}, the limit of the policy"
            ));
        }
        _ => policy = policy.reserve(reserve),
    }
    if table.lacks("low_priority") {
        at.refuse::<()>(
            "`low_priority` is missing; say which requests leave the reserve, or leave `reserve` out",
        );
    }
    policy
}

fn with_penalty(mut policy: Policy, table: &Table<'_>, own: Option<&Algorithm>) -> Policy {
    let Some(at) = table.get("penalty") else {
        return policy;
    };
    if let Some(penalty) = penalty(at) {
        policy = policy.penalty(penalty);
        if let Some(own) = own.filter(|own| !own.is_held()) {
            // Other mistakes of the policy are reported elsewhere.
            let alone = Policy::new(policy.name(), *own).penalty(penalty);
            if let Err(error) = alone.check_penalty() {
                at.refuse::<()>(error.to_string());
            }
        }
    }
    for other in ["soft", "wait_up_to"] {
        if is_present(table, other) {
            table.either("penalty", other);
        }
    }
    policy
}

pub(super) static HEAVIEST_KEYS: Vocabulary<()> = Vocabulary(&[
    setting(
        "most",
        "The number of keys, from 1 to 1000.",
        Together(Shape::Whole),
    ),
    setting(
        "shown",
        "How a key is shown; the default is hashed.",
        Together(Shape::Word(&SHOWN)),
    ),
]);

type Show = fn(&At<'_>, HeaviestKeys) -> HeaviestKeys;

static SHOWN: [(&str, Show); 3] = [
    ("hashed", hashed),
    ("masked", |_, keys| keys.masked()),
    ("in-the-clear", |_, keys| keys.in_the_clear()),
];

fn heaviest_keys(at: &At<'_>) -> Option<HeaviestKeys> {
    if !at.is_table() {
        return most(at).map(|keys| hashed(at, keys));
    }
    let table = at.table(&HEAVIEST_KEYS)?;
    let keys = table
        .need("most", "say how many keys are told, such as most = 10")
        .and_then(most);
    let show = match table.get("shown") {
        None => hashed,
        Some(at) => at.one_of(&SHOWN)?,
    };
    Some(show(at, keys?))
}

fn hashed(at: &At<'_>, keys: HeaviestKeys) -> HeaviestKeys {
    match &at.common().secret {
        Some(secret) => keys.hashed(secret),
        None => keys,
    }
}

fn most(at: &At<'_>) -> Option<HeaviestKeys> {
    match at.whole()? {
        most @ 1..=1_000 => Some(HeaviestKeys::new(most)),
        most => at.refuse(format!("{most} keys cannot be told; give 1 to 1000")),
    }
}

fn is_present(table: &Table<'_>, field: &str) -> bool {
    match field {
        "soft" => table.get(field).and_then(At::flag) == Some(true),
        _ => table.get(field).is_some(),
    }
}

pub(super) static PENALTY: Vocabulary<Penalty> = Vocabulary(&[
    setting(
        "refusals",
        "At how many refusals a key is blocked.",
        Together(Shape::Whole),
    ),
    setting(
        "within",
        "Within what time they have to come.",
        Together(Shape::Duration),
    ),
    setting(
        "block",
        "How long the first block lasts; the default is a minute.",
        Time(Penalty::block),
    ),
    setting(
        "times",
        "How many times as long each further block lasts; the default is 1.",
        Whole(Penalty::times),
    ),
    setting(
        "up_to",
        "How long a block can last at most; the default is a day.",
        Time(Penalty::up_to),
    ),
    setting(
        "forget_after",
        "After how long without a block the earlier ones are forgotten; the default is a day.",
        Time(Penalty::forget_after),
    ),
    setting(
        "extended_by_refusals",
        "Lets each refusal during a block begin the block again.",
        Flag(Penalty::extended_by_refusals),
    ),
]);

fn penalty(at: &At<'_>) -> Option<Penalty> {
    let table = at.table(&PENALTY)?;
    let refusals = table
        .need(
            "refusals",
            "say at how many refusals a key is blocked, such as refusals = 3",
        )
        .and_then(At::whole);
    let within = table
        .need(
            "within",
            "say within what time they have to come, such as within = \"15min\"",
        )
        .and_then(At::duration);
    let mut penalty = Penalty::after(refusals.unwrap_or(1), within.unwrap_or_default());
    PENALTY.apply(&table, &mut penalty)?;
    refusals.and(within).map(|_| penalty)
}

/// Adds which requests are of low priority.
pub(super) fn with_priority(policy: Policy<Http>, table: &Table<'_>) -> Option<Policy<Http>> {
    let Some(at) = table.get("low_priority") else {
        return Some(policy);
    };
    if table.lacks("reserve") {
        at.refuse::<()>("`reserve` is missing; say how many units low priority leaves, or leave `low_priority` out");
    }
    let is_low = conditions::any(at)?;
    Some(policy.low_priority(move |head: &Head<'_>| is_low(head)))
}
