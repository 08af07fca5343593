//! Costs: a number, a function, or a list by method and path.

use std::collections::HashMap;
use std::sync::Arc;

use super::bodies::field;
use super::body_fields::FieldOf;
use super::conditions::{Parts, Spelling};
use super::functions::{Condition, Cost};
use super::shape::{AMOUNT, Shape, TEXTS};
use super::tree::Value;
use super::vocabulary::{Vocabulary, setting};
use super::walk::At;
use tower_ratelimit::key::{Head, JsonFields};
use tower_ratelimit::usage::{self, Money, Usage};

pub(super) static COST: Vocabulary<Parts> = Vocabulary(&[
    setting("cost")
        .says("How many units a request takes.")
        .together(AMOUNT),
    setting("method")
        .says("Of requests with one of these methods.")
        .of(TEXTS, Parts::method),
    setting("path")
        .says("Of requests to one of these paths; `/bulk/*` is `/bulk` and all below it.")
        .of(TEXTS, Parts::path),
]);

/// A cost that a request tells, or code.
pub(super) static COST_TOLD: Vocabulary<()> = Vocabulary(&[
    setting("function")
        .says("What code has registered.")
        .together(Shape::Text),
    setting("json")
        .says("The path of a number in the request's JSON body, such as max_tokens.")
        .together(Shape::Text),
    setting("or")
        .says("The cost of a request without the number.")
        .together(Shape::Integer),
]);

/// Makes what a service says of its tokens.
pub(super) type MakeUsage = fn() -> Usage;

/// The services whose requests say what they ask for.
pub(super) static ESTIMATES: [(&str, MakeUsage); 3] = [
    ("openai", usage::openai),
    ("anthropic", usage::anthropic),
    ("gemini", usage::gemini),
];

/// Reads an estimate of the body of a request, in units of a policy that may count money.
pub(super) fn estimated(at: &At<'_>, unit: Option<Money>) -> Option<Arc<Cost>> {
    if at.is_text() {
        let usage = at.one_of(&ESTIMATES)?();
        return Some(match unit {
            Some(unit) => Arc::new(usage.priced(&at.prices(unit)?).estimate()),
            None => Arc::new(usage.estimate()),
        });
    }
    let told = told(at, FieldOf::Estimate)?;
    let Some(unit) = unit.filter(|_| at.field("json").is_some()) else {
        return Some(told);
    };
    // The number is one of tokens, and which of them are of the answer is not known.
    let prices = at.prices(unit)?;
    Some(Arc::new(move |head: &Head<'_>| {
        prices.units_of(head, 0, told(head).into())
    }))
}

/// Reads a cost that the request tells, or that code has registered.
pub(super) fn told(at: &At<'_>, is: FieldOf) -> Option<Arc<Cost>> {
    let table = at.table(&COST_TOLD)?;
    if table.get("function").is_some() && !table.has_one() {
        table.either("function", "json");
        table.either("function", "or");
        return None;
    }
    if table.lacks("json") {
        let name = table.need("function", "name a function that code has registered, or a field of the body, { json = \"rows\", or = 1 }");
        return name?.registered();
    }
    let path = table.get("json").and_then(|at| field(at, is));
    let other = table.need(
        "or",
        "say what a request without the number costs, such as or = 1",
    );
    let other = other.and_then(|at| match at.integer()? {
        0_u32 => at.refuse("a request that costs nothing is never refused; give 1 or more"),
        units => Some(units),
    });
    let (path, other) = (path?.to_owned(), other?);
    Some(Arc::new(move |head: &Head<'_>| {
        let fields = head.extension::<JsonFields>();
        let number = fields.and_then(|fields| fields.number(&path));
        // A client that asks for nothing is charged something.
        number.map_or(other, |number| {
            u32::try_from(number.max(1)).unwrap_or(u32::MAX)
        })
    }))
}

/// Reads a cost. In a list the first rule that matches counts, and a request that no rule matches costs 1.
pub(super) fn cost(at: &At<'_>, unit: Option<Money>) -> Option<Arc<Cost>> {
    match at.node.value {
        Value::List(_) => by_request(at, unit),
        Value::Table(_) if unit.is_some() && at.field("json").is_some() => at.refuse(
            "a number of the body is no amount of money; give the amount, or leave `budget` out",
        ),
        Value::Table(_) => told(at, FieldOf::Cost),
        _ => {
            let cost = at.units(unit)?;
            Some(Arc::new(move |_: &Head<'_>| cost))
        }
    }
}

fn by_request(at: &At<'_>, unit: Option<Money>) -> Option<Arc<Cost>> {
    let mut rules: Vec<Option<(Arc<Condition>, u32)>> = Vec::new();
    let mut places: HashMap<(Vec<&str>, Vec<&str>), String> = HashMap::new();
    for at in at.list()? {
        let Some(table) = at.table(&COST) else {
            rules.push(None);
            continue;
        };
        let cost = table
            .need("cost", "give a number")
            .and_then(|at| at.units(unit));
        let spelling = match cost {
            Some(0) => Spelling::Plain,
            _ => Spelling::Any,
        };
        let mut parts = Parts::of(spelling);
        let condition = COST.apply(&table, &mut parts).map(|()| parts.all());
        let texts = |field: &str| table.get(field).and_then(At::texts).unwrap_or_default();
        if condition.is_some()
            && let Some(before) = places.insert((texts("method"), texts("path")), at.place())
        {
            at.refuse::<()>(format!(
                "it matches the same requests as the rule of {before}; leave one of them"
            ));
        }
        rules.push(condition.zip(cost));
    }
    let rules: Vec<(Arc<Condition>, u32)> = rules.into_iter().collect::<Option<_>>()?;
    Some(Arc::new(move |head: &Head<'_>| {
        let matching = rules.iter().filter(|(matches, _)| matches(head));
        let mut costs = matching.map(|(_, cost)| *cost);
        if head.has_one_reading() {
            return costs.next().unwrap_or(1);
        }
        // Another rule may be that of another reading.
        costs.max().unwrap_or(1)
    }))
}
