//! Limits that follow the load: the tables `adapt` and `concurrency`, and the classes of requests.

use std::sync::Arc;

use super::conditions;
use super::functions::ClassOf;
use super::shape::{CONDITIONS, Shape, TEXTS};
use super::vocabulary::{Vocabulary, setting};
use super::walk::At;
use tower_ratelimit::factor::Class;
use tower_ratelimit::key::Head;

pub(super) static ADAPT: Vocabulary<()> = Vocabulary(&[
    setting("signals")
        .says(
            "What is read: cpu, memory, cpu pressure, memory pressure, io pressure, failures, or \
             what code has registered.",
        )
        .together(TEXTS),
    setting("latency")
        .says("Adds the signal `latency`, of this target.")
        .together(Shape::Duration),
    setting("in_flight")
        .says("Adds the signal `in flight`, of so many requests.")
        .together(Shape::Integer),
    setting("answer_time")
        .says("Adds the signal `store`, the answer time of Redis, of this target.")
        .together(Shape::Duration),
    setting("steps")
        .says(
            "A table of thresholds, in place of the standard one: 90 % to a tenth, 70 % to a \
             half, 50 % of cpu to three quarters.",
        )
        .together(Shape::List(&Shape::Table(&STEP))),
    setting("targets")
        .says(
            "The highest percentage of each of these signals: limits fall while a reading is \
             above it.",
        )
        .together(Shape::Map(&Shape::Integer)),
    setting("gradients")
        .says("Signals that should stay near what they are when all is well.")
        .together(TEXTS),
    setting("least")
        .says("The least part of the limits, in percent; the default is 10.")
        .together(Shape::Integer),
    setting("most")
        .says("The most that limits can grow to, in percent; the default is 100.")
        .together(Shape::Integer),
    setting("grow_by")
        .says("The growth of a step, in percent; the default is 5.")
        .together(Shape::Integer),
    setting("hold")
        .says("The time between two steps up; the default is 10 seconds.")
        .together(Shape::Duration),
    setting("immediate")
        .says("Follows each sample as it is, without smoothing and holds.")
        .together(Shape::Flag),
]);

pub(super) static STEP: Vocabulary<()> = Vocabulary(&[
    setting("signals")
        .says("Of any of these signals.")
        .together(TEXTS),
    setting("above")
        .says("Above so many percent.")
        .together(Shape::Integer),
    setting("limit")
        .says("The part of the limits, in percent.")
        .together(Shape::Integer),
]);

pub(super) static CONCURRENCY: Vocabulary<()> = Vocabulary(&[
    setting("start")
        .says("The limit before anything is learnt; the default is 20.")
        .together(Shape::Integer),
    setting("least")
        .says("The least; the default is 1.")
        .together(Shape::Integer),
    setting("most")
        .says("The most; the default is 1,000.")
        .together(Shape::Integer),
    setting("healthy")
        .says("The longest time that counts as healthy.")
        .together(Shape::Duration),
    setting("partitions")
        .says("Shares that are kept for some requests, and lent while they are idle.")
        .together(Shape::Map(&Shape::Table(&PARTITION))),
    setting("except")
        .says("Requests that take no slot, such as probes. Of a list, one has to hold.")
        .together(CONDITIONS),
    setting("refusal_status")
        .says("The status of a refusal: 503, the default, or 429.")
        .together(Shape::Integer),
]);

pub(super) static PARTITION: Vocabulary<()> = Vocabulary(&[
    setting("share")
        .says("The share, in percent.")
        .together(Shape::Integer),
    setting("when")
        .says("Which requests. Of a list, one has to hold.")
        .together(CONDITIONS),
]);

pub(super) static CLASS: Vocabulary<()> = Vocabulary(&[
    setting("class")
        .says("How much such requests matter.")
        .together(Shape::Word(&CLASSES)),
    setting("when")
        .says("Which requests; the default is all. Of a list, one has to hold.")
        .together(CONDITIONS),
    setting("function")
        .says("A class that code has registered, in place of the others.")
        .together(Shape::Text),
]);

pub(super) static CLASSES: [(&str, Class); 4] = [
    ("critical_plus", Class::CriticalPlus),
    ("critical", Class::Critical),
    ("sheddable_plus", Class::SheddablePlus),
    ("sheddable", Class::Sheddable),
];

/// Reads how important a request is.
pub(super) fn class(at: &At<'_>) -> Option<Arc<ClassOf>> {
    let rules = at.each(rule)?;
    Some(Arc::new(move |head: &Head<'_>| {
        let mut classes = rules.iter().filter_map(|rule| rule(head));
        classes.next().unwrap_or(Class::Critical)
    }))
}

/// Returns the class of a request, if the rule applies to it.
type Rule = dyn Fn(&Head<'_>) -> Option<Class> + Send + Sync;

fn rule(at: &At<'_>) -> Option<Box<Rule>> {
    if at.is_text() {
        let class = at.one_of(&CLASSES)?;
        return Some(Box::new(move |_| Some(class)));
    }
    let table = at.table(&CLASS)?;
    if let Some(function) = table.get("function") {
        table.either("function", "class");
        table.either("function", "when");
        let class: Arc<ClassOf> = function.registered()?;
        return Some(Box::new(move |head| Some(class(head))));
    }
    let class = table.need("class", "say which class, such as class = \"sheddable\"");
    let class = class.and_then(|at| at.one_of(&CLASSES));
    let when = match table.get("when") {
        Some(at) if class == Some(Class::CriticalPlus) => Some(conditions::exemption(at)?),
        Some(at) => Some(conditions::any(at)?),
        None => None,
    };
    let class = class?;
    Some(Box::new(move |head| {
        let holds = when.as_ref().is_none_or(|when| when(head));
        holds.then_some(class)
    }))
}
