//! Costs: a number, a function, or a list by method and path.

use std::collections::HashMap;
use std::sync::Arc;

use super::conditions::{Parts, Spelling};
use super::functions::{Condition, Cost};
use super::shape::{Shape, TEXTS};
use super::tree::Value;
use super::vocabulary::{Vocabulary, setting};
use super::walk::At;
use tower_ratelimit::key::Head;

pub(super) static COST: Vocabulary<Parts> = Vocabulary(&[
    setting("cost")
        .says("How many units a request takes.")
        .together(Shape::Integer),
    setting("method")
        .says("Of requests with one of these methods.")
        .of(TEXTS, Parts::method),
    setting("path")
        .says("Of requests to one of these paths; `/bulk/*` is `/bulk` and all below it.")
        .of(TEXTS, Parts::path),
]);

/// Reads a cost. In a list the first rule that matches counts, and a request that no rule matches costs 1.
pub(super) fn cost(at: &At<'_>) -> Option<Arc<Cost>> {
    match at.node.value {
        Value::List(_) => by_request(at),
        Value::Table(_) => at.function(),
        _ => {
            let cost: u32 = at.integer()?;
            Some(Arc::new(move |_: &Head<'_>| cost))
        }
    }
}

fn by_request(at: &At<'_>) -> Option<Arc<Cost>> {
    let mut rules: Vec<Option<(Arc<Condition>, u32)>> = Vec::new();
    let mut places: HashMap<(Vec<&str>, Vec<&str>), String> = HashMap::new();
    for at in at.list()? {
        let Some(table) = at.table(&COST) else {
            rules.push(None);
            continue;
        };
        let cost = table
            .need("cost", "give a number")
            .and_then(At::integer::<u32>);
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
