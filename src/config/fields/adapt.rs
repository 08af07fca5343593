//! The tables of limits that follow the load.

use crate::config::vocabulary::{Shape, Vocabulary, field};

pub(super) const CLASSES: [&str; 4] = ["critical_plus", "critical", "sheddable_plus", "sheddable"];

pub(crate) static CLASS: Vocabulary<()> = Vocabulary(&[
    field(
        "class",
        "How much such requests matter.",
        Shape::Word(&CLASSES),
    ),
    field(
        "when",
        "Which requests; the default is all. Of a list, one has to hold.",
        Shape::OneOrList(&Shape::Named("condition")),
    ),
    field(
        "function",
        "A class that code has registered, in place of the others.",
        Shape::Text,
    ),
]);

pub(crate) static ADAPT: Vocabulary<()> = Vocabulary(&[
    field(
        "signals",
        "What is read: cpu, memory, cpu pressure, memory pressure, io pressure, failures, or what code has registered.",
        Shape::OneOrList(&Shape::Text),
    ),
    field(
        "latency",
        "Adds the signal `latency`, of this target.",
        Shape::Duration,
    ),
    field(
        "in_flight",
        "Adds the signal `in flight`, of so many requests.",
        Shape::Whole,
    ),
    field(
        "answer_time",
        "Adds the signal `store`, the answer time of Redis, of this target.",
        Shape::Duration,
    ),
    field(
        "steps",
        "A table of thresholds, in place of the standard one: 90 % to a tenth, 70 % to a half, 50 % of cpu to three quarters.",
        Shape::List(&Shape::Table(&STEP)),
    ),
    field(
        "targets",
        "The highest percentage of each of these signals: limits fall while a reading is above it.",
        Shape::Map(&Shape::Whole),
    ),
    field(
        "gradients",
        "Signals that should stay near what they are when all is well.",
        Shape::OneOrList(&Shape::Text),
    ),
    field(
        "least",
        "The least part of the limits, in percent; the default is 10.",
        Shape::Whole,
    ),
    field(
        "most",
        "The most that limits can grow to, in percent; the default is 100.",
        Shape::Whole,
    ),
    field(
        "grow_by",
        "The growth of a step, in percent; the default is 5.",
        Shape::Whole,
    ),
    field(
        "hold",
        "The time between two steps up; the default is 10 seconds.",
        Shape::Duration,
    ),
    field(
        "immediate",
        "Follows each sample as it is, without smoothing and holds.",
        Shape::Flag,
    ),
]);

pub(crate) static STEP: Vocabulary<()> = Vocabulary(&[
    field(
        "signals",
        "Of any of these signals.",
        Shape::OneOrList(&Shape::Text),
    ),
    field("above", "Above so many percent.", Shape::Whole),
    field("limit", "The part of the limits, in percent.", Shape::Whole),
]);

pub(crate) static CONCURRENCY: Vocabulary<()> = Vocabulary(&[
    field(
        "start",
        "The limit before anything is learnt; the default is 20.",
        Shape::Whole,
    ),
    field("least", "The least; the default is 1.", Shape::Whole),
    field("most", "The most; the default is 1,000.", Shape::Whole),
    field(
        "healthy",
        "The longest time that counts as healthy.",
        Shape::Duration,
    ),
    field(
        "partitions",
        "Shares that are kept for some requests, and lent while they are idle.",
        Shape::Map(&Shape::Table(&PARTITION)),
    ),
    field(
        "except",
        "Requests that take no slot, such as probes. Of a list, one has to hold.",
        Shape::OneOrList(&Shape::Named("condition")),
    ),
    field(
        "refusal_status",
        "The status of a refusal: 503, the default, or 429.",
        Shape::Whole,
    ),
]);

pub(crate) static PARTITION: Vocabulary<()> = Vocabulary(&[
    field("share", "The share, in percent.", Shape::Whole),
    field(
        "when",
        "Which requests. Of a list, one has to hold.",
        Shape::OneOrList(&Shape::Named("condition")),
    ),
]);
