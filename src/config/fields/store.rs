//! The fields of the store and of secrets.

use crate::config::vocabulary::{Shape, Vocabulary, field};

pub(crate) static STORE: Vocabulary<()> = Vocabulary(&[
    field(
        "max_keys",
        "How many keys the store in this process holds.",
        Shape::Whole,
    ),
    field("redis", "The URL of a server.", Shape::Named("secret")),
    field(
        "cluster",
        "The URLs of nodes of a cluster.",
        Shape::OneOrList(&Shape::Named("secret")),
    ),
    field(
        "sentinel",
        "A master behind Sentinel.",
        Shape::Table(&SENTINEL),
    ),
    field("prefix", "What all keys in Redis begin with.", Shape::Text),
    field(
        "deadline",
        "How long a call to Redis may take.",
        Shape::Duration,
    ),
    field(
        "remember_denials_for",
        "How long a denial is remembered in this process.",
        Shape::Duration,
    ),
    field(
        "slot_life",
        "The time for which a concurrency slot in Redis lasts without renewal; the default is 15 seconds.",
        Shape::Duration,
    ),
    field(
        "lease",
        "The longest life of leased units, which a node takes at once and spends itself; the default is no leases.",
        Shape::Duration,
    ),
    field("nodes", "How many nodes share the store.", Shape::Whole),
]);

pub(crate) static SENTINEL: Vocabulary<()> = Vocabulary(&[
    field(
        "master",
        "The name or the URL of the master.",
        Shape::Named("secret"),
    ),
    field(
        "servers",
        "The URLs of the sentinels.",
        Shape::OneOrList(&Shape::Named("secret")),
    ),
]);

pub(crate) static ENV: Vocabulary<()> = Vocabulary(&[field(
    "env",
    "The environment variable that has the value.",
    Shape::Text,
)]);
