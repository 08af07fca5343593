//! The fields of the responses to clients.

use super::{Fields, Shape, field};

pub(crate) const DIALECTS: &[&str] = &[
    "draft-11",
    "draft-07",
    "draft-06",
    "draft-03",
    "x-ratelimit",
    "x-ratelimit-millis",
    "x-ratelimit-epoch",
    "x-rate-limit",
    "x-rate-limit-millis",
    "x-rate-limit-epoch",
    "github",
];

pub(crate) static RESPONSES: Fields = Fields(&[
    field(
        "dialects",
        "The rate limit headers; the default is draft-11. An empty list sends none.",
        Shape::List(&Shape::Word(DIALECTS)),
    ),
    field(
        "refusal_status",
        "The status of a refusal; the default is 429.",
        Shape::Whole,
    ),
    field(
        "too_large_status",
        "The status of a refusal of a request that costs more than a policy ever admits, such as 413.",
        Shape::Whole,
    ),
    field(
        "refusal_body",
        "The body of a refusal: a word, or a text with its content type.",
        Shape::Any(&[
            Shape::Word(&["problem", "bare-problem", "json", "text"]),
            Shape::Table(&BODY),
        ]),
    ),
    field(
        "retry_jitter",
        "The most that is added to Retry-After, in whole seconds.",
        Shape::Duration,
    ),
    field(
        "without_headers_if_public",
        "Leaves the headers out of responses that shared caches may keep.",
        Shape::Flag,
    ),
    field(
        "partition_keys",
        "Tells the partition key of draft 11, hashed with the secret of the file.",
        Shape::Flag,
    ),
    field(
        "expose_decision",
        "Puts the decision into the extensions of each allowed request.",
        Shape::Flag,
    ),
    field(
        "expose_decision_in_response",
        "Puts the decision into the extensions of each response, for outer layers.",
        Shape::Flag,
    ),
    field(
        "grpc",
        "How calls of gRPC are refused.",
        Shape::Table(&GRPC),
    ),
]);

pub(crate) static BODY: Fields = Fields(&[
    field("content_type", "The value of Content-Type.", Shape::Text),
    field("text", "The body.", Shape::Text),
    field(
        "function",
        "A body that code has registered, in place of the others.",
        Shape::Text,
    ),
]);

pub(crate) static GRPC: Fields = Fields(&[
    field(
        "calls",
        "Which requests are calls; the default is detected, by their content type.",
        Shape::Word(&["detected", "always", "never"]),
    ),
    field(
        "message",
        "The message of a refusal, at most 512 bytes.",
        Shape::Text,
    ),
    field(
        "without_quota_failure",
        "Leaves QuotaFailure out of the details.",
        Shape::Flag,
    ),
    field(
        "retry_pushback",
        "Sends grpc-retry-pushback-ms, with a random time of at most this.",
        Shape::Duration,
    ),
]);
