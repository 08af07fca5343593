//! The real cost of requests, and conditions on their end.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::costs::MakeUsage;
use super::functions::{CostAtEnd, EndsSo};
use super::shape::Shape;
use super::vocabulary::{Vocabulary, setting};
use super::walk::At;
use tower_ratelimit::policy::{Ending, Settle};
use tower_ratelimit::usage::{self, Money, Usage};

/// Reads where the real cost is found. In a list, the first source that has it counts.
pub(super) fn settle(at: &At<'_>, unit: Option<Money>) -> Option<Settle> {
    match at
        .each(|at| place(at, unit))?
        .into_iter()
        .reduce(Settle::or)
    {
        Some(settle) => Some(settle),
        None => at.refuse("an empty list tells no cost; leave it out"),
    }
}

pub(super) static SETTLE: Vocabulary<Option<Settle>> = Vocabulary(&[
    setting("header")
        .says("The header of the response, or the trailer, with the cost.")
        .of(Shape::Text, |_, at| {
            Some(at.made(Settle::try_from_header(at.text()?)))
        }),
    setting("bytes")
        .says("Counts the bytes of the body in units of so many, rounded up.")
        .of(Shape::Integer, |_, at| {
            match NonZeroU32::new(at.integer()?) {
                Some(bytes) => Some(Some(Settle::from_bytes_in_units_of(bytes))),
                None => at.refuse("a unit has no bytes; give 1 or more"),
            }
        }),
    setting("json")
        .says(
            "The path of a number in the body of the response, such as usage.total_tokens, or several \
             of them, and how many units each costs.",
        )
        .of(
            Shape::Any(&[Shape::Text, Shape::Map(&Shape::Integer)]),
            |_, at| Some(Some(numbers(at)?.into())),
        ),
    setting("function")
        .says("A cost that code has registered.")
        .of(Shape::Text, |_, at| {
            let cost: Arc<CostAtEnd> = at.registered()?;
            Some(Some(Settle::from_ending(move |ending| cost(ending))))
        }),
]);

/// A source that has no number and no name.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// Its numbers are units.
    Units(fn() -> Settle),
    Bytes,
    Tokens(MakeUsage),
}

pub(super) static SETTLE_WORDS: [(&str, Source); 6] = [
    ("cost", Source::Units(Settle::from_cost)),
    ("spend", Source::Units(Settle::from_spend)),
    ("bytes", Source::Bytes),
    ("openai", Source::Tokens(usage::openai)),
    ("anthropic", Source::Tokens(usage::anthropic)),
    ("gemini", Source::Tokens(usage::gemini)),
];

const NO_MONEY: &str = "it tells no money; settle a budget by \"openai\", \"anthropic\", \"gemini\", or what code tells";

/// Reads the paths of the numbers in a body that are its cost.
fn numbers(at: &At<'_>) -> Option<Usage> {
    if !at.is_table() {
        return at.made(usage::try_json(at.text()?));
    }
    let mut paths = Vec::new();
    for (path, weight) in at.entries()? {
        paths.push((path.text, weight.integer()?));
    }
    at.made(usage::json_sum(paths))
}

fn place(at: &At<'_>, unit: Option<Money>) -> Option<Settle> {
    if at.is_text() {
        return match (at.one_of(&SETTLE_WORDS)?, unit) {
            (Source::Units(make), _) => Some(make()),
            (Source::Bytes, None) => Some(Settle::from_bytes()),
            (Source::Bytes, Some(_)) => at.refuse(NO_MONEY),
            (Source::Tokens(make), None) => Some(make().into()),
            (Source::Tokens(make), Some(unit)) => Some(make().priced(&at.prices(unit)?).into()),
        };
    }
    let table = at.table(&SETTLE)?;
    if !table.has_one() {
        if table.has_unknown() {
            return None;
        }
        return at.refuse("give one place, such as { header = \"x-cost\" }");
    }
    let mut sources = ["bytes", "json"].into_iter();
    if unit.is_some()
        && let Some(at) = sources.find_map(|source| table.get(source))
    {
        return at.refuse(NO_MONEY);
    }
    let mut settle = None;
    SETTLE.apply(&table, &mut settle)?;
    settle
}

/// Reads a condition on the end of a response, or a list of conditions, one of which has to hold.
pub(super) fn ending(at: &At<'_>) -> Option<Arc<EndsSo>> {
    let list = at.each(all)?;
    if list.is_empty() {
        return at.refuse("an empty list never holds; leave it out");
    }
    Some(Arc::new(move |ending| {
        list.iter().any(|holds| holds(ending))
    }))
}

/// Each entry has to hold.
pub(super) static ENDING: Vocabulary<Vec<Arc<EndsSo>>> = Vocabulary(&[
    setting("status")
        .says("The status of the response, or its class: \"5xx\". Of a list, one.")
        .of(
            Shape::OneOrList(&Shape::Any(&[Shape::Integer, Shape::Word(&CLASSES)])),
            |all, at| {
                let statuses = at.each(statuses)?;
                Some(with(all, move |ending| {
                    let status = ending.status().as_u16();
                    let mut ranges = statuses.iter();
                    ranges.any(|(first, last)| (first..=last).contains(&&status))
                }))
            },
        ),
    setting("grpc_status")
        .says("The status of a gRPC call, as a number. Of a list, one.")
        .of(Shape::OneOrList(&Shape::Integer), |all, at| {
            let codes: Vec<u32> = at.each(At::integer)?;
            Some(with(all, move |ending| {
                let code = ending.grpc_status();
                code.is_some_and(|code| codes.contains(&code))
            }))
        }),
    setting("complete")
        .says("Whether the whole response went out.")
        .of(Shape::Flag, |all, at| {
            let is_complete = at.flag()?;
            Some(with(all, move |ending| ending.is_complete() == is_complete))
        }),
    setting("function")
        .says("An ending that code has registered.")
        .of(Shape::Text, |all, at| {
            let ends_so: Arc<EndsSo> = at.registered()?;
            Some(with(all, move |ending| ends_so(ending)))
        }),
]);

fn with(
    mut all: Vec<Arc<EndsSo>>,
    ends_so: impl Fn(&Ending<'_>) -> bool + Send + Sync + 'static,
) -> Vec<Arc<EndsSo>> {
    all.push(Arc::new(ends_so));
    all
}

fn all(at: &At<'_>) -> Option<Arc<EndsSo>> {
    let table = at.table(&ENDING)?;
    if table.is_empty() {
        return at.refuse("an empty condition always holds; leave it out");
    }
    let mut all = Vec::new();
    ENDING.apply(&table, &mut all)?;
    Some(Arc::new(move |ending| {
        all.iter().all(|ends_so| ends_so(ending))
    }))
}

static CLASSES: [(&str, (u16, u16)); 5] = [
    ("1xx", (100, 199)),
    ("2xx", (200, 299)),
    ("3xx", (300, 399)),
    ("4xx", (400, 499)),
    ("5xx", (500, 599)),
];

/// Reads a status, or all statuses of a class: `401`, `"5xx"`.
fn statuses(at: &At<'_>) -> Option<(u16, u16)> {
    if at.is_text() {
        return at.one_of(&CLASSES);
    }
    let status: u16 = at.integer()?;
    if !(100..=599).contains(&status) {
        return at.refuse(format!(
            "{status} is not a status; give 100 to 599, or a class such as \"5xx\""
        ));
    }
    Some((status, status))
}
