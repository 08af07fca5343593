//! Policy names as strings of a structured field and of JSON.

use tower_ratelimit::{ConfigError, FixedWindow, Limiter, Policy, RateLimitLayer, TokenBucket};

use crate::exchange::{ask, get, global, limited_hello};
use crate::structured::list;

const LONGEST: &str = "0123456789012345678901234567890123456789012345678901234567890123";

#[test]
fn any_printable_name_is_escaped_so_that_others_read_it_as_it_was() {
    let printable: String = (' '..='~').collect();
    let names = [
        "default",
        r#"a "quoted" name"#,
        r"back\slash",
        r#"\""#,
        " spaces ",
        "a,b;c=1",
        "?1",
        "%41",
        LONGEST,
        &printable[..48],
        &printable[48..],
    ];
    let bucket = TokenBucket::per_second(1);
    let (_, service) = limited_hello(names.map(|name| global(name, bucket)));

    let answer = ask(&service, get());
    for (field, numbers) in [("ratelimit-policy", ["q", "w"]), ("ratelimit", ["r", "t"])] {
        let members = list(answer.field(field).unwrap());
        let read: Vec<_> = members.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(read, names, "{field}");
        for member in members {
            for number in numbers {
                assert!(member.number(number).is_some(), "{member:?}");
            }
        }
    }

    let answer = ask(&service, get());
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(problem["violated-policies"], serde_json::json!(names));
    let members = list(answer.field("ratelimit").unwrap());
    let read: Vec<_> = members.iter().map(|member| member.name.as_str()).collect();
    assert_eq!(read, names);
}

/// Returns the error of a layer and of a limiter about these names.
#[track_caller]
fn error_of(names: &[&str]) -> ConfigError {
    let algorithm = FixedWindow::per_day(1);
    let mut layer = RateLimitLayer::builder();
    let mut limiter = Limiter::builder();
    for name in names {
        layer = layer.policy(global(name, algorithm));
        limiter = limiter.policy(Policy::new(*name, algorithm));
    }
    let error = layer.build().expect_err("a bad name was taken");
    assert_eq!(limiter.build().unwrap_err(), error);
    error
}

#[test]
fn a_name_that_no_field_can_hold_is_refused_with_field_value_and_remedy() {
    let too_long = format!("{LONGEST}4");
    for (name, value) in [
        ("", r#""""#),
        ("café", r#""café""#),
        ("naïve\u{85}", r#""naïve\u{85}""#),
        ("tab\there", r#""tab\there""#),
        ("line\r\nset-cookie: a=b", r#""line\r\nset-cookie: a=b""#),
        ("nul\0", r#""nul\0""#),
        ("del\x7f", r#""del\u{7f}""#),
        (&too_long, r#""0123456789012345678901234567890123456789…""#),
    ] {
        let error = error_of(&[name]);
        assert_eq!(error.field(), "name");
        assert_eq!(error.value(), value);
        assert_eq!(
            error.remedy(),
            "name a policy with 1 to 64 printable characters of ASCII"
        );
        assert!(error.to_string().contains(value), "{error}");
    }
}

#[test]
fn names_that_differ_only_in_case_are_refused_wherever_they_stand() {
    for names in [
        &["api", "api"][..],
        &["api", "API"],
        &["Daily", "other", "dAILY"],
    ] {
        let error = error_of(names);
        assert_eq!(error.field(), "name");
        assert_eq!(error.value(), format!("{:?}", names.last().unwrap()));
        assert_eq!(
            error.remedy(),
            "give each policy a name of its own; case is ignored"
        );
    }
}

#[test]
fn a_layer_without_a_policy_is_refused() {
    let error = error_of(&[]);
    assert_eq!(error.field(), "policies");
    assert_eq!(error.value(), "empty");
    assert!(error.remedy().contains(".policy("), "{error}");
}
