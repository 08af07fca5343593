//! The fields that set what is read from a request.

use super::{Fields, Shape, field};

pub(crate) static KEY: Fields = Fields(&[
    field("header", "The value of a header.", Shape::Text),
    field("cookie", "The value of a cookie, hashed.", Shape::Text),
    field("query", "The value of a query parameter.", Shape::Text),
    field(
        "metadata",
        "The value of a metadata key of a gRPC call.",
        Shape::Text,
    ),
    field(
        "api_key",
        "The API key in this header, hashed.",
        Shape::Text,
    ),
    field(
        "client_ip",
        "The address of the client.",
        Shape::Table(&CLIENT_IP),
    ),
    field("function", "A key that code has registered.", Shape::Text),
    field(
        "all_of",
        "Several keys as one.",
        Shape::List(&Shape::Named("key")),
    ),
    field(
        "first_of",
        "The first of them that the request has.",
        Shape::List(&Shape::Named("key")),
    ),
    field(
        "hashed",
        "A key as 128 bits of a keyed hash.",
        Shape::Named("key"),
    ),
]);

pub(crate) static CLIENT_IP: Fields = Fields(&[
    field(
        "ipv6_prefix",
        "The number of bits of an IPv6 address that identify a client.",
        Shape::Whole,
    ),
    field(
        "unwrap_ipv4",
        "The prefixes of translators from IPv4 to IPv6.",
        Shape::List(&Shape::Text),
    ),
    field(
        "without_fallback",
        "Does not count the proxy if it sends no client address: the request has no key then.",
        Shape::Flag,
    ),
]);

pub(crate) static FUNCTION: Fields =
    Fields(&[field("function", "What code has registered.", Shape::Text)]);

pub(crate) static COST: Fields = Fields(&[
    field("cost", "How many units a request takes.", Shape::Whole),
    field(
        "method",
        "Of requests with one of these methods.",
        Shape::OneOrList(&Shape::Text),
    ),
    field(
        "path",
        "Of requests to one of these paths; `/bulk/*` is `/bulk` and all below it.",
        Shape::OneOrList(&Shape::Text),
    ),
]);

pub(crate) static CONDITION: Fields = Fields(&[
    field(
        "method",
        "The method is one of these.",
        Shape::OneOrList(&Shape::Text),
    ),
    field(
        "path",
        "The path is one of these; `/api/*` is `/api` and all below it.",
        Shape::OneOrList(&Shape::Text),
    ),
    field(
        "header",
        "The request has these headers, with one of these values, or with any if it is true.",
        Shape::Secret(&Shape::Map(&Shape::Any(&[
            Shape::Flag,
            Shape::OneOrList(&Shape::Text),
        ]))),
    ),
    field(
        "address",
        "The address of the client is in one of these networks.",
        Shape::OneOrList(&Shape::Text),
    ),
    field(
        "function",
        "A condition that code has registered holds.",
        Shape::Text,
    ),
    field(
        "not",
        "This does not hold. Of a list, none holds.",
        Shape::OneOrList(&Shape::Named("condition")),
    ),
]);
