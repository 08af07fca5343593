//! The answer for Envoy.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use http::Response;
use http::header::RETRY_AFTER;
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use tower_ratelimit::algorithm::Limit;
use tower_ratelimit::response::Responder;

use super::domain::Domain;
use super::question::{Demand, LimitStatus, Limited, Verdict};
use crate::envoy::messages::envoy::config::core::v3::HeaderValue;
use crate::envoy::messages::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::envoy::messages::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use crate::envoy::messages::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

/// The headers that Envoy adds to the response for the client. A refusal always has `Retry-After`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Headers {
    /// `RateLimit` and `RateLimit-Policy`.
    #[default]
    Draft,
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`, as `envoyproxy/ratelimit` sends them.
    Envoy,
}

/// Returns the answer where no limit holds for any of so many descriptors.
pub(super) fn without_limits(descriptors: usize) -> RateLimitResponse {
    let ok = DescriptorStatus {
        code: Code::Ok.into(),
        ..DescriptorStatus::default()
    };
    RateLimitResponse {
        overall_code: Code::Ok.into(),
        statuses: vec![ok; descriptors],
        ..RateLimitResponse::default()
    }
}

/// Returns the answer by a verdict. In shadow, a request `passes` against it.
pub(super) fn of(
    request: &RateLimitRequest,
    domain: &Domain,
    demands: &[Demand<'_>],
    verdict: &Verdict,
    headers: Headers,
    passes: bool,
) -> RateLimitResponse {
    let statuses = demands.iter().zip(&verdict.statuses);
    let statuses: Vec<_> = statuses
        .map(|(demand, status)| descriptor_status(demand, status.as_ref()))
        .collect();
    let code = if passes { Code::Ok } else { Code::OverLimit };
    let mut response_headers_to_add = match headers {
        Headers::Draft => draft_headers(verdict),
        Headers::Envoy => envoy_headers(&statuses),
    };
    if let Some(wait) = verdict.retry_after.filter(|_| !passes) {
        let name = RETRY_AFTER.as_str();
        response_headers_to_add.push(header(name, seconds(wait).to_string()));
    }
    let metadata = domain
        .tells_metadata
        .then(|| metadata(request, demands, verdict));
    RateLimitResponse {
        overall_code: code.into(),
        statuses,
        response_headers_to_add,
        dynamic_metadata: metadata,
    }
}

/// Returns whether a limit refuses, and the name of the first one that does.
pub(crate) fn limited(answer: &RateLimitResponse) -> (bool, Option<&str>) {
    let is_limited = answer.overall_code() == Code::OverLimit;
    let mut statuses = answer.statuses.iter();
    let over = statuses.find(|status| is_limited && status.code() == Code::OverLimit);
    let limit = over.and_then(|status| status.current_limit.as_ref());
    let name = limit.map(|limit| &*limit.name);
    (is_limited, name.filter(|name| !name.is_empty()))
}

fn descriptor_status(demand: &Demand<'_>, status: Option<&LimitStatus>) -> DescriptorStatus {
    let ok = DescriptorStatus {
        code: Code::Ok.into(),
        ..DescriptorStatus::default()
    };
    match (demand, status) {
        (Demand::Unlimited(_), _) => DescriptorStatus {
            limit_remaining: u32::MAX,
            ..ok
        },
        (Demand::Limited(limited), Some(status)) => {
            let is_over = !status.fits && !limited.rule.is_some_and(|rule| rule.is_shadow);
            DescriptorStatus {
                code: if is_over { Code::OverLimit } else { Code::Ok }.into(),
                current_limit: Some(current_limit(limited, status)),
                limit_remaining: status.remaining,
                // Envoy reads whole seconds.
                duration_until_reset: Some(prost_types::Duration {
                    seconds: i64::try_from(seconds(status.until_reset)).unwrap_or(i64::MAX),
                    nanos: 0,
                }),
            }
        }
        (Demand::Limited(_) | Demand::Nothing, _) => ok,
    }
}

/// Rounds up, so that the wait is long enough.
fn seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)
}

fn current_limit(limited: &Limited<'_>, status: &LimitStatus) -> RateLimit {
    let declared = limited.algorithm.limits();
    // That of a bucket is less than its capacity.
    let quota = declared.filter(|declared| declared.size() == status.limit);
    let quota = quota.map_or(status.limit, Limit::quota);
    let name = limited.rule.and_then(|rule| rule.name.clone());
    RateLimit {
        requests_per_unit: quota,
        unit: limited.unit.into(),
        name: name.unwrap_or_default(),
        unit_multiplier: limited.multiplier,
    }
}

fn header(name: &str, value: String) -> HeaderValue {
    HeaderValue {
        key: name.to_owned(),
        value,
        raw_value: Vec::new(),
    }
}

fn draft_headers(verdict: &Verdict) -> Vec<HeaderValue> {
    static RESPONDER: LazyLock<Responder> = LazyLock::new(Responder::default);
    let Some(decision) = &verdict.decision else {
        return Vec::new();
    };
    let mut response = Response::new(());
    RESPONDER.add_headers(decision, &mut response);
    let fields = response.headers().iter();
    let fields = fields.filter(|(name, _)| *name != RETRY_AFTER);
    let fields = fields
        .filter_map(|(name, value)| Some(header(name.as_str(), value.to_str().ok()?.to_owned())));
    fields.collect()
}

/// Returns the numbers of the last limit that is reached, or else of the one with the least left.
fn envoy_headers(statuses: &[DescriptorStatus]) -> Vec<HeaderValue> {
    let limited = || {
        statuses
            .iter()
            .filter(|status| status.current_limit.is_some())
    };
    let over = limited().rfind(|status| status.code() == Code::OverLimit);
    let shown = over.or_else(|| limited().min_by_key(|status| status.limit_remaining));
    let Some(DescriptorStatus {
        current_limit: Some(limit),
        limit_remaining,
        duration_until_reset: Some(reset),
        ..
    }) = shown
    else {
        return Vec::new();
    };
    vec![
        header("RateLimit-Limit", limit.requests_per_unit.to_string()),
        header("RateLimit-Remaining", limit_remaining.to_string()),
        header("RateLimit-Reset", reset.seconds.to_string()),
    ]
}

fn text(text: impl Into<String>) -> Value {
    Value {
        kind: Some(Kind::StringValue(text.into())),
    }
}

fn number(number: u64) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "a number of JSON")]
    let number = number as f64;
    Value {
        kind: Some(Kind::NumberValue(number)),
    }
}

fn list(values: Vec<Value>) -> Value {
    Value {
        kind: Some(Kind::ListValue(ListValue { values })),
    }
}

fn map(fields: BTreeMap<String, Value>) -> Value {
    Value {
        kind: Some(Kind::StructValue(Struct { fields })),
    }
}

/// Returns the descriptors of the request, and the metadata of the limits that have passed.
fn metadata(request: &RateLimitRequest, demands: &[Demand<'_>], verdict: &Verdict) -> Struct {
    let mut fields = BTreeMap::from([
        ("domain".to_owned(), text(&request.domain)),
        (
            "descriptors".to_owned(),
            list(request.descriptors.iter().map(described).collect()),
        ),
    ]);
    if request.hits_addend > 0 {
        fields.insert("hitsAddend".to_owned(), number(request.hits_addend.into()));
    }
    let mut merged = Struct::default();
    for (demand, status) in demands.iter().zip(&verdict.statuses) {
        let passes = status.is_none_or(|status| status.fits);
        if let Some(metadata) = demand.rule().and_then(|rule| rule.metadata.as_ref())
            && passes
        {
            merge(&mut merged, metadata);
        }
    }
    if !merged.fields.is_empty() {
        fields.insert("metadata".to_owned(), map(merged.fields));
    }
    Struct { fields }
}

fn described(descriptor: &RateLimitDescriptor) -> Value {
    let entries = descriptor.entries.iter();
    let entries = entries.map(|entry| text(format!("{}={}", entry.key, entry.text())));
    let mut fields = BTreeMap::from([("entries".to_owned(), list(entries.collect()))]);
    if let Some(limit) = &descriptor.limit {
        let mut of_limit = BTreeMap::from([
            (
                "requestsPerUnit".to_owned(),
                number(limit.requests_per_unit.into()),
            ),
            ("unit".to_owned(), text(limit.unit().as_str_name())),
        ]);
        if let Some(units) = limit.unit_multiplier {
            of_limit.insert("unitMultiplier".to_owned(), number(units.into()));
        }
        fields.insert("limit".to_owned(), map(of_limit));
    }
    if let Some(hits) = descriptor.hits_addend {
        fields.insert("hitsAddend".to_owned(), number(hits));
    }
    map(fields)
}

/// Adds what is not there yet.
fn merge(into: &mut Struct, from: &Struct) {
    for (name, value) in &from.fields {
        match into.fields.get_mut(name) {
            None => {
                into.fields.insert(name.clone(), value.clone());
            }
            Some(Value {
                kind: Some(Kind::StructValue(into)),
            }) => {
                if let Some(Kind::StructValue(from)) = &value.kind {
                    merge(into, from);
                }
            }
            Some(_) => {}
        }
    }
}
