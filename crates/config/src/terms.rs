//! What a policy says of single keys: a penalty for those that are refused too often, and how the heaviest are told.

use super::shape::Shape;
use super::vocabulary::{Vocabulary, setting};
use super::walk::At;
use tower_ratelimit::algorithm::Algorithm;
use tower_ratelimit::policy::{Penalty, Policy, TopKeys};

pub(super) static TOP_KEYS: Vocabulary<()> = Vocabulary(&[
    setting("most")
        .says("The number of keys, from 1 to 1000.")
        .together(Shape::Integer),
    setting("shown")
        .says("How a key is shown; the default is hashed.")
        .together(Shape::Word(&SHOWN)),
]);

type Show = fn(&At<'_>, TopKeys) -> TopKeys;

static SHOWN: [(&str, Show); 3] = [
    ("hashed", hashed),
    ("masked", |_, keys| keys.masked()),
    ("in-the-clear", |_, keys| keys.in_the_clear()),
];

/// Reads how many of the heaviest keys a snapshot tells, and how.
pub(super) fn top_keys(at: &At<'_>) -> Option<TopKeys> {
    if !at.is_table() {
        return most(at).map(|keys| hashed(at, keys));
    }
    let table = at.table(&TOP_KEYS)?;
    let keys = table
        .need("most", "say how many keys are told, such as most = 10")
        .and_then(most);
    let show = match table.get("shown") {
        None => hashed,
        Some(at) => at.one_of(&SHOWN)?,
    };
    Some(show(at, keys?))
}

fn hashed(at: &At<'_>, keys: TopKeys) -> TopKeys {
    match &at.common().secret {
        Some(secret) => keys.hashed(secret),
        None => keys,
    }
}

fn most(at: &At<'_>) -> Option<TopKeys> {
    match at.integer()? {
        most @ 1..=1_000 => Some(TopKeys::new(most)),
        most => at.refuse(format!("{most} keys cannot be told; give 1 to 1000")),
    }
}

pub(super) static PENALTY: Vocabulary<Penalty> = Vocabulary(&[
    setting("refusals")
        .says("At how many refusals a key is blocked.")
        .together(Shape::Integer),
    setting("within")
        .says("Within what time they have to come.")
        .together(Shape::Duration),
    setting("block")
        .says("How long the first block lasts; the default is a minute.")
        .time(Penalty::block),
    setting("times")
        .says("How many times as long each further block lasts; the default is 1.")
        .integer(Penalty::times),
    setting("up_to")
        .says("How long a block can last at most; the default is a day.")
        .time(Penalty::up_to),
    setting("forget_after")
        .says(
            "After how long without a block the earlier ones are forgotten; the default is a day.",
        )
        .time(Penalty::forget_after),
    setting("extended_by_refusals")
        .says("Lets each refusal during a block begin the block again.")
        .flag(Penalty::extended_by_refusals),
]);

/// Reads a penalty, and rejects one that does not fit the policy's own limit, if that is known.
pub(super) fn penalty(at: &At<'_>, policy: &str, own: Option<&Algorithm>) -> Option<Penalty> {
    let table = at.table(&PENALTY)?;
    let refusals = table
        .need(
            "refusals",
            "say at how many refusals a key is blocked, such as refusals = 3",
        )
        .and_then(At::integer);
    let within = table
        .need(
            "within",
            "say within what time they have to come, such as within = \"15min\"",
        )
        .and_then(At::duration);
    let mut penalty = Penalty::after(refusals.unwrap_or(1), within.unwrap_or_default());
    PENALTY.apply(&table, &mut penalty)?;
    refusals.and(within)?;
    if let Some(own) = own.filter(|own| !matches!(own, Algorithm::Concurrency(_))) {
        at.made(
            Policy::new(policy, *own)
                .penalty(penalty)
                .as_ref()
                .check_penalty(),
        )?;
    }
    Some(penalty)
}
