//! The fields of limits.

use crate::config::vocabulary::{Shape, Vocabulary, field};

pub(crate) static QUOTA: Vocabulary<()> = Vocabulary(&[
    field("limit", "How many units a period has.", Shape::Whole),
    field("per", "The period: \"minute\", \"10s\".", Shape::Text),
]);

pub(crate) static LIMIT: Vocabulary<()> = Vocabulary(&[
    field("limit", "How many units a period has.", Shape::Whole),
    field(
        "per",
        "The period; the default is that of the policy.",
        Shape::Text,
    ),
    field("burst", "The burst of a bucket.", Shape::Whole),
    field("capacity", "The capacity of a leaky bucket.", Shape::Whole),
    field("places", "The places of a leaky queue.", Shape::Whole),
]);

pub(crate) static KEY_LIMITS: Vocabulary<()> = Vocabulary(&[
    field(
        "keys",
        "The limits of single keys.",
        Shape::Secret(&Shape::Map(&Shape::Named("limit"))),
    ),
    field(
        "prefixes",
        "The limits of keys that begin so. The longest counts.",
        Shape::Secret(&Shape::Map(&Shape::Named("limit"))),
    ),
    field(
        "other",
        "The limit of all other keys.",
        Shape::Named("limit"),
    ),
    field(
        "keys_are",
        "The kind of the keys in the table; the default is addresses for an address key, and text otherwise.",
        Shape::Word(&["text", "number", "address"]),
    ),
]);
