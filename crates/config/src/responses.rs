//! Responses: dialects, refusals and other options.

use bytes::Bytes;
use http::HeaderValue;

use super::policy::status;
use super::shape::Shape;
use super::vocabulary::{Vocabulary, setting};
use super::walk::At;
use tower_ratelimit::middleware::RateLimitLayerBuilder as Builder;
#[cfg(feature = "tonic")]
use tower_ratelimit::response::Grpc;
use tower_ratelimit::response::{Denied, Dialect, RefusalBody, Reset};

pub(super) static RESPONSES: Vocabulary<Builder> = Vocabulary(&[
    setting("dialects")
        .says("The rate limit headers; the default is draft-11. An empty list sends none.")
        .of(Shape::List(&Shape::Word(&DIALECTS)), |layer, at| {
            Some(layer.dialects(dialects(&at.list()?)))
        }),
    setting("refusal_status")
        .says("The status of a refusal; the default is 429.")
        .of(Shape::Integer, |layer, at| {
            Some(layer.refusal_status(status(at)?))
        }),
    setting("too_large_status")
        .says(
            "The status of a refusal of a request that costs more than a policy ever admits, \
             such as 413.",
        )
        .of(Shape::Integer, |layer, at| {
            Some(layer.too_large_status(status(at)?))
        }),
    setting("refusal_body")
        .says("The body of a refusal: a word, or a text with its content type.")
        .of(
            Shape::Any(&[Shape::Word(&BODIES), Shape::Table(&BODY)]),
            |layer, at| Some(layer.refusal_body(body(at)?)),
        ),
    setting("retry_jitter")
        .says("The most that is added to Retry-After, in whole seconds.")
        .of(Shape::Duration, |layer, at| {
            let most = at.duration()?;
            if most.subsec_nanos() != 0 {
                return at.expected("a whole number of seconds");
            }
            Some(layer.retry_jitter(most))
        }),
    setting("without_headers_if_public")
        .says("Leaves the headers out of responses that shared caches may keep.")
        .flag(Builder::without_headers_if_public),
    setting("partition_keys")
        .says("Tells the partition key of draft 11, hashed with the secret of the file.")
        .of(Shape::Flag, |layer, at| {
            match (at.flag()?, &at.common().secret) {
            (false, _) => Some(layer),
            (true, Some(secret)) => Some(layer.partition_keys(secret)),
            (true, None) => at.refuse(
                "partition keys are hashed; give the file a secret, secret = { env = \"NAME\" }",
            ),
        }
        }),
    setting("expose_decision")
        .says("Puts the decision into the extensions of each allowed request.")
        .flag(Builder::expose_decision),
    setting("expose_decision_in_response")
        .says("Puts the decision into the extensions of each response, for outer layers.")
        .flag(Builder::expose_decision_in_response),
    setting("grpc")
        .says("How calls of gRPC are refused.")
        .of(Shape::Table(&GRPC), grpc),
]);

static BODY: Vocabulary<()> = Vocabulary(&[
    setting("content_type")
        .says("The value of Content-Type.")
        .together(Shape::Text),
    setting("text").says("The body.").together(Shape::Text),
    setting("function")
        .says("A body that code has registered, in place of the others.")
        .together(Shape::Text),
]);

static GRPC: Vocabulary<()> = Vocabulary(&[
    setting("calls")
        .says("Which requests are calls; the default is detected, by their content type.")
        .together(Shape::Word(&["detected", "always", "never"])),
    setting("message")
        .says("The message of a refusal, at most 512 bytes.")
        .together(Shape::Text),
    setting("without_quota_failure")
        .says("Leaves QuotaFailure out of the details.")
        .together(Shape::Flag),
    setting("retry_pushback")
        .says("Sends grpc-retry-pushback-ms, with a random time of at most this.")
        .together(Shape::Duration),
]);

/// Reads dialects, of which no two write the same header.
fn dialects(list: &[At<'_>]) -> Vec<Dialect> {
    let mut read: Vec<(Dialect, String)> = Vec::new();
    for at in list {
        let Some(dialect) = at.one_of(&DIALECTS) else {
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

static DIALECTS: [(&str, Dialect); 11] = [
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

type MakeBody = fn() -> RefusalBody;

static BODIES: [(&str, MakeBody); 4] = [
    ("problem", || RefusalBody::Problem),
    ("bare-problem", || RefusalBody::BareProblem),
    ("json", || RefusalBody::Json),
    ("text", || RefusalBody::Text),
];

#[cfg(not(feature = "tonic"))]
fn grpc(_: Builder, at: &At<'_>) -> Option<Builder> {
    at.refuse("calls of gRPC need feature `tonic` of tower-ratelimit")
}

#[cfg(feature = "tonic")]
fn grpc(layer: Builder, at: &At<'_>) -> Option<Builder> {
    type MakeGrpc = fn() -> Grpc;
    const CALLS: [(&str, MakeGrpc); 3] = [
        ("detected", Grpc::detected),
        ("always", Grpc::always),
        ("never", Grpc::never),
    ];
    let table = at.table(&GRPC)?;
    let calls = table.get("calls").and_then(|at| at.one_of(&CALLS));
    let mut grpc = calls.map_or_else(Grpc::detected, |calls| calls());
    if let Some(at) = table.get("message")
        && let Some(message) = at.text()
    {
        if message.len() > 512 {
            at.refuse::<()>("the message is longer than 512 bytes; make it shorter");
        }
        grpc = grpc.message(message);
    }
    if table.get("without_quota_failure").and_then(At::flag) == Some(true) {
        grpc = grpc.without_quota_failure();
    }
    if let Some(jitter) = table.get("retry_pushback").and_then(At::duration) {
        grpc = grpc.retry_pushback(jitter);
    }
    Some(layer.grpc(grpc))
}

fn body(at: &At<'_>) -> Option<RefusalBody> {
    if at.is_text() {
        return at.one_of(&BODIES).map(|body| body());
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
