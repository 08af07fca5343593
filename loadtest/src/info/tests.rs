use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::*;

fn info(fields: &[(&'static str, &str)]) -> RateLimitInfo {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        let value = HeaderValue::from_str(value).unwrap();
        headers.append(HeaderName::from_static(name), value);
    }
    RateLimitInfo::by(&headers)
}

fn named(text: &str) -> Name {
    Name {
        family: Family::Lists,
        text: text.to_owned(),
    }
}

#[test]
fn every_dialect_tells_the_limit_and_what_is_left() {
    for (fields, family, window) in [
        (
            vec![
                ("ratelimit-policy", "\"default\";q=100;w=60"),
                ("ratelimit", "\"default\";r=7;t=50"),
            ],
            Family::Lists,
            Some(60),
        ),
        (
            vec![
                ("ratelimit-policy", "default;q=100;w=60"),
                ("ratelimit", "default;a=7;w=50"),
            ],
            Family::Lists,
            Some(60),
        ),
        (
            vec![("ratelimit", "limit=100, remaining=7, reset=50")],
            Family::Draft07,
            None,
        ),
        (
            vec![
                ("ratelimit-limit", "100"),
                ("ratelimit-remaining", "7"),
                ("ratelimit-reset", "50"),
                ("ratelimit-policy", "100;w=60"),
            ],
            Family::Separate,
            Some(60),
        ),
        (
            vec![
                ("ratelimit-limit", "100, 100;w=60"),
                ("ratelimit-remaining", "7"),
            ],
            Family::Separate,
            None,
        ),
        (
            vec![
                ("x-ratelimit-limit", "100"),
                ("x-ratelimit-remaining", "7"),
                ("x-ratelimit-reset", "1800000050"),
            ],
            Family::XRateLimit,
            None,
        ),
        (
            vec![
                ("x-rate-limit-limit", "100"),
                ("x-rate-limit-remaining", "7.0"),
            ],
            Family::XRateLimitDashed,
            None,
        ),
    ] {
        let info = info(&fields);
        assert_eq!(info.malformed, [], "{fields:?}");
        assert_eq!(info.families, [family], "{fields:?}");
        let [policy] = info.policies.as_slice() else {
            panic!("{fields:?}: {info:?}");
        };
        assert_eq!((policy.quota, policy.window), (100, window), "{fields:?}");
        assert_eq!(info.remaining(&policy.name), Some(7), "{fields:?}");
    }
}

#[test]
fn several_policies_have_a_name_each() {
    let info = info(&[
        (
            "ratelimit-policy",
            "\"burst\";q=10;w=1, \"daily\";q=5000;w=86400",
        ),
        ("ratelimit", "\"burst\";r=7;t=1"),
        ("ratelimit", "\"daily\";r=100;t=36000"),
    ]);
    assert_eq!(info.policy(&named("daily")).unwrap().quota, 5000);
    assert_eq!(info.remaining(&named("burst")), Some(7));
    assert_eq!(info.remaining(&named("daily")), Some(100));
}

#[test]
fn a_policy_that_counts_bytes_is_left_out() {
    let info = info(&[(
        "ratelimit-policy",
        "\"a\";q=9;qu=\"content-bytes\", \"b\";q=8;qu=\"request\"",
    )]);
    assert_eq!(info.policies.len(), 1);
    assert_eq!(info.policies[0].name, named("b"));
}

#[test]
fn retry_after_is_seconds_or_a_date_by_the_servers_clock() {
    let wait = info(&[("retry-after", "7")]).retry_after.unwrap();
    assert_eq!(wait, Wait::seconds(7));
    let dated = info(&[
        ("date", "Fri, 15 Jan 2027 08:00:00 GMT"),
        ("retry-after", "Fri, 15 Jan 2027 08:00:50 GMT"),
    ]);
    assert_eq!(dated.retry_after.unwrap().length, Duration::from_secs(50));
    // A date without the server's clock disproves nothing.
    let undated = info(&[("retry-after", "Fri, 15 Jan 2027 08:00:50 GMT")]);
    assert_eq!(undated, RateLimitInfo::default());
}

#[test]
fn what_no_specification_can_read_is_malformed() {
    for (name, value) in [
        ("retry-after", "1.5"),
        ("retry-after", "-1"),
        ("retry-after", "soon"),
        ("ratelimit", "\"a\""),
        ("ratelimit", "\"a\";r=1.5"),
        ("ratelimit", "remaining=5"),
        ("ratelimit-policy", "\"a\";w=5"),
        ("ratelimit-policy", "10 per second"),
    ] {
        let info = info(&[(name, value)]);
        assert_eq!(info.malformed.len(), 1, "{name}: {value}: {info:?}");
    }
    // No specification defines these values.
    let info = info(&[
        ("x-ratelimit-remaining", "many"),
        ("x-ratelimit-reset", "6m0s"),
    ]);
    assert_eq!(info, RateLimitInfo::default());
}

#[test]
fn a_negative_remainder_is_read_as_it_is() {
    assert_eq!(
        info(&[("x-ratelimit-remaining", "-3")]).service_limits[0].remaining,
        -3
    );
}

#[test]
fn a_problem_says_the_status_of_its_response() {
    let mut headers = HeaderMap::new();
    assert_eq!(Problem::of(&headers, 429, b"{}"), Problem::Other);
    let kind = HeaderValue::from_static("application/problem+json; charset=utf-8");
    headers.insert("content-type", kind);
    assert_eq!(Problem::of(&headers, 429, b"{}"), Problem::Valid);
    assert_eq!(
        Problem::of(&headers, 429, br#"{"status":429}"#),
        Problem::Valid
    );
    for body in [&br#"{"status":503}"#[..], b"", b"slow down", b"[]"] {
        assert!(matches!(
            Problem::of(&headers, 429, body),
            Problem::Invalid(_)
        ));
    }
}
