//! The words of the table `store`.

use crate::elsewhere::NUMBER;
use crate::shape::Shape;
use crate::vocabulary::{Vocabulary, setting};

pub(crate) static STORE: Vocabulary<()> = Vocabulary(&[
    setting("max_keys")
        .says("How many keys the store in this process holds.")
        .together(Shape::Integer),
    setting("redis")
        .says("The URL of a server.")
        .together(Shape::Named("secret")),
    setting("cluster")
        .says("The URLs of nodes of a cluster.")
        .together(Shape::OneOrList(&Shape::Named("secret"))),
    setting("sentinel")
        .says("A master behind Sentinel.")
        .together(Shape::Table(&SENTINEL)),
    setting("prefix")
        .says("What all keys in Redis begin with.")
        .together(Shape::Text),
    setting("deadline")
        .says("How long a call to Redis may take.")
        .together(Shape::Duration),
    setting("remember_denials_for")
        .says("How long a denial is remembered in this process.")
        .together(Shape::Duration),
    setting("slot_ttl")
        .says(
            "The time for which a concurrency slot in Redis lasts without renewal; the default \
             is 15 seconds.",
        )
        .together(Shape::Duration),
    setting("lease")
        .says(
            "The longest life of leased units, which a node takes at once and spends itself; the \
             default is no leases.",
        )
        .together(Shape::Duration),
    setting("nodes")
        .says(
            "How many nodes share the store: a number, \"live\" if they are to be counted, or the environment \
             variable that has the number.",
        )
        .together(Shape::Any(&[
            Shape::Integer,
            Shape::Word(&LIVE),
            Shape::Table(&NUMBER),
        ])),
    setting("nodes_at_least")
        .says("What the count of live nodes is at least; a node that starts while the store is away takes it.")
        .together(Shape::Integer),
]);

pub(super) static SENTINEL: Vocabulary<()> = Vocabulary(&[
    setting("master")
        .says("The name or the URL of the master.")
        .together(Shape::Named("secret")),
    setting("servers")
        .says("The URLs of the sentinels.")
        .together(Shape::OneOrList(&Shape::Named("secret"))),
]);

/// The number of nodes is the one that is counted.
pub(super) const LIVE: [&str; 1] = ["live"];
