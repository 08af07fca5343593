//! The real cost of requests: the estimate, and the settlement at their end.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::fields::{ENDING, SETTLE};
use super::functions::{Cost, CostAtEnd, EndsSo};
use super::keys::Common;
use super::tree::Value;
use super::walk::{At, Table};
use crate::key::Head;
use crate::policy::{Http, Policy, Settle, Unsettled};

/// Adds the cost of a request that ends without an answer.
pub(super) fn with_unsettled(policy: Policy, table: &Table<'_>) -> Policy {
    let unsettled = table.get("unless_settled").and_then(|at| {
        if at.is_text() {
            let words = [
                ("estimate", Unsettled::Estimate),
                ("nothing", Unsettled::Nothing),
            ];
            return at.one_of(&words);
        }
        at.whole().map(Unsettled::Units)
    });
    match unsettled {
        Some(unsettled) => policy.unless_settled(unsettled),
        None => policy,
    }
}

/// Adds the estimate, and the settlement at the end.
pub(super) fn with_endings(
    _: &Common,
    mut policy: Policy<Http>,
    table: &Table<'_>,
) -> Option<Policy<Http>> {
    let estimate = table.get("estimate").map(|at| with_estimate(at));
    let settle = table.get("settle").map(settle);
    let charge_when = table.get("charge_when").map(any);
    let refund_when = table.get("refund_when").map(any);
    if let Some(at) = table.get("estimate") {
        let settles = ["settle", "charge_when", "refund_when"];
        if settles.iter().all(|field| table.lacks(field)) {
            at.refuse::<()>(
                "`settle` is missing; say where the real cost is found, such as settle = \"cost\", or say `cost` in place of `estimate`",
            );
        }
        if table.get("cost").is_some() {
            table.either("estimate", "cost");
        }
    }
    if policy.shapes() {
        let fields = ["settle", "charge_when", "refund_when", "unless_settled"];
        for at in fields.iter().filter_map(|field| table.get(field)) {
            at.refuse::<()>(
                "the places of a queue are not settled; leave it out, and let another policy count the cost",
            );
        }
    }
    if let Some(estimate) = estimate {
        policy = estimate?(policy);
    }
    if let Some(settle) = settle {
        policy = policy.settle(settle?);
    }
    if let Some(charge_when) = charge_when {
        let holds = charge_when?;
        policy = policy.charge_when(move |ending| holds(ending));
    }
    if let Some(refund_when) = refund_when {
        let holds = refund_when?;
        policy = policy.refund_when(move |ending| holds(ending));
    }
    Some(policy)
}

type With = Box<dyn FnOnce(Policy<Http>) -> Policy<Http>>;

fn with_estimate(at: &At<'_>) -> Option<With> {
    if let Value::Table(_) = at.node.value {
        let cost: Arc<Cost> = at.function()?;
        return Some(Box::new(move |policy| {
            policy.estimate_with(move |head: &Head<'_>| cost(head))
        }));
    }
    match at.whole()? {
        0 => at.refuse("a request that asks for nothing is never refused; give 1 or more"),
        units => Some(Box::new(move |policy| policy.estimate(units))),
    }
}

/// Reads where the real cost is found. In a list, the first source that has it counts.
fn settle(at: &At<'_>) -> Option<Settle> {
    let places: Vec<_> = at.one_or_list().iter().map(place).collect();
    let places: Vec<Settle> = places.into_iter().collect::<Option<_>>()?;
    match places.into_iter().reduce(Settle::or) {
        Some(settle) => Some(settle),
        None => at.refuse("an empty list tells no cost; leave it out"),
    }
}

/// Makes a source that has no number and no name.
type Make = fn() -> Settle;

fn place(at: &At<'_>) -> Option<Settle> {
    if at.is_text() {
        let words: [(_, Make); 3] = [
            ("cost", Settle::from_cost),
            ("spend", Settle::from_spend),
            ("bytes", Settle::from_bytes),
        ];
        return at.one_of(&words).map(|make| make());
    }
    let table = at.table(&SETTLE)?;
    match table.only() {
        Some(("header", at)) => at.made(Settle::try_from_header(at.text()?)),
        Some(("bytes", at)) => match NonZeroU32::new(at.whole()?) {
            Some(bytes) => Some(Settle::from_bytes_in_units_of(bytes)),
            None => at.refuse("a unit has no bytes; give 1 or more"),
        },
        Some(("function", at)) => {
            let cost: Arc<CostAtEnd> = at.registered()?;
            Some(Settle::from_ending(move |ending| cost(ending)))
        }
        _ if table.has_unknown() => None,
        _ => at.refuse("give one place, such as { header = \"x-cost\" }"),
    }
}

/// Reads a condition on the end of a response, or a list of conditions, one of which has to hold.
fn any(at: &At<'_>) -> Option<Box<EndsSo>> {
    let list: Vec<_> = at.one_or_list().iter().map(all).collect();
    let list: Vec<Box<EndsSo>> = list.into_iter().collect::<Option<_>>()?;
    if list.is_empty() {
        return at.refuse("an empty list never holds; leave it out");
    }
    Some(Box::new(move |ending| {
        list.iter().any(|holds| holds(ending))
    }))
}

/// Reads a table, each field of which has to hold.
fn all(at: &At<'_>) -> Option<Box<EndsSo>> {
    let table = at.table(&ENDING)?;
    if table.is_empty() {
        return at.refuse("an empty condition always holds; leave it out");
    }
    let statuses = table.may("status", list_of(statuses));
    let grpc = table.may("grpc_status", list_of(code));
    let complete = table.may("complete", At::flag);
    let function = table.may("function", At::registered::<Arc<EndsSo>>);
    let (statuses, grpc) = (statuses?, grpc?);
    let (complete, function) = (complete?, function?);
    Some(Box::new(move |ending| {
        let status = ending.status().as_u16();
        let is_of = |statuses: &Vec<(u16, u16)>| {
            let mut ranges = statuses.iter();
            ranges.any(|(first, last)| (first..=last).contains(&&status))
        };
        statuses.as_ref().is_none_or(is_of)
            && grpc.as_ref().is_none_or(|codes| {
                let code = ending.grpc_status();
                code.is_some_and(|code| codes.contains(&code))
            })
            && complete.is_none_or(|complete| complete == ending.is_complete())
            && function.as_ref().is_none_or(|ends_so| ends_so(ending))
    }))
}

fn list_of<T>(read: impl Fn(&At<'_>) -> Option<T>) -> impl Fn(&At<'_>) -> Option<Vec<T>> {
    move |at| {
        let each: Vec<Option<T>> = at.one_or_list().iter().map(&read).collect();
        each.into_iter().collect()
    }
}

/// Reads a gRPC status.
fn code(at: &At<'_>) -> Option<u32> {
    at.whole()
}

/// Reads a status, or all statuses of a class: `401`, `"5xx"`.
fn statuses(at: &At<'_>) -> Option<(u16, u16)> {
    if at.is_text() {
        let classes = [
            ("1xx", (100, 199)),
            ("2xx", (200, 299)),
            ("3xx", (300, 399)),
            ("4xx", (400, 499)),
            ("5xx", (500, 599)),
        ];
        return at.one_of(&classes);
    }
    let status: u16 = at.whole()?;
    if !(100..=599).contains(&status) {
        return at.refuse(format!(
            "{status} is not a status; give 100 to 599, or a class such as \"5xx\""
        ));
    }
    Some((status, status))
}
