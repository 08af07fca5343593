//! Responses: dialects, refusals and other options.

use bytes::Bytes;
use http::HeaderValue;

#[cfg(feature = "tonic")]
use super::fields::GRPC;
use super::fields::{BODY, RESPONSES};
use super::policies::status;
use super::walk::{At, Table};
use crate::key::Secret;
use crate::middleware::RateLimitLayerBuilder;
#[cfg(feature = "tonic")]
use crate::response::Grpc;
use crate::response::{Denied, Dialect, RefusalBody, Reset};

const WORDS: &[(&str, Dialect)] = &[
    ("draft-11", Dialect::Draft11),
    ("draft-07", Dialect::Draft07),
    ("draft-06", Dialect::Draft06),
    ("draft-03", Dialect::Draft03),
    ("x-ratelimit", Dialect::XRateLimit(Reset::DeltaSeconds)),
    (
        "x-ratelimit-millis",
        Dialect::XRateLimit(Reset::DeltaMillis),
    ),
    (
        "x-ratelimit-epoch",
        Dialect::XRateLimit(Reset::EpochSeconds),
    ),
    (
        "x-rate-limit",
        Dialect::XRateLimitDashed(Reset::DeltaSeconds),
    ),
    (
        "x-rate-limit-millis",
        Dialect::XRateLimitDashed(Reset::DeltaMillis),
    ),
    (
        "x-rate-limit-epoch",
        Dialect::XRateLimitDashed(Reset::EpochSeconds),
    ),
    ("github", Dialect::GitHub),
];

/// Adds the options of `responses`.
pub(super) fn responses(
    at: &At<'_>,
    secret: Option<&Secret>,
    mut builder: RateLimitLayerBuilder,
) -> RateLimitLayerBuilder {
    let Some(table) = at.table(&RESPONSES) else {
        return builder;
    };
    if let Some(list) = table.get("dialects").and_then(At::list) {
        builder = builder.dialects(dialects(&list));
    }
    if let Some(status) = table.get("refusal_status").and_then(status) {
        builder = builder.refusal_status(status);
    }
    if let Some(status) = table.get("too_large_status").and_then(status) {
        builder = builder.too_large_status(status);
    }
    if let Some(body) = table.get("refusal_body").and_then(body) {
        builder = builder.refusal_body(body);
    }
    if let Some(at) = table.get("retry_jitter")
        && let Some(most) = at.duration()
    {
        if most.subsec_nanos() != 0 {
            at.expected::<()>("a whole number of seconds");
        }
        builder = builder.retry_jitter(most);
    }
    if is_on(&table, "without_headers_if_public") {
        builder = builder.without_headers_if_public();
    }
    if is_on(&table, "expose_decision") {
        builder = builder.expose_decision();
    }
    if is_on(&table, "expose_decision_in_response") {
        builder = builder.expose_decision_in_response();
    }
    if let Some(at) = table.get("grpc") {
        builder = grpc(at, builder);
    }
    if is_on(&table, "partition_keys")
        && let Some(at) = table.get("partition_keys")
    {
        match secret {
            Some(secret) => builder = builder.partition_keys(secret),
            None => {
                at.refuse::<()>("partition keys are hashed; give the file a secret, secret = { env = \"NAME\" }");
            }
        }
    }
    builder
}

/// Reads dialects, of which no two write the same header.
fn dialects(list: &[At<'_>]) -> Vec<Dialect> {
    let mut read: Vec<(Dialect, String)> = Vec::new();
    for at in list {
        let Some(dialect) = at.one_of(WORDS) else {
            continue;
        };
        let mut before = read.iter();
        let common = before.find_map(|(known, place)| Some((known.common_header(dialect)?, place)));
        if let Some((header, place)) = common {
            at.refuse::<()>(format!(
                "it writes `{header}`, as the one of {place} does; keep one of the two"
            ));
        }
        read.push((dialect, at.place()));
    }
    read.into_iter().map(|(dialect, _)| dialect).collect()
}

#[cfg(not(feature = "tonic"))]
fn grpc(at: &At<'_>, builder: RateLimitLayerBuilder) -> RateLimitLayerBuilder {
    at.refuse::<()>("calls of gRPC need feature `tonic` of tower-ratelimit");
    builder
}

#[cfg(feature = "tonic")]
type Calls = fn() -> Grpc;

#[cfg(feature = "tonic")]
fn grpc(at: &At<'_>, builder: RateLimitLayerBuilder) -> RateLimitLayerBuilder {
    const WORDS: &[(&str, Calls)] = &[
        ("detected", Grpc::detected),
        ("always", Grpc::always),
        ("never", Grpc::never),
    ];
    let Some(table) = at.table(&GRPC) else {
        return builder;
    };
    let calls = table.get("calls").and_then(|at| at.one_of(WORDS));
    let mut grpc = calls.map_or_else(Grpc::detected, |calls| calls());
    if let Some(at) = table.get("message")
        && let Some(message) = at.text()
    {
        if message.len() > 512 {
            at.refuse::<()>("the message is longer than 512 bytes; make it shorter");
        }
        grpc = grpc.message(message);
    }
    if is_on(&table, "without_quota_failure") {
        grpc = grpc.without_quota_failure();
    }
    if let Some(jitter) = table.get("retry_pushback").and_then(At::duration) {
        grpc = grpc.retry_pushback(jitter);
    }
    builder.grpc(grpc)
}

fn is_on(table: &Table<'_>, field: &str) -> bool {
    table.get(field).and_then(At::flag) == Some(true)
}

fn body(at: &At<'_>) -> Option<RefusalBody> {
    if at.is_text() {
        const WORDS: &[(&str, Word)] = &[
            ("problem", Word::Problem),
            ("bare-problem", Word::BareProblem),
            ("json", Word::Json),
            ("text", Word::Text),
        ];
        return at.one_of(WORDS).map(|word| match word {
            Word::Problem => RefusalBody::Problem,
            Word::BareProblem => RefusalBody::BareProblem,
            Word::Json => RefusalBody::Json,
            Word::Text => RefusalBody::Text,
        });
    }
    let table = at.table(&BODY)?;
    if let Some(function) = table.get("function") {
        table.either("function", "content_type");
        table.either("function", "text");
        return function.registered();
    }
    let content_type = table
        .need("content_type", "write it as a header has it")
        .and_then(|at| {
            let value = HeaderValue::from_str(at.text()?).ok();
            value.or_else(|| at.expected("the value of a header"))
        });
    let text = table.need("text", "write the body").and_then(At::text);
    let text = Bytes::from(text?.to_owned());
    Some(RefusalBody::custom(content_type?, move |_: &Denied<'_>| {
        text.clone()
    }))
}

#[derive(Clone, Copy)]
enum Word {
    Problem,
    BareProblem,
    Json,
    Text,
}
